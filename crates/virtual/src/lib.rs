//! Networks in virtual time, in nanoseconds: hosts, the directions of links between them, and applications on them.
//!
//! A [`Network`] is hosts on a graph of [directions](cellbed_link::Direction), in the simplest case two hosts and the
//! path between them. An [`Application`] runs on it: [`Trains`] of datagrams, [`Downloads`] over
//! [TCP](cellbed_tcp). Equal runs have equal results.
#![forbid(unsafe_code)]

mod connection;
mod downloads;
mod event;
mod flows;
mod network;
mod pool;
mod trains;

pub use downloads::{Download, Downloads};
pub use event::{ConnectionId, DatagramKind, End, Ends, Event, Room};
pub use flows::FLOWS_MAGIC;
pub use network::{Application, Network};
pub use trains::{Train, Trains};
