//! Check of the sizes that the headers of Parquet pages claim, before the reader uses them.
//!
//! The reader allocates what a header claims that a page has when unpacked. A page header is a structure in Thrift's compact protocol
//! (`PageHeader` in `parquet.thrift`), of which only the second and third field matter here.

use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;

/// Unpacked bytes allowed for any page.
const ALWAYS: u64 = 64 << 20;
/// Maximum compression ratio of a larger page. No column of measurements exceeds it.
const RATIO: u64 = 1024;
/// Bytes of a header: first read, and maximum.
const HEADER: [u64; 2] = [1 << 10, 1 << 20];
/// Maximum nesting of a header's structures: 4 in the format.
const DEPTH: u8 = 16;

/// Walks over the headers of the pages of a column in a row group.
///
/// Errors: for a page that claims more bytes than its file can hold, packed or unpacked.
pub(crate) fn check(source: &impl ChunkReader, column: &ColumnChunkMetaData) -> Result<()> {
    let (mut at, length) = column.byte_range();
    let end = at.saturating_add(length);
    if end > source.len() {
        return Err(wrong("a column lies beyond the end of the file"));
    }
    while at < end {
        let sizes = header(source, at, end)?;
        at += sizes.header;
        if sizes.packed > end - at {
            return Err(wrong("a page lies beyond the end of its column"));
        }
        if sizes.unpacked > ALWAYS.max(sizes.packed.saturating_mul(RATIO)) {
            return Err(wrong(&format!(
                "a page of {} bytes claims to have {} bytes when unpacked",
                sizes.packed, sizes.unpacked
            )));
        }
        at += sizes.packed;
    }
    Ok(())
}

fn wrong(reason: &str) -> ParquetError {
    ParquetError::General(reason.into())
}

struct Sizes {
    header: u64,
    packed: u64,
    unpacked: u64,
}

fn header(source: &impl ChunkReader, at: u64, end: u64) -> Result<Sizes> {
    for most in HEADER {
        let length = most.min(end - at);
        let bytes = source.get_bytes(at, length as usize)?;
        if let Some(sizes) = Thrift(&bytes).page_header(bytes.len()) {
            return Ok(sizes);
        }
        if length == end - at {
            break;
        }
    }
    Err(wrong("a page has a damaged header"))
}

/// The remaining bytes in Thrift's compact protocol. `None` is for truncated or malformed bytes.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    fn page_header(mut self, length: usize) -> Option<Sizes> {
        let mut sizes = [None; 2];
        let mut id = 0;
        while let Some((field, kind)) = self.field(id)? {
            match (field, kind) {
                (2 | 3, 5) => sizes[usize::from(field == 3)] = Some(self.zigzag()?),
                _ => self.skip(kind, DEPTH)?,
            }
            id = field;
        }
        Some(Sizes {
            header: (length - self.0.len()) as u64,
            unpacked: sizes[0]?.try_into().ok()?,
            packed: sizes[1]?.try_into().ok()?,
        })
    }

    /// Number and type of the next field of a structure, or `None` at its end.
    fn field(&mut self, before: i64) -> Option<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        let field = match head >> 4 {
            0 => self.zigzag()?,
            step => before.checked_add(step.into())?,
        };
        Some(Some((field, head & 0xf)))
    }

    fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => Some(()), // true and false: in the type itself
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => count.into(),
                };
                // An element has at least a byte, unlike a boolean field.
                (0..count).try_for_each(|_| match head & 0xf {
                    1 | 2 => self.byte().map(drop),
                    kind => self.skip(kind, depth),
                })
            }
            12 => {
                let mut id = 0;
                while let Some((field, kind)) = self.field(id)? {
                    self.skip(kind, depth)?;
                    id = field;
                }
                Some(())
            }
            _ => None, // maps, which no header has
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn pass(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A header of type, unpacked and packed size, then a structure with a string and a list, which are skipped.
    fn bytes(unpacked: &[u8]) -> Vec<u8> {
        let mut header = vec![0x15, 0x00, 0x15];
        header.extend(unpacked);
        header.extend([0x15, 0x0c]); // 6 packed
        header.extend([0x2c, 0x18, 0x02, b'a', b'b', 0x19, 0x25, 0x02, 0x04, 0x00]);
        header.push(0x00);
        header
    }

    #[test]
    fn sizes_are_read_and_the_rest_is_skipped() {
        let mut header = bytes(&[0x80, 0x80, 0x80, 0x80, 0x04]);
        let length = header.len() as u64;
        header.extend([1, 2, 3]);
        let sizes = Thrift(&header).page_header(header.len()).unwrap();
        assert_eq!(
            (sizes.header, sizes.packed, sizes.unpacked),
            (length, 6, 1 << 29)
        );
    }

    #[test]
    fn what_ends_or_cannot_be_is_none() {
        let header = bytes(&[0x02]);
        for length in 0..header.len() {
            assert!(Thrift(&header[..length]).page_header(length).is_none());
        }
        for wrong in [
            &bytes(&[0x01])[..],                   // -1 bytes
            &[0x1f, 0x00],                         // no such type
            &[0x18, 0xff, 0xff, 0xff, 0xff, 0x7f], // a string longer than all
            &[0xcc; 100],                          // nested too deep
        ] {
            assert!(Thrift(wrong).page_header(wrong.len()).is_none());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_within_them_or_none(
            any in vec(any::<u8>(), 0..80),
            // Field heads, sizes and ends, which random bytes seldom join to a header.
            likely in vec(prop::sample::select(vec![0x00u8, 0x15, 0x2c, 0x18, 0x19, 0x25, 0xf8, 0xff, 0x0c, 0x02]), 0..80),
        ) {
            for bytes in [any, likely.clone(), [vec![0x15, 0x00, 0x15, 0x02, 0x15, 0x0c], likely].concat()] {
                if let Some(sizes) = Thrift(&bytes).page_header(bytes.len()) {
                    prop_assert!(sizes.header <= bytes.len() as u64);
                    prop_assert!(i64::try_from(sizes.packed.max(sizes.unpacked)).is_ok());
                }
            }
        }
    }
}
