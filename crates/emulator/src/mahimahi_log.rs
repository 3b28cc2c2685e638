//! The log of Mahimahi's mm-link, written while packets pass (Netravali et al., USENIX ATC 2015; `link_queue.cc`).
//!
//! The engine tells [events](Event) in the order in which they happen; the thread that owns the file turns them into
//! lines, so that the packet path neither formats nor waits.

use std::sync::Arc;

use cellbed_link::{Bytes, Duration, Time, Trace};
use serde::Deserialize;

use crate::config::{self, Stage};
use crate::error::{Result, Trying};
use crate::records::RECORD_BYTES;
use crate::stages::read_trace;
use crate::writer::{Appender, RecordFile};

/// Bytes of the header that a TUN device puts in front of a packet; Mahimahi's lengths include it.
const TUN_HEADER: u64 = 4;

/// Bytes of one opportunity.
const OPPORTUNITY: u64 = 1504;

const MILLISECOND: u64 = 1_000_000;

/// A log of this kind, as the configuration asks for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its file.
    path: std::path::PathBuf,
    /// Lines of the header in front of the two time stamps, without `# `.
    heading: Vec<String>,
    /// Lines of the header behind them.
    #[serde(default)]
    remarks: Vec<String>,
}

impl Wanted {
    /// Creates the file for a direction with these stages, whose first trace the log's opportunities are those of.
    pub fn create(&self, stages: &[Stage]) -> Result<RecordFile> {
        let name = self.path.display().to_string();
        let mut file = Appender::create(&self.path).trying(|| format!("write the log {name}"))?;
        let mut transcript = Transcript::new(self.clone(), Opportunities::of(stages)?);
        let mut text = Vec::new();
        RecordFile::create_with(name, move |block| {
            text.clear();
            let (events, _) = block.as_chunks::<RECORD_BYTES>();
            for event in events {
                transcript.tell(Event::from_bytes(event), &mut text);
            }
            file.append(&text)
        })
    }
}

/// What happens in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The schedule starts at `zero`, `offset` into its recording. `epoch_ms`: the same instant in ms since 1970.
    Start {
        zero: Time,
        offset: Duration,
        epoch_ms: u64,
    },
    /// A packet reached the bottleneck.
    Arrival { at: Time, size: Bytes },
    /// A packet left it.
    Departure {
        at: Time,
        arrived: Time,
        size: Bytes,
    },
    /// A packet was dropped.
    Drop { at: Time, size: Bytes },
    /// All up to this instant has been told.
    Now(Time),
}

impl Event {
    /// The event as a record for the writer thread.
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let (kind, at, second, third) = match self {
            Self::Start {
                zero,
                offset,
                epoch_ms,
            } => (0, zero, offset.as_nanos(), epoch_ms),
            Self::Arrival { at, size } => (1, at, size.0, 0),
            Self::Departure { at, arrived, size } => (2, at, size.0, arrived.as_nanos()),
            Self::Drop { at, size } => (3, at, size.0, 0),
            Self::Now(at) => (4, at, 0, 0),
        };
        let mut bytes = [0; RECORD_BYTES];
        for (place, value) in [kind, at.as_nanos(), second, third].into_iter().enumerate() {
            bytes[8 * place..8 * place + 8].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |place: usize| u64::from_ne_bytes(words[place]);
        let (at, size) = (Time::from_nanos(word(1)), Bytes(word(2)));
        match word(0) {
            0 => Self::Start {
                zero: at,
                offset: Duration::from_nanos(word(2)),
                epoch_ms: word(3),
            },
            1 => Self::Arrival { at, size },
            2 => Self::Departure {
                at,
                arrived: Time::from_nanos(word(3)),
                size,
            },
            3 => Self::Drop { at, size },
            _ => Self::Now(at),
        }
    }
}

/// The lines. Times in them are ms since the first start of the schedule; what happens before it is not told.
struct Transcript {
    wanted: Wanted,
    init: Option<Time>,
    opportunities: Option<Opportunities>,
    /// The opportunity that was spent last, in ms, and what is left of it.
    spent: Option<(u64, u64)>,
    /// Packets dropped since the last arrival: their instant, number and bytes.
    dropped: Option<(u64, u64, u64)>,
}

impl Transcript {
    fn new(wanted: Wanted, opportunities: Option<Opportunities>) -> Self {
        Self {
            wanted,
            init: None,
            opportunities,
            spent: None,
            dropped: None,
        }
    }

