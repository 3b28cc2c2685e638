//! A text file of lines, read in small pieces.

use std::io::{self, BufRead, BufReader, Read};

/// Bytes read at a time.
const BUFFER: usize = 1 << 16;
/// Maximum length of an offending line in an error.
const EXCERPT: usize = 32;

/// Why reading stopped, with the number of the line, from 1.
pub enum Stopped<F> {
    /// The source failed.
    Read {
        /// The line that was being read.
        line: usize,
        /// The failure.
        source: io::Error,
    },
    /// A line beyond all measure.
    TooLong {
        /// The line.
        line: usize,
    },
    /// Error that the consumer of lines found.
    Fault {
        /// The line.
        line: usize,
        /// Error of the line.
        fault: F,
    },
}

/// Hands every line to `take`, without its line feed and a carriage return before that. A file without line ends is given up
/// after `longest` bytes.
pub fn each_line<F>(
    reader: impl Read,
    longest: usize,
    mut take: impl FnMut(&[u8]) -> Result<(), F>,
) -> Result<(), Stopped<F>> {
    let mut reader = BufReader::with_capacity(BUFFER, reader);
    let mut split = Vec::new(); // the start of a line that two buffers share
    let mut line = 1;
    let mut hand = |text: &[u8], line: usize| {
        if text.len() > longest {
            return Err(Stopped::TooLong { line });
        }
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        take(text).map_err(|fault| Stopped::Fault { line, fault })
    };
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(source) if source.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(Stopped::Read { line, source }),
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
            return Err(Stopped::TooLong { line });
        }
        let read = buffer.len();
        reader.consume(read);
    }
}

/// The start of a line that looks like numbers, else `…`: the file of someone who names any path must not be quoted.
pub(crate) fn excerpt(line: &[u8]) -> String {
    let shown = &line[..line.len().min(EXCERPT)];
    let numeric = |byte: &u8| byte.is_ascii_digit() || b" \t\r+-.,_eExX".contains(byte);
    if !shown.iter().all(numeric) {
        return "…".to_owned();
    }
    let more = if shown.len() < line.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}
