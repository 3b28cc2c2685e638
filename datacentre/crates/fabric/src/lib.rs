//! Data centres in virtual time, in picoseconds. Equal runs have equal results.
//!
//! A [`Description`](description::Description) makes a run: a [`Fabric`] carries the packets of flows, a [`transport`]
//! acts for its hosts, and a [radio access network](ran) is behind one of the hosts. Modules build on the modules above
//! them:
//!
//! | module | contents |
//! |---|---|
//! | [`units`], [`random`], [`wheel`] | times, rates and numbers; random streams; the event queue |
//! | `fabric` | topology, ports, packets and flows of a data centre, and the loop of a run |
//! | [`ran`] | a central unit with its buffer, a distributed unit, and the users' channels |
//! | [`transport`] | transports on the fabric, one file each |
//! | [`description`] | a run of a data centre as data |
#![forbid(unsafe_code)]

#[macro_use]
mod settings;

pub mod description;
mod error;
mod fabric;
pub mod ran;
pub mod random;
pub mod transport;
pub mod units;
pub mod wheel;

pub use error::DescriptionError;
pub use fabric::*;
