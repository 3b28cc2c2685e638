//! A request: the recording to read, and the series to make.

use std::io::{Read, Seek};
use std::path::Path;

use serde::Deserialize;

use crate::error::Result;
use crate::series::{Imported, Part};
use crate::{capture, mahimahi};

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

/// Reads a recording into files of a folder.
pub fn import(source: impl Read + Seek, request: &Request, folder: &Path) -> Result<Imported> {
    match request {
        Request::Mahimahi { direction } => mahimahi(source, *direction, folder),
        Request::Capture(request) => capture::capture(source, request, folder),
    }
}
