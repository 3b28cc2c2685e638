//! The log of Mahimahi's mm-link, written while packets pass (Netravali et al., USENIX ATC 2015; `link_queue.cc`).
//!
//! The engine reports [events](Event) in order; the thread that owns the file turns them into
//! lines, so that the packet path neither formats nor waits.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use cellbed_link::{Bytes, Duration, StageConfig, Time};
use rustix::fs::{Mode, OFlags};

use crate::config::MahimahiLog;
use crate::error::Result;
use crate::writer::{Pieces, RecordFile};
use cellbed_link::records::RECORD_BYTES;

mod opportunities;
mod transcript;

use opportunities::Opportunities;
use transcript::Transcript;

/// Bytes of one opportunity.
const OPPORTUNITY: u64 = 1504;

const MILLISECOND: u64 = 1_000_000;

/// Creates the log of a direction with these stages; it has the opportunities of their first trace.
pub fn create(wanted: &MahimahiLog, stages: &[StageConfig]) -> Result<RecordFile> {
    let name = wanted.path.display().to_string();
    let mut output = open(wanted)?;
    let mut transcript = Transcript::new(wanted.clone(), Opportunities::of(stages));
    let mut text = Vec::new();
    RecordFile::create_with(name, move |block| {
        text.clear();
        let (events, _) = block.as_chunks::<RECORD_BYTES>();
        for event in events {
            transcript.tell(Event::from_bytes(event), &mut text);
        }
        output.append(&text)
    })
}

fn open(wanted: &MahimahiLog) -> Result<Output> {
    if let Some(descriptor) = wanted.descriptor {
        // SAFETY: the caller has opened this descriptor for the log and names it once; nothing else here uses it.
        return Ok(Output::Stream(unsafe { File::from_raw_fd(descriptor) }));
    }
    Ok(match std::fs::metadata(&wanted.path) {
        Ok(found) if found.file_type().is_fifo() => Output::Fifo(wanted.path.clone(), Vec::new()),
        _ => Output::File(Pieces::create(&wanted.path)?),
    })
}

/// Bytes of a log that wait for the reader of a FIFO.
const MOST_WAITING: usize = 64 << 20;

/// Destination of the lines.
enum Output {
    File(Pieces),
    /// A terminal, a pipe, a device: nothing written can be taken back.
    Stream(File),
    /// A FIFO without a reader so far, and the lines that wait for one: to open it would wait, and with it the end of the link.
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
    /// A packet left it.
    Departure {
        at: Time,
        arrived: Time,
        size: Bytes,
    },
    /// A packet was dropped.
    Drop { at: Time, size: Bytes },
    /// From now on an outage closes the direction, or does not.
    Gate { at: Time, closed: bool },
    /// All events up to this instant have been reported.
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
            Self::Gate { at, closed } => (5, at, closed.into(), 0),
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
            5 => Self::Gate {
                at,
                closed: word(2) != 0,
            },
            _ => Self::Now(at),
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
