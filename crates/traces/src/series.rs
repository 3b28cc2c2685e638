//! A series over time, written to Parquet as its rows come.
//!
//! Rows are in order of time, and no time is below zero: [`Table::push`] checks it.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::error::{ImportError, Place, Result, Seconds};
use crate::target::{Content, Part, Target, Written};

/// Rows of a group: the unit of writing and reading in memory.
const GROUP: usize = 1 << 18;

/// The longest trace that can be played, as in Mahimahi's format: 2³² ms, some 49 days.
const LONGEST_TRACE_NS: i64 = u32::MAX as i64 * 1_000_000;
/// Ten years: a time beyond them is in another unit.
const LONGEST_NS: i64 = 10 * 365 * 86_400 * 1_000_000_000;
/// A terabit per second, more than any link.
const HIGHEST_BIT_S: f64 = 1e12;

/// A packet delivery opportunity of at most 1500 bytes of IP, ns since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opportunity(pub i64);

/// The rate from a time (ns) on, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// From when.
    pub at_ns: i64,
    /// Finite and not below zero.
    pub bit_s: f64,
}

/// A probe sent at a time (ns), and when its answer came; `None` if none did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When it was sent.
    pub at_ns: i64,
    /// Not below zero.
    pub round_trip_ns: Option<i64>,
}

type Group<'a, W> = SerializedRowGroupWriter<'a, W>;

/// A row of a series.
pub trait Row: Copy {
    /// Series that the column belongs to.
    const CONTENT: Content;
    /// Its columns, in the notation of Parquet's messages.
    const SCHEMA: &'static str;
    /// The longest valid time, ns.
    const LONGEST_NS: i64;

    /// When it is, ns.
    fn at_ns(&self) -> i64;

    /// The problem of its value, if any.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Writes the columns of rows.
    fn write<W: Write + Send>(
        rows: &[Self],
        group: &mut Group<'_, W>,
    ) -> std::result::Result<(), ParquetError>;
}

impl Row for Opportunity {
    const CONTENT: Content = Content::Opportunities;
    const SCHEMA: &'static str = "message opportunities { required int64 at_ns; }";
    const LONGEST_NS: i64 = LONGEST_TRACE_NS;

    #[inline]
    fn at_ns(&self) -> i64 {
        self.0
    }

    fn write<W: Write + Send>(
        rows: &[Self],
        group: &mut Group<'_, W>,
    ) -> std::result::Result<(), ParquetError> {
        times(rows, group)
    }
}

impl Row for Rate {
    const CONTENT: Content = Content::Rate;
    const SCHEMA: &'static str = "message rate { required int64 at_ns; required double bit_s; }";
    const LONGEST_NS: i64 = LONGEST_TRACE_NS;

    fn at_ns(&self) -> i64 {
        self.at_ns
    }

    fn fault(&self) -> Option<String> {
        let rate = self.bit_s;
        (!(0.0..=HIGHEST_BIT_S).contains(&rate)).then(|| format!("impossible rate of {rate} bit/s"))
    }

    fn write<W: Write + Send>(
        rows: &[Self],
        group: &mut Group<'_, W>,
    ) -> std::result::Result<(), ParquetError> {
        times(rows, group)?;
        let rates: Vec<f64> = rows.iter().map(|row| row.bit_s).collect();
        column::<DoubleType, W>(group, &rates, None)
    }
}

impl Row for RoundTrip {
    const CONTENT: Content = Content::RoundTrip;
    const SCHEMA: &'static str =
        "message round_trip { required int64 at_ns; optional int64 round_trip_ns; }";
    const LONGEST_NS: i64 = LONGEST_NS;

    fn at_ns(&self) -> i64 {
        self.at_ns
    }

    fn write<W: Write + Send>(
        rows: &[Self],
        group: &mut Group<'_, W>,
    ) -> std::result::Result<(), ParquetError> {
        times(rows, group)?;
        let levels: Vec<i16> = rows
            .iter()
            .map(|row| i16::from(row.round_trip_ns.is_some()))
            .collect();
        let trips: Vec<i64> = rows.iter().filter_map(|row| row.round_trip_ns).collect();
        column::<Int64Type, W>(group, &trips, Some(&levels))
    }
}

