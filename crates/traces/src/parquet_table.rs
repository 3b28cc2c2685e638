//! Tables in Parquet: columns of time and of rates or round-trip times, of whatever types.

use std::io;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_schema::{DataType, TimeUnit};
use parquet::file::reader::ChunkReader;

use crate::columns::{Chunks, Request, Time};
use crate::error::{ImportError, Place, Result};
use crate::quantity::moment_ns;
use crate::stored::Stored;
use crate::target::{Imported, Target};

/// Makes series of the columns of a table, which `request` gives by their numbers in it.
///
/// `tell` hears how many bytes of the file were read since, about; its error ends the reading.
pub fn parquet_table<T: ChunkReader + 'static>(
    source: T,
    request: &Request,
    target: &impl Target,
    mut tell: impl FnMut(u64) -> io::Result<()>,
) -> Result<Imported> {
    let size = source.len();
    let stored = Stored::new(source)?;
    let there = stored.schema().fields().len();
    let mut wanted: Vec<usize> = request.columns.iter().map(|column| column.index).collect();
    wanted.push(request.time);
    wanted.sort_unstable();
    wanted.dedup();
    if let Some(none) = wanted.iter().find(|index| **index >= there) {
        return Err(ImportError::at(
            Place::Whole,
            format!("it has no column {}: it has {there}", none + 1),
        ));
    }
    let rows = stored.rows().max(1);
    let place = |index: usize| wanted.partition_point(|each| *each < index);
    let mut chunks = Chunks::new(request.clone(), target)?;
    let mut done = 0;
    for batch in stored.batches(&wanted)? {
        let batch = batch?;
        let times = times(batch.column(place(request.time)), request.unit)?;
        let values = request
            .columns
            .iter()
            .map(|column| numbers(batch.column(place(column.index))))
            .collect::<Result<Vec<_>>>()?;
        for (row, at_ns) in times.into_iter().enumerate() {
            let at_ns = at_ns.ok_or_else(|| {
                let number = done + row as u64 + 1;
                ImportError::at(
                    Place::Row(number),
                    "it has no time, or one that cannot be read",
                )
            })?;
            chunks.push(at_ns, values.iter().map(|column| column[row]))?;
        }
        done += batch.num_rows() as u64;
        tell((batch.num_rows() as u128 * u128::from(size) / u128::from(rows)) as u64)?;
    }
    chunks.finish()
}

/// Times in ns; `None` for what cannot be one.
fn times(column: &ArrayRef, unit: Time) -> Result<Vec<Option<i64>>> {
    match (column.data_type(), unit) {
        (DataType::Timestamp(TimeUnit::Second, _), _) => {
            Ok(spans::<TimestampSecondType>(column, 1_000_000_000))
        }
        (DataType::Duration(TimeUnit::Second), _) => {
            Ok(spans::<DurationSecondType>(column, 1_000_000_000))
        }
        (DataType::Timestamp(TimeUnit::Millisecond, _), _) => {
            Ok(spans::<TimestampMillisecondType>(column, 1_000_000))
        }
        (DataType::Duration(TimeUnit::Millisecond), _) => {
            Ok(spans::<DurationMillisecondType>(column, 1_000_000))
        }
        (DataType::Timestamp(TimeUnit::Microsecond, _), _) => {
            Ok(spans::<TimestampMicrosecondType>(column, 1_000))
        }
        (DataType::Duration(TimeUnit::Microsecond), _) => {
            Ok(spans::<DurationMicrosecondType>(column, 1_000))
        }
        (DataType::Timestamp(TimeUnit::Nanosecond, _), _) => {
            Ok(spans::<TimestampNanosecondType>(column, 1))
        }
        (DataType::Duration(TimeUnit::Nanosecond), _) => {
            Ok(spans::<DurationNanosecondType>(column, 1))
        }
        (DataType::Date32, _) => Ok(mapped::<Date32Type, _>(column, |days| {
            i64::from(days).checked_mul(86_400_000_000_000)
        })),
        (DataType::Date64, _) => Ok(spans::<Date64Type>(column, 1_000_000)),
        (DataType::Utf8, Time::Moment) => Ok(moments(column.as_string::<i32>().iter())),
        (DataType::LargeUtf8, Time::Moment) => Ok(moments(column.as_string::<i64>().iter())),
        (DataType::Utf8View, Time::Moment) => Ok(moments(column.as_string_view().iter())),
        (kind, Time::Unit(unit)) if kind.is_integer() => whole_times(column, unit),
        (kind, Time::Unit(unit)) if kind.is_numeric() => {
            let ns = |value: f64| {
                let ns = (value * unit as f64).round_ties_even();
                (ns.abs() < 9.2e18).then_some(ns as i64)
            };
            Ok(numbers(column)?.into_iter().map(ns).collect())
        }
        (kind, _) => Err(ImportError::at(
            Place::Whole,
            format!("a column of {kind} is no time"),
        )),
    }
}

