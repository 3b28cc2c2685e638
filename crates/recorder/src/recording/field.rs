//! Numbers and times in an entry of the journal, one behind the other, little-endian.

use cellbed_link::Time;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Takes fields off the front of a block.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(block: &'a [u8]) -> Self {
        Self(block)
    }

    /// Return the number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }
}

/// Component of an entry.
pub(super) trait Field: Sized {
    /// Adds it to a block.
    fn put(&self, out: &mut Vec<u8>);
    /// Read what [`put`](Self::put) added; `None` if there are too few bytes or they are invalid.
    fn take(from: &mut Fields<'_>) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Fields<'_>) -> Option<Self> {
                let (field, rest) = from.0.split_first_chunk()?;
                from.0 = rest;
                Some(Self::from_le_bytes(*field))
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut Fields<'_>) -> Option<Self> {
        Some(u8::take(from)? != 0)
    }
}

impl Field for Time {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_nanos().put(out);
    }

    fn take(from: &mut Fields<'_>) -> Option<Self> {
        u64::take(from).map(Time::from_nanos)
    }
}

/// A value as JSON, behind its length.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> Json<&T> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let json = serde_json::to_vec(self.0).unwrap_or_default();
        (json.len() as u32).put(out);
        out.extend_from_slice(&json);
    }
}

impl<T: DeserializeOwned> Json<T> {
    pub(super) fn take(from: &mut Fields<'_>) -> Option<T> {
        let length = u32::take(from)? as usize;
        let (json, rest) = from.0.split_at_checked(length)?;
        from.0 = rest;
        serde_json::from_slice(json).ok()
    }
}

/// Structs as their fields in the order that is written here.
macro_rules! fields {
    ($($name:ident { $($field:ident),* } $(but $none:ident)?;)*) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut Fields<'_>) -> Option<Self> {
                Some(Self { $($field: Field::take(from)?,)* $($none: None)? })
            }
        }
    )*};
}
pub(super) use fields;
