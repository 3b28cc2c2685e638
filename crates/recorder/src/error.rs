//! Errors, in sentences that name the object, the place and the remedy.

use std::net::SocketAddr;

pub(crate) use cellbed_netdev::Trying;

use crate::wire::Refusal;

/// Everything that stops the recorder, or one of its commands.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] cellbed_netdev::Error),

    /// A session cannot continue.
    #[error(transparent)]
    Session(#[from] crate::secure::Unsealable),

    /// No answer.
    #[error(
        "no answer from {server}{way} in {seconds} s. Is `cellbed-recorder serve` running there, with the same secret and version {} or later \
         of the protocol, and does UDP to that port pass?",
        crate::wire::VERSION
    )]
    NoAnswer {
        /// The server.
        server: SocketAddr,
        /// The interface, with a preposition, or nothing.
        way: String,
        /// Time that the server was asked, s.
        seconds: u64,
    },

    /// The server does not let us in.
    #[error("{server} refuses: {reason}")]
    Rejected {
        /// The server.
        server: SocketAddr,
        /// Why.
        reason: Refusal,
    },

    /// The server did not do what it was asked.
    #[error("the server refuses: {reason}")]
    Refused {
        /// Why.
        reason: Refusal,
    },

    /// A calibration cannot continue.
    #[error("calibration: {0}")]
    Calibration(crate::calibration::CalibrationError),

    /// The user ended it.
    #[error("interrupted")]
    Interrupted,

    /// Options that do not fit each other, or the network.
    #[error("{0}")]
    Usage(String),

    /// A recording on disk.
    #[error(transparent)]
    Recording(#[from] crate::recording::RecordingError),

    /// No secret.
    #[error(transparent)]
    Secret(#[from] crate::secure::SecretError),
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
