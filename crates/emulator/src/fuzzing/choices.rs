//! Decisions read from bytes that somebody else chose.

/// Gives one byte after the other, and 0 when they have run out.
pub struct Choices<'a> {
    bytes: std::iter::Copied<std::slice::Iter<'a, u8>>,
}

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.iter().copied(),
        }
    }

    /// The next byte.
    pub fn next(&mut self) -> u8 {
        self.bytes.next().unwrap_or(0)
    }

    /// Two bytes as one number.
    pub fn wide(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.next(), self.next()]))
    }

    /// One of some values.
    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::from(self.next()) % values.len()]
    }
}