    fn tell(&mut self, event: Event, text: &mut Vec<u8>) {
        if let Event::Start {
            zero,
            offset,
            epoch_ms,
        } = event
        {
            self.start(zero, offset, epoch_ms, text);
        }
        let Some(init) = self.init else { return };
        let millis = |at: Time| at.since(init).as_nanos() / MILLISECOND;
        if let Event::Drop { at, size } = event {
            let at = millis(at);
            let size = size.0 + TUN_HEADER;
            match &mut self.dropped {
                Some((when, packets, bytes)) if *when == at => {
                    *packets += 1;
                    *bytes += size;
                }
                _ => {
                    self.tell_drops(text);
                    self.offer_until(at, text);
                    self.dropped = Some((at, 1, size));
                }
            }
            return;
        }
        self.tell_drops(text);
        match event {
            Event::Arrival { at, size } => {
                self.offer_until(millis(at), text);
                line(text, millis(at), b" + ", &[size.0 + TUN_HEADER]);
            }
            Event::Departure { at, arrived, size } => {
                let (at, arrived, size) = (millis(at), millis(arrived), size.0 + TUN_HEADER);
                self.spend(at, arrived, size, text);
                line(text, at, b" - ", &[size, at.saturating_sub(arrived)]);
            }
            Event::Now(at) => self.offer_until(millis(at), text),
            Event::Start { .. } | Event::Drop { .. } => {}
        }
    }

    fn start(&mut self, zero: Time, offset: Duration, epoch_ms: u64, text: &mut Vec<u8>) {
        if self.init.is_none() {
            self.init = Some(zero);
            let stamps = [
                format!("init timestamp: {epoch_ms}"),
                "base timestamp: 0".into(),
            ];
            for words in [&self.wanted.heading[..], &stamps, &self.wanted.remarks].concat() {
                text.extend_from_slice(format!("# {words}\n").as_bytes());
            }
        }
        let base = self.init.map_or(0, |init| zero.since(init).as_nanos());
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.restart(base, offset);
        }
    }

    /// A packet of `size` bytes leaves at `at`: tells the opportunities up to the one that sends its last byte.
    fn spend(&mut self, at: u64, arrived: u64, size: u64, text: &mut Vec<u8>) {
        let (last, left) = self.spent.unwrap_or((0, 0));
        // It had a share of the opportunity that the packet before it did not use up, if it waited by then.
        let share = if arrived < last { left } else { 0 };
        if last == at && share >= size {
            self.spent = Some((at, left - size));
            return;
        }
        if at > 0 {
            self.offer_until(at - 1, text);
        }
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.tell_one_at(at, text);
        }
        self.spent = Some((at, (OPPORTUNITY + share).saturating_sub(size)));
    }

    /// Tells the opportunities up to and including the millisecond `until`.
    fn offer_until(&mut self, until: u64, text: &mut Vec<u8>) {
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.tell_until(until, text);
        }
    }

    fn tell_drops(&mut self, text: &mut Vec<u8>) {
        if let Some((at, packets, bytes)) = self.dropped.take() {
            line(text, at, b" d ", &[packets, bytes]);
        }
    }
}

/// The opportunities of a recording that have not been told yet.
struct Opportunities {
    trace: Arc<Trace>,
    looped: bool,
    /// Position of the recording at its start, as configured.
    offset: u64,
    /// Position at the start.
    start: u64,
    /// The start in ns since the log's.
    base: u64,
    /// Position of the next ones and how many of them are left.
    next: Option<(u64, u64)>,
}

impl Opportunities {
    /// Those of the first trace in `stages`.
    fn of(stages: &[Stage]) -> Result<Option<Self>> {
        let trace = stages.iter().find_map(|stage| match stage {
            Stage::Bottleneck {
                schedule:
                    config::Schedule::Trace {
                        path,
                        looped,
                        offset_ns,
                    },
                ..
            } => Some((path, *looped, *offset_ns)),
            _ => None,
        });
        trace
            .map(|(path, looped, offset)| {
                Ok(Self::new(Arc::new(read_trace(path)?), looped, offset))
            })
            .transpose()
    }

    fn new(trace: Arc<Trace>, looped: bool, offset: u64) -> Self {
        Self {
            trace,
            looped,
            offset,
            start: offset,
            base: 0,
            next: None,
        }
    }

    fn restart(&mut self, base: u64, further: Duration) {
        self.base = base;
        self.start = self.offset + further.as_nanos();
        if self.looped {
            self.start %= self.trace.duration().as_nanos();
        }
        self.seek(self.start);
    }

    /// Goes to the first opportunities at or after a position.
    fn seek(&mut self, from: u64) {
        let span = Duration::from_nanos;
        let period = self.trace.duration().as_nanos();
        let at = self.trace.next_opportunity(span(from)).as_nanos();
        let count = |at: u64| {
            let bytes = self.trace.capacity(span(at), span(at + 1));
            bytes.0 / cellbed_link::MTU.0
        };
        self.next = match self.looped {
            true => Some((at, count(at))),
            // There the next pass would begin, had it one.
            false if at == period => Some((at, count(at) - count(0))),
            false => Some((at, count(at))).filter(|_| at < period),
        };
    }

    /// The ms of the next ones.
    fn due(&self) -> Option<u64> {
        let (position, _) = self.next?;
        Some((self.base + position.saturating_sub(self.start)) / MILLISECOND)
    }

    fn tell_until(&mut self, until: u64, text: &mut Vec<u8>) {
        while let Some(due) = self.due().filter(|&due| due <= until) {
            self.tell(due, text);
        }
    }

