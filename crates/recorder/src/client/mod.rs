//! The client's end: sessions that survive broken connections, runs of a workload, and what became of their packets.
//!
//! [`Path`] is the core, without a socket: call [`Path::step`] when [`Path::next_event`] has come, pass it what
//! arrives, and take its [`Event`]s. [`PathThread`] drives one over a socket in a separate thread.

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
