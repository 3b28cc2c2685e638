//! Networks in virtual time, in nanoseconds: hosts, the directions of links between them, and applications on them.
//!
//! A [`Network`] consists of hosts on a graph of [directions](cellbed_link::Direction), in the simplest case two hosts
//! and the path between them. An [`Application`] runs on it: [`Trains`] of datagrams, [`Downloads`] over
//! [TCP](cellbed_tcp). Equal runs have equal results.
#![forbid(unsafe_code)]

mod applications;
mod connection;
mod event;
mod network;

pub use applications::{Download, Downloads, Train, Trains};
pub use connection::FLOWS_MAGIC;
pub use event::{ConnectionId, DatagramKind, End, Ends, Event, Room};
pub use network::{Application, Network, Outside};
