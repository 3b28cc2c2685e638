//! Fields of a message or of an entry of the journal, in a fixed order, big-endian.

use cellbed_link::Time;

use crate::wire::{Malformed, SessionId};

const SHORT: Malformed = Malformed("it ends too soon");

/// A value of fixed length.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                let bytes = reader.bytes()?;
                Ok(match reader.order {
                    ByteOrder::Big => Self::from_be_bytes(bytes),
                    ByteOrder::Little => Self::from_le_bytes(bytes),
                })
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.bytes()
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(reader.u8()? != 0)
    }
}

impl Field for Time {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_nanos().put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.take().map(Self::from_nanos)
    }
}

impl Field for SessionId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Field::take(reader).map(Self)
    }
}

/// Encode structs as their fields in the order of this list; a field behind `but` is not encoded.
macro_rules! fields {
    ($($name:ident { $($field:ident),* } $(but $none:ident)?;)*) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($field: Field::take(reader)?,)* $($none: None)? })
            }
        }
    )*};
}
pub(crate) use fields;

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Big,
    /// Journals up to version 2.
    Little,
}

/// Takes fields off the front of a message.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self::with_order(message, ByteOrder::Big)
    }

    pub(crate) fn with_order(rest: &'a [u8], order: ByteOrder) -> Self {
        Self { rest, order }
    }

    /// Return the number of bytes left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Take the next `length` bytes.
    pub(crate) fn slice(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (slice, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(slice)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (field, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*field)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.bytes()?))
    }

    /// Read a number in the fewest groups of seven bits, the low ones first (LEB128).
    pub(crate) fn variable(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let group = self.u8()?;
            let bits = u64::from(group & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if group & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a number has more than 64 bits"))
    }

    /// Read a number like [`Reader::variable`], with the sign in the lowest bit.
    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let folded = self.variable()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Take a field of the inferred type.
    pub(crate) fn take<T: Field>(&mut self) -> Result<T, Malformed> {
        T::take(self)
    }

    /// Return the bytes left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Check that all bytes have been read.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed("it goes on after its end"))
        }
    }
}

/// Write the value that [`Reader::variable`] reads.
pub(crate) fn put_variable(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Write the value that [`Reader::signed`] reads.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_variable(out, ((value << 1) ^ (value >> 63)) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(unsigned: u64, signed: i64) {
            let mut bytes = Vec::new();
            put_variable(&mut bytes, unsigned);
            put_signed(&mut bytes, signed);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.variable(), Ok(unsigned));
            prop_assert_eq!(reader.signed(), Ok(signed));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert!(Reader::new(&[0xff; 20]).variable().is_err());
        let mut most = vec![0xff; 9];
        most.push(1);
        assert_eq!(Reader::new(&most).variable(), Ok(u64::MAX));
    }
}
