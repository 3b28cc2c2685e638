//! Applications over a path in virtual time.
//!
//! A [`Network`] is hosts on a graph of [directions](cellbed_link::Direction), in the simplest case two hosts and the path
//! between them. An [`Application`] runs on it: [`RoundTrips`] and [`Trains`] of datagrams, [`Downloads`] over TCP, the
//! [`PageLoad`] of a browser. Two runs on equal networks are equal to the nanosecond.
#![forbid(unsafe_code)]

pub mod fabric;
mod path;
pub mod radio;
pub mod random;
mod tcp;
pub mod transport;
pub mod wheel;

pub use path::*;
pub use tcp::{Control, Sending, Tcp};
