//! The journal: everything as it happens, in blocks that are whole or not at all.
//!
//! A block is its length and a hash, four bytes each, and its entries; all numbers are little-endian. What follows the last whole block was
//! being written when the recorder died, and is ignored.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use cellbed_link::Time;

use super::description::{Head, SignalSample};
use super::run::RunPlan;
use crate::client::{Event, RunEnd};
use crate::wire::Arrival;

/// The journal's name in the recording's directory.
const NAME: &str = "journal";

const MAGIC: &[u8; 16] = b"cellbed journal2";

/// A block is written when it has so many bytes.
const BLOCK: usize = 1 << 18;

/// Longer blocks are no blocks.
const LONGEST: usize = 1 << 24;

/// What is wrong with a recording on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried, such as `write`.
        what: &'static str,
        /// Of which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is something already.
    #[error("{}: there is something already; choose another name for the recording", .0.display())]
    Occupied(PathBuf),
    /// A recording that was broken off.
    #[error("{}: a recording that was broken off is there; `cellbed-recorder pack` it, and choose another name", .0.display())]
    Unpacked(PathBuf),
    /// A recorder still writes it.
    #[error("{}: it is still being recorded; wait for its end, or stop that recorder with Ctrl-C", .0.display())]
    BeingWritten(PathBuf),
    /// Nothing to pack.
    #[error("{}: there is no journal to pack; {}", .0.display(), if .0.join("recording.json").exists() { "it is packed already" } else { "it is no recording" })]
    NoJournal(PathBuf),
    /// Not a journal.
    #[error("{}: this is no journal of this version of the recorder", .0.display())]
    Foreign(PathBuf),
    /// A journal that ends before anything was sent.
    #[error("{}: nothing was recorded", .0.display())]
    Empty(PathBuf),
    /// The tables cannot be made.
    #[error("cannot write {}: {source}", path.display())]
    Parquet {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: parquet::errors::ParquetError,
    },
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A run has been asked for.
    Run(RunPlan),
    /// A path has learnt something.
    Event(Event),
    /// A modem was asked.
    Signal(SignalSample),
    /// This machine lost packets that the network had delivered, as many so far.
    Overflows(u64),
}

/// Whether a directory has a journal that is to be packed.
pub fn has_journal(folder: &Path) -> bool {
    folder.join(NAME).exists()
}

pub(super) fn path_in(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// A journal that is being written.
pub struct JournalWriter {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
}

impl JournalWriter {
    /// Makes the directory, if there is none, and begins its journal.
    pub fn create(folder: &Path, head: &Head) -> Result<Self, RecordingError> {
        let failed = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| RecordingError::File { what, path, source }
        };
        if has_journal(folder) {
            return Err(RecordingError::Unpacked(folder.to_owned()));
        }
        std::fs::create_dir_all(folder).map_err(failed("create", folder))?;
        let mut entries = std::fs::read_dir(folder).map_err(failed("read", folder))?;
        if entries.next().is_some() {
            return Err(RecordingError::Occupied(folder.to_owned()));
        }
        let path = path_in(folder);
        let file = File::create_new(&path).map_err(failed("create", &path))?;
        is_ours(&file); // where files cannot be locked, nobody is kept from packing
        let mut writer = Self {
            path,
            file,
            block: MAGIC.to_vec(),
        };
        writer.write_out()?;
        writer.block = serde_json::to_vec(head).unwrap_or_default();
        writer.flush()?;
        writer.sync()?;
        Ok(writer)
    }

    /// Adds an entry. Events of which nothing can be learnt later are left out.
    pub fn add(&mut self, entry: &Entry) -> Result<(), RecordingError> {
        encode(entry, &mut self.block);
        match self.block.len() {
            BLOCK.. => self.flush(),
            _ => Ok(()),
        }
    }

    /// Hands everything to the kernel: a recorder that is killed loses none of it.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let head = [self.block.len() as u32, hash(&self.block)];
        let mut framed: Vec<u8> = head
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        framed.append(&mut self.block);
        self.block = framed;
        self.write_out()
    }

    /// Has the disk keep everything: a machine that crashes loses none of it.
    pub fn sync(&mut self) -> Result<(), RecordingError> {
        let result = self.file.sync_data();
        self.refused("write", result)
    }

    fn write_out(&mut self) -> Result<(), RecordingError> {
        let result = self.file.write_all(&self.block);
        self.block.clear();
        self.refused("write", result)
    }

    fn refused(&self, what: &'static str, result: io::Result<()>) -> Result<(), RecordingError> {
        result.map_err(|source| RecordingError::File {
            what,
            path: self.path.clone(),
            source,
        })
    }
}

