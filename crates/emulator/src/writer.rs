//! Files of records, written by a separate thread: the packet path never waits for a disk.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use cellbed_link::records::RECORD_BYTES;

use crate::error::{Error, Result, Trying};

/// Number of records per block, the unit of exchange between both threads (256 KiB).
const BLOCK_RECORDS: usize = 4096;

/// Number of blocks allocated in advance: 0.8 s of packets at 1 Gbit/s over two directions.
const BLOCKS: usize = 32;

/// Maximum bytes of a file: 134 million packets.
pub const LARGEST_FILE: u64 = 8 << 30;

/// Maximum number of blocks (1 GiB) if the disk falls behind. Further records are counted as lost.
const MOST_BLOCKS: usize = 4096;

/// A file of appended records, usually of 64 bytes.
///
/// Filled blocks go to the writer thread, and empty blocks come back. [`RecordFile::push`] does not wait, and allocates
/// only if the disk falls behind.
pub struct RecordFile<R = [u8; RECORD_BYTES]> {
    block: Vec<R>,
    blocks: usize,
    full: SyncSender<Vec<R>>,
    empty: Receiver<Vec<R>>,
    writer: JoinHandle<Lost>,
    lost: u64,
}

/// Records missing from files.
#[derive(Debug, Default)]
pub struct Lost {
    /// Number of records.
    pub records: u64,
    /// Error of the first attempt, unless the disk only fell behind.
    pub problem: Option<Error>,
}

impl Lost {
    /// Add the losses of another file.
    pub fn add(&mut self, other: Self) {
        self.records += other.records;
        self.problem = self.problem.take().or(other.problem);
    }
}

/// A file that grows only by whole pieces.
pub struct Pieces {
    file: File,
    length: u64,
}

impl Pieces {
    /// Create an empty file at `path`, replacing any existing file.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).trying(|| format!("create {}", path.display()))?;
        Ok(Self { file, length: 0 })
    }

    /// Append a whole piece or nothing. After a full disk, the file continues after the last whole piece.
    pub fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(piece);
        match &written {
            Ok(()) => self.length += piece.len() as u64,
            Err(_) => {
                // A pipe cannot be truncated; ignore the error.
                let _ = self.file.set_len(self.length);
                let _ = self.file.seek(SeekFrom::Start(self.length));
            }
        }
        written
    }
}

impl RecordFile {
    /// Create the file, which begins with `magic` and has at most `most` bytes. With `latest`, the file keeps the
    /// latest records: at half of `most`, the file becomes the [`earlier`] part in place of the previous part, and
    /// a new file begins. Without `latest`, blocks beyond `most` are lost.
    pub fn create(path: &Path, magic: &'static [u8], most: u64, latest: bool) -> Result<Self> {
        let mut file = Pieces::create(path)?;
        file.append(magic)
            .trying(|| format!("write to {}", path.display()))?;
        let path = path.to_owned();
        let (mut first, mut oldest) = (0, None::<PathBuf>);
        Self::create_with(path.display().to_string(), move |block| {
            let block = block.as_flattened();
            let records = (file.length.saturating_sub(magic.len() as u64)) / RECORD_BYTES as u64;
            let length = file.length + block.len() as u64;
            if !latest && length > most {
                let problem = format!("it has its largest size of {most} bytes");
                return Err(io::Error::other(problem));
            }
            if latest && records > 0 && length > most / 2 {
                // Without a new file, the records stay in this one.
                let made = beside(&path, "new");
                let next = File::create(&made)?;
                let old = earlier(&path, first);
                fs::rename(&path, &old)?;
                fs::rename(&made, &path)?;
                file = Pieces {
                    file: next,
                    length: 0,
                };
                first += records;
                if let Some(oldest) = oldest.replace(old) {
                    let _ = fs::remove_file(oldest); // already removed by another process
                }
            }
            if file.length == 0 {
                file.append(magic)?;
            }
            file.append(block)
        })
    }
}

