//! Files of records, written by a thread of their own so that the packet path never waits for a disk.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use crate::config::Config;
use crate::error::{Error, Result, Trying};
use crate::records::{PACKETS_MAGIC, RECORD_BYTES, SERIES_MAGIC};

/// Records per block; a block is what the two sides exchange (256 KiB).
const BLOCK_RECORDS: usize = 4096;

/// Blocks made beforehand: 0.8 s of packets at 1 Gbit/s over two directions.
const BLOCKS: usize = 32;

/// Blocks at most (1 GiB), should the disk fall behind. Records beyond are counted and lost.
const MOST_BLOCKS: usize = 4096;

type Block = Vec<u8>;

/// A file that grows by records of 64 bytes.
///
/// Filled blocks go to the writer thread, empty ones come back: [`RecordFile::push`] neither waits nor, unless the disk falls
/// behind, allocates.
pub struct RecordFile {
    block: Block,
    blocks: usize,
    full: SyncSender<Block>,
    empty: Receiver<Block>,
    /// Ends with what was wrong first, if anything was.
    writer: JoinHandle<Option<String>>,
    /// Records for which there was no block.
    lost: u64,
    /// Records that could not be written.
    unwritten: Arc<AtomicU64>,
}

/// What became of the records that are not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// How many there are.
    pub records: u64,
    /// What kept them from being written; `None` if it was only that the disk was too slow.
    pub problem: Option<String>,
}

impl RecordFile {
    /// Creates the file, which begins with `magic`.
    pub fn create(path: &Path, magic: &'static [u8]) -> Result<Self> {
        let mut file = Appender::create(path).trying(|| format!("create {}", path.display()))?;
        file.append(magic)
            .trying(|| format!("write to {}", path.display()))?;
        Self::create_with(path.display().to_string(), move |block| file.append(block))
    }

    /// A file called `name` to which `write` appends, in a thread of its own.
    ///
    /// A block that it fails to write is lost and counted. It is given the next one all the same: there may be room again.
    pub fn create_with(
        name: String,
        mut write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (full, to_write) = sync_channel::<Block>(MOST_BLOCKS);
        let (give_back, empty) = sync_channel::<Block>(MOST_BLOCKS);
        for _ in 1..BLOCKS {
            give_back
                .try_send(new_block())
                .expect("the channel holds all blocks");
        }
        let unwritten = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&unwritten);
        let writer = thread::Builder::new()
            .name("writer".into())
            .spawn(move || {
                let mut problem = None;
                for mut block in to_write {
                    if let Err(error) = write(&block) {
                        count.fetch_add((block.len() / RECORD_BYTES) as u64, Ordering::Relaxed);
                        problem.get_or_insert_with(|| format!("cannot write to {name}: {error}"));
                    }
                    block.clear();
                    // The other side may have finished already.
                    let _ = give_back.try_send(block);
                }
                problem
            })
            .trying(|| "start the writer thread".into())?;
        Ok(Self {
            block: new_block(),
            blocks: BLOCKS,
            full,
            empty,
            writer,
            lost: 0,
            unwritten,
        })
    }

    /// Appends a record.
    pub fn push(&mut self, record: [u8; RECORD_BYTES]) {
        if self.block.len() == BLOCK_RECORDS * RECORD_BYTES && !self.hand_over() {
            self.lost += 1;
            return;
        }
        self.block.extend_from_slice(&record);
    }

    /// Hands what was appended so far to the writer thread.
    pub fn flush(&mut self) {
        if !self.block.is_empty() {
            self.hand_over();
        }
    }

    /// Exchanges the block for an empty one; `false` if there is none.
    fn hand_over(&mut self) -> bool {
        let next = match self.empty.try_recv() {
            Ok(block) => block,
            Err(TryRecvError::Empty) if self.blocks < MOST_BLOCKS => {
                self.blocks += 1;
                new_block()
            }
            Err(_) => return false,
        };
        // Never full: there are no more blocks than it holds.
        let _ = self.full.try_send(std::mem::replace(&mut self.block, next));
        true
    }

    /// How many records are lost so far.
    pub fn lost(&self) -> u64 {
        self.lost + self.unwritten.load(Ordering::Relaxed)
    }

    /// Writes everything and closes the file; the records that are not in it.
    pub fn finish(mut self) -> Result<Missing> {
        self.flush();
        let lost = self.lost;
        drop(self.full);
        let ended = Error::ThreadEnded { thread: "writer" };
        let problem = self.writer.join().map_err(|_| ended)?;
        Ok(Missing {
            records: lost + self.unwritten.load(Ordering::Relaxed),
            problem,
        })
    }
}

/// A file that grows by whole pieces: of one for which there is no room nothing stays, so that what comes later is in line.
pub struct Appender {
    file: File,
    length: u64,
}

