//! The client: sessions that survive broken connections, runs of a workload, and the fate of packets.
//!
//! [`Path`] is the core, without a socket. Call [`Path::step`] at the time of [`Path::next_event`], pass received
//! datagrams, and take the [`Event`]s. [`PathThread`] runs a path over a socket in a separate thread.

mod event;
mod fetcher;
mod path;
mod run;
mod server_saturation;
mod session;
mod thread;
mod traffic;

#[cfg(test)]
pub use event::Reception;
pub use event::{Departure, Event, Pause, RunEnd, RunEvent};
pub use path::{Path, Relayed, RunRequest};
pub use thread::{Message, Order, PathThread};

#[cfg(test)]
mod tests;
