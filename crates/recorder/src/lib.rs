//! Records live networks for cellbed: responses to packet trains and saturation; calibration, client and server.
//!
//! Pure core, thin shell: traffic, analysis and messages have time, randomness and bytes as arguments. Sockets, clocks
//! and files are at the edge.
#![deny(unsafe_code)]

pub mod calibration;
mod client;
mod clock;
pub mod command;
mod error;
pub mod plan;
mod record;
mod recording;
pub mod secure;
pub mod server;
pub mod socket;
pub mod virtual_network;
pub mod wire;
pub mod workload;

pub use error::{Error, Result};
pub use recording::pack;
