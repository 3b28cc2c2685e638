//! Values in numbered, reusable places.

use std::ops::{Index, IndexMut};

/// Values by the numbers of their places. The place freed last is reused first, so that the used memory stays small and
/// cached.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    values: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Copy> Slab<T> {
    /// Store a value and return its place.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self[place] = value;
            return place;
        }
        self.values.push(value);
        self.values.len() as u32 - 1
    }

    /// Free a place and return its value.
    #[inline]
    pub fn remove(&mut self, place: u32) -> T {
        self.free.push(place);
        self[place]
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, place: u32) -> &T {
        &self.values[place as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.values[place as usize]
    }
}
