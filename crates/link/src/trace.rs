//! Recordings of packet delivery opportunities (PDOs), in the format of Mahimahi.

pub use crate::lines::TraceError;

use std::io::Read;

use crate::lines::{each_line, excerpt};
use crate::time::Duration;
use crate::units::{BitRate, Bytes, MTU, Opportunities, saturate};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The instants at which a recorded bottleneck could deliver one packet of at most [`MTU`] bytes
/// (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015, §4).
///
/// Positions are spans since the start of the recording. A looped recording starts again at its **last timestamp**: a
/// leading 0 coincides with the end of the previous loop.
///
/// Repeated timestamps are one entry of 12 bytes with a running count: each query takes one binary search.
///
/// ```
/// use cellbed_link::{Duration, Opportunities, Trace};
///
/// let trace = Trace::parse(&b"# recorded by hand\n2\n5\n"[..])?; // a file does as well
/// assert_eq!(trace.opportunities(), Opportunities(2));
/// let ms = Duration::from_millis;
/// assert_eq!(trace.next_opportunity(ms(3)), ms(5));
/// assert_eq!(trace.next_opportunity(ms(6)), ms(7)); // the loop starts again at its last timestamp
///
/// let error = Trace::parse(&b"2\n1.5\n"[..]).unwrap_err();
/// assert!(error.in_file("some.up").starts_with("some.up:2: "));
/// # Ok::<(), cellbed_link::TraceError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// Distinct timestamps in ms, strictly increasing, never empty, the last one not 0.
    millis: Vec<u32>,
    /// Opportunities up to and including each timestamp.
    cumulative: Vec<u64>,
}

/// Continuation after the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(from = "bool")]
pub enum Repeat {
    /// The recording again. Its period is the last timestamp.
    #[default]
    Looped,
    /// No more opportunities.
    Once,
}

impl From<bool> for Repeat {
    fn from(looped: bool) -> Self {
        match looped {
            true => Self::Looped,
            false => Self::Once,
        }
    }
}

impl Trace {
    /// Return the number of opportunities of the recording.
    pub fn opportunities(&self) -> Opportunities {
        Opportunities(self.total())
    }

    /// The last timestamp: the length of the recording and the period of its loop.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.period())
    }

    /// Bytes that the looped recording can deliver from position `from` up to but excluding `to`.
    pub fn capacity(&self, from: Duration, to: Duration) -> Bytes {
        let before = |position: Duration| self.count_before(position.as_nanos(), Repeat::Looped);
        Opportunities(before(to).saturating_sub(before(from))).carrying(MTU)
    }

    /// Position of the first opportunity of the looped recording at or after `position`.
    pub fn next_opportunity(&self, position: Duration) -> Duration {
        let index = self.count_before(position.as_nanos(), Repeat::Looped);
        let (cycle, within) = (index / self.total(), index % self.total());
        Duration::from_nanos(self.looped_position(cycle, self.run_of(within)))
    }

    /// The longest time without an opportunity in the looped recording.
    pub fn longest_gap(&self) -> Duration {
        // The gap at the seam runs from the last timestamp, where the loop starts again, to the first one.
        let inside = self
            .millis
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or(0);
        Duration::from_millis(u64::from(inside.max(self.millis[0])))
    }

    /// Mean rate of the recording.
    pub fn mean_bit_rate(&self) -> BitRate {
        BitRate::of(self.opportunities().carrying(MTU), self.duration())
    }

    /// Bytes that one pass over the recording can deliver in each bin of `width`, from the start on.
    ///
    /// The last bin includes the last timestamp: the bins sum to the whole recording. The last bin is shorter if the
    /// length is no multiple of `width`. A width of zero gives no bins.
    pub fn bins(&self, width: Duration) -> impl Iterator<Item = Bytes> + '_ {
        let (width, period) = (width.as_nanos(), self.period());
        let bins = if width == 0 {
            0
        } else {
            period.div_ceil(width)
        };
        let before = move |bin: u64| {
            if bin == bins {
                self.total()
            } else {
                self.count_before(bin * width, Repeat::Once)
            }
        };
        (0..bins).map(move |bin| Opportunities(before(bin + 1) - before(bin)).carrying(MTU))
    }

    pub(crate) fn total(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or(0)
    }

    /// Period of the loop in ns.
    pub(crate) fn period(&self) -> u64 {
        self.millis
            .last()
            .map_or(0, |&last| u64::from(last) * NANOS_PER_MILLI)
    }

    /// Opportunities strictly before a position in ns, counted from the start of the first loop.
    pub(crate) fn count_before(&self, position: u64, repeat: Repeat) -> u64 {
        match repeat {
            Repeat::Once => self.count_below(position),
            Repeat::Looped if position <= self.period() => self.count_below(position),
            Repeat::Looped => {
                // Loop c covers its leading zeros at c periods, and the positions after that up to and including c + 1
                // periods.
                let cycle = (position - 1) / self.period();
                let within = self.count_below(position - cycle * self.period());
                saturate(u128::from(cycle) * u128::from(self.total()) + u128::from(within))
            }
        }
    }

    /// Return the run (distinct timestamp) of an opportunity of one pass; `index` must be below [`Self::total`].
    pub(crate) fn run_of(&self, index: u64) -> usize {
        self.cumulative.partition_point(|&count| count <= index)
    }

    /// Return whether a run holds an opportunity of one pass.
    pub(crate) fn run_holds(&self, run: usize, index: u64) -> bool {
        let before = if run == 0 {
            0
        } else {
            self.cumulative[run - 1]
        };
        before <= index
            && self
                .cumulative
                .get(run)
                .is_some_and(|&through| index < through)
    }

    /// Position in ns of a run in the given loop.
    pub(crate) fn looped_position(&self, cycle: u64, run: usize) -> u64 {
        cycle
            .saturating_mul(self.period())
            .saturating_add(u64::from(self.millis[run]) * NANOS_PER_MILLI)
    }

    /// Opportunities of one pass strictly before a position in ns.
    fn count_below(&self, position: u64) -> u64 {
        let runs = self
            .millis
            .partition_point(|&millis| u64::from(millis) * NANOS_PER_MILLI < position);
        if runs == 0 {
            0
        } else {
            self.cumulative[runs - 1]
        }
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Trace({} opportunities in {})",
            self.total(),
            self.duration()
        )
    }
}

