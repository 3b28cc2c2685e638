//! Columns of Parquet files: their kinds, and the values of some rows.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};

const DAY_NS: i64 = 86_400_000_000_000;

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Whole numbers.
    Integer {
        /// True if the values can be negative.
        signed: bool,
    },
    /// Numbers in floating point.
    Float,
    /// Whole numbers with a number of decimal digits.
    Decimal {
        /// The digits behind the point.
        scale: i32,
    },
    /// True and false, which count as 1 and 0.
    Boolean,
    /// Whole numbers of so many ns since 1970.
    Moment {
        /// The ns.
        unit: i64,
    },
    /// Whole numbers of so many ns.
    Span {
        /// The ns.
        unit: i64,
    },
    /// Text in UTF-8.
    Text,
    /// Other types, in words.
    Other(&'static str),
}

impl Meaning {
    /// Of a top-level column.
    pub(crate) fn of(column: &ColumnDescriptor) -> Self {
        if column.max_rep_level() > 0 {
            return Self::Other("lists");
        }
        match (column.logical_type_ref(), column.converted_type()) {
            (Some(LogicalType::Integer(kind)), _) => Self::Integer {
                signed: kind.is_signed,
            },
            (Some(LogicalType::Decimal(kind)), _) => Self::Decimal { scale: kind.scale },
            (Some(LogicalType::Timestamp(kind)), _) => Self::Moment {
                unit: match kind.unit {
                    TimeUnit::MILLIS => 1_000_000,
                    TimeUnit::MICROS => 1_000,
                    TimeUnit::NANOS => 1,
                },
            },
            (Some(LogicalType::Float16), _) => Self::Float,
            (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => {
                Self::Moment { unit: DAY_NS }
            }
            (Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), _)
            | (None, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON) => Self::Text,
            (Some(LogicalType::Time(_)), _)
            | (None, ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS) => {
                Self::Other("times of day")
            }
            (None, ConvertedType::TIMESTAMP_MILLIS) => Self::Moment { unit: 1_000_000 },
            (None, ConvertedType::TIMESTAMP_MICROS) => Self::Moment { unit: 1_000 },
            (None, ConvertedType::DECIMAL) => Self::Decimal {
                scale: column.type_scale(),
            },
            (
                None,
                ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64,
            ) => Self::Integer { signed: false },
            (
                None,
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64,
            ) => match column.physical_type() {
                Type::BOOLEAN => Self::Boolean,
                Type::INT32 | Type::INT64 => Self::Integer { signed: true },
                // The former type of times in Impala and Spark.
                Type::INT96 => Self::Moment { unit: 1 },
                Type::FLOAT | Type::DOUBLE => Self::Float,
                Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY => Self::Other("bytes"),
            },
            _ => Self::Other("values of a type of their own"),
        }
    }

    /// Its use for a series: `number`, `moment`, `text` or `other`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Integer { .. } | Self::Float | Self::Decimal { .. } | Self::Boolean => "number",
            Self::Moment { .. } | Self::Span { .. } => "moment",
            Self::Text => "text",
            Self::Other(_) => "other",
        }
    }

    /// The same in words, for many values.
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer { .. } => "whole numbers",
            Self::Float => "numbers in floating point",
            Self::Decimal { .. } => "decimal numbers",
            Self::Boolean => "true and false",
            Self::Moment { unit: DAY_NS } => "dates",
            Self::Moment { .. } => "moments",
            Self::Span { .. } => "spans of time",
            Self::Text => "text",
            Self::Other(name) => name,
        }
    }
}

/// The values that are not null, in order.
enum Values {
    /// Numbers and times, saturating at the limits of i64.
    Whole(Vec<i64>),
    Fraction(Vec<f64>),
    Text(Vec<ByteArray>),
}

/// A column of some rows.
pub struct ColumnRows {
    /// Its kind.
    pub meaning: Meaning,
    values: Values,
    /// For each row whether it has a value; `None` if all have.
    present: Option<Vec<bool>>,
}