    /// Tells one of the opportunities in the millisecond `at`, if there is one left.
    fn tell_one_at(&mut self, at: u64, text: &mut Vec<u8>) {
        if self.due() == Some(at) {
            self.tell(at, text);
        }
    }

    /// Tells the next one.
    fn tell(&mut self, due: u64, text: &mut Vec<u8>) {
        line(text, due, b" # ", &[OPPORTUNITY]);
        match self.next {
            Some((at, left)) if left > 1 => self.next = Some((at, left - 1)),
            Some((at, _)) => self.seek(at + 1),
            None => {}
        }
    }
}

fn line(text: &mut Vec<u8>, at: u64, sign: &[u8], numbers: &[u64]) {
    decimal(text, at);
    text.extend_from_slice(sign);
    for (place, &number) in numbers.iter().enumerate() {
        if place > 0 {
            text.push(b' ');
        }
        decimal(text, number);
    }
    text.push(b'\n');
}

fn decimal(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(1000 + millis)
    }

    fn transcript(millis: &[u64], looped: bool) -> Transcript {
        let trace = Arc::new(Trace::from_millis(millis.iter().copied()).unwrap());
        let wanted = Wanted {
            path: "log".into(),
            heading: vec!["mahimahi mm-link (Uplink) [up] > log".into()],
            remarks: vec!["mahimahi config: [delay 20 ms] ".into()],
        };
        Transcript::new(wanted, Some(Opportunities::new(trace, looped, 0)))
    }

    fn told(transcript: &mut Transcript, events: &[Event]) -> Vec<String> {
        let mut text = Vec::new();
        let start = Event::Start {
            zero: ms(0),
            offset: Duration::ZERO,
            epoch_ms: 1_700_000_000_000,
        };
        for event in std::iter::once(&start).chain(events) {
            // The way that events take to the other thread.
            transcript.tell(Event::from_bytes(&event.to_bytes()), &mut text);
        }
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn arrival(at: Time, size: u64) -> Event {
        Event::Arrival {
            at,
            size: Bytes(size),
        }
    }

    fn departure(at: u64, arrived: u64, size: u64) -> Event {
        Event::Departure {
            at: ms(at),
            arrived: ms(arrived),
            size: Bytes(size),
        }
    }

    #[test]
    fn the_header_tells_when_it_began() {
        let lines = told(&mut transcript(&[5], true), &[]);
        assert_eq!(
            lines,
            [
                "# mahimahi mm-link (Uplink) [up] > log",
                "# init timestamp: 1700000000000",
                "# base timestamp: 0",
                "# mahimahi config: [delay 20 ms] ",
            ]
        );
    }

    #[test]
    fn opportunities_come_before_what_arrives_in_their_millisecond() {
        let events = [
            arrival(ms(2) + Duration::from_micros(700), 1500),
            departure(4, 2, 1500),
            Event::Now(ms(6)),
        ];
        assert_eq!(
            told(&mut transcript(&[0, 2, 4], true), &events)[4..],
            [
                "0 # 1504",
                "2 # 1504",
                "2 + 1504",
                "4 # 1504",
                "4 - 1504 2",
                "4 # 1504", // the loop's seam: a leading 0
                "6 # 1504",
            ]
        );
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_go_over_to_the_next() {
        let events = [
            arrival(ms(0), 996), // 1000 with the header
            arrival(ms(0), 996),
            arrival(ms(0), 996),
            arrival(ms(0), 4),
            departure(1, 0, 996),
            departure(1, 0, 996),
            departure(1, 0, 996),
            departure(1, 0, 4),
            Event::Now(ms(1)),
        ];
        assert_eq!(
            told(&mut transcript(&[1, 1, 1, 5], true), &events)[8..],
            [
                "1 # 1504",
                "1 - 1000 1",
                "1 # 1504",
                "1 - 1000 1",
                "1 - 1000 1", // 504 + 504 + 1504 bytes: the second opportunity had 1008 left for it
                "1 - 8 1",
                "1 # 1504",
            ]
        );
    }

    #[test]
    fn what_one_arrival_pushes_out_is_one_line() {
        let drop = |at, size| Event::Drop {
            at: ms(at),
            size: Bytes(size),
        };
        let events = [
            arrival(ms(1), 1500),
            drop(1, 100),
            drop(1, 200),
            arrival(ms(1), 60),
            drop(1, 60),
        ];
        let mut transcript = transcript(&[9], true);
        let mut lines = told(&mut transcript, &events);
        let mut rest = Vec::new();
        transcript.tell(Event::Now(ms(2)), &mut rest);
        lines.push(String::from_utf8(rest).unwrap().trim().into());
        assert_eq!(lines[4..], ["1 + 1504", "1 d 2 308", "1 + 64", "1 d 1 64"]);
    }

    #[test]
    fn a_trace_played_once_offers_nothing_after_its_end() {
        let lines = told(&mut transcript(&[0, 3, 3], false), &[Event::Now(ms(50))]);
        assert_eq!(lines[4..], ["0 # 1504", "3 # 1504", "3 # 1504"]);
    }
}
