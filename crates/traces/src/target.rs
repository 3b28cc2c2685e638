//! Where series go, and what has become of a recording.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::series::Written;

/// What of a network a series is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// What the device sends.
    Uplink,
    /// What the device receives.
    Downlink,
    /// There and back.
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

/// What the series of a recording go to.
pub trait Target {
    /// What the file of one series is.
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

/// No place at all: for whoever only wants to know whether a recording can be read.
#[derive(Debug)]
pub struct Nowhere;

impl Target for Nowhere {
    type File = io::Sink;

    fn open(&self, _: Part) -> io::Result<io::Sink> {
        Ok(io::sink())
    }
}

/// What has become of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Imported {
    /// The series that were written.
    pub parts: Vec<Written>,
    /// Sentences for whoever asked for it: what was taken for what, what was left out.
    pub notes: Vec<String>,
    /// When it was begun, ns since 1970, where the recording says it.
    pub begun_ns: Option<i64>,
}

/// 2000-01-01, ns since 1970: what is stamped earlier has a clock that nobody has set.
const EARLIEST_NS: i64 = 946_684_800 * 1_000_000_000;

impl Imported {
    /// Of a recording whose first stamp is this, ns since 1970; nothing of it yet.
    pub(crate) fn begun(stamp_ns: Option<i64>) -> Self {
        Self {
            begun_ns: stamp_ns.filter(|it| *it >= EARLIEST_NS),
            ..Self::default()
        }
    }
}
