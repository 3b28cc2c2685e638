//! Transports, schedulers and admission policies of C headers, as shared objects of this process.
//!
//! The headers `simulation.h`, `transport.h`, `scheduler.h` and `admission.h` in `cellbed_datacentre/headers` describe
//! the interface; `object.c` there makes the shared object of a user's header. This crate has all unsafe code of the
//! simulator: the rest sees [`Transport`], [`Scheduler`] and [`Admission`].

mod admission;
mod memory;
mod object;
mod scheduler;
mod transport;
mod watch;

pub use admission::{Admission, AdmissionHeader, Buffer, Decision, Queue};
pub use object::{Functions, Header, HeaderError};
pub use scheduler::{Candidate, NO_FLOW, Scheduler, SchedulerHeader};
pub use transport::{Flow, NO_USER, Network, Packet, Transport, TransportHeader};
pub use watch::{CALLS, watch};