impl ColumnRows {
    /// Values of each row as floating point; NaN for none. `None` for text.
    pub fn into_floats(self) -> Option<Vec<f64>> {
        let present = self.present.as_deref();
        match self.values {
            Values::Whole(values) => {
                let values = values.into_iter().map(|value| value as f64);
                Some(spread(values, present, f64::NAN))
            }
            Values::Fraction(values) if present.is_none() => Some(values),
            Values::Fraction(values) => Some(spread(values.into_iter(), present, f64::NAN)),
            Values::Text(_) => None,
        }
    }

    /// Apply `whole`, `fraction` or `text` to the value of each row.
    pub(crate) fn map(
        &self,
        whole: impl Fn(i64) -> Option<i64>,
        fraction: impl Fn(f64) -> Option<i64>,
        text: impl Fn(&str) -> Option<i64>,
    ) -> Vec<Option<i64>> {
        let present = self.present.as_deref();
        match &self.values {
            Values::Whole(values) => spread(values.iter().map(|it| whole(*it)), present, None),
            Values::Fraction(values) => {
                spread(values.iter().map(|it| fraction(*it)), present, None)
            }
            Values::Text(values) => {
                let values = values.iter().map(|it| text(it.as_utf8().ok()?));
                spread(values, present, None)
            }
        }
    }
}

/// A value for each row: the next one, or `missing`.
fn spread<V: Copy>(
    mut values: impl Iterator<Item = V>,
    present: Option<&[bool]>,
    missing: V,
) -> Vec<V> {
    match present {
        None => values.collect(),
        Some(present) => present
            .iter()
            .map(|is| if *is { values.next() } else { None }.unwrap_or(missing))
            .collect(),
    }
}

/// Reads a column within a row group.
pub(crate) struct Reader {
    pages: ColumnReader,
    meaning: Meaning,
    /// The definition level of a value that is not null.
    defined: i16,
}

impl Reader {
    pub(crate) fn new(column: ColumnDescPtr, meaning: Meaning, pages: Box<dyn PageReader>) -> Self {
        Self {
            meaning,
            defined: column.max_def_level(),
            pages: get_column_reader(column, pages),
        }
    }

    /// The next `rows`. Errors: malformed pages, and too few of them.
    pub(crate) fn read(&mut self, rows: usize) -> Result<ColumnRows> {
        let mut levels = Vec::new();
        let values = match &mut self.pages {
            ColumnReader::BoolColumnReader(pages) => {
                let values = read(pages, rows, &mut levels)?;
                Values::Whole(values.into_iter().map(i64::from).collect())
            }
            ColumnReader::Int32ColumnReader(pages) => {
                let values = read(pages, rows, &mut levels)?.into_iter();
                self.meaning.whole(match self.meaning {
                    Meaning::Integer { signed: false } => {
                        values.map(|it| i64::from(it.cast_unsigned())).collect()
                    }
                    _ => values.map(i64::from).collect(),
                })
            }
            ColumnReader::Int64ColumnReader(pages) => {
                let mut values = read(pages, rows, &mut levels)?;
                if self.meaning == (Meaning::Integer { signed: false }) {
                    for value in values.iter_mut().filter(|it| **it < 0) {
                        *value = i64::MAX;
                    }
                }
                self.meaning.whole(values)
            }
            ColumnReader::Int96ColumnReader(pages) => {
                let values = read(pages, rows, &mut levels)?;
                Values::Whole(values.into_iter().map(|it| it.to_nanos()).collect())
            }
            ColumnReader::FloatColumnReader(pages) => {
                let values = read(pages, rows, &mut levels)?;
                Values::Fraction(values.into_iter().map(f64::from).collect())
            }
            ColumnReader::DoubleColumnReader(pages) => {
                Values::Fraction(read(pages, rows, &mut levels)?)
            }
            ColumnReader::ByteArrayColumnReader(pages) => {
                let values = read(pages, rows, &mut levels)?;
                match self.meaning {
                    Meaning::Decimal { scale } => {
                        decimals(values.iter().map(|it| it.data()), scale)?
                    }
                    _ => Values::Text(values),
                }
            }
            ColumnReader::FixedLenByteArrayColumnReader(pages) => {
                let values = read(pages, rows, &mut levels)?;
                let bytes = values.iter().map(|it| it.data());
                match self.meaning {
                    Meaning::Decimal { scale } => decimals(bytes, scale)?,
                    Meaning::Float => Values::Fraction(bytes.map(half).collect::<Result<_>>()?),
                    _ => return Err(ParquetError::NYI("bytes as values".into())),
                }
            }
        };
        let missing = levels.iter().any(|level| *level != self.defined);
        Ok(ColumnRows {
            meaning: self.meaning,
            values,
            present: missing.then(|| levels.iter().map(|it| *it == self.defined).collect()),
        })
    }
}

