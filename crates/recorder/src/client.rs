//! The client's end: sessions that survive broken connections, runs of a workload, and what became of their packets.
//!
//! [`Path`] is the core, without a socket: say [`Path::step`] when [`Path::next_event`] has come, hand over what arrives, take what it has
//! learnt as [`Event`]s. [`PathThread`] drives one over a socket in a separate thread.

mod errand;
mod event;
mod fetcher;
mod path;
mod run;
mod sender;
mod server_saturation;
mod session;
mod thread;
mod traffic;

pub use errand::Brought;
pub use event::{ClockAnswer, Departure, Event, Pause, Reception, RunEnd, RunEvent};
pub use path::{Path, RunRequest};
pub use session::SessionError;
pub use thread::{Message, Order, PathThread};
pub use traffic::{Role, Workload};

#[cfg(test)]
mod adaptive_tests;
#[cfg(test)]
mod pause_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod virtual_world;
