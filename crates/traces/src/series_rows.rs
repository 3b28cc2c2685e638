//! Rows of a series that the archive keeps, read back.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use crate::error::{ImportError, Place, Result};
use crate::series::Content;
use crate::stored::{Stored, ahead};

/// Rows one after the other, a value for each time but for opportunities, which have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesRows {
    /// When, ns.
    pub at_ns: Vec<i64>,
    /// Rates in bit/s or round-trip times in ns; NaN for none.
    pub values: Vec<f64>,
}

/// The rows of the series at `path`, decoded by up to `threads` threads.
///
/// Errors: [`ImportError::Damaged`], and [`ImportError::Malformed`] for one without the columns of its content, or without a time
/// somewhere. Whether times rise is for the caller to see.
pub fn series_rows(
    path: &Path,
    content: Content,
    threads: usize,
) -> Result<impl Iterator<Item = Result<SeriesRows>> + Send + use<>> {
    let stored = Stored::new(File::open(path)?)?;
    let column = |name: &str, kind: DataType| {
        let found = stored.schema().column_with_name(name);
        let found = found.filter(|(_, field)| *field.data_type() == kind);
        found.map(|(index, _)| index).ok_or_else(|| {
            let content = content.name();
            ImportError::at(
                Place::Whole,
                format!("a {content} series has a column {name} of {kind} numbers"),
            )
        })
    };
    let at = column("at_ns", DataType::Int64)?;
    let value = match content {
        Content::Opportunities => None,
        Content::Rate => Some(column("bit_s", DataType::Float64)?),
        Content::RoundTrip => Some(column("round_trip_ns", DataType::Int64)?),
    };
    let wanted: Vec<usize> = [at].into_iter().chain(value).collect();
    let place = usize::from(value.is_some_and(|value| value < at));
    let batches = ahead(path, stored, &wanted, threads)?;
    Ok(batches.map(move |batch| rows(&batch?, place, value.map(|_| 1 - place))))
}

fn rows(batch: &RecordBatch, at: usize, value: Option<usize>) -> Result<SeriesRows> {
    let at = batch.column(at).as_primitive::<Int64Type>();
    if at.null_count() > 0 {
        return Err(ImportError::at(
            Place::Whole,
            "the times of at_ns are missing somewhere",
        ));
    }
    let values = value.map_or_else(Vec::new, |value| {
        let column = batch.column(value);
        match column.as_primitive_opt::<Float64Type>() {
            Some(rates) => rates.iter().map(|it| it.unwrap_or(f64::NAN)).collect(),
            None => {
                let trips = column.as_primitive::<Int64Type>();
                let trip = |it: Option<i64>| it.map_or(f64::NAN, |it| it as f64);
                trips.iter().map(trip).collect()
            }
        }
    });
    Ok(SeriesRows {
        at_ns: at.values().to_vec(),
        values,
    })
}