impl Meaning {
    fn whole(self, values: Vec<i64>) -> Values {
        match self {
            Self::Decimal { scale } => {
                let one = 10f64.powi(scale);
                Values::Fraction(values.into_iter().map(|it| it as f64 / one).collect())
            }
            _ => Values::Whole(values),
        }
    }
}

fn read<T: DataType>(
    pages: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: &mut Vec<i16>,
) -> Result<Vec<T::T>> {
    let mut values = Vec::new();
    let (found, _, _) = pages.read_records(rows, Some(levels), None, &mut values)?;
    if found < rows {
        return Err(ParquetError::General(
            "a column ends before its row group".into(),
        ));
    }
    Ok(values)
}

/// Whole numbers as bytes, the highest first, in two's complement.
fn decimals<'a>(values: impl Iterator<Item = &'a [u8]>, scale: i32) -> Result<Values> {
    let one = 10f64.powi(scale);
    let number = |bytes: &[u8]| match bytes {
        [] => Err(ParquetError::General(
            "a decimal number without digits".into(),
        )),
        [first, rest @ ..] => {
            let start = f64::from(first.cast_signed());
            let whole = rest
                .iter()
                .fold(start, |whole, byte| whole * 256.0 + f64::from(*byte));
            Ok(whole / one)
        }
    };
    Ok(Values::Fraction(values.map(number).collect::<Result<_>>()?))
}

/// A number of 16 bits in floating point (IEEE 754-2019, section 3.6), the lowest byte first.
fn half(bytes: &[u8]) -> Result<f64> {
    let bytes = <[u8; 2]>::try_from(bytes)
        .map_err(|_| ParquetError::General("a number of 16 bits has two bytes".into()))?;
    let bits = u16::from_le_bytes(bytes);
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let value = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction > 0.0 => f64::NAN,
        0x1f => f64::INFINITY,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    Ok(if bits >> 15 == 1 { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_16_bits_are_what_the_standard_says() {
        for (bits, value) in [
            (0x0000u16, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x0400, 6.103_515_625e-5),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half(&bits.to_le_bytes()).unwrap(), value, "{bits:#x}");
        }
        assert!(half(&0x7e00u16.to_le_bytes()).unwrap().is_nan());
    }

    #[test]
    fn decimals_of_any_length_are_read() {
        let bytes: [&[u8]; 4] = [&[0x01, 0x00], &[0xff], &[0x7f; 16], &[0x80, 0, 0]];
        let Ok(Values::Fraction(read)) = decimals(bytes.into_iter(), 2) else {
            panic!("decimals are numbers");
        };
        let long = u128::from_be_bytes([0x7f; 16]) as f64 / 100.0;
        assert_eq!(read[..2], [2.56, -0.01]);
        assert!((read[2] / long - 1.0).abs() < 1e-15);
        assert_eq!(read[3], -83_886.08);
        assert!(decimals([&[] as &[u8]].into_iter(), 2).is_err());
    }
}