/// Maximum bytes of a line, comments included.
const LONGEST_LINE: usize = 4096;

impl Trace {
    /// Read a trace from a file, a pipe or memory, in small pieces.
    ///
    /// Each line is a decimal integer: milliseconds since the start, never decreasing. A repeated value is several
    /// opportunities in that millisecond; 0 is legal. Blank lines, lines that start with `#`, both kinds of line end
    /// and a missing last one are accepted. Anything else is an error that names the line.
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        let mut trace = Self::empty();
        each_timestamp(reader, |number, read| {
            read.and_then(|value| trace.push(value))
                .map_err(|reason| TraceError::at(number, reason))
        })?;
        trace.finish()
    }

    /// Return a trace of the given timestamps in ms, under the same rules as a file; errors count timestamps as lines.
    pub fn from_millis(millis: impl IntoIterator<Item = u64>) -> Result<Self, TraceError> {
        let mut trace = Self::empty();
        for (index, value) in millis.into_iter().enumerate() {
            u32::try_from(value)
                .map_err(|_| not_a_timestamp(&value.to_string()))
                .and_then(|value| trace.push(value))
                .map_err(|reason| TraceError::at(index + 1, reason))?;
        }
        trace.finish()
    }
}

/// Pass each line's number and its timestamp in ms, or its error, to `take`. Timestamps may be in any order. This is
/// for traces that must not be held in memory. `take` can end the reading with an error.
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

impl Trace {
    fn empty() -> Self {
        Self {
            millis: Vec::new(),
            cumulative: Vec::new(),
        }
    }

    /// Add a timestamp. Errors if it is before the last one.
    fn push(&mut self, value: u32) -> Result<(), String> {
        let count = self.total() + 1;
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
        self.cumulative.push(count);
        Ok(())
    }

    /// Errors if the trace has no length.
    fn finish(mut self) -> Result<Self, TraceError> {
        let reason = match self.millis.last() {
            None => {
                "the trace holds no timestamp; a trace needs at least one, in milliseconds, above 0"
            }
            Some(0) => {
                "every timestamp of the trace is 0; the last one is the length of the trace and must be above 0"
            }
            Some(_) => {
                self.millis.shrink_to_fit();
                self.cumulative.shrink_to_fit();
                return Ok(self);
            }
        };
        Err(TraceError::whole(reason))
    }
}

/// Number of digits that always fit below 2³²: no check at each digit.
const SAFE_DIGITS: usize = 9;

/// Return the timestamp that a line (without its line feed) holds; `None` for a blank line or a comment.
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
    use super::*;

    fn trace(millis: &[u64]) -> Trace {
        Trace::from_millis(millis.iter().copied()).unwrap()
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_longest_gap_may_lie_at_the_seam() {
        assert_eq!(trace(&[60, 70, 100]).longest_gap(), ms(60));
    }

    #[test]
    fn bins_sum_to_the_recording() {
        let trace = trace(&[0, 1, 9, 10, 15, 20, 20]);
        let bins: Vec<_> = trace.bins(ms(10)).collect();
        assert_eq!(bins, [Bytes(4500), Bytes(6000)]); // the last bin includes 20 ms
        let bins: Vec<_> = trace.bins(ms(15)).collect();
        assert_eq!(bins, [Bytes(6000), Bytes(4500)]); // the second bin lasts 5 ms
        assert_eq!(trace.bins(Duration::ZERO).count(), 0);
        assert_eq!(
            trace.bins(Duration::MAX).collect::<Vec<_>>(),
            [Bytes(10_500)]
        );
    }

    #[test]
    fn the_mean_rate_is_bytes_over_the_last_timestamp() {
        assert_eq!(
            trace(&(1..=1000).collect::<Vec<_>>()).mean_bit_rate(),
            BitRate(12_000_000)
        );
    }
}

#[cfg(test)]
mod parse_tests {
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
