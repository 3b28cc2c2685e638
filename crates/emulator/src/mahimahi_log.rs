//! The log of Mahimahi's mm-link, written while packets pass (Netravali et al., USENIX ATC 2015; `link_queue.cc`).
//!
//! The engine reports [events](Event) in order. The thread that owns the file converts events into lines: the packet
//! path neither formats nor waits.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use cellbed_link::schedule::Playback;
use cellbed_link::{BottleneckConfig, Bytes, Duration, Schedule, StageConfig, Time};
use rustix::fs::{Mode, OFlags};

use crate::config::MahimahiLog;
use crate::error::Result;
use crate::writer::{Pieces, RecordFile};

/// Bytes of one opportunity.
const OPPORTUNITY: u64 = 1504;

/// Bytes of the header that a TUN device puts before a packet. Mahimahi's lengths include the header.
const TUN_HEADER: u64 = 4;

const MILLISECOND: u64 = 1_000_000;

/// Create the log of a direction with these stages. The opportunities are those of the first trace.
pub fn create(wanted: &MahimahiLog, stages: &[StageConfig]) -> Result<RecordFile<Event>> {
    let name = wanted.path.display().to_string();
    let mut output = open(wanted)?;
    let mut transcript = Transcript::new(wanted.clone(), stages);
    let mut text = Vec::new();
    RecordFile::create_with(name, move |block| {
        text.clear();
        for event in block {
            transcript.append(*event, &mut text);
        }
        output.append(&text)
    })
}

fn open(wanted: &MahimahiLog) -> Result<Output> {
    if let Some(descriptor) = wanted.descriptor {
        // SAFETY: the caller has opened this descriptor for the log and names it once; no other code here uses it.
        return Ok(Output::Stream(unsafe { File::from_raw_fd(descriptor) }));
    }
    Ok(match std::fs::metadata(&wanted.path) {
        Ok(found) if found.file_type().is_fifo() => Output::Fifo(wanted.path.clone(), Vec::new()),
        _ => Output::File(Pieces::create(&wanted.path)?),
    })
}

/// Maximum bytes of a log that wait for the reader of a FIFO.
const MOST_WAITING: usize = 64 << 20;

/// Destination of the lines.
enum Output {
    File(Pieces),
    /// A terminal, a pipe, a device: written bytes cannot be removed.
    Stream(File),
    /// A FIFO without a reader so far, and the waiting lines. Opening the FIFO would block, and delay the end of the
    /// link.
    Fifo(PathBuf, Vec<u8>),
}

impl Output {
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.append(text),
            Self::Stream(file) => file.write_all(text),
            Self::Fifo(path, waiting) => {
                waiting.extend_from_slice(text);
                match rustix::fs::open(
                    &*path,
                    OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
                    Mode::empty(),
                ) {
                    Ok(descriptor) => {
                        rustix::fs::fcntl_setfl(&descriptor, OFlags::empty())?;
                        let mut file = File::from(descriptor);
                        let written = file.write_all(waiting);
                        *self = Self::Stream(file);
                        written
                    }
                    Err(rustix::io::Errno::NXIO) if waiting.len() <= MOST_WAITING => Ok(()),
                    Err(problem) => {
                        waiting.truncate(waiting.len() - text.len());
                        Err(problem.into())
                    }
                }
            }
        }
    }
}

/// Event of a direction.
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
    /// A packet left the bottleneck.
    Departure {
        at: Time,
        arrived: Time,
        size: Bytes,
    },
    /// A packet was dropped.
    Drop { at: Time, size: Bytes },
    /// An outage begins (`closed`) or ends.
    Gate { at: Time, closed: bool },
    /// All events up to this instant have been reported.
    Now(Time),
}

/// The opportunities of a recording that have no line yet.
struct Opportunities {
    playback: Playback,
    /// Number of the next opportunity.
    next: u64,
    /// True during an outage: opportunities pass without a line.
    closed: bool,
}

impl Opportunities {
    /// Return the time of the next opportunity, ms after `init`.
    fn due(&mut self, init: Time) -> Option<u64> {
        let at = self.playback.time_of(self.next)?;
        Some(at.since(init).as_nanos() / MILLISECOND)
    }

