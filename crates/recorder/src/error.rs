//! Errors, in sentences that name the object, the place and the remedy.

pub(crate) use cellbed_netdev::Trying;

/// An error that stops the recorder or a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or the file system refused a request.
    #[error(transparent)]
    Kernel(#[from] cellbed_netdev::Error),

    /// The user interrupted the program.
    #[error("interrupted")]
    Interrupted,

    /// Options that contradict each other, or the network.
    #[error("{0}")]
    Usage(String),

    /// The server, the network or a file is in an unexpected state.
    #[error("{0}")]
    Failed(String),

    /// The network cannot be calibrated.
    #[error(transparent)]
    Calibration(#[from] cellbed_calibration::Error),
}

impl Error {
    pub(crate) fn failed<T>(sentence: impl Into<String>) -> Result<T> {
        Err(Self::Failed(sentence.into()))
    }
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
