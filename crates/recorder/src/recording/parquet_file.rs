//! Tables as Parquet.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::description::SignalSample;
use crate::packet::PacketRecord;

const PACKETS: &str = "message packets {
    required int32 train (INTEGER(32,false));
    required int32 index (INTEGER(32,false));
    required int32 bytes (INTEGER(16,false));
    optional int64 sent_ns;
    optional int64 arrived_ns;
    required int32 copies (INTEGER(8,false));
}";

const SIGNAL: &str = "message signal {
    required int64 at_ns;
    optional binary technology (STRING);
    optional binary cell (STRING);
    optional double rsrp_dbm;
    optional double rsrq_db;
    optional double sinr_db;
}";

/// Rows of a group: what a reader takes into memory at once.
const GROUP: usize = 1 << 20;

type Group<'a> = SerializedRowGroupWriter<'a, File>;

pub(super) fn write_packets(path: &Path, packets: &[PacketRecord]) -> Result<()> {
    write(path, PACKETS, packets, |group, rows| {
        let whole = |group: &mut Group<'_>, field: fn(&PacketRecord) -> u32| {
            let values: Vec<i32> = rows.iter().map(|row| field(row) as i32).collect();
            column::<Int32Type>(group, &values, None)
        };
        whole(group, |row| row.train)?;
        whole(group, |row| row.index)?;
        whole(group, |row| u32::from(row.bytes))?;
        optional::<Int64Type>(group, rows.iter().map(|row| row.sent_ns))?;
        optional::<Int64Type>(group, rows.iter().map(|row| row.arrived_ns))?;
        whole(group, |row| u32::from(row.copies))
    })
}

pub(super) fn write_signal(path: &Path, samples: &[SignalSample]) -> Result<()> {
    write(path, SIGNAL, samples, |group, rows| {
        let times: Vec<i64> = rows.iter().map(|row| row.at_ns).collect();
        column::<Int64Type>(group, &times, None)?;
        let text = |group: &mut Group<'_>, field: fn(&SignalSample) -> &Option<String>| {
            let texts = rows
                .iter()
                .map(|row| field(row).as_deref().map(ByteArray::from));
            optional::<ByteArrayType>(group, texts)
        };
        text(group, |row| &row.technology)?;
        text(group, |row| &row.cell)?;
        optional::<DoubleType>(group, rows.iter().map(|row| row.rsrp_dbm))?;
        optional::<DoubleType>(group, rows.iter().map(|row| row.rsrq_db))?;
        optional::<DoubleType>(group, rows.iter().map(|row| row.sinr_db))
    })
}

fn write<Row>(
    path: &Path,
    schema: &str,
    rows: &[Row],
    put: impl Fn(&mut Group<'_>, &[Row]) -> Result<()>,
) -> Result<()> {
    let schema = Arc::new(parse_message_type(schema)?);
    // Numbers that grow evenly take a few bits each as differences: nothing is left for a compressor to find.
    let mut properties = WriterProperties::builder().set_dictionary_enabled(false);
    for field in schema.get_fields() {
        if matches!(
            field.get_physical_type(),
            parquet::basic::Type::INT32 | parquet::basic::Type::INT64
        ) {
            properties =
                properties.set_column_encoding(field.name().into(), Encoding::DELTA_BINARY_PACKED);
        }
    }
    let file = File::create(path).map_err(|error| ParquetError::General(error.to_string()))?;
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
    for chunk in rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        put(&mut group, chunk)?;
        group.close()?;
    }
    let file = writer.into_inner()?;
    file.sync_all()
        .map_err(|error| ParquetError::General(error.to_string()))
}

fn column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<()> {
    let mut column = group.next_column()?.ok_or_else(|| {
        ParquetError::General("the table has fewer columns than were written".into())
    })?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn optional<T: DataType>(
    group: &mut Group<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<()> {
    let mut levels = Vec::new();
    let mut present = Vec::new();
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    column::<T>(group, &present, Some(&levels))
}
