//! The parsers of the files of the CellReplay tool, one line at a time.

use std::fmt::Display;
use std::io::Read;

use super::{Compensation, Shift};
use crate::lines::{TraceError, each_line, excerpt};
use crate::schedule::{LightRow, LightRows};
use crate::time::Duration;
use crate::units::Bytes;

/// Maximum bytes of a line: a train of 10,000 packets.
const LONGEST_LINE: usize = 1 << 17;
const DECIMALS: usize = 6;
const NANOS_PER_MILLI: u64 = 1_000_000;
/// Maximum time, ms, as for a trace: 49 days.
const MOST_MILLIS: u64 = u32::MAX as u64;

impl LightRows {
    /// Read light rows from a file, a pipe or memory, in small pieces.
    ///
    /// A line is `TIME BASE_DELAY PDO PDO …`, all in ms: the send time of the train, half of its round-trip time, and
    /// the arrivals of its packets after the first arrival. The public tool writes whole milliseconds; up to six
    /// decimals are accepted, and so are blank lines, lines that start with `#`, both kinds of line end and several
    /// blanks between numbers. Times never decrease; opportunities may be in any order. Any other content is an error
    /// that names the line.
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        let mut rows: Vec<LightRow> = Vec::new();
        each_line(reader, LONGEST_LINE, |number, line| {
            let mut fields = fields(line);
            let Some(first) = fields.next() else {
                return Ok(());
            };
            let span = |text: &[u8], what: &str| {
                let hint = "write a number of ms with up to 6 decimals, from 0 on";
                let problem = format_args!("is not a {what}; {hint}");
                expect(nanos(text).map(Duration::from_nanos), number, text, problem)
            };
            let time = span(first, "time")?;
            let problem = "lacks the base delay; a row is TIME BASE_DELAY PDO PDO …, all in ms";
            let delay = expect(fields.next(), number, line, problem)?;
            let base_delay = span(delay, "base delay")?;
            let opportunities = fields.map(|field| span(field, "delivery opportunity"));
            let opportunities = opportunities.collect::<Result<_, _>>()?;
            let in_order = rows.last().is_none_or(|last| last.time <= time);
            let problem = "comes before the row above it; the times of rows never decrease";
            expect(in_order.then_some(()), number, first, problem)?;
            rows.push(LightRow {
                time,
                base_delay,
                opportunities,
            });
            Ok(())
        })?;
        Self::new(rows).ok_or_else(|| empty("0 20 0 1 1 3"))
    }
}

impl Compensation {
    /// Read a `latency-offset` file: lines `SIZE OFFSET` in bytes and ms, sizes increasing. The public tool requires
    /// sizes of 100, 200, … bytes.
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        let mut points: Vec<(Bytes, Shift)> = Vec::new();
        each_line(reader, LONGEST_LINE, |number, line| {
            let mut fields = fields(line);
            let Some(first) = fields.next() else {
                return Ok(());
            };
            let second = fields.next().xor(fields.next());
            let problem = "is malformed; a line is SIZE OFFSET, in bytes and in ms";
            let second = expect(second, number, line, problem)?;
            let problem = "is not a packet size; write a whole number of bytes from 1 to 65535";
            let size = expect(size(first), number, first, problem)?;
            let problem =
                "is not a latency offset; write a number of ms with up to 6 decimals, such as -6.8";
            let shift = expect(shift(second), number, second, problem)?;
            if points.last().is_some_and(|&(last, _)| size <= last) {
                let problem = format!(
                    "{} bytes do not exceed the size above; sizes increase",
                    size.0
                );
                return Err(TraceError::at(number, problem));
            }
            points.push((size, shift));
            Ok(())
        })?;
        match Self::new(points) {
            Some(compensation) if compensation.points().next().is_some() => Ok(compensation),
            _ => Err(empty("100 -6.8")),
        }
    }
}

/// Return a value, or an error that quotes `text` of a line and states its problem.
fn expect<T>(
    value: Option<T>,
    line: usize,
    text: &[u8],
    problem: impl Display,
) -> Result<T, TraceError> {
    value.ok_or_else(|| TraceError::at(line, format!("`{}` {problem}", excerpt(text))))
}

fn empty(example: &str) -> TraceError {
    TraceError::whole(format!(
        "the file is empty; it needs at least one line such as `{example}`"
    ))
}

