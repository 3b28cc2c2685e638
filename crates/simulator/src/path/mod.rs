//! Hosts, the directions of links between them, and applications on them.

mod connection;
mod downloads;
mod event;
mod network;
mod page;
mod pool;
mod probes;

pub use downloads::{Download, Downloads};
pub use event::{ConnectionId, DatagramKind, End, Ends, Event};
pub use network::{Application, Network};
pub use page::{Fetch, Handshake, HttpVersion, PageLoad, PageObject};
pub use probes::{RoundTrips, Train, Trains};
