//! Positions of the keys of a TOML document, for errors that point at a line; also limits the parsing of TOML.

use std::collections::HashMap;
use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use toml_edit::{Document, Item, TableLike, Value};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

type Positions = HashMap<String, (usize, usize)>;

/// Maximum parts of a parsed key: each part is a level, and levels are visited recursively.
const MOST_PARTS: usize = 64;
/// Maximum bytes of a path with a position: the memory for paths is then a multiple of the text's size.
const LONGEST_PATH: usize = 512;

#[pyfunction]
pub fn toml_longest_key(text: &str) -> (usize, usize) {
    let (parts, at) = longest_key(text);
    (parts, Lines::new(text).position(at..at).0)
}

/// Return the maximum number of parts of a key, and the position of that key's last part. Does not parse.
fn longest_key(text: &str) -> (usize, usize) {
    let mut longest = (0, 0);
    let mut parts = 1;
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => parts += 1,
            // Atoms split numbers at dots, so a number counts as a key of two parts.
            TokenKind::Atom
            | TokenKind::BasicString
            | TokenKind::LiteralString
            | TokenKind::Whitespace => {}
            _ => parts = 1,
        }
        if parts > longest.0 {
            longest = (parts, token.span().start());
        }
    }
    longest
}

/// Parse a text whose keys have at most [`MOST_PARTS`] parts; return place and reason of an error.
fn document(text: &str) -> Result<Document<&str>, (Range<usize>, String)> {
    let (parts, at) = longest_key(text);
    if parts > MOST_PARTS {
        return Err((at..at, format!("a key of more than {MOST_PARTS} parts")));
    }
    Document::parse(text).map_err(|error| {
        let message: Vec<&str> = error.message().lines().map(str::trim).collect();
        (error.span().unwrap_or(0..0), message.join("; "))
    })
}

#[pyfunction]
pub fn toml_positions(text: &str) -> PyResult<Positions> {
    positions(text).map_err(PyValueError::new_err)
}

/// Return line and column, both from 1, of every key, by dotted path; `line:col: message` for malformed TOML.
fn positions(text: &str) -> Result<Positions, String> {
    let lines = Lines::new(text);
    let document = document(text).map_err(|(span, message)| {
        let (line, column) = lines.position(span);
        format!("{line}:{column}: {message}")
    })?;
    let mut walk = Walk {
        lines,
        found: Positions::new(),
    };
    walk.keys(document.as_table(), "");
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
            // The position of a table of dotted keys is its first occurrence.
            let position = self.lines.position(span);
            self.found
                .entry(path.to_owned())
                .and_modify(|old| *old = position.min(*old))
                .or_insert(position);
        }
    }

    fn keys(&mut self, table: &dyn TableLike, path: &str) {
        for (name, item) in table.iter() {
            if path.len() + name.len() > LONGEST_PATH {
                continue;
            }
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
            Item::Table(table) => self.keys(table, path),
            Item::ArrayOfTables(tables) => {
                for (index, table) in tables.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.note(&path, table.span());
                    self.keys(table, &path);
                }
            }
        }
    }

    fn value(&mut self, value: &Value, path: &str) {
        match value {
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    if path.len() > LONGEST_PATH {
                        break;
                    }
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