/// A journal that is being read: gives its entries in order, up to its end or to where it was torn.
pub(super) struct JournalReader {
    pub(super) head: Head,
    input: BufReader<File>,
    block: Vec<u8>,
    /// Where the next entry begins in `block`.
    position: usize,
}

impl JournalReader {
    pub(super) fn open(folder: &Path) -> Result<Self, RecordingError> {
        let path = path_in(folder);
        let foreign = || RecordingError::Foreign(path.clone());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RecordingError::NoJournal(folder.to_owned()));
            }
            Err(source) => {
                let what = "read";
                return Err(RecordingError::File { what, path, source });
            }
        };
        if !is_ours(&file) {
            return Err(RecordingError::BeingWritten(folder.to_owned()));
        }
        let mut input = BufReader::with_capacity(BLOCK, file);
        let mut magic = [0; 16];
        input.read_exact(&mut magic).map_err(|_| foreign())?;
        if &magic != MAGIC {
            return Err(foreign());
        }
        let head = next_block(&mut input).ok_or_else(foreign)?;
        Ok(Self {
            head: serde_json::from_slice(&head).map_err(|_| foreign())?,
            input,
            block: Vec::new(),
            position: 0,
        })
    }
}

impl Iterator for JournalReader {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.position == self.block.len() {
            self.block = next_block(&mut self.input)?;
            self.position = 0;
        }
        let mut fields = Fields(&self.block[self.position..]);
        let entry = decode(&mut fields)?;
        self.position = self.block.len() - fields.0.len();
        Some(entry)
    }
}

/// Locks the journal until it is closed, be it by a crash; `false` if another process has done so.
fn is_ours(file: &File) -> bool {
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(file, operation) != Err(rustix::io::Errno::WOULDBLOCK)
}

fn next_block(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = [0; 8];
    input.read_exact(&mut head).ok()?;
    let mut fields = Fields(&head);
    let (length, expected) = (fields.u32()? as usize, fields.u32()?);
    if length > LONGEST {
        return None;
    }
    let mut block = vec![0; length];
    input.read_exact(&mut block).ok()?;
    (hash(&block) == expected).then_some(block)
}

/// FNV-1a: tells a torn block, not a forged one.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

