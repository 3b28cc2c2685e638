//! Conversion of captures and Mahimahi's traces to series of times, in at most two passes and with little memory.
//!
//! A source is never trusted: malformed data is an [`ImportError`] that names the place.
#![forbid(unsafe_code)]

pub mod capture;
mod error;
mod mahimahi;
mod series;

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;

pub use error::{ImportError, Result};
pub use mahimahi::mahimahi;
pub use series::{Imported, Part, Written};

/// The format and its options, which each format's module defines.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "format", rename_all = "kebab-case")]
pub enum Request {
    /// A trace of Mahimahi, of one direction.
    Mahimahi {
        /// Requested direction.
        direction: Part,
    },
    /// A capture, pcap or pcapng.
    Capture(capture::Request),
}

/// Read a recording into files of a folder.
pub fn import(source: impl Read + Seek, request: &Request, folder: &Path) -> Result<Imported> {
    match request {
        Request::Mahimahi { direction } => mahimahi(source, *direction, folder),
        Request::Capture(request) => capture::capture(source, request, folder),
    }
}

/// Number of bytes between two reports.
const STEP: u64 = 1 << 23;

/// Reports the bytes read every few MiB; the callback may end the reading with an error.
pub struct Watched<R, F> {
    source: R,
    read: u64,
    told: u64,
    tell: F,
}

impl<R, F: FnMut(u64) -> io::Result<()>> Watched<R, F> {
    /// Watch `source`; `tell` gets the bytes read since its last call.
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
