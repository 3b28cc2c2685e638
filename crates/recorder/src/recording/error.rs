//! Errors of a recording on disk.

use std::io;
use std::path::PathBuf;

/// Error of a recording on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// Attempted operation, such as `write`.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is something already.
    #[error("{}: already exists; choose another name for the recording", .0.display())]
    Occupied(PathBuf),
    /// A recording that was broken off.
    #[error("{}: contains an interrupted recording; finish it with `cellbed-recorder pack` and choose another name", .0.display())]
    Unpacked(PathBuf),
    /// A recorder still writes it.
    #[error("{}: still being recorded; wait until it ends, or stop that recorder with Ctrl-C", .0.display())]
    BeingWritten(PathBuf),
    /// Nothing to pack.
    #[error("{}: no journal to pack; {}", .0.display(), if .0.join("recording.json").exists() { "already packed" } else { "not a recording" })]
    NoJournal(PathBuf),
    /// Not a journal.
    #[error("{}: not a journal of this version of the recorder", .0.display())]
    Foreign(PathBuf),
    /// A journal that ends before anything was sent.
    #[error("{}: nothing was recorded", .0.display())]
    Empty(PathBuf),
    /// The tables cannot be made.
    #[error("cannot write {}: {source}", path.display())]
    Parquet {
        /// Path of the file.
        path: PathBuf,
        /// Why not.
        source: parquet::errors::ParquetError,
    },
}
