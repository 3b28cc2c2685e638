//! Errors of imports.

use std::path::Path;
use std::{fmt, io};

use cellbed_link::TraceError;
use thiserror::Error;

/// The result of reading a recording.
pub type Result<T> = std::result::Result<T, ImportError>;

/// Maximum length of quoted text in an error.
const EXCERPT: usize = 40;

/// Reason for refusing a recording. [`ImportError::in_file`] has the whole sentence.
#[derive(Debug, Error)]
pub enum ImportError {
    /// It is not of the expected format, or has invalid values.
    #[error("{0}")]
    Malformed(String),
    /// It is not a trace of delivery opportunities.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The source failed, or the progress callback ended it.
    #[error("the rest could not be read: {0}")]
    Read(#[from] io::Error),
    /// The series could not be written.
    #[error("the series could not be written: {0}")]
    Write(io::Error),
}

impl ImportError {
    /// Return the error in the form of compilers: `FILE:LINE: reason`, or `FILE: reason` without a line.
    pub fn in_file(&self, file: &Path) -> String {
        let file = file.display();
        match self {
            Self::Trace(error) => error.in_file(file),
            Self::Malformed(_) | Self::Read(_) => format!("{file}: {self}"),
            Self::Write(_) => self.to_string(),
        }
    }
}

/// Return an error with the problem and the expected form.
pub(crate) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(ImportError::Malformed(reason.into()))
}

/// Return the start of a text, in quotes and escaped.
pub(crate) fn quote(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let start = &text[..text.len().min(EXCERPT)];
    let more = if start.len() < text.len() { "…" } else { "" };
    match std::str::from_utf8(start) {
        Ok(text) if !text.contains(char::is_control) => format!("`{text}{more}`"),
        _ => format!("`{}{more}`", start.escape_ascii()),
    }
}

/// Return a number with the noun's singular or plural.
pub(crate) fn format_count(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{number} {noun}")
}

/// Omitted parts of a file: their number, and place and reason of the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    pub count: u64,
    pub first: String,
}

impl LeftOut {
    pub(crate) fn add(&mut self, place: impl fmt::Display, reason: &str) {
        if self.count == 0 {
            self.first = format!("{place}: {reason}");
        }
        self.count += 1;
    }

    pub(crate) fn add_packet(&mut self, number: u64, reason: &str) {
        self.add(format_args!("packet {number}"), reason);
    }

    /// Return a sentence for users; one, many: the noun and its verb.
    pub(crate) fn note(&self, one: &str, many: &str) -> Option<String> {
        let parts = format_count(self.count, one, many);
        (self.count > 0).then(|| format!("{parts} left out: {}", self.first))
    }
}

/// A span, displayed in seconds with at most three decimals.
pub(crate) struct Seconds(pub i64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0 / 1_000_000;
        let text = format!("{}.{:03}", millis / 1000, (millis % 1000).abs());
        let text = text.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{text} s")
    }
}
