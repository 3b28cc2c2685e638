//! Records live networks for cellbed: what a network does to packet trains and under saturation, calibration, client
//! and server.
//!
//! Pure core, thin shell: what is sent and when, what is learnt from it and what goes over the wire take time,
//! randomness and bytes as arguments. Sockets, clocks and files are at the edge.
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
