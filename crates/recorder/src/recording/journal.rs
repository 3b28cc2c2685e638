//! The journal: all events in order, in blocks. A block is complete or ignored.
//!
//! A block has a length and a hash of four bytes each, big-endian, then entries. Bytes after the last
//! complete block were being written when the recorder died, and are ignored.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use cellbed_link::Time;
use serde::{Deserialize, Serialize};

use super::description::Head;
use super::run::RunPlan;
use crate::client::Event;
use crate::error::{Error, Result, Trying};
use crate::wire::Encode;

/// The journal's name in the recording's directory.
const NAME: &str = "journal";

const MAGIC: &[u8; 16] = b"cellbed journal7";

/// Number of bytes at which a block is written.
const BLOCK: usize = 1 << 18;

/// Maximum bytes of a valid block.
const LONGEST: usize = 1 << 24;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// A run was requested.
    Run(#[serde(with = "as_json")] RunPlan),
    /// An event of a path.
    Event(Event),
    /// Number of packets that the network delivered, but this machine lost, since the last such entry.
    Overflows(u64),
}

/// Plans are JSON within the journal: their fields may be left out.
mod as_json {
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::RunPlan;

    pub fn serialize<S: Serializer>(plan: &RunPlan, serializer: S) -> Result<S::Ok, S::Error> {
        let json = serde_json::to_string(plan).map_err(S::Error::custom)?;
        json.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<RunPlan, D::Error> {
        serde_json::from_str(&String::deserialize(input)?).map_err(D::Error::custom)
    }
}

pub(super) fn path_in(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// Check that a recording can be written to a directory: the directory is missing or empty.
pub fn check_free(folder: &Path) -> Result<()> {
    let name = folder.display();
    if path_in(folder).exists() {
        return Error::failed(format!(
            "{name}: contains an interrupted recording; finish it with `cellbed-recorder pack` and choose another name"
        ));
    }
    // A dangling link also counts as missing.
    let there = fs::symlink_metadata(folder).is_ok();
    if there && !fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()) {
        return Error::failed(format!(
            "{name}: already exists; choose another name for the recording"
        ));
    }
    Ok(())
}

/// Writer of a journal.
pub struct JournalWriter {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
}

impl JournalWriter {
    /// Create the directory, if missing, and begin the journal. zero: time zero on the client's monotonic clock.
    pub fn create(folder: &Path, head: &Head, zero: Time) -> Result<Self> {
        check_free(folder)?;
        fs::create_dir_all(folder).trying(|| format!("create {}", folder.display()))?;
        let path = path_in(folder);
        let file = File::create_new(&path).trying(|| format!("create {}", path.display()))?;
        is_ours(&file); // without file locks, other processes may pack
        let mut writer = Self {
            path,
            file,
            block: MAGIC.to_vec(),
        };
        writer.write_out()?;
        writer.block = serde_json::to_vec(&(head, zero)).unwrap_or_default();
        writer.flush()?;
        writer.sync()?;
        Ok(writer)
    }

    /// Add an entry.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        entry.put(&mut self.block);
        match self.block.len() {
            BLOCK.. => self.flush(),
            _ => Ok(()),
        }
    }

    /// Pass all entries to the kernel: killing the recorder loses none of them.
    pub fn flush(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut framed = Vec::with_capacity(self.block.len() + 8);
        framed.extend_from_slice(&(self.block.len() as u32).to_be_bytes());
        framed.extend_from_slice(&hash(&self.block).to_be_bytes());
        framed.append(&mut self.block);
        self.block = framed;
        self.write_out()
    }

    /// Write all entries to the disk: a crash of the machine loses none of them.
    pub fn sync(&mut self) -> Result<()> {
        let result = self.file.sync_data();
        self.writing(result)
    }

    fn write_out(&mut self) -> Result<()> {
        let result = self.file.write_all(&self.block);
        self.block.clear();
        self.writing(result)
    }

    fn writing(&self, result: io::Result<()>) -> Result<()> {
        Ok(result.trying(|| format!("write {}", self.path.display()))?)
    }
}

/// Reader of a journal: returns its entries in order, up to its end or to an incomplete block.
pub(super) struct JournalReader {
    pub(super) head: Head,
    pub(super) zero: Time,
    input: BufReader<File>,
    block: Vec<u8>,
    /// Position of the next entry in `block`.
    position: usize,
}

impl JournalReader {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let (path, name) = (path_in(folder), folder.display());
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let problem = match folder.join("recording.json").exists() {
                    true => "already packed",
                    false => "not a recording",
                };
                return Error::failed(format!("{name}: no journal to pack; {problem}"));
            }
            file => file.trying(|| format!("read {}", path.display()))?,
        };
        if !is_ours(&file) {
            return Error::failed(format!(
                "{name}: still being recorded; wait until it ends, or stop that recorder with Ctrl-C"
            ));
        }
        let mut input = BufReader::with_capacity(BLOCK, file);
        let Some((head, zero)) = read_head(&mut input) else {
            return Error::failed(format!(
                "{}: not a journal of this version of the recorder",
                path.display()
            ));
        };
        Ok(Self {
            head,
            zero,
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
        let (entry, rest) = Entry::take(&self.block[self.position..]).ok()?;
        self.position = self.block.len() - rest.len();
        Some(entry)
    }
}

fn read_head(input: &mut impl Read) -> Option<(Head, Time)> {
    let mut magic = [0; 16];
    input.read_exact(&mut magic).ok()?;
    let head = (magic == *MAGIC).then(|| next_block(input)).flatten()?;
    serde_json::from_slice(&head).ok()
}

/// Lock the journal until closed, even by a crash; return `false` if another process holds the lock.
fn is_ours(file: &File) -> bool {
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(file, operation) != Err(rustix::io::Errno::WOULDBLOCK)
}

fn next_block(input: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = [[0; 4]; 2];
    input.read_exact(head.as_flattened_mut()).ok()?;
    let [length, expected] = head.map(u32::from_be_bytes);
    if length as usize > LONGEST {
        return None;
    }
    let mut block = vec![0; length as usize];
    input.read_exact(&mut block).ok()?;
    (hash(&block) == expected).then_some(block)
}

/// FNV-1a: detects a torn block, not a forged one.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}
