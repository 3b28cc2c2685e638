//! Fields of a message or of an entry of the journal, in a fixed order, big-endian.

use cellbed_link::Time;

use super::Malformed;

const SHORT: Malformed = Malformed("it is truncated");

/// A value as bytes.
pub trait Field: Sized {
    /// Append the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Take the value off the front of a message.
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Return the bytes of the value.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes
    }

    /// Read a value from all of `bytes`.
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let value = Self::take(&mut reader)?;
        match reader.is_empty() {
            true => Ok(value),
            false => Err(Malformed("bytes follow its end")),
        }
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                reader.bytes().map(Self::from_be_bytes)
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
        Ok(u8::take(reader)? != 0)
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

/// `None` is encoded as the default value, all zero.
impl<T: Field + Copy + Default + PartialEq> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.unwrap_or_default().put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let value = reader.take()?;
        Ok((value != T::default()).then_some(value))
    }
}

/// Encode structs as their fields in the listed order; a field after `but` is not encoded.
macro_rules! fields {
    ($($name:ident { $($field:tt),* } $(but $none:ident)?;)*) => {$(
        impl $crate::wire::Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(reader: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::Malformed> {
                Ok(Self { $($field: reader.take()?,)* $($none: None)? })
            }
        }
    )*};
}
pub(crate) use fields;

/// Encode the variants of an enum as their codes, each followed by its fields in the listed order; padded with zeros to
/// a length if one is given.
macro_rules! variants {
    ($name:ident $(of $length:literal bytes)?: $($code:literal $variant:ident $(($($place:ident),*))? $({ $($field:ident),* })?;)*) => {
        impl $crate::wire::Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let end = out.len() $(+ $length)?;
                match self {$(
                    Self::$variant $(($($place),*))? $({ $($field),* })? => {
                        out.push($code);
                        $($($place.put(out);)*)?
                        $($($field.put(out);)*)?
                    }
                )*}
                out.resize(out.len().max(end), 0);
            }

            fn take(reader: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::Malformed> {
                $(let reader = &mut $crate::wire::Reader::new(reader.slice($length)?);)?
                Ok(match reader.take::<u8>()? {
                    $($code => {
                        $($(let $place = reader.take()?;)*)?
                        Self::$variant $(($($place),*))? $({ $($field: reader.take()?),* })?
                    })*
                    _ => return Err($crate::wire::Malformed("its code is unknown")),
                })
            }
        }
    };
}
pub(crate) use variants;

/// Takes fields off the front of a message.
#[derive(Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Start at the front of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Take the next `length` bytes.
    pub fn slice(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (slice, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(slice)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (field, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*field)
    }

    /// Read a number in the minimum number of groups of seven bits, low groups first (LEB128).
    pub(crate) fn variable(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let group: u8 = self.take()?;
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

    /// Take a field of the inferred type.
    pub fn take<T: Field>(&mut self) -> Result<T, Malformed> {
        T::take(self)
    }

    /// Return the bytes left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Return whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
            prop_assert!(reader.is_empty());
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
