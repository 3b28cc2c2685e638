//! Reading a trace, one line at a time.

use std::io::Read;

use super::error::LONGEST_LINE;
use super::{LineFault, Trace, TraceError};
use crate::lines::{Stopped, each_line, excerpt};

impl Trace {
    /// Reads a trace from a file, a pipe or memory, in small pieces.
    ///
    /// One decimal integer a line: milliseconds since the start, never decreasing. A repeated value is several
    /// opportunities in that millisecond; 0 is legal. Blank lines, lines that start with `#`, both kinds of line end
    /// and a missing last one are accepted, anything else is an error that names the line.
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        let mut builder = Builder::default();
        each_timestamp(reader, |value| {
            builder.push(value);
            Ok::<(), TraceError>(())
        })?;
        builder.finish()
    }

    /// A trace of the given timestamps in ms, under the same rules as a file; an error counts them as its lines.
    pub fn from_millis(millis: impl IntoIterator<Item = u64>) -> Result<Self, TraceError> {
        let mut builder = Builder::default();
        for (index, value) in millis.into_iter().enumerate() {
            u32::try_from(value)
                .map_err(|_| LineFault::TooLarge(value.to_string()))
                .and_then(|value| {
                    in_order(builder.millis.last().copied(), value)?;
                    builder.push(value);
                    Ok(())
                })
                .map_err(|fault| TraceError::Line {
                    line: index + 1,
                    fault,
                })?;
        }
        builder.finish()
    }
}

/// Hands every timestamp of a trace, in ms, to `take` as it is read, and returns the last one: for traces that are not to be
/// held in memory. The rules are those of [`Trace::parse`]; `take` can end it with an error.
pub fn each_timestamp<E: From<TraceError>>(
    reader: impl Read,
    mut take: impl FnMut(u32) -> Result<(), E>,
) -> Result<u32, E> {
    let mut last = None;
    let read = each_line(reader, LONGEST_LINE, |line| {
        let Some(value) = timestamp(line).map_err(Ended::Fault)? else {
            return Ok(());
        };
        in_order(last, value).map_err(Ended::Fault)?;
        last = Some(value);
        take(value).map_err(Ended::Taker)
    });
    read.map_err(|stopped| match stopped {
        Stopped::Read { line, source } => TraceError::Read { line, source }.into(),
        Stopped::TooLong { line } => TraceError::Line {
            line,
            fault: LineFault::TooLong,
        }
        .into(),
        Stopped::Fault {
            line,
            fault: Ended::Fault(fault),
        } => TraceError::Line { line, fault }.into(),
        Stopped::Fault {
            fault: Ended::Taker(error),
            ..
        } => error,
    })?;
    Ok(has_length(last)?)
}

/// Why the reading of lines ended early.
enum Ended<E> {
    Fault(LineFault),
    Taker(E),
}

fn in_order(last: Option<u32>, value: u32) -> Result<(), LineFault> {
    match last {
        Some(previous) if value < previous => Err(LineFault::Decreasing { value, previous }),
        _ => Ok(()),
    }
}

fn has_length(last: Option<u32>) -> Result<u32, TraceError> {
    match last {
        None => Err(TraceError::Empty),
        Some(0) => Err(TraceError::AllZero),
        Some(last) => Ok(last),
    }
}

#[derive(Default)]
struct Builder {
    millis: Vec<u32>,
    cumulative: Vec<u64>,
    count: u64,
}

impl Builder {
    /// The next timestamp, which is not before the last one.
    fn push(&mut self, value: u32) {
        self.count += 1;
        if self.millis.last() == Some(&value) {
            if let Some(last) = self.cumulative.last_mut() {
                *last = self.count;
            }
        } else {
            self.millis.push(value);
            self.cumulative.push(self.count);
        }
    }

    fn finish(mut self) -> Result<Trace, TraceError> {
        has_length(self.millis.last().copied())?;
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

/// The timestamp that a line (without its line feed) holds; `None` for a blank line or a comment.
fn timestamp(line: &[u8]) -> Result<Option<u32>, LineFault> {
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
    let mut value: u32 = 0;
    for &byte in line {
        if !byte.is_ascii_digit() {
            return fault(line);
        }
        value = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u32::from(byte - b'0')))
            .ok_or(())
            .or_else(|()| fault(line).map(|_| 0))?;
    }
    Ok(Some(value))
}

