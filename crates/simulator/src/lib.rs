//! Networks in virtual time: paths of the emulator's model, and data centres. Equal runs have equal results.
//!
//! * Paths, in nanoseconds. A [`Network`] is hosts on a graph of [directions](cellbed_link::Direction), in the simplest case
//!   two hosts and the path between them. An [`Application`] runs on it: [`RoundTrips`] and [`Trains`] of datagrams,
//!   [`Downloads`] over TCP, the [`PageLoad`] of a browser.
//! * Data centres, in picoseconds. A [`Description`](description::Description) makes a run: a [`fabric`] carries the packets of
//!   flows, a [`transport`] acts for its hosts, and a [radio access network](ran) is behind one of the hosts.
//!
//! Both have the same TCP. Modules build on those before them:
//!
//! | module | contents |
//! |---|---|
//! | [`units`], [`random`], [`wheel`], `slab` | times, rates and numbers; random streams; the event queue of data centres; numbered places |
//! | `tcp` | one end of a connection, with its congestion controls |
//! | `path` | the network of paths and its applications |
//! | [`fabric`] | topology, ports, packets and flows of a data centre, and the loop of a run |
//! | [`ran`] | a central unit with its buffer, a distributed unit, and the users' channels |
//! | [`transport`] | TCP, DCTCP, pHost, pFabric, Fastpass and pDCell on the fabric, one file each |
//! | [`description`] | a run of a data centre as data |
#![forbid(unsafe_code)]

pub mod description;
pub mod fabric;
mod path;
pub mod ran;
pub mod random;
mod slab;
mod tcp;
pub mod transport;
pub mod units;
pub mod wheel;

pub use path::*;
pub use tcp::{Control, Sending, Tcp};
