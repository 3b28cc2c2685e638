//! Reading a trace, one line at a time.

use std::io::Read;

use super::Trace;
use crate::lines::{TraceError, each_line, excerpt};

/// The longest line in bytes, comments included.
const LONGEST_LINE: usize = 4096;

impl Trace {
    /// Reads a trace from a file, a pipe or memory, in small pieces.
    ///
    /// One decimal integer a line: milliseconds since the start, never decreasing. A repeated value is several
    /// opportunities in that millisecond; 0 is legal. Blank lines, lines that start with `#`, both kinds of line end
    /// and a missing last one are accepted, anything else is an error that names the line.
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        let mut builder = Builder::default();
        each_timestamp(reader, |number, read| {
            read.and_then(|value| builder.push(value))
                .map_err(|reason| TraceError::at(number, reason))
        })?;
        builder.finish()
    }

    /// Returns a trace of the given timestamps in ms, under the same rules as a file; an error counts them as its
    /// lines.
    pub fn from_millis(millis: impl IntoIterator<Item = u64>) -> Result<Self, TraceError> {
        let mut builder = Builder::default();
        for (index, value) in millis.into_iter().enumerate() {
            u32::try_from(value)
                .map_err(|_| not_a_timestamp(&value.to_string()))
                .and_then(|value| builder.push(value))
                .map_err(|reason| TraceError::at(index + 1, reason))?;
        }
        builder.finish()
    }
}

/// Hands the timestamp of each line, in ms and in any order, or why it has none, to `take` with the number of the line:
/// for traces that are not to be held in memory. `take` can end it with an error.
pub fn each_timestamp<E: From<TraceError>>(
    reader: impl Read,
    mut take: impl FnMut(usize, Result<u32, String>) -> Result<(), E>,
) -> Result<(), E> {
    each_line(reader, LONGEST_LINE, |number, line| {
        match timestamp(line).transpose() {
            Some(read) => take(number, read),
            None => Ok(()),
        }
    })
}

#[derive(Default)]
struct Builder {
    millis: Vec<u32>,
    cumulative: Vec<u64>,
    count: u64,
}

impl Builder {
    /// Adds a timestamp. Errors if it is before the last one.
    fn push(&mut self, value: u32) -> Result<(), String> {
        self.count += 1;
        match self.millis.last() {
            Some(&last) if value < last => {
                return Err(format!(
                    "{value} ms comes after {last} ms; timestamps never decrease"
                ));
            }
            Some(&last) if value == last => {
                self.cumulative.pop();
            }
            _ => self.millis.push(value),
        }
        self.cumulative.push(self.count);
        Ok(())
    }

    fn finish(mut self) -> Result<Trace, TraceError> {
        match self.millis.last() {
            None => {
                return Err(TraceError::whole(
                    "the trace holds no timestamp; a trace needs at least one, in milliseconds, above 0",
                ));
            }
            Some(0) => {
                return Err(TraceError::whole(
                    "every timestamp of the trace is 0; the last one is the length of the trace and must be above 0",
                ));
            }
            Some(_) => {}
        }
        self.millis.shrink_to_fit();
        self.cumulative.shrink_to_fit();
        Ok(Trace {
            millis: self.millis,
            cumulative: self.cumulative,
        })
    }
}

/// Any number of so many digits is below 2³²: no check at each digit.
const SAFE_DIGITS: usize = 9;

/// Returns the timestamp that a line (without its line feed) holds; `None` for a blank line or a comment.
fn timestamp(line: &[u8]) -> Result<Option<u32>, String> {
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    if line.len() <= SAFE_DIGITS {
        let mut value = 0_u32;
        let mut odd = false;
        for byte in line {
            let digit = byte.wrapping_sub(b'0');
            odd |= digit > 9;
            value = value * 10 + u32::from(digit.min(9));
        }
        if !odd {
            return Ok(Some(value));
        }
    }
    let digits = line.iter().all(u8::is_ascii_digit);
    match std::str::from_utf8(line).map(str::parse) {
        Ok(Ok(value)) if digits => Ok(Some(value)),
        Ok(_) if line.trim_ascii().is_empty() && !line.contains(&b'\r') => Ok(None),
        _ => Err(not_a_timestamp(&excerpt(line))),
    }
}

#[cold]
fn not_a_timestamp(shown: &str) -> String {
    let most = u32::MAX;
    format!(
        "`{shown}` is not a timestamp; a line holds one whole number of milliseconds, at most {most} (49 days), without a sign, a \
         decimal point or blanks"
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refusal(text: &[u8]) -> String {
        let error = Trace::parse(text).expect_err("this is no trace");
        error.in_file("x")
    }

    #[test]
    fn a_refusal_names_line_and_reason() {
        for (text, line, shown) in [
            (&b"1\n2.5\n"[..], 2, "2.5"),
            (b"# head\n\n-3\n", 3, "-3"),
            (b"1\n4294967296", 2, "4294967296"),
            (b"1\n2 x\n", 2, "2 x"),
            (b"1\n2,\n", 2, "2,"),
            (b"0x10\n", 1, "0x10"),
            (b"\x7fELF\x02\x00\n", 1, "…"),
            (b"root:x:0:0:root:/root:/bin/bash\n", 1, "…"),
            (b"1\n 2\n", 2, " 2"),
            (b"1\r2\r3\r", 1, "1\\r2\\r3"),
        ] {
            let start = format!("x:{line}: `{shown}` is not a timestamp; ");
            let refusal = refusal(text);
            assert!(refusal.starts_with(&start), "{refusal}");
        }
        assert_eq!(
            refusal(b"5\n6\n5\n"),
            "x:3: 5 ms comes after 6 ms; timestamps never decrease"
        );
    }

    #[test]
    fn a_trace_without_length_is_refused() {
        let empty =
            "x: the trace holds no timestamp; a trace needs at least one, in milliseconds, above 0";
        assert_eq!(refusal(b""), empty);
        assert_eq!(refusal(b"\n# nothing\n"), empty);
        assert_eq!(
            refusal(b"0\n0\n"),
            "x: every timestamp of the trace is 0; the last one is the length of the trace and must be above 0"
        );
    }

    #[test]
    fn a_line_without_end_is_given_up_early() {
        let error = Trace::parse(io::repeat(b'7')).unwrap_err();
        assert_eq!(error.line(), Some(1));
        assert!(error.to_string().contains("longer than 4096 bytes"));
        let error = Trace::parse(io::Cursor::new("5\n#").chain(io::repeat(b'#'))).unwrap_err();
        assert_eq!(error.line(), Some(2));
        let longest = format!("#{}\n5\n", "-".repeat(LONGEST_LINE - 1));
        assert!(Trace::parse(longest.as_bytes()).is_ok());
    }

    #[test]
    fn a_long_line_is_shown_by_its_start() {
        let error = refusal("x".repeat(100).as_bytes());
        assert!(error.contains(&format!("`{}…`", "x".repeat(32))), "{error}");
    }

    #[test]
    fn a_source_that_fails_is_an_error_with_its_line() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        let error = Trace::parse(io::Cursor::new("1\n2\n").chain(Broken)).unwrap_err();
        let reason = "the rest of the file could not be read: the disk is gone";
        assert_eq!(error.in_file("x"), format!("x:3: {reason}"));
        assert_eq!(error.to_string(), format!("line 3: {reason}"));
    }
}
