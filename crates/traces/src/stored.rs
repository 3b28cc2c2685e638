//! Parquet files: their columns, and their rows in batches.
//!
//! Pages are read one by one, so that memory holds a page and a batch of each column, for row groups of any size.

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Once};

use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;

use crate::arrow_spans;
use crate::error::{ImportError, Result};
use crate::page_sizes;
use crate::stored_column::{ColumnRows, Meaning, Reader};

/// Rows of a batch: few enough for a processor's cache.
pub const BATCH: usize = 1 << 16;

/// A column of a file, or a nested one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Meaning of the values.
    pub meaning: Meaning,
    /// Its number among the leaf columns; `None` for a nested one.
    leaf: Option<usize>,
}

/// A Parquet file whose beginning and end are read.
pub struct Stored<T> {
    source: T,
    metadata: Arc<ParquetMetaData>,
    columns: Vec<Column>,
}

impl<T: ChunkReader + 'static> Stored<T> {
    /// Errors: [`ImportError::Damaged`] for other files.
    pub fn new(source: T) -> Result<Self> {
        let (metadata, columns) = guarded(|| {
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&source)?;
            let columns = columns(&metadata);
            Ok((Arc::new(metadata), columns))
        })?;
        Ok(Self {
            source,
            metadata,
            columns,
        })
    }

    /// Its columns, in order; a nested one counts as one.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Its number of rows, as stated.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.metadata.file_metadata().num_rows()).unwrap_or(0)
    }

    /// The rows of some columns, given by their numbers from 0, in the order given.
    ///
    /// Errors: [`ImportError::Damaged`] for a nested column.
    pub fn batches(self, columns: &[usize]) -> Result<Batches<T>> {
        let leaves = self.leaves(columns)?;
        let groups = 0..self.metadata.num_row_groups();
        Ok(Batches::new(self.source, self.metadata, leaves, groups))
    }

    fn leaves(&self, columns: &[usize]) -> Result<Vec<Leaf>> {
        let leaf = |index: &usize| {
            let column = self.columns.get(*index)?;
            Some((column.leaf?, column.meaning))
        };
        let leaves = columns.iter().map(leaf).collect::<Option<_>>();
        leaves.ok_or_else(|| damaged("a column holds others"))
    }
}

fn columns(metadata: &ParquetMetaData) -> Vec<Column> {
    let schema = metadata.file_metadata().schema_descr();
    let fields = schema.root_schema().get_fields().iter();
    let mut columns: Vec<_> = fields
        .map(|field| Column {
            name: field.name().to_owned(),
            meaning: Meaning::Other("lists or structures"),
            leaf: None,
        })
        .collect();
    for leaf in 0..schema.num_columns() {
        if schema.get_column_root(leaf).is_primitive() {
            let column = &mut columns[schema.get_column_root_idx(leaf)];
            column.meaning = Meaning::of(&schema.column(leaf));
            column.leaf = Some(leaf);
        }
    }
    let notes = metadata.file_metadata().key_value_metadata();
    let mut notes = notes.into_iter().flatten();
    let note = notes.find(|note| note.key == arrow_spans::KEY);
    if let Some(note) = note.and_then(|note| note.value.as_deref()) {
        let spans = arrow_spans::spans(note, columns.len());
        for (column, unit) in columns.iter_mut().zip(spans) {
            if let (Meaning::Integer { signed: true }, Some(unit)) = (column.meaning, unit) {
                column.meaning = Meaning::Span { unit };
            }
        }
    }
    columns
}

/// A leaf column: its number among those, and its kind.
type Leaf = (usize, Meaning);

/// Columns of some rows, in the requested order.
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// A column each.
    pub columns: Vec<ColumnRows>,
}

/// Rows, one batch after the other.
pub struct Batches<T> {
    source: Arc<T>,
    metadata: Arc<ParquetMetaData>,
    leaves: Vec<Leaf>,
    groups: Range<usize>,
    readers: Vec<Reader>,
    /// Unread rows of the group.
    left: usize,
}

impl<T: ChunkReader + 'static> Batches<T> {
    fn new(
        source: T,
        metadata: Arc<ParquetMetaData>,
        leaves: Vec<Leaf>,
        groups: Range<usize>,
    ) -> Self {
        Self {
            source: Arc::new(source),
            metadata,
            leaves,
            groups,
            readers: Vec::new(),
            left: 0,
        }
    }

    fn read(&mut self) -> std::result::Result<Option<Batch>, ParquetError> {
        while self.left == 0 {
            let Some(group) = self.groups.next() else {
                return Ok(None);
            };
            self.open(group)?;
        }
        let rows = self.left.min(BATCH);
        let columns = self.readers.iter_mut().map(|reader| reader.read(rows));
        let columns = columns.collect::<std::result::Result<_, _>>()?;
        self.left -= rows;
        Ok(Some(Batch { rows, columns }))
    }

    fn open(&mut self, group: usize) -> std::result::Result<(), ParquetError> {
        let group = self.metadata.row_group(group);
        let rows = usize::try_from(group.num_rows())
            .map_err(|_| ParquetError::General("a row group of less than no rows".into()))?;
        self.readers.clear();
        for (leaf, meaning) in &self.leaves {
            page_sizes::check(&*self.source, group.column(*leaf))?;
            let pages =
                SerializedPageReader::new(self.source.clone(), group.column(*leaf), rows, None)?;
            let column = group.schema_descr().column(*leaf);
            self.readers
                .push(Reader::new(column, *meaning, Box::new(pages)));
        }
        self.left = rows;
        Ok(())
    }
}

impl<T: ChunkReader + 'static> Iterator for Batches<T> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = guarded(|| self.read()).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.groups = 0..0;
            self.left = 0;
        }
        next
    }
}

fn damaged(reason: &str) -> ImportError {
    ImportError::Damaged(ParquetError::General(reason.into()))
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader of untrusted bytes. A panic of the reader counts as an error, too.
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
