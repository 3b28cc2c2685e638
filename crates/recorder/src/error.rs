//! Errors, in sentences that name the object, the place and the remedy.

pub(crate) use cellbed_netdev::Trying;

/// Everything that stops the recorder, or one of its commands.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or the file system refused something.
    #[error(transparent)]
    Kernel(#[from] cellbed_netdev::Error),

    /// The user ended it.
    #[error("interrupted")]
    Interrupted,

    /// Options that do not fit each other, or the network.
    #[error("{0}")]
    Usage(String),

    /// The server, the network or a file is not as it must be.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn failed<T>(sentence: impl Into<String>) -> Result<T> {
        Err(Self::Failed(sentence.into()))
    }
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