/// Return the fields of a line without its comment.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let line = if line.starts_with(b"#") { &[] } else { line };
    line.split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|field| !field.is_empty())
}

fn shift(text: &[u8]) -> Option<Shift> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    let nanos = i64::try_from(nanos(digits)?).ok()?;
    Some(Shift::from_nanos(sign * nanos))
}

fn size(text: &[u8]) -> Option<Bytes> {
    let size: u16 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (size > 0 && text[0] != b'+').then_some(Bytes(u64::from(size)))
}

/// Convert milliseconds with up to six decimals to ns.
fn nanos(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[..0]),
    };
    if whole.is_empty() || fraction.len() > DECIMALS || (point.is_some() && fraction.is_empty()) {
        return None;
    }
    let millis = digits(whole).filter(|&millis| millis <= MOST_MILLIS)?;
    let scale = 10u64.pow((DECIMALS - fraction.len()) as u32);
    Some(millis * NANOS_PER_MILLI + digits(fraction)? * scale)
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &[u8]) -> String {
        LightRows::parse(text).unwrap_err().in_file("x")
    }

    #[test]
    fn light_rows_of_the_tool_are_read() {
        let light = LightRows::parse(&b"0 20 0 1 1 3\n50 22 0\r\n\n# end\n100 21.5  0\t0.25"[..]);
        let light = light.unwrap();
        assert_eq!(light.rows().len(), 3);
        assert_eq!(
            light.base_delay(Duration::from_millis(100)),
            Duration::from_micros(21_500)
        );
        let opportunities = |row: usize| &light.rows()[row].opportunities;
        assert_eq!(*opportunities(2), [0, 250].map(Duration::from_micros));
        assert_eq!(*opportunities(0), [0, 1, 1, 3].map(Duration::from_millis));
    }

    #[test]
    fn what_is_no_light_row_is_told_with_its_line() {
        let number = "write a number of ms with up to 6 decimals, from 0 on";
        for (text, message) in [
            ("0 1 0\nx 1\n", format!("x:2: `x` is not a time; {number}")),
            (
                "0 -1 0\n",
                format!("x:1: `-1` is not a base delay; {number}"),
            ),
            (
                "0 1 0.1234567\n",
                format!("x:1: `0.1234567` is not a delivery opportunity; {number}"),
            ),
            (
                "0 1. 0\n",
                format!("x:1: `1.` is not a base delay; {number}"),
            ),
            (
                "5\n",
                "x:1: `5` lacks the base delay; a row is TIME BASE_DELAY PDO PDO …, all in ms"
                    .into(),
            ),
            (
                "5 1 0\n4 1 0\n",
                "x:2: `4` comes before the row above it; the times of rows never decrease".into(),
            ),
            (
                "99999999999 1\n",
                format!("x:1: `99999999999` is not a time; {number}"),
            ),
            (
                "# only\n",
                "x: the file is empty; it needs at least one line such as `0 20 0 1 1 3`".into(),
            ),
        ] {
            assert_eq!(refusal(text.as_bytes()), message);
        }
        let endless = LightRows::parse(std::io::repeat(b'7')).unwrap_err();
        assert_eq!(endless.line(), Some(1));
        assert!(endless.to_string().contains("longer than"), "{endless}");
    }

    #[test]
    fn latency_offsets_are_read() {
        let text = "100 -6.8\n200 -6\n1400 0\n";
        let compensation = Compensation::parse(text.as_bytes()).unwrap();
        assert_eq!(compensation.of(Bytes(100)), Shift::from_nanos(-6_800_000));
        assert_eq!(compensation.points().count(), 3);
        for (text, part) in [
            ("100 x\n", "x:1: `x` is not a latency offset"),
            ("100\n", "x:1: `100` is malformed"),
            ("100 1 2\n", "x:1: `100 1 2` is malformed"),
            ("0 1\n", "x:1: `0` is not a packet size"),
            ("100 1\n100 2\n", "x:2: 100 bytes do not exceed"),
            ("", "x: the file is empty"),
        ] {
            let error = Compensation::parse(text.as_bytes()).unwrap_err();
            assert!(error.in_file("x").starts_with(part), "{error}");
        }
    }
}
