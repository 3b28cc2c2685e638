//! Signals that ask the program to end: Ctrl-C, `kill`, a terminal that goes away.

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;

static COUNT: AtomicU32 = AtomicU32::new(0);

const SIGNALS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Counts these signals instead of dying of them, until it is dropped. Sleeping system calls return early.
pub struct Interrupts {
    before: [libc::sigaction; SIGNALS.len()],
}

extern "C" fn count(_: c_int) {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

impl Interrupts {
    /// Counts from now on.
    #[expect(unsafe_code)]
    pub fn catch() -> Self {
        COUNT.store(0, Ordering::Relaxed);
        let before = SIGNALS.map(|signal| {
            // Sound: all-zero bytes are a valid `sigaction`: no flags, an empty mask.
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            let mut before = action;
            let handler: extern "C" fn(c_int) = count;
            action.sa_sigaction = handler as libc::sighandler_t;
            // Sound: both point to a `sigaction` for the call, and the handler does what a handler may: it changes an atomic number.
            unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
            before
        });
        Self { before }
    }

    /// How many came since then.
    pub fn count(&self) -> u32 {
        COUNT.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupts {
    #[expect(unsafe_code)]
    fn drop(&mut self) {
        for (signal, before) in SIGNALS.iter().zip(&self.before) {
            // Sound: what is put back is what the kernel gave.
            unsafe { libc::sigaction(*signal, &raw const *before, std::ptr::null_mut()) };
        }
    }
}
