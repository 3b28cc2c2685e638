//! The packets of one file as Parquet.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::packet::PacketRecord;

const PACKETS: &str = "message packets {
    required int32 train (INTEGER(32,false));
    required int32 index (INTEGER(32,false));
    required int32 bytes (INTEGER(16,false));
    optional int64 sent_ns;
    optional int64 arrived_ns;
    required int32 copies (INTEGER(8,false));
}";

/// Rows of a group: what a reader takes into memory at once.
const GROUP: usize = 1 << 20;

type Group<'a> = SerializedRowGroupWriter<'a, File>;

pub(super) fn write_packets(path: &Path, packets: &[PacketRecord]) -> Result<()> {
    let schema = Arc::new(parse_message_type(PACKETS)?);
    // Numbers that grow evenly take a few bits each as differences: nothing is left for a compressor to find.
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED);
    let file = File::create(path).map_err(|error| ParquetError::General(error.to_string()))?;
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
    for rows in packets.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        let whole = |group: &mut Group<'_>, field: fn(&PacketRecord) -> u32| {
            let values: Vec<i32> = rows.iter().map(|row| field(row) as i32).collect();
            column::<Int32Type>(group, &values, None)
        };
        let time = |group: &mut Group<'_>, field: fn(&PacketRecord) -> Option<i64>| {
            let levels: Vec<i16> = rows.iter().map(|row| field(row).is_some().into()).collect();
            let values: Vec<i64> = rows.iter().filter_map(field).collect();
            column::<Int64Type>(group, &values, Some(&levels))
        };
        whole(&mut group, |row| row.train)?;
        whole(&mut group, |row| row.index)?;
        whole(&mut group, |row| u32::from(row.bytes))?;
        time(&mut group, |row| row.sent_ns)?;
        time(&mut group, |row| row.arrived_ns)?;
        whole(&mut group, |row| u32::from(row.copies))?;
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