impl Appender {
    /// Creates the file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::create(path)?,
            length: 0,
        })
    }

    /// Appends a piece.
    pub fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(piece);
        match written {
            Ok(()) => self.length += piece.len() as u64,
            Err(_) => {
                // A pipe cannot take anything back.
                let _ = self.file.set_len(self.length);
                let _ = self.file.seek(SeekFrom::Start(self.length));
            }
        }
        written
    }
}

/// The files of a run, those that were asked for.
pub struct Records {
    /// Every packet.
    pub packets: Option<RecordFile>,
    /// The 10 ms series.
    pub series: Option<RecordFile>,
    /// Logs in the format of Mahimahi's mm-link, by direction.
    pub mahimahi: Vec<Option<RecordFile>>,
}

impl Records {
    /// Creates the files.
    pub fn create(config: &Config) -> Result<Self> {
        let create = |path: &Option<PathBuf>, magic| {
            path.as_deref()
                .map(|path| RecordFile::create(path, magic))
                .transpose()
        };
        Ok(Self {
            packets: create(&config.packet_log, PACKETS_MAGIC)?,
            series: create(&config.series, SERIES_MAGIC)?,
            mahimahi: config
                .directions
                .iter()
                .map(|way| {
                    let wanted = way.mahimahi_log.as_ref();
                    wanted.map(|it| it.create(&way.stages)).transpose()
                })
                .collect::<Result<_>>()?,
        })
    }

    /// Hands what was appended so far to the writer threads.
    pub fn flush(&mut self) {
        let files = [&mut self.series, &mut self.packets].into_iter();
        for file in files.chain(&mut self.mahimahi).flatten() {
            file.flush();
        }
    }

    /// How many records are lost so far.
    pub fn lost(&self) -> u64 {
        let files = [&self.series, &self.packets].into_iter();
        let files = files.chain(&self.mahimahi).flatten();
        files.map(RecordFile::lost).sum()
    }

    /// Closes the files; the records that are in none of them, and the first problem.
    pub fn finish(&mut self) -> Result<Missing> {
        let mut all = Missing::default();
        let files = [self.series.take(), self.packets.take()].into_iter();
        for file in files.chain(self.mahimahi.drain(..)).flatten() {
            let missing = file.finish()?;
            all.records += missing.records;
            all.problem = all.problem.or(missing.problem);
        }
        Ok(all)
    }
}

fn new_block() -> Block {
    Vec::with_capacity(BLOCK_RECORDS * RECORD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_arrive_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.bin");
        let mut file = RecordFile::create(&path, b"magic").unwrap();
        let count = 3 * BLOCK_RECORDS + 5;
        for number in 0..count {
            let mut record = [0; RECORD_BYTES];
            record[..8].copy_from_slice(&(number as u64).to_le_bytes());
            file.push(record);
            if number % 1000 == 0 {
                file.flush();
            }
        }
        assert_eq!(file.finish().unwrap(), Missing::default());
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"magic"));
        let numbers = bytes[5..]
            .chunks(RECORD_BYTES)
            .map(|record| u64::from_le_bytes(record[..8].try_into().unwrap()));
        assert!(numbers.eq(0..count as u64));
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let Ok(mut file) = RecordFile::create(Path::new("/dev/full"), b"") else {
            return;
        };
        for _ in 0..3 * BLOCK_RECORDS {
            file.push([0; RECORD_BYTES]);
        }
        let missing = file.finish().unwrap();
        assert_eq!(missing.records, 3 * BLOCK_RECORDS as u64);
        assert!(missing.problem.unwrap().contains("/dev/full"));
    }

    #[test]
    fn a_disk_with_room_again_goes_on_with_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.bin");
        let mut disk = Appender::create(&path).unwrap();
        let mut blocks = 0;
        let write = move |block: &[u8]| {
            blocks += 1;
            match blocks {
                2 | 3 => {
                    // Half of it fits.
                    disk.file.write_all(&block[..block.len() / 2 + 7])?;
                    disk.file.set_len(disk.length)?;
                    disk.file.seek(SeekFrom::Start(disk.length))?;
                    Err(io::Error::from(io::ErrorKind::StorageFull))
                }
                _ => disk.append(block),
            }
        };
        let mut file = RecordFile::create_with("records".into(), write).unwrap();
        for block in 0..5u8 {
            for _ in 0..10 {
                file.push([block; RECORD_BYTES]);
            }
            file.flush();
        }
        let missing = file.finish().unwrap();
        assert_eq!(missing.records, 20);
        let bytes = std::fs::read(&path).unwrap();
        let expected: Vec<u8> = [0, 3, 4]
            .iter()
            .flat_map(|&block| [block; 10 * RECORD_BYTES])
            .collect();
        assert_eq!(bytes, expected);
    }
}