    /// Append the line of the next opportunity.
    fn append(&mut self, due: u64, text: &mut Vec<u8>) {
        if !self.closed {
            line(text, format_args!("{due} # {OPPORTUNITY}"));
        }
        self.next += 1;
    }
}

/// Writer of the lines, in the original's order. Times are ms since the first start of the schedule; earlier events
/// have no line.
struct Transcript {
    wanted: MahimahiLog,
    init: Option<Time>,
    opportunities: Option<Opportunities>,
    /// Time of the last used opportunity, ms, and the bytes left in it.
    spent: Option<(u64, u64)>,
    /// Packets dropped since the last arrival: time in ms, number, bytes.
    dropped: Option<(u64, u64, u64)>,
}

impl Transcript {
    /// Return the transcript of a direction with these stages. The opportunities are those of the first trace.
    fn new(wanted: MahimahiLog, stages: &[StageConfig]) -> Self {
        let playback = stages.iter().find_map(|stage| match stage {
            StageConfig::Bottleneck(BottleneckConfig {
                schedule:
                    Schedule::Trace {
                        trace,
                        repeat,
                        offset,
                    },
                ..
            }) => Some(Playback::new(trace.clone(), *repeat, *offset, Time::ZERO)),
            _ => None,
        });
        Self {
            wanted,
            init: None,
            opportunities: playback.map(|playback| Opportunities {
                playback,
                next: 0,
                closed: false,
            }),
            spent: None,
            dropped: None,
        }
    }

    /// Append the lines that this event makes certain.
    fn append(&mut self, event: Event, text: &mut Vec<u8>) {
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
        if !matches!(event, Event::Drop { .. }) {
            self.append_drops(text);
        }
        match event {
            Event::Start { .. } => {}
            Event::Drop { at, size } => {
                let (at, size) = (millis(at), size.0 + TUN_HEADER);
                match &mut self.dropped {
                    Some((when, packets, bytes)) if *when == at => {
                        *packets += 1;
                        *bytes += size;
                    }
                    _ => {
                        self.append_drops(text);
                        self.offer_until(at, text);
                        self.dropped = Some((at, 1, size));
                    }
                }
            }
            Event::Arrival { at, size } => {
                self.offer_until(millis(at), text);
                let (at, size) = (millis(at), size.0 + TUN_HEADER);
                line(text, format_args!("{at} + {size}"));
            }
            Event::Departure { at, arrived, size } => {
                let (at, arrived, size) = (millis(at), millis(arrived), size.0 + TUN_HEADER);
                self.spend(at, arrived, size, text);
                let waited = at.saturating_sub(arrived);
                line(text, format_args!("{at} - {size} {waited}"));
            }
            Event::Now(at) => self.offer_until(millis(at), text),
            Event::Gate { at, closed } => {
                self.offer_until(millis(at), text);
                if let Some(opportunities) = &mut self.opportunities {
                    opportunities.closed = closed;
                }
            }
        }
    }

    fn start(&mut self, zero: Time, offset: Duration, epoch_ms: u64, text: &mut Vec<u8>) {
        if self.init.is_none() {
            self.init = Some(zero);
            let stamps = [
                format!("init timestamp: {epoch_ms}"),
                "base timestamp: 0".into(),
            ];
            for comment in [&self.wanted.heading[..], &stamps, &self.wanted.remarks].concat() {
                line(text, format_args!("# {comment}"));
            }
        }
        if let Some(Opportunities { playback, next, .. }) = &mut self.opportunities {
            playback.restart(zero, offset);
            *next = playback.first_at(zero);
        }
    }

    /// Append the opportunities up to that of the last byte of a packet of `size` bytes, which leaves at `at`.
    fn spend(&mut self, at: u64, arrived: u64, size: u64, text: &mut Vec<u8>) {
        let (last, left) = self.spent.unwrap_or((0, 0));
        // A packet already waiting used the rest of the previous packet's opportunity.
        let share = if arrived < last { left } else { 0 };
        if last == at && share >= size {
            self.spent = Some((at, left - size));
            return;
        }
        if at > 0 {
            self.offer_until(at - 1, text);
        }
        if let (Some(init), Some(opportunities)) = (self.init, &mut self.opportunities)
            && opportunities.due(init) == Some(at)
        {
            opportunities.append(at, text);
        }
        self.spent = Some((at, (OPPORTUNITY + share).saturating_sub(size)));
    }

