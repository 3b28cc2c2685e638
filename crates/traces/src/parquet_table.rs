//! Tables in Parquet: columns of time and of rates or round-trip times, of any types.

use std::io;

use parquet::file::reader::ChunkReader;

use crate::columns::{Chunks, Request, Time};
use crate::error::{ImportError, Place, Result};
use crate::quantity::moment_ns;
use crate::stored::Stored;
use crate::stored_column::{ColumnRows, Meaning};
use crate::target::{Imported, Target};

/// Makes series of the columns of a table, which `request` gives by their numbers in it.
///
/// `tell` is called with the approximate number of bytes read since the last call; its error ends the reading.
pub fn parquet_table<T: ChunkReader + 'static>(
    source: T,
    request: &Request,
    target: &impl Target,
    mut tell: impl FnMut(u64) -> io::Result<()>,
) -> Result<Imported> {
    let size = source.len();
    let stored = Stored::new(source)?;
    let there = stored.columns().len();
    let mut wanted = vec![request.time];
    wanted.extend(request.columns.iter().map(|column| column.index));
    if let Some(none) = wanted.iter().find(|index| **index >= there) {
        return Err(ImportError::at(
            Place::Whole,
            format!("no column {}: it has {there}", none + 1),
        ));
    }
    let rows = stored.rows().max(1);
    let mut chunks = Chunks::new(request.clone(), target)?;
    let mut done = 0;
    for batch in stored.batches(&wanted)? {
        let batch = batch?;
        let mut columns = batch.columns.into_iter();
        let times = columns.next().map(|column| times(&column, request.unit));
        let times = times.unwrap_or_else(|| Ok(Vec::new()))?;
        let values = columns.map(numbers).collect::<Result<Vec<_>>>()?;
        for (row, at_ns) in times.into_iter().enumerate() {
            let at_ns = at_ns.ok_or_else(|| {
                let number = done + row as u64 + 1;
                ImportError::at(Place::Row(number), "no time, or one that cannot be read")
            })?;
            chunks.push(at_ns, values.iter().map(|column| column[row]))?;
        }
        done += batch.rows as u64;
        tell((batch.rows as u128 * u128::from(size) / u128::from(rows)) as u64)?;
    }
    chunks.finish()
}

/// Times in ns; `None` for invalid ones.
fn times(column: &ColumnRows, unit: Time) -> Result<Vec<Option<i64>>> {
    let unit = match (column.meaning, unit) {
        (Meaning::Moment { unit } | Meaning::Span { unit }, _) => unit,
        (Meaning::Text, Time::Moment) => 1,
        (Meaning::Integer { .. } | Meaning::Float | Meaning::Decimal { .. }, Time::Unit(unit)) => {
            unit
        }
        (meaning, _) => {
            let why = format!("a column of {} is not a time", meaning.name());
            return Err(ImportError::at(Place::Whole, why));
        }
    };
    Ok(column.map(
        |value| value.checked_mul(unit),
        |value| {
            let ns = (value * unit as f64).round_ties_even();
            (ns.abs() < 9.2e18).then_some(ns as i64)
        },
        |text| moment_ns(text.trim()),
    ))
}

/// Values as floating point; NaN for none.
fn numbers(column: ColumnRows) -> Result<Vec<f64>> {
    let meaning = column.meaning;
    match meaning {
        Meaning::Moment { .. } | Meaning::Span { .. } => None,
        _ => column.into_floats(),
    }
    .ok_or_else(|| {
        let why = format!("a column of {} is not a number", meaning.name());
        ImportError::at(Place::Whole, why)
    })
}
