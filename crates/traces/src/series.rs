//! A series of delivery opportunities, written to Parquet row by row, and the result of an import.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::Int64Type;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde::{Deserialize, Serialize};

use crate::error::{Result, Seconds, refuse};

/// Number of rows of a group: the unit of writing and reading in memory.
const GROUP: usize = 1 << 18;

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

    /// Returns the name, also of the file.
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

/// Writer of a series of opportunities of at most 1500 bytes of IP, ns since the start.
pub(crate) struct Opportunities {
    part: Part,
    writer: SerializedFileWriter<File>,
    rows: Vec<i64>,
    written: u64,
}

impl Opportunities {
    /// Creates a series in the file `PART.parquet` of a folder.
    pub(crate) fn create(part: Part, folder: &Path) -> Result<Self> {
        let schema = parse_message_type("message opportunities { required int64 at_ns; }")?;
        // As differences, evenly growing numbers take a few bits each, which a compressor cannot improve.
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_column_encoding("at_ns".into(), Encoding::DELTA_BINARY_PACKED)
            .build();
        let file = File::create(folder.join(format!("{}.parquet", part.name())))
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(Self {
            part,
            writer: SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?,
            rows: Vec::new(),
            written: 0,
        })
    }

    /// Adds the next opportunity, not before the previous one.
    #[inline]
    pub(crate) fn push(&mut self, at_ns: i64) -> Result<()> {
        self.rows.push(at_ns);
        if self.rows.len() == GROUP {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        if let Some(mut column) = group.next_column()? {
            column
                .typed::<Int64Type>()
                .write_batch(&self.rows, None, None)?;
            column.close()?;
        }
        group.close()?;
        self.written += self.rows.len() as u64;
        self.rows.clear();
        Ok(())
    }

    /// Ends the series; `duration_ns` is at least the last opportunity's time.
    pub(crate) fn finish(mut self, duration_ns: i64) -> Result<Written> {
        let name = self.part.name();
        if self.written == 0 && self.rows.is_empty() {
            return refuse(format!("contains nothing of the {name}"));
        }
        if !(1..=LONGEST_NS).contains(&duration_ns) {
            return refuse(format!(
                "its {name} lasts {}: a series lasts longer than nothing and at most {}",
                Seconds(duration_ns),
                Seconds(LONGEST_NS)
            ));
        }
        if !self.rows.is_empty() {
            self.flush()?;
        }
        self.writer.close()?;
        Ok(Written {
            part: self.part,
            rows: self.written,
            duration_ns,
        })
    }
}