impl<R: Send + 'static> RecordFile<R> {
    /// Create a file called `name`; `write` appends to it in a separate thread. Blocks not written are counted as
    /// lost. Later blocks are tried all the same: a full disk may have room again.
    pub fn create_with(
        name: String,
        mut write: impl FnMut(&[R]) -> io::Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (full, to_write) = sync_channel::<Vec<R>>(MOST_BLOCKS);
        let (give_back, empty) = sync_channel::<Vec<R>>(MOST_BLOCKS);
        for _ in 1..BLOCKS {
            give_back
                .try_send(new_block())
                .expect("the channel holds all blocks");
        }
        let writer = thread::Builder::new()
            .name("writer".into())
            .spawn(move || {
                let mut lost = Lost::default();
                let mut fails = false;
                for mut block in to_write {
                    let written = write(&block).trying(|| format!("write to {name}"));
                    match &written {
                        Ok(()) if fails => tracing::info!("{name} is written again"),
                        Err(problem) if !fails => tracing::warn!("records are lost: {problem}"),
                        _ => {}
                    }
                    fails = written.is_err();
                    if let Err(problem) = written {
                        lost.add(Lost {
                            records: block.len() as u64,
                            problem: Some(problem.into()),
                        });
                    }
                    block.clear();
                    // The other thread may have finished already.
                    let _ = give_back.try_send(block);
                }
                lost
            })
            .trying(|| "start the writer thread".into())?;
        Ok(Self {
            block: new_block(),
            blocks: BLOCKS,
            full,
            empty,
            writer,
            lost: 0,
        })
    }

    /// Append a record.
    pub fn push(&mut self, record: R) {
        if self.block.len() == BLOCK_RECORDS && !self.hand_over() {
            self.lost += 1;
            return;
        }
        self.block.push(record);
    }

    /// Send the records appended so far to the writer thread.
    pub fn flush(&mut self) {
        if !self.block.is_empty() {
            self.hand_over();
        }
    }

    /// Exchange the block for an empty one; return `false` if there is none.
    fn hand_over(&mut self) -> bool {
        let next = match self.empty.try_recv() {
            Ok(block) => block,
            Err(TryRecvError::Empty) if self.blocks < MOST_BLOCKS => {
                self.blocks += 1;
                new_block()
            }
            Err(_) => return false,
        };
        // Never full: the channel holds all blocks. The writer thread ends after this side.
        let _ = self.full.try_send(std::mem::replace(&mut self.block, next));
        true
    }

    /// Write all records and close the file. Return the lost records.
    pub fn finish(mut self) -> Result<Lost> {
        self.flush();
        drop(self.full);
        let mut lost = Lost {
            records: self.lost,
            problem: None,
        };
        let written = self.writer.join();
        lost.add(written.map_err(|_| Error::thread_ended("writer"))?);
        Ok(lost)
    }
}

/// Return the path of the earlier part of a record file; `first`: number of its first record.
///
/// The name gives the number of records removed before it, even if the emulator was killed.
fn earlier(path: &Path, first: u64) -> PathBuf {
    beside(path, first)
}

/// Return the path with another ending after its own.
fn beside(path: &Path, ending: impl Display) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{ending}"));
    name.into()
}

fn new_block<R>() -> Vec<R> {
    Vec::with_capacity(BLOCK_RECORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&number.to_le_bytes());
        record
    }

    fn numbers(path: &PathBuf) -> Vec<u64> {
        let bytes = fs::read(path).unwrap();
        assert!(bytes.starts_with(b"magic"));
        let (records, _) = bytes[5..].as_chunks::<RECORD_BYTES>();
        let number =
            |record: &[u8; RECORD_BYTES]| u64::from_le_bytes(record[..8].try_into().unwrap());
        records.iter().map(number).collect()
    }

    #[test]
    fn records_arrive_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.bin");
        let mut file = RecordFile::create(&path, b"magic", LARGEST_FILE, false).unwrap();
        let count = 3 * BLOCK_RECORDS + 5;
        for number in 0..count {
            file.push(record(number as u64));
            if number % 1000 == 0 {
                file.flush();
            }
        }
        assert_eq!(file.finish().unwrap().records, 0);
        assert!(numbers(&path).into_iter().eq(0..count as u64));
    }

    #[test]
    fn a_file_grows_to_its_largest_size_and_the_missing_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.bin");
        let block = BLOCK_RECORDS * RECORD_BYTES;
        let mut file = RecordFile::create(&path, b"magic", 2 * block as u64 + 5, false).unwrap();
        for _ in 0..3 * BLOCK_RECORDS {
            file.push([0; RECORD_BYTES]);
        }
        let lost = file.finish().unwrap();
        assert_eq!(lost.records, BLOCK_RECORDS as u64);
        assert!(
            lost.problem
                .unwrap()
                .to_string()
                .contains("its largest size")
        );
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            2 * block as u64 + 5
        );
    }

    #[test]
    fn the_latest_records_are_kept_and_names_state_how_many_were_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.bin");
        let most = 4 * (BLOCK_RECORDS * RECORD_BYTES) as u64;
        let mut file = RecordFile::create(&path, b"magic", most, true).unwrap();
        let count = 9 * BLOCK_RECORDS as u64;
        (0..count).for_each(|number| file.push(record(number)));
        assert_eq!(file.finish().unwrap().records, 0);
        let mut parts: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|it| it.unwrap().path())
            .collect();
        parts.sort();
        let first = 7 * BLOCK_RECORDS as u64;
        assert_eq!(parts, [path.clone(), earlier(&path, first)]);
        parts.reverse();
        assert!(
            parts
                .iter()
                .all(|it| it.metadata().unwrap().len() <= most / 2)
        );
        assert!(parts.iter().flat_map(numbers).eq(first..count));
    }
}