/// Says why a line is no timestamp; lines of blanks alone turn out to be fine.
#[cold]
fn fault(line: &[u8]) -> Result<Option<u32>, LineFault> {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_decimal = |text: &[u8]| {
        text.contains(&b'.')
            && text
                .iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'.')
    };
    let trimmed = line.trim_ascii();
    let unsigned = trimmed.strip_prefix(b"-").or(trimmed.strip_prefix(b"+"));
    let shown = excerpt(line);
    Err(match unsigned {
        _ if line.contains(&b'\r') => LineFault::CarriageReturn(shown),
        _ if trimmed.is_empty() => return Ok(None),
        _ if is_number(line) => LineFault::TooLarge(shown),
        _ if is_number(trimmed) => LineFault::Blanks(shown),
        _ if is_decimal(trimmed) => LineFault::Decimal(shown),
        Some(unsigned) if is_number(unsigned) || is_decimal(unsigned) => LineFault::Sign(shown),
        _ => LineFault::NotANumber(shown),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A source that gives one byte at a time, as a slow pipe may.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let given = self.0.len().min(buffer.len()).min(1);
            buffer[..given].copy_from_slice(&self.0[..given]);
            self.0 = &self.0[given..];
            Ok(given)
        }
    }

    fn refusal(text: &[u8]) -> String {
        let error = Trace::parse(text).expect_err("this is no trace");
        assert_eq!(
            error.in_file("x"),
            Trace::parse(Trickle(text)).unwrap_err().in_file("x"),
            "the same whole and byte by byte"
        );
        error.in_file("x")
    }

    #[test]
    fn what_mahimahi_takes_and_what_it_dies_on_are_read_alike() {
        let expected = Trace::from_millis([0, 1, 1, 7]).unwrap();
        let accepted: [&[u8]; 7] = [
            b"0\n1\n1\n7\n",
            b"0\n1\n1\n7",                          // no line end
            b"0\r\n1\r\n1\r\n7\r\n",                // CRLF
            b"0\r\n1\n1\r\n7\r",                    // both, and a cut one
            b"\n0\n\n1\n  \t\n1\n\r\n7\n\n",        // blank lines
            b"# a\n0\n1\n#\xff\x00\n1\n#2\n7\n# z", // comments
            b"00\n01\n001\n0000000000000000000000000000007\n",
        ];
        for text in accepted {
            assert_eq!(
                Trace::parse(text).unwrap(),
                expected,
                "{}",
                text.escape_ascii()
            );
            assert_eq!(
                Trace::parse(Trickle(text)).unwrap(),
                expected,
                "{}",
                text.escape_ascii()
            );
        }
    }

    #[test]
    fn a_refusal_names_line_and_reason() {
        assert_eq!(
            refusal(b"1\n2.5\n"),
            "x:2: `2.5` is not a whole number; timestamps are whole milliseconds"
        );
        assert_eq!(
            refusal(b"# head\n\n-3\n"),
            "x:3: `-3` has a sign; timestamps count up from 0 and are written without one"
        );
        assert_eq!(
            refusal(b"5\n6\n5\n"),
            "x:3: 5 ms comes after 6 ms; timestamps never decrease"
        );
        assert_eq!(
            refusal(b"1\n4294967296"),
            "x:2: `4294967296` is too large; a trace lasts at most 4294967295 ms (49 days)"
        );
        let number = "a line holds one whole number of milliseconds and nothing else";
        assert_eq!(
            refusal(b"1\n2 x\n"),
            format!("x:2: `2 x` is not a timestamp; {number}")
        );
        assert_eq!(
            refusal(b"1\n2,\n"),
            format!("x:2: `2,` is not a timestamp; {number}")
        );
        assert_eq!(
            refusal(b"0x10\n"),
            format!("x:1: `0x10` is not a timestamp; {number}")
        );
        assert_eq!(
            refusal(b"1e3\n"),
            format!("x:1: `1e3` is not a timestamp; {number}")
        );
        assert_eq!(
            refusal(b"\x7fELF\x02\x00\n"),
            format!("x:1: `…` is not a timestamp; {number}")
        );
        assert_eq!(
            refusal(b"root:x:0:0:root:/root:/bin/bash\n"),
            format!("x:1: `…` is not a timestamp; {number}")
        );
        assert_eq!(
            refusal(b"1\n 2\n"),
            "x:2: ` 2` has blanks beside the number; a line holds one number and nothing else"
        );
        assert_eq!(
            refusal(b"1\r2\r3\r"),
            "x:1: `1\\r2\\r3` holds a carriage return; lines end with a line feed or with both"
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
        assert!(matches!(
            error,
            TraceError::Line {
                fault: LineFault::TooLong,
                ..
            }
        ));
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
        let reason = "the rest of the trace could not be read: the disk is gone";
        assert_eq!(error.in_file("x"), format!("x:3: {reason}"));
        assert_eq!(error.to_string(), format!("line 3: {reason}"));
    }
}