    /// Append the opportunities up to and including the millisecond `until`.
    fn offer_until(&mut self, until: u64, text: &mut Vec<u8>) {
        let (Some(init), Some(opportunities)) = (self.init, &mut self.opportunities) else {
            return;
        };
        while let Some(due) = opportunities.due(init).filter(|&due| due <= until) {
            opportunities.append(due, text);
        }
    }

    fn append_drops(&mut self, text: &mut Vec<u8>) {
        if let Some((at, packets, bytes)) = self.dropped.take() {
            line(text, format_args!("{at} d {packets} {bytes}"));
        }
    }
}

/// Append a line.
fn line(text: &mut Vec<u8>, content: fmt::Arguments) {
    // Memory takes everything.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cellbed_link::{Repeat, Trace};

    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(1000 + millis)
    }

    fn transcript(millis: &[u64], looped: bool) -> Transcript {
        let trace = Arc::new(Trace::from_millis(millis.iter().copied()).unwrap());
        let wanted = MahimahiLog {
            path: "log".into(),
            descriptor: None,
            heading: vec!["mahimahi mm-link (Uplink) [up] > log".into()],
            remarks: vec!["mahimahi config: [delay 20 ms] ".into()],
        };
        let schedule = Schedule::Trace {
            trace,
            repeat: Repeat::from(looped),
            offset: Duration::ZERO,
        };
        Transcript::new(wanted, &[BottleneckConfig::mahimahi(schedule).into()])
    }

    fn lines(transcript: &mut Transcript, events: &[Event]) -> Vec<String> {
        let mut text = Vec::new();
        let start = Event::Start {
            zero: ms(0),
            offset: Duration::ZERO,
            epoch_ms: 1_700_000_000_000,
        };
        for event in std::iter::once(&start).chain(events) {
            transcript.append(*event, &mut text);
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
        let lines = lines(&mut transcript(&[5], true), &[]);
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
            lines(&mut transcript(&[0, 2, 4], true), &events)[4..],
            [
                "0 # 1504",
                "2 # 1504",
                "2 + 1504",
                "4 # 1504",
                "4 - 1504 2",
                "4 # 1504", // the loop's seam: an opportunity at 0
                "6 # 1504",
            ]
        );
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_go_over_to_the_next() {
        let events = [
            arrival(ms(0), 996), // 1000 bytes with the header
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
            lines(&mut transcript(&[1, 1, 1, 5], true), &events)[8..],
            [
                "1 # 1504",
                "1 - 1000 1",
                "1 # 1504",
                "1 - 1000 1",
                "1 - 1000 1", // 504 + 504 + 1504 bytes: 1008 bytes from the second opportunity
                "1 - 8 1",
                "1 # 1504",
            ]
        );
    }

    #[test]
    fn an_outage_offers_nothing() {
        let gate = |at, closed| Event::Gate { at: ms(at), closed };
        let events = [gate(3, true), gate(7, false), Event::Now(ms(9))];
        assert_eq!(
            lines(&mut transcript(&[1, 2, 4, 6, 8, 9], true), &events)[4..],
            ["1 # 1504", "2 # 1504", "8 # 1504", "9 # 1504"]
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
        let mut lines = lines(&mut transcript, &events);
        let mut rest = Vec::new();
        transcript.append(Event::Now(ms(2)), &mut rest);
        lines.push(String::from_utf8(rest).unwrap().trim().into());
        assert_eq!(lines[4..], ["1 + 1504", "1 d 2 308", "1 + 64", "1 d 1 64"]);
    }

    #[test]
    fn a_trace_played_once_offers_nothing_after_its_end() {
        let lines = lines(&mut transcript(&[0, 3, 3], false), &[Event::Now(ms(50))]);
        assert_eq!(lines[4..], ["0 # 1504", "3 # 1504", "3 # 1504"]);
    }
}
