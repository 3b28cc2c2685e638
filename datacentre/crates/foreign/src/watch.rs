//! The function of a header that runs now, for another process that watches this one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// Names of the functions, by their numbers; 0 is none.
pub const CALLS: [&str; 12] = [
    "",
    "transport_start",
    "transport_receive",
    "transport_timer",
    "transport_host_timer",
    "transport_pull",
    "scheduler_rank",
    "scheduler_sent",
    "scheduler_arrived",
    "admission_offer",
    "admission_open",
    "admission_report",
];

static UNWATCHED: AtomicU32 = AtomicU32::new(0);
static RUNNING: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNWATCHED).cast_mut());

/// Note the number of the running function in the first four bytes of a file, which has at least four.
pub fn watch(file: &File) -> io::Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, which is never unmapped. A page is aligned for the number.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            4,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    RUNNING.store(page.cast(), Relaxed);
    Ok(())
}

/// Call a function of a header.
pub(crate) fn watched<R>(number: u32, call: impl FnOnce() -> R) -> R {
    // SAFETY: the pointer is to a static variable, or to a page that stays mapped.
    let running = unsafe { &*RUNNING.load(Relaxed) };
    running.store(number, Relaxed);
    let found = call();
    running.store(0, Relaxed);
    found
}
