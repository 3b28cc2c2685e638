//! The real-time emulator of cellbed: IP packets of unmodified programs through the path model of `cellbed-link`.
//!
//! One process has all nodes and links. Each node is a network namespace with a TUN device. A packet that a program
//! sends there is read, passes the stages of every direction on its way, and is written to the destination's device,
//! never earlier than modelled. For an unprivileged user, all namespaces are in one user namespace.
//!
//! [`emulate`] is the process, controlled by JSON lines; [`enter`] moves a program into a node.

mod ahead;
mod clock;
mod config;
mod control;
mod engine;
mod enter;
mod error;
#[cfg(feature = "fuzzing")]
#[path = "../fuzz/parsers.rs"]
pub mod fuzzing;
mod lateness;
mod log;
mod mahimahi_log;
mod node;
mod offload;
mod outbox;
mod owners;
mod pace;
mod packet;
mod pool;
mod probe;
mod process;
mod proxy;
mod socket;
mod stages;
mod stamps;
mod tower;
mod tun;
mod wake;
mod writer;

pub use config::Config;
pub use control::emulate;
pub use enter::{Entry, enter};
pub use error::{Error, KernelError, Result};
