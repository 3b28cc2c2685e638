//! Columns of time spans that a Parquet file stores as whole numbers.
//!
//! Parquet has no type for a span. What writes Arrow's tables to Parquet (pyarrow, so pandas, and Polars) notes Arrow's schema beside
//! them, in the file's metadata under `ARROW:schema`: in Base64 a message of Arrow's IPC format, a FlatBuffer (Arrow Columnar Format,
//! "Encapsulated message format"; `Message.fbs` and `Schema.fbs` have the numbers of fields below). Of that only the types of the outermost
//! columns are looked at: the crate that reads all of it would double cellbed's compilation.

use base64::prelude::{BASE64_STANDARD, Engine};

/// The key of the file's metadata.
pub(crate) const KEY: &str = "ARROW:schema";

/// The beginning of a message, since version 0.15 of Arrow.
const CONTINUATION: u32 = u32::MAX;
/// `MessageHeader.Schema`.
const SCHEMA: u8 = 1;
/// `Type.Duration`.
const DURATION: u8 = 18;

/// By its number the ns in a unit of each of `columns` outermost columns; `None` for other columns, and for all if the
/// note cannot be read.
pub(crate) fn spans(note: &str, columns: usize) -> Vec<Option<i64>> {
    let mut found = BASE64_STANDARD
        .decode(note)
        .ok()
        .and_then(|message| fields(&message, columns))
        .unwrap_or_default();
    found.resize(columns, None);
    found
}

fn fields(message: &[u8], columns: usize) -> Option<Vec<Option<i64>>> {
    let mut buffer = Buffer(message);
    if buffer.u32(0)? == CONTINUATION {
        buffer = Buffer(message.get(4..)?);
    }
    // Its length comes first.
    buffer = Buffer(buffer.0.get(4..)?);
    let message = buffer.table(0)?;
    if buffer.u8(message.field(1)?)? != SCHEMA {
        return None;
    }
    let schema = buffer.table(message.field(2)?)?;
    let fields = buffer.followed(schema.field(1)?)?;
    let count = usize::try_from(buffer.u32(fields)?).ok()?.min(columns);
    (0..count)
        .map(|number| Some(buffer.table(fields + 4 + 4 * number)?.span()))
        .collect()
}

/// An untrusted FlatBuffer: values outside are `None`.
#[derive(Clone, Copy)]
struct Buffer<'a>(&'a [u8]);

impl<'a> Buffer<'a> {
    fn bytes<const COUNT: usize>(self, at: usize) -> Option<[u8; COUNT]> {
        self.0.get(at..at.checked_add(COUNT)?)?.try_into().ok()
    }

    fn u8(self, at: usize) -> Option<u8> {
        self.bytes(at).map(u8::from_le_bytes)
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    /// The target of the offset at `at`.
    fn followed(self, at: usize) -> Option<usize> {
        at.checked_add(usize::try_from(self.u32(at)?).ok()?)
    }

    /// The table at the offset at `at`.
    fn table(self, at: usize) -> Option<Table<'a>> {
        let at = self.followed(at)?;
        let back = i32::from_le_bytes(self.bytes(at)?);
        let offsets = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        Some(Table {
            buffer: self,
            at,
            offsets,
        })
    }
}

/// offsets: where the table of its fields' offsets is.
struct Table<'a> {
    buffer: Buffer<'a>,
    at: usize,
    offsets: usize,
}

impl Table<'_> {
    /// Return the position of a field; `None` for one that has its default.
    fn field(&self, number: usize) -> Option<usize> {
        let place = 4 + 2 * number;
        if place + 2 > usize::from(self.buffer.u16(self.offsets)?) {
            return None;
        }
        let offset = usize::from(self.buffer.u16(self.offsets.checked_add(place)?)?);
        (offset > 0).then(|| self.at + offset)
    }

    /// Of a `Field`: the ns of its unit, if it is a span.
    fn span(&self) -> Option<i64> {
        if self.buffer.u8(self.field(2)?)? != DURATION {
            return None;
        }
        let duration = self.buffer.table(self.field(3)?)?;
        match duration.field(0).map(|unit| self.buffer.u16(unit)) {
            Some(Some(0)) => Some(1_000_000_000),
            None | Some(Some(1)) => Some(1_000_000),
            Some(Some(2)) => Some(1_000),
            Some(Some(3)) => Some(1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pyarrow's note on a table with the columns `at` (spans in ms), `number` (64 bits) and `span` (ns).
    const NOTE: &str = "/////+AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAMAAACEAAAAOAAAAAQAAACY////AAAB\
        EhAAAAAcAAAABAAAAAAAAAAEAAAAc3BhbgAABgAIAAYABgAAAAAAAwDI////AAABAhAAAAAgAAAABAAAAAAAAAAGAAAAbnVtYmVy\
        AAAIAAwACAAHAAgAAAAAAAABQAAAABAAFAAIAAYABwAMAAAAEAAQAAAAAAABEhAAAAAYAAAABAAAAAAAAAACAAAAYXQAAAQABAAE\
        AAAAAAAAAA==";

    #[test]
    fn spans_are_told_from_whole_numbers() {
        assert_eq!(spans(NOTE, 3), [Some(1_000_000), None, Some(1)]);
        assert_eq!(spans(NOTE, 4), [Some(1_000_000), None, Some(1), None]);
        assert_eq!(spans(NOTE, 1), [Some(1_000_000)]);
    }

    proptest! {
        #[test]
        fn no_note_is_trusted(place in 0usize..1 << 12, value: u8, other in ".*") {
            prop_assert_eq!(spans(&other, 2).len(), 2);
            let mut message = BASE64_STANDARD.decode(NOTE).unwrap();
            let place = place % message.len();
            message[place] = value;
            prop_assert_eq!(spans(&BASE64_STANDARD.encode(&message), 3).len(), 3);
            message.truncate(place);
            prop_assert_eq!(spans(&BASE64_STANDARD.encode(&message), 3).len(), 3);
        }
    }
}
