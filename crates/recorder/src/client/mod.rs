//! The client: sessions that survive broken connections, runs of a workload, and the fate of packets.
//!
//! [`Path`] is the core, without a socket. Call [`Path::step`] at the time of [`Path::next_event`], pass what is
//! received, connect when [`Path::session`] wants it, and take the [`Event`]s. [`PathThread`] runs a path over its
//! sockets in a thread.

mod event;
mod fetcher;
mod path;
mod run;
mod server_saturation;
mod session;
mod thread;
mod traffic;

#[cfg(test)]
pub use event::{Departure, Reception};
pub use event::{Download, Event, RunEnd, RunEvent};
pub use path::{Path, RunRequest};
pub use thread::{Message, Order, PathThread, Ways};

#[cfg(test)]
mod tests;
