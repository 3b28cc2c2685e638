//! Parquet files: which columns they have, and their rows, a batch after the other.
//!
//! Pages are read one by one, so that what is held is a page and a batch of each column, whatever the file's row groups are.

use std::cell::Cell;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;

use crate::error::{ImportError, Result};

/// Rows of a batch: few enough for a processor's cache.
pub const BATCH: usize = 1 << 16;
/// Batches that a thread is ahead of who takes them, at most: a row group of a million rows.
const AHEAD: usize = 16;

/// What a column's values are, as far as a series can be made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers.
    Number,
    /// Dates, times or spans, which have a unit of their own.
    Moment,
    /// Text.
    Text,
    /// Anything else.
    Other,
}

impl Kind {
    fn of(kind: &DataType) -> Self {
        match kind {
            DataType::Boolean | DataType::Decimal128(..) => Self::Number,
            kind if kind.is_numeric() && !kind.is_decimal() => Self::Number,
            kind if kind.is_temporal() => Self::Moment,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            _ => Self::Other,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Moment => "moment",
            Self::Text => "text",
            Self::Other => "other",
        }
    }
}

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What it is called.
    pub name: String,
    /// What its values are.
    pub kind: Kind,
    /// Their type, in Arrow's words.
    pub type_name: String,
}

/// A Parquet file whose beginning and end are read.
pub struct Stored<T> {
    source: T,
    metadata: ArrowReaderMetadata,
}

impl<T: ChunkReader + 'static> Stored<T> {
    /// Errors: [`ImportError::Damaged`] for what is none.
    pub fn new(source: T) -> Result<Self> {
        let metadata =
            guarded(|| ArrowReaderMetadata::load(&source, ArrowReaderOptions::default()))?;
        Ok(Self { source, metadata })
    }

    /// Its columns, in order; what lies in them counts as one.
    pub fn columns(&self) -> Vec<Column> {
        let column = |field: &arrow_schema::FieldRef| Column {
            name: field.name().clone(),
            kind: Kind::of(field.data_type()),
            type_name: field.data_type().to_string(),
        };
        self.schema().fields().iter().map(column).collect()
    }

    /// The same, as Arrow has it.
    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// How many rows it says it has.
    pub fn rows(&self) -> u64 {
        let rows = self.metadata.metadata().file_metadata().num_rows();
        u64::try_from(rows).unwrap_or(0)
    }

    /// The rows of some columns, given by their numbers from 0; a batch has them in the file's order, each once.
    pub fn batches(self, columns: &[usize]) -> Result<Batches> {
        let groups = (0..self.metadata.metadata().num_row_groups()).collect();
        Batches::new(self.source, self.metadata, columns, groups)
    }
}

/// Rows, one batch after the other.
pub struct Batches {
    reader: Option<ParquetRecordBatchReader>,
}

impl Batches {
    fn new<T: ChunkReader + 'static>(
        source: T,
        metadata: ArrowReaderMetadata,
        columns: &[usize],
        groups: Vec<usize>,
    ) -> Result<Self> {
        let mask = ProjectionMask::roots(metadata.parquet_schema(), columns.iter().copied());
        let reader = guarded(|| {
            ParquetRecordBatchReaderBuilder::new_with_metadata(source, metadata)
                .with_batch_size(BATCH)
                .with_projection(mask)
                .with_row_groups(groups)
                .build()
        })?;
        Ok(Self {
            reader: Some(reader),
        })
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        let next = guarded(|| reader.next().transpose().map_err(ParquetError::from)).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.reader = None;
        }
        next
    }
}

/// The rows of some columns of a file, which lies at `path`, decoded by several threads, each of which takes a row group at a time. They come in
/// the file's order; one of a single row group has one thread.
pub fn ahead(
    path: &Path,
    stored: Stored<File>,
    columns: &[usize],
    threads: usize,
) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
    let groups = stored.metadata.metadata().num_row_groups();
    let threads = threads.min(groups);
    if threads < 2 {
        return Ok(Box::new(stored.batches(columns)?));
    }
    let mut shares = Vec::new();
    for first in 0..threads {
        let (sender, receiver) = sync_channel(AHEAD);
        let source = Share {
            file: path.to_owned(),
            metadata: stored.metadata.clone(),
            columns: columns.to_vec(),
        };
        thread::Builder::new()
            .name(format!("decode-{first}"))
            .spawn(move || {
                let all = (first..groups).step_by(threads);
                // Who takes them no longer wants any: that is no failure.
                let _ = all
                    .into_iter()
                    .try_for_each(|group| source.send(group, &sender));
            })?;
        shares.push(receiver);
    }
    Ok(Box::new(InTurn {
        shares,
        groups,
        group: 0,
    }))
}

/// What a thread reads.
struct Share {
    file: std::path::PathBuf,
    metadata: ArrowReaderMetadata,
    columns: Vec<usize>,
}

/// A batch, or `None` at the end of a row group.
type Sent = Result<Option<RecordBatch>>;

impl Share {
    fn send(
        &self,
        group: usize,
        to: &SyncSender<Sent>,
    ) -> std::result::Result<(), std::sync::mpsc::SendError<Sent>> {
        // A descriptor of its own: who shares one shares its position, too.
        let batches = File::open(&self.file)
            .map_err(ImportError::from)
            .and_then(|file| Batches::new(file, self.metadata.clone(), &self.columns, vec![group]));
        match batches {
            Ok(batches) => {
                for batch in batches {
                    to.send(batch.map(Some))?;
                }
                to.send(Ok(None))
            }
            Err(error) => to.send(Err(error)),
        }
    }
}

/// Puts the batches of several threads in the file's order.
struct InTurn {
    shares: Vec<Receiver<Sent>>,
    groups: usize,
    group: usize,
}

impl Iterator for InTurn {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.group < self.groups {
            match self.shares[self.group % self.shares.len()].recv() {
                Ok(Ok(Some(batch))) => return Some(Ok(batch)),
                Ok(Ok(None)) => self.group += 1,
                Ok(Err(error)) => {
                    self.group = self.groups;
                    return Some(Err(error));
                }
                Err(_) => {
                    self.group = self.groups;
                    return Some(Err(damaged("a thread that decoded it has failed")));
                }
            }
        }
        None
    }
}

fn damaged(reason: &str) -> ImportError {
    ImportError::Damaged(ParquetError::General(reason.into()))
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader of bytes that nobody vouches for. It is made to refuse them, and where it panics instead, that is a refusal, too.
fn guarded<R>(read: impl FnOnce() -> std::result::Result<R, ParquetError>) -> Result<R> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let told = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                told(panic);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(before);
    match done {
        Ok(done) => done.map_err(ImportError::Damaged),
        Err(_) => Err(damaged("what its pages say cannot be")),
    }
}
