//! Records live networks for cellbed: responses to packet trains and saturation, by a client and a server.
//!
//! Pure core, thin shell: messages have time, randomness and bytes as arguments. Sockets, clocks and files are at the
//! edge. The traffic and its analysis are in `cellbed-calibration`.
#![deny(unsafe_code)]

mod client;
mod clock;
pub mod command;
mod error;
mod record;
mod recording;
pub mod secure;
pub mod server;
pub mod socket;
pub mod wire;

pub use error::{Error, Result};
