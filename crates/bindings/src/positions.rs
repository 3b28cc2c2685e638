//! Where each key of a TOML document stands, for errors that point at a line.

use std::collections::HashMap;
use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use toml_edit::{Document, Item, Table, TableLike, Value};

type Positions = HashMap<String, (usize, usize)>;

#[pyfunction]
pub fn toml_positions(text: &str) -> PyResult<Positions> {
    positions(text).map_err(PyValueError::new_err)
}

/// Line and column, both from 1, of every key, by its dotted path; `line:col: message` for what is no TOML.
fn positions(text: &str) -> Result<Positions, String> {
    let lines = Lines::new(text);
    let document = Document::parse(text).map_err(|error| {
        let (line, column) = lines.position(error.span().unwrap_or(0..0));
        let message: Vec<&str> = error.message().lines().map(str::trim).collect();
        format!("{line}:{column}: {}", message.join("; "))
    })?;
    let mut walk = Walk {
        lines,
        found: Positions::new(),
    };
    walk.table(document.as_table(), "");
    Ok(walk.found)
}

struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self { text, starts }
    }

    fn position(&self, span: Range<usize>) -> (usize, usize) {
        let line = self.starts.partition_point(|&start| start <= span.start);
        let start = self.starts[line - 1];
        let column = self
            .text
            .get(start..span.start)
            .map_or(0, |before| before.chars().count());
        (line, column + 1)
    }
}

struct Walk<'a> {
    lines: Lines<'a>,
    found: Positions,
}

impl Walk<'_> {
    fn note(&mut self, path: &str, span: Option<Range<usize>>) {
        if let Some(span) = span {
            // A table that dotted keys build up stands where it is first named.
            let position = self.lines.position(span);
            self.found
                .entry(path.to_owned())
                .and_modify(|old| *old = position.min(*old))
                .or_insert(position);
        }
    }

    fn table(&mut self, table: &Table, path: &str) {
        self.keys(table, path);
    }

    fn keys(&mut self, table: &dyn TableLike, path: &str) {
        for (name, item) in table.iter() {
            let path = join(path, name);
            let span = table.key(name).and_then(|key| key.span());
            self.note(&path, span);
            self.item(item, &path);
        }
    }

    fn item(&mut self, item: &Item, path: &str) {
        match item {
            Item::None => {}
            Item::Value(value) => self.value(value, path),
            Item::Table(table) => self.table(table, path),
            Item::ArrayOfTables(tables) => {
                for (index, table) in tables.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.note(&path, table.span());
                    self.table(table, &path);
                }
            }
        }
    }

    fn value(&mut self, value: &Value, path: &str) {
        match value {
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.note(&path, value.span());
                    self.value(value, &path);
                }
            }
            Value::InlineTable(table) => self.keys(table, path),
            _ => {}
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
