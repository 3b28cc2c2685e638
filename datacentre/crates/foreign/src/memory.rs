//! Memory of C structures.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Zeroed memory, aligned to 8 bytes, at a fixed address.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<[u64]>,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Memory {}

impl Memory {
    /// Return memory of at least so many bytes.
    pub fn new(bytes: usize) -> Self {
        let words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        Self {
            start: NonNull::from(Box::leak(words)),
        }
    }

    /// Return its address.
    pub fn start(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` leaked it, and nothing frees it before.
        drop(unsafe { Box::from_raw(self.start.as_ptr()) });
    }
}
