//! Errors of the kernel, in sentences that name the attempt and the remedy.

use std::io;

/// Reason why a request to the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a request.
    #[error("cannot {what}: {source}{remedy}")]
    System {
        /// The attempt, such as `open /dev/net/tun`.
        what: String,
        /// The kernel's reason.
        source: io::Error,
        /// The remedy; empty, or begins with a separator.
        remedy: String,
    },

    /// A netlink answer cannot be decoded.
    #[error("cannot {what}: the kernel's answer over netlink cannot be decoded: {problem}")]
    Netlink {
        /// Attempted operation.
        what: String,
        /// The decoder's reason.
        problem: String,
    },

    /// A thread has ended.
    #[error("the {thread} thread ended unexpectedly; please report this with the lines above")]
    ThreadEnded {
        /// Name of the thread.
        thread: &'static str,
    },
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Names the attempt when the kernel refuses it.
pub trait Trying<T> {
    /// Name the attempt.
    fn trying(self, what: impl FnOnce() -> String) -> Result<T>;
    /// Name the attempt and the remedy.
    fn trying_or(
        self,
        what: impl FnOnce() -> String,
        remedy: impl FnOnce(&io::Error) -> String,
    ) -> Result<T>;
}

impl<T, E: Into<io::Error>> Trying<T> for std::result::Result<T, E> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T> {
        self.trying_or(what, |_| String::new())
    }

    fn trying_or(
        self,
        what: impl FnOnce() -> String,
        remedy: impl FnOnce(&io::Error) -> String,
    ) -> Result<T> {
        self.map_err(|error| {
            let source = error.into();
            let remedy = remedy(&source);
            let remedy = if remedy.is_empty() {
                remedy
            } else {
                format!(". {remedy}")
            };
            Error::System {
                what: what(),
                source,
                remedy,
            }
        })
    }
}
