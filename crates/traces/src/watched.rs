//! A source that reports the progress of reading.

use std::io::{self, Read, Seek, SeekFrom};

/// Bytes between two looks.
const STEP: u64 = 1 << 23;

/// Reports the bytes read every few MiB; the callback may end the reading with an error.
pub struct Watched<R, F> {
    source: R,
    read: u64,
    told: u64,
    tell: F,
}

impl<R, F: FnMut(u64) -> io::Result<()>> Watched<R, F> {
    /// `source`; `tell` is called with the bytes read since its last call.
    pub fn new(source: R, tell: F) -> Self {
        Self {
            source,
            read: 0,
            told: 0,
            tell,
        }
    }
}

impl<R: Read, F: FnMut(u64) -> io::Result<()>> Read for Watched<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read += count as u64;
        if self.read - self.told >= STEP {
            (self.tell)(self.read - self.told)?;
            self.told = self.read;
        }
        Ok(count)
    }
}

impl<R: Seek, F> Seek for Watched<R, F> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.source.seek(position)
    }
}