/// Whole numbers of units of so many ns.
fn spans<T: ArrowPrimitiveType<Native = i64>>(column: &ArrayRef, unit: i64) -> Vec<Option<i64>> {
    mapped::<T, _>(column, |value| value.checked_mul(unit))
}

fn moments<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Vec<Option<i64>> {
    texts.map(|text| moment_ns(text?.trim())).collect()
}

fn whole_times(column: &ArrayRef, unit: i64) -> Result<Vec<Option<i64>>> {
    let scaled = |value: i64| value.checked_mul(unit);
    Ok(match column.data_type() {
        DataType::Int8 => mapped::<Int8Type, _>(column, |value| scaled(value.into())),
        DataType::Int16 => mapped::<Int16Type, _>(column, |value| scaled(value.into())),
        DataType::Int32 => mapped::<Int32Type, _>(column, |value| scaled(value.into())),
        DataType::Int64 => spans::<Int64Type>(column, unit),
        DataType::UInt8 => mapped::<UInt8Type, _>(column, |value| scaled(value.into())),
        DataType::UInt16 => mapped::<UInt16Type, _>(column, |value| scaled(value.into())),
        DataType::UInt32 => mapped::<UInt32Type, _>(column, |value| scaled(value.into())),
        _ => mapped::<UInt64Type, _>(column, |value| scaled(value.try_into().ok()?)),
    })
}

fn mapped<T: ArrowPrimitiveType, R>(
    column: &ArrayRef,
    each: impl Fn(T::Native) -> Option<R>,
) -> Vec<Option<R>> {
    let column = column.as_primitive::<T>();
    column.iter().map(|value| each(value?)).collect()
}

/// Values as floating point; NaN for none.
fn numbers(column: &ArrayRef) -> Result<Vec<f64>> {
    fn as_floats<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        each: impl Fn(T::Native) -> f64,
    ) -> Vec<f64> {
        let column = column.as_primitive::<T>();
        column
            .iter()
            .map(|value| value.map_or(f64::NAN, &each))
            .collect()
    }
    Ok(match column.data_type() {
        DataType::Float64 => as_floats::<Float64Type>(column, |value| value),
        DataType::Float32 => as_floats::<Float32Type>(column, f64::from),
        DataType::Float16 => as_floats::<Float16Type>(column, f64::from),
        DataType::Int8 => as_floats::<Int8Type>(column, f64::from),
        DataType::Int16 => as_floats::<Int16Type>(column, f64::from),
        DataType::Int32 => as_floats::<Int32Type>(column, f64::from),
        DataType::Int64 => as_floats::<Int64Type>(column, |value| value as f64),
        DataType::UInt8 => as_floats::<UInt8Type>(column, f64::from),
        DataType::UInt16 => as_floats::<UInt16Type>(column, f64::from),
        DataType::UInt32 => as_floats::<UInt32Type>(column, f64::from),
        DataType::UInt64 => as_floats::<UInt64Type>(column, |value| value as f64),
        DataType::Decimal128(_, scale) => {
            let one = 10f64.powi((*scale).into());
            as_floats::<Decimal128Type>(column, |value| value as f64 / one)
        }
        DataType::Boolean => column
            .as_boolean()
            .iter()
            .map(|value| value.map_or(f64::NAN, |value| f64::from(u8::from(value))))
            .collect(),
        kind => {
            return Err(ImportError::at(
                Place::Whole,
                format!("a column of {kind} is no number"),
            ));
        }
    })
}