const RUN: u8 = 1;
const BEGAN: u8 = 2;
const SENT: u8 = 3;
const UPLINK: u8 = 4;
const DOWNLINK: u8 = 5;
const PAUSED: u8 = 6;
const ENDED: u8 = 7;
const SIGNAL: u8 = 8;
const OVERFLOWS: u8 = 9;
const CLOCK: u8 = 10;

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    let mut put = |kind: u8, fields: &[&[u8]]| {
        out.push(kind);
        fields.iter().for_each(|field| out.extend_from_slice(field));
    };
    let le = u32::to_le_bytes;
    let time = |at: &Time| at.as_nanos().to_le_bytes();
    match entry {
        Entry::Run(plan) => put_json(RUN, plan, out),
        Entry::Signal(sample) => put_json(SIGNAL, sample, out),
        Entry::Overflows(count) => put(OVERFLOWS, &[&count.to_le_bytes()]),
        Entry::Event(event) => match event {
            Event::Began { run, at } => put(BEGAN, &[&le(*run), &time(at)]),
            Event::Sent {
                run,
                train,
                index,
                bytes,
                at,
            } => {
                let bytes = bytes.to_le_bytes();
                put(
                    SENT,
                    &[&le(*run), &le(*train), &le(*index), &bytes, &time(at)],
                );
            }
            Event::ArrivedUplink { run, arrival } => {
                let (bytes, at) = (
                    arrival.bytes.to_le_bytes(),
                    arrival.arrived_ns.to_le_bytes(),
                );
                let (train, index) = (le(arrival.train), le(arrival.index));
                put(UPLINK, &[&le(*run), &train, &index, &bytes, &at]);
            }
            Event::ArrivedDownlink {
                run,
                train,
                index,
                bytes,
                sent_ns,
                at,
            } => {
                let (bytes, sent) = (bytes.to_le_bytes(), sent_ns.to_le_bytes());
                let fields: [&[u8]; 6] = [
                    &le(*run),
                    &le(*train),
                    &le(*index),
                    &bytes,
                    &sent,
                    &time(at),
                ];
                put(DOWNLINK, &fields);
            }
            Event::Clock {
                asked,
                received_ns,
                sent_ns,
                at,
            } => {
                let (received, sent) = (received_ns.to_le_bytes(), sent_ns.to_le_bytes());
                put(CLOCK, &[&time(asked), &received, &sent, &time(at)]);
            }
            Event::Paused { run, from, until } => {
                put(PAUSED, &[&le(*run), &time(from), &time(until)])
            }
            Event::Ended { run, end } => {
                let counts = [
                    end.saturation_sent,
                    end.withheld,
                    end.unrecorded,
                    end.overflows,
                ]
                .map(le)
                .concat();
                put(
                    ENDED,
                    &[
                        &le(*run),
                        &time(&end.at),
                        &[u8::from(end.complete)],
                        &counts,
                    ],
                );
            }
            Event::Connected(_)
            | Event::Silent
            | Event::Resumed
            | Event::Rejected(_)
            | Event::RoundTrip(_) => {}
        },
    }
}

fn put_json(kind: u8, value: &impl serde::Serialize, out: &mut Vec<u8>) {
    let json = serde_json::to_vec(value).unwrap_or_default();
    out.push(kind);
    out.extend_from_slice(&(json.len() as u32).to_le_bytes());
    out.extend_from_slice(&json);
}

/// Takes fields off the front of a block; `None` if there are too few bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Time> {
        self.u64().map(Time::from_nanos)
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
        let length = self.u32()? as usize;
        let (json, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        serde_json::from_slice(json).ok()
    }
}

/// The next entry; `None` at the end of a block, and where it cannot be understood.
fn decode(fields: &mut Fields<'_>) -> Option<Entry> {
    let event = match fields.u8()? {
        RUN => return fields.json().map(Entry::Run),
        SIGNAL => return fields.json().map(Entry::Signal),
        OVERFLOWS => return fields.u64().map(Entry::Overflows),
        BEGAN => Event::Began {
            run: fields.u32()?,
            at: fields.time()?,
        },
        SENT => Event::Sent {
            run: fields.u32()?,
            train: fields.u32()?,
            index: fields.u32()?,
            bytes: fields.u16()?,
            at: fields.time()?,
        },
        UPLINK => Event::ArrivedUplink {
            run: fields.u32()?,
            arrival: Arrival {
                train: fields.u32()?,
                index: fields.u32()?,
                bytes: fields.u16()?,
                arrived_ns: fields.u64()?,
            },
        },
        DOWNLINK => Event::ArrivedDownlink {
            run: fields.u32()?,
            train: fields.u32()?,
            index: fields.u32()?,
            bytes: fields.u16()?,
            sent_ns: fields.u64()?,
            at: fields.time()?,
        },
        CLOCK => Event::Clock {
            asked: fields.time()?,
            received_ns: fields.u64()?,
            sent_ns: fields.u64()?,
            at: fields.time()?,
        },
        PAUSED => Event::Paused {
            run: fields.u32()?,
            from: fields.time()?,
            until: fields.time()?,
        },
        ENDED => Event::Ended {
            run: fields.u32()?,
            end: RunEnd {
                at: fields.time()?,
                complete: fields.u8()? != 0,
                saturation_sent: fields.u32()?,
                withheld: fields.u32()?,
                unrecorded: fields.u32()?,
                overflows: fields.u32()?,
                refusal: None,
            },
        },
        _ => return None,
    };
    Some(Entry::Event(event))
}