/// A series that is being written.
pub struct Table<R: Row, W: Write + Send> {
    part: Part,
    writer: SerializedFileWriter<W>,
    rows: Vec<R>,
    written: u64,
    last_ns: i64,
}

impl<R: Row, W: Write + Send> Table<R, W> {
    /// A series of a part in the file that `target` opens for it.
    pub fn new(part: Part, target: &impl Target<File = W>) -> Result<Self> {
        let schema = Arc::new(parse_message_type(R::SCHEMA)?);
        // Evenly growing numbers take a few bits each as differences, which a compressor cannot improve.
        let mut properties = WriterProperties::builder().set_dictionary_enabled(false);
        for field in schema.get_fields() {
            if field.get_physical_type() == parquet::basic::Type::INT64 {
                properties = properties
                    .set_column_encoding(field.name().into(), Encoding::DELTA_BINARY_PACKED);
            }
        }
        let file = target
            .open(part)
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(Self {
            part,
            writer: SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?,
            rows: Vec::new(),
            written: 0,
            last_ns: 0,
        })
    }

    /// The next row.
    ///
    /// Errors: [`ImportError::Malformed`] at `place` for a time before the last row's, an implausible time, or an
    /// invalid value.
    #[inline]
    pub fn push(&mut self, row: R, place: Place) -> Result<()> {
        let at_ns = row.at_ns();
        if at_ns < self.last_ns || at_ns > R::LONGEST_NS || row.fault().is_some() {
            return Err(self.refusal(&row, place));
        }
        self.last_ns = at_ns;
        self.rows.push(row);
        if self.rows.len() == GROUP {
            self.flush()?;
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self, row: &R, place: Place) -> ImportError {
        let at_ns = row.at_ns();
        let reason = if let Some(fault) = row.fault() {
            fault
        } else if at_ns < self.last_ns {
            let back = Seconds(self.last_ns.saturating_sub(at_ns));
            format!("its time is {back} before that of the one above it: sort by time")
        } else {
            format!(
                "its time, {} from the start, is beyond the {} that a series can last",
                Seconds(at_ns),
                Seconds(R::LONGEST_NS)
            )
        };
        ImportError::at(place, reason)
    }

    fn flush(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        R::write(&self.rows, &mut group)?;
        group.close()?;
        self.written += self.rows.len() as u64;
        self.rows.clear();
        Ok(())
    }

    /// Ends it. `duration_ns` is at least 1, and at least the last row's time.
    pub fn finish(mut self, duration_ns: i64) -> Result<Written> {
        if self.written == 0 && self.rows.is_empty() {
            return Err(ImportError::at(
                Place::Whole,
                format!("contains nothing of the {}", self.part.name()),
            ));
        }
        if duration_ns < 1 || duration_ns < self.last_ns || duration_ns > R::LONGEST_NS {
            return Err(ImportError::at(
                Place::Whole,
                format!(
                    "its {} lasts {} with the last row at {}: a series lasts longer than nothing, at least to its last row, \
                     and at most {}",
                    self.part.name(),
                    Seconds(duration_ns),
                    Seconds(self.last_ns),
                    Seconds(R::LONGEST_NS)
                ),
            ));
        }
        if !self.rows.is_empty() {
            self.flush()?;
        }
        let mut file = self.writer.into_inner()?;
        file.flush()
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(Written {
            part: self.part,
            content: R::CONTENT,
            rows: self.written,
            duration_ns,
        })
    }
}

fn times<R: Row, W: Write + Send>(
    rows: &[R],
    group: &mut Group<'_, W>,
) -> std::result::Result<(), ParquetError> {
    let times: Vec<i64> = rows.iter().map(Row::at_ns).collect();
    column::<Int64Type, W>(group, &times, None)
}

fn column<T: DataType, W: Write + Send>(
    group: &mut Group<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> std::result::Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(|| {
        ParquetError::General("the table has fewer columns than were written".into())
    })?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
