//! Signals that request the program's end: Ctrl-C, `kill`, a closed terminal.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static COUNT: AtomicU32 = AtomicU32::new(0);

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Counts these signals until dropped; the signals do not end the process. Sleeping system calls return early.
pub struct Interrupts {
    before: [nix::Result<SigAction>; SIGNALS.len()],
}

extern "C" fn count(_: i32) {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

impl Interrupts {
    /// Counts from now on.
    #[expect(unsafe_code)]
    pub fn catch() -> Self {
        COUNT.store(0, Ordering::Relaxed);
        let handler = SigHandler::Handler(count);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler only changes an atomic number, which is permitted.
        let before = SIGNALS.map(|signal| unsafe { sigaction(signal, &action) });
        Self { before }
    }

    /// Return the number of interrupts since [`catch`](Self::catch).
    pub fn count(&self) -> u32 {
        COUNT.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupts {
    #[expect(unsafe_code)]
    fn drop(&mut self) {
        for (signal, before) in SIGNALS.iter().zip(&self.before) {
            if let Ok(before) = before {
                // SAFETY: the action restored here is the one that the kernel returned.
                let _ = unsafe { sigaction(*signal, before) };
            }
        }
    }
}
