//! The journal: everything as it happens, in blocks that are whole or not at all.
//!
//! A block is its length and a hash, four bytes each, and its entries; all numbers are big-endian. What follows the
//! last whole block was being written when the recorder died, and is ignored. Version 2 is little-endian.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::description::Head;
use super::entry::Entry;
use super::error::RecordingError;
use crate::field::{ByteOrder, Reader};

/// The journal's name in the recording's directory.
const NAME: &str = "journal";

const MAGIC: &[u8; 16] = b"cellbed journal3";

const MAGIC_2: &[u8; 16] = b"cellbed journal2";

/// A block is written when it has so many bytes.
const BLOCK: usize = 1 << 18;

/// Longer blocks are no blocks.
const LONGEST: usize = 1 << 24;

/// Return whether a directory has a journal to pack.
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

    /// Adds an entry. Events without information for a recording are left out.
    pub fn add(&mut self, entry: &Entry) -> Result<(), RecordingError> {
        entry.put(&mut self.block);
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
            .flat_map(|number| number.to_be_bytes())
            .collect();
        framed.append(&mut self.block);
        self.block = framed;
        self.write_out()
    }

    /// Has the disk keep everything: a machine that crashes loses none of it.
    pub fn sync(&mut self) -> Result<(), RecordingError> {
        let result = self.file.sync_data();
        self.writing("write", result)
    }

    fn write_out(&mut self) -> Result<(), RecordingError> {
        let result = self.file.write_all(&self.block);
        self.block.clear();
        self.writing("write", result)
    }

    fn writing(&self, what: &'static str, result: io::Result<()>) -> Result<(), RecordingError> {
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
    order: ByteOrder,
    block: Vec<u8>,
    /// Position of the next entry in `block`.
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
        let order = match &magic {
            MAGIC => ByteOrder::Big,
            MAGIC_2 => ByteOrder::Little,
            _ => return Err(foreign()),
        };
        let head = next_block(&mut input, order).ok_or_else(foreign)?;
        Ok(Self {
            head: serde_json::from_slice(&head).map_err(|_| foreign())?,
            input,
            order,
            block: Vec::new(),
            position: 0,
        })
    }
}

impl Iterator for JournalReader {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.position == self.block.len() {
            self.block = next_block(&mut self.input, self.order)?;
            self.position = 0;
        }
        let mut reader = Reader::with_order(&self.block[self.position..], self.order);
        let entry = Entry::take(&mut reader).ok()?;
        self.position = self.block.len() - reader.left();
        Some(entry)
    }
}

/// Locks the journal until it is closed, be it by a crash; `false` if another process has done so.
fn is_ours(file: &File) -> bool {
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(file, operation) != Err(rustix::io::Errno::WOULDBLOCK)
}

fn next_block(input: &mut impl Read, order: ByteOrder) -> Option<Vec<u8>> {
    let mut head = [0; 8];
    input.read_exact(&mut head).ok()?;
    let mut reader = Reader::with_order(&head, order);
    let length: u32 = reader.take().ok()?;
    let expected: u32 = reader.take().ok()?;
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
