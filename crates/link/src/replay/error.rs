//! Why a file of a CellReplay recording was refused.

use std::{fmt, io};

use thiserror::Error;

/// The longest line in bytes: a train of 10,000 packets.
pub(super) const LONGEST_LINE: usize = 1 << 17;

/// Why a file of a recording was refused. The text states the problem and the line, but not in which file: the parser
/// sees a stream. [`RecordingError::in_file`] puts the two together.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// A line that is not part of such a file.
    #[error("line {line}: {fault}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Fault of the recording.
        fault: RecordingFault,
    },
    /// The source failed.
    #[error("line {line}: the rest of the file could not be read: {source}")]
    Read {
        /// Number of the line that was being read, from 1.
        line: usize,
        /// The failure.
        source: io::Error,
    },
    /// No line holds anything.
    #[error("the file is empty; it needs at least one line such as `{example}`")]
    Empty {
        /// Example of a line.
        example: &'static str,
    },
}

/// Fault of a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordingFault {
    /// Something else than a number of milliseconds.
    #[error("`{text}` is not a {what}; write a number of ms with up to 6 decimals, from 0 on")]
    NotASpan {
        /// Text found.
        text: String,
        /// Expected content.
        what: &'static str,
    },
    /// Something else than a number of milliseconds with a sign.
    #[error(
        "`{0}` is not a latency offset; write a number of ms with up to 6 decimals, such as -6.8"
    )]
    NotAShift(String),
    /// Something else than a packet size.
    #[error("`{0}` is not a packet size; write a whole number of bytes from 1 to 65535")]
    NotASize(String),
    /// A row without a base delay.
    #[error("`{0}` lacks the base delay; a row is TIME BASE_DELAY PDO PDO …, all in ms")]
    NoBaseDelay(String),
    /// Anything but two columns.
    #[error("`{0}` is malformed; a line is SIZE OFFSET, in bytes and in ms")]
    NotAPair(String),
    /// A row before the one above it.
    #[error("`{0}` comes before the row above it; the times of rows never decrease")]
    Decreasing(String),
    /// A size that is not larger than the one above it.
    #[error("{0} bytes do not exceed the size above; sizes increase")]
    SizesDoNotIncrease(u64),
    /// A line beyond all measure.
    #[error("the line is longer than {LONGEST_LINE} bytes")]
    TooLong,
}

impl RecordingError {
    /// Number of the offending line, from 1; `None` where the fault is that of the whole file.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Line { line, .. } | Self::Read { line, .. } => Some(*line),
            Self::Empty { .. } => None,
        }
    }

    /// The error as compilers print theirs: `FILE:LINE: reason`, or `FILE: reason` for one of the whole file.
    pub fn in_file(&self, file: impl fmt::Display) -> String {
        match self {
            Self::Line { line, fault } => format!("{file}:{line}: {fault}"),
            Self::Read { line, source } => {
                format!("{file}:{line}: the rest of the file could not be read: {source}")
            }
            Self::Empty { .. } => format!("{file}: {self}"),
        }
    }
}
