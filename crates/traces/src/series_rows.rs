//! Rows of a series in the archive.

use std::fs::File;
use std::path::Path;

use crate::error::{ImportError, Place, Result};
use crate::stored::{Batch, Stored, ahead};
use crate::stored_column::{ColumnRows, Meaning};
use crate::target::Content;

/// Rows in order, with a value for each time except for opportunities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesRows {
    /// When, ns.
    pub at_ns: Vec<i64>,
    /// Rates in bit/s or round-trip times in ns; NaN for none.
    pub values: Vec<f64>,
}

/// The rows of the series at `path`, decoded by up to `threads` threads.
///
/// Errors: [`ImportError::Damaged`], and [`ImportError::Malformed`] for one without the columns of its content, or with
/// a missing time. The caller checks the order of times.
pub fn series_rows(
    path: &Path,
    content: Content,
    threads: usize,
) -> Result<impl Iterator<Item = Result<SeriesRows>> + Send + use<>> {
    let stored = Stored::new(File::open(path)?)?;
    let column = |name: &str, meaning: Meaning| {
        let mut columns = stored.columns().iter();
        let found = columns.position(|column| column.name == name && column.meaning == meaning);
        found.ok_or_else(|| {
            let (content, meaning) = (content.name(), meaning.name());
            ImportError::at(
                Place::Whole,
                format!("a {content} series has a column {name} of {meaning}"),
            )
        })
    };
    let whole = Meaning::Integer { signed: true };
    let at = column("at_ns", whole)?;
    let value = match content {
        Content::Opportunities => None,
        Content::Rate => Some(column("bit_s", Meaning::Float)?),
        Content::RoundTrip => Some(column("round_trip_ns", whole)?),
    };
    let wanted: Vec<usize> = [at].into_iter().chain(value).collect();
    let batches = ahead(path, stored, &wanted, threads)?;
    Ok(batches.map(|batch| rows(batch?)))
}

fn rows(batch: Batch) -> Result<SeriesRows> {
    let mut columns = batch.columns.into_iter();
    let at_ns = columns.next().and_then(ColumnRows::into_whole);
    let at_ns = at_ns.ok_or_else(|| ImportError::at(Place::Whole, "missing times in at_ns"))?;
    let values = columns.next().and_then(ColumnRows::into_floats);
    Ok(SeriesRows {
        at_ns,
        values: values.unwrap_or_default(),
    })
}
