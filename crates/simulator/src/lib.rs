//! Networks in virtual time: paths of the emulator's model, and data centres. Equal runs have equal results.
//!
//! * Paths, in nanoseconds. A [`Network`] is hosts on a graph of [directions](cellbed_link::Direction), in the simplest case
//!   two hosts and the path between them. An [`Application`] runs on it: [`RoundTrips`] and [`Trains`] of datagrams,
//!   [`Downloads`] over TCP, the [`PageLoad`] of a browser.
//! * Data centres, in picoseconds. A [`fabric`] carries the packets of flows, a [`transport`] acts for its hosts, and
//!   [`radio`] is a cell behind one of the hosts.
//!
//! Both have the same TCP. The event queue of data centres is [`wheel`]; a network of paths asks its directions and timers.
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
