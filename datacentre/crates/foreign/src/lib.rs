//! Transports, schedulers and admission policies of C headers, as shared objects of this process.
//!
//! The headers in `cellbed_datacentre/headers` describe the interface; `object.c` there makes the shared object of a
//! user's header. This crate has the unsafe code of the simulator; the rest sees [`Transport`], [`Scheduler`] and
//! [`Admission`].

mod cell;
mod object;
mod transport;

pub use cell::{
    Admission, AdmissionHeader, Buffer, Candidate, Queue, Queues, Scheduler, SchedulerHeader,
};
pub use object::{CALLS, Facts, Header, failure, watch};
pub use transport::{Ask, Flow, Packet, Transport, TransportHeader};

/// No flow, or no mobile user.
pub const NONE: u32 = u32::MAX;
