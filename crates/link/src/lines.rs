//! Text files of lines, read in small pieces.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// Number of bytes read at a time.
const BUFFER: usize = 1 << 16;
/// Maximum length of an offending line in an error.
const EXCERPT: usize = 32;

/// Error of a refused recording file. The text has the line and the reason, but not the file, because parsers read a
/// stream. [`in_file`](Self::in_file) has all three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    line: Option<usize>,
    reason: String,
}

impl TraceError {
    /// Return the error of a line, counted from 1.
    pub fn at(line: usize, reason: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            reason: reason.into(),
        }
    }

    /// Return an error of the whole file.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self {
            line: None,
            reason: reason.into(),
        }
    }

    /// Return the number of the offending line, from 1; `None` for an error of the whole file.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// Return the error in the form of compilers: `FILE:LINE: reason`, or `FILE: reason` for the whole file.
    pub fn in_file(&self, file: impl fmt::Display) -> String {
        match self.line {
            Some(line) => format!("{file}:{line}: {}", self.reason),
            None => format!("{file}: {}", self.reason),
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TraceError {}

/// Pass every line to `take` with its number, from 1, without its line end (LF or CR LF). A file without line ends is
/// refused after `longest` bytes.
pub fn each_line<E: From<TraceError>>(
    reader: impl Read,
    longest: usize,
    mut take: impl FnMut(usize, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = BufReader::with_capacity(BUFFER, reader);
    let mut split = Vec::new(); // the start of a line that two buffers share
    let mut line = 1;
    let too_long = |line| TraceError::at(line, format!("the line is longer than {longest} bytes"));
    let mut hand = |text: &[u8], line: usize| {
        if text.len() > longest {
            return Err(too_long(line).into());
        }
        take(line, text.strip_suffix(b"\r").unwrap_or(text))
    };
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(source) if source.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => {
                let reason = format!("the rest of the file could not be read: {source}");
                return Err(TraceError::at(line, reason).into());
            }
        };
        if buffer.is_empty() {
            return hand(&split, line);
        }
        let mut rest = buffer;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            if split.is_empty() {
                hand(&rest[..end], line)?;
            } else {
                split.extend_from_slice(&rest[..end]);
                hand(&split, line)?;
                split.clear();
            }
            rest = &rest[end + 1..];
            line += 1;
        }
        split.extend_from_slice(rest);
        if split.len() > longest {
            return Err(too_long(line).into());
        }
        let read = buffer.len();
        reader.consume(read);
    }
}

/// Return the start of a line that looks like numbers, else `…`: the content of any other file must not be quoted.
pub(crate) fn excerpt(line: &[u8]) -> String {
    let shown = &line[..line.len().min(EXCERPT)];
    let numeric = |byte: &u8| byte.is_ascii_digit() || b" \t\r+-.,_eExX".contains(byte);
    if !shown.iter().all(numeric) {
        return "…".to_owned();
    }
    let more = if shown.len() < line.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}
