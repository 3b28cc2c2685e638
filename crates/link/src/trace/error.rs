//! Why a trace was refused.

use std::{fmt, io};

use thiserror::Error;

/// The longest line in bytes, comments included. A file without line ends is refused after this much.
pub(super) const LONGEST_LINE: usize = 4096;

/// Why a trace was refused. The text states the problem and the line, but not in which file: the parser sees a
/// stream. [`TraceError::in_file`] puts the two together.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A line that is not part of a trace.
    #[error("line {line}: {fault}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Fault of the trace.
        fault: LineFault,
    },
    /// The source failed.
    #[error("line {line}: the rest of the trace could not be read: {source}")]
    Read {
        /// Number of the line that was being read, from 1.
        line: usize,
        /// The failure.
        source: io::Error,
    },
    /// No line holds a timestamp.
    #[error("the trace holds no timestamp; a trace needs at least one, in milliseconds, above 0")]
    Empty,
    /// Only zeros.
    #[error(
        "every timestamp of the trace is 0; the last one is the length of the trace and must be above 0"
    )]
    AllZero,
}

/// Fault of a line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineFault {
    /// A number with a decimal point.
    #[error("`{0}` is not a whole number; timestamps are whole milliseconds")]
    Decimal(String),
    /// A number with a sign.
    #[error("`{0}` has a sign; timestamps count up from 0 and are written without one")]
    Sign(String),
    /// Blanks before or after the number.
    #[error("`{0}` has blanks beside the number; a line holds one number and nothing else")]
    Blanks(String),
    /// Something else.
    #[error(
        "`{0}` is not a timestamp; a line holds one whole number of milliseconds and nothing else"
    )]
    NotANumber(String),
    /// An old Macintosh line end, or a stray one.
    #[error("`{0}` holds a carriage return; lines end with a line feed or with both")]
    CarriageReturn(String),
    /// A number beyond the largest timestamp.
    #[error("`{0}` is too large; a trace lasts at most {max} ms (49 days)", max = u32::MAX)]
    TooLarge(String),
    /// A timestamp before the one above it.
    #[error("{value} ms comes after {previous} ms; timestamps never decrease")]
    Decreasing {
        /// The timestamp in ms.
        value: u32,
        /// The largest one before it, in ms.
        previous: u32,
    },
    /// A line beyond all measure.
    #[error(
        "the line is longer than {LONGEST_LINE} bytes; a line holds one whole number of milliseconds"
    )]
    TooLong,
}

impl TraceError {
    /// Number of the offending line, from 1; `None` where the fault is that of the whole trace.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Line { line, .. } | Self::Read { line, .. } => Some(*line),
            Self::Empty | Self::AllZero => None,
        }
    }

    /// The error as compilers print theirs: `FILE:LINE: reason`, or `FILE: reason` for one of the whole trace.
    pub fn in_file(&self, file: impl fmt::Display) -> String {
        match self {
            Self::Line { line, fault } => format!("{file}:{line}: {fault}"),
            Self::Read { line, source } => {
                format!("{file}:{line}: the rest of the trace could not be read: {source}")
            }
            Self::Empty | Self::AllZero => format!("{file}: {self}"),
        }
    }
}
