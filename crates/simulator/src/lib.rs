//! Applications over a path in virtual time.
//!
//! A [`Network`] is two hosts and the two [directions](cellbed_link::Direction) of the path between them. An
//! [`Application`] runs on it: [`RoundTrips`] and [`Trains`] of datagrams, [`Downloads`] over TCP, the
//! [`PageLoad`] of a browser. Two runs on equal paths are equal to the nanosecond.
#![forbid(unsafe_code)]

mod connection;
mod downloads;
mod event;
pub mod fabric;
mod network;
mod page;
mod probes;
pub mod random;
mod tcp;
pub mod transport;
pub mod wheel;

pub use downloads::{Download, Downloads};
pub use event::{ConnectionId, End, Event};
pub use network::{Application, Network};
pub use page::{Fetch, Handshake, PageLoad, PageObject, Protocol};
pub use probes::{RoundTrips, Train, Trains};
pub use tcp::{Control, Tcp};
