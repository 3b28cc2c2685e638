//! The destination of series, and the result of an import.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The subject of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Traffic from the device.
    Uplink,
    /// Traffic to the device.
    Downlink,
    /// Round trips.
    RoundTrip,
}

impl Part {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
            Self::RoundTrip => "round-trip",
        }
    }
}

/// The content of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Packet delivery opportunities of at most 1500 bytes of IP.
    Opportunities,
    /// Rates, each until the next row's time.
    Rate,
    /// Round-trip times of probes.
    RoundTrip,
}

/// The destination of a recording's series.
pub trait Target {
    /// The file of one series.
    type File: Write + Send;

    /// A new file for the series of a part.
    fn open(&self, part: Part) -> io::Result<Self::File>;
}

/// A folder in which each part is a Parquet file of its name.
#[derive(Debug)]
pub struct Folder<'a>(pub &'a Path);

impl Folder<'_> {
    /// The file of a part.
    pub fn file(&self, part: Part) -> PathBuf {
        self.0.join(format!("{}.parquet", part.name()))
    }
}

impl Target for Folder<'_> {
    type File = File;

    fn open(&self, part: Part) -> io::Result<File> {
        File::create(self.file(part))
    }
}

/// Discards the series: to check whether a recording can be read.
#[derive(Debug)]
pub struct Nowhere;

impl Target for Nowhere {
    type File = io::Sink;

    fn open(&self, _: Part) -> io::Result<io::Sink> {
        Ok(io::sink())
    }
}

/// A series that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Its part of the network.
    pub part: Part,
    /// Its content.
    pub content: Content,
    /// Number of rows.
    pub rows: u64,
    /// From time zero to its end: the period of a looped replay.
    pub duration_ns: i64,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Imported {
    /// The series that were written.
    pub parts: Vec<Written>,
    /// Sentences for users: assumptions and omissions.
    pub notes: Vec<String>,
    /// Its first stamp, ns since 1970, if the recording contains it.
    pub begun_ns: Option<i64>,
}
