//! Errors of requests.

use std::io;

/// Each variant is one sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request does not follow the grammar.
    #[error("{0}")]
    Request(String),

    /// The request is well formed, but not allowed for the caller, or nft(8) failed.
    #[error("{0}")]
    Refused(String),

    /// The kernel refused a request.
    #[error(transparent)]
    Kernel(#[from] cellbed_netdev::Error),

    /// The command of `enter` cannot be executed.
    #[error("cannot execute {command:?}: {source}")]
    Command { command: String, source: io::Error },
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Return the exit status of the error; for a command, like that of a shell.
    pub fn status(&self) -> u8 {
        match self {
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Command { .. } => 126,
            Self::Request(_) => 2,
            _ => 1,
        }
    }

    pub(crate) fn refused<T>(problem: impl Into<String>) -> Result<T> {
        Err(Self::Refused(problem.into()))
    }
}
