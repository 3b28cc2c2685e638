//! What is wrong with a recording on disk.

use std::io;
use std::path::PathBuf;

/// What is wrong with a recording on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried, such as `write`.
        what: &'static str,
        /// Of which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is something already.
    #[error("{}: there is something already; choose another name for the recording", .0.display())]
    Occupied(PathBuf),
    /// A recording that was broken off.
    #[error("{}: a recording that was broken off is there; `cellbed-recorder pack` it, and choose another name", .0.display())]
    Unpacked(PathBuf),
    /// A recorder still writes it.
    #[error("{}: it is still being recorded; wait for its end, or stop that recorder with Ctrl-C", .0.display())]
    BeingWritten(PathBuf),
    /// Nothing to pack.
    #[error("{}: there is no journal to pack; {}", .0.display(), if .0.join("recording.json").exists() { "it is packed already" } else { "it is no recording" })]
    NoJournal(PathBuf),
    /// Not a journal.
    #[error("{}: this is no journal of this version of the recorder", .0.display())]
    Foreign(PathBuf),
    /// A journal that ends before anything was sent.
    #[error("{}: nothing was recorded", .0.display())]
    Empty(PathBuf),
    /// The tables cannot be made.
    #[error("cannot write {}: {source}", path.display())]
    Parquet {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: parquet::errors::ParquetError,
    },
}
