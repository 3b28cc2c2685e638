//! Traffic that measures networks, and the parameters that its arrivals show.
//!
//! No input or output: time, randomness and results of experiments are arguments. The caller has the sockets, or a
//! [virtual network](virtual_network).
#![forbid(unsafe_code)]

pub mod calibration;
pub mod plan;
pub mod virtual_network;
pub mod workload;

/// A network that cannot be calibrated, in a sentence with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
