//! A series of delivery opportunities, written row by row, and the result of an import.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{ImportError, Result, Seconds, refuse};

/// Maximum length of a playable trace, ns, as in Mahimahi's format: 2³² ms, some 49 days.
const LONGEST_NS: i64 = u32::MAX as i64 * 1_000_000;

/// The direction of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Traffic from the device.
    Uplink,
    /// Traffic to the device.
    Downlink,
}

impl Part {
    /// Both directions.
    pub(crate) const BOTH: [Self; 2] = [Self::Uplink, Self::Downlink];

    /// Return the name, also of the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
        }
    }
}

/// A series that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Direction of the series.
    pub part: Part,
    /// Number of rows.
    pub rows: u64,
    /// Time from zero to the end: the period of a looped replay.
    pub duration_ns: i64,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Imported {
    /// The series that were written.
    pub parts: Vec<Written>,
    /// Sentences for users: assumptions and omissions.
    pub notes: Vec<String>,
    /// First stamp of the recording, ns since 1970, if known.
    pub begun_ns: Option<i64>,
}

/// Writer of a series of opportunities of at most 1500 bytes of IP: ns since the start, as little-endian numbers of 64
/// bits.
pub(crate) struct Opportunities {
    part: Part,
    writer: BufWriter<File>,
    rows: u64,
}

impl Opportunities {
    /// Create a series in the file `PART.times` of a folder.
    pub(crate) fn create(part: Part, folder: &Path) -> Result<Self> {
        let file = File::create(folder.join(format!("{}.times", part.name())));
        Ok(Self {
            part,
            writer: BufWriter::new(file.map_err(ImportError::Write)?),
            rows: 0,
        })
    }

    /// Add the next opportunity, not before the previous one.
    #[inline]
    pub(crate) fn push(&mut self, at_ns: i64) -> Result<()> {
        self.rows += 1;
        let written = self.writer.write_all(&at_ns.to_le_bytes());
        written.map_err(ImportError::Write)
    }

    /// End the series; `duration_ns` is at least the last opportunity's time.
    pub(crate) fn finish(mut self, duration_ns: i64) -> Result<Written> {
        let name = self.part.name();
        if self.rows == 0 {
            return refuse(format!("contains nothing of the {name}"));
        }
        if !(1..=LONGEST_NS).contains(&duration_ns) {
            return refuse(format!(
                "its {name} lasts {}: a series lasts longer than nothing and at most {}",
                Seconds(duration_ns),
                Seconds(LONGEST_NS)
            ));
        }
        self.writer.flush().map_err(ImportError::Write)?;
        Ok(Written {
            part: self.part,
            rows: self.rows,
            duration_ns,
        })
    }
}
