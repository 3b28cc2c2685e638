//! Encoding and decoding of the messages between both ends of a recorder.
//!
//! All numbers are big-endian. Decoding any bytes returns a message or [`Malformed`], never panics, and allocates at
//! most a small multiple of the input. `docs/reference/recorder-protocol.md` is the specification.

mod field;
mod handshake;
mod message;
mod report;

pub use field::{Field, Reader};
pub(crate) use field::{fields, variants};
pub use handshake::{
    Answer, CODE_BYTES, Claim, Cookie, HELLO_BYTES, Hello, Offer, Resumption, Welcome,
};
pub use message::{
    HEADER_BYTES, Header, Kind, PROBE_BYTES, Probe, Refusal, Reply, Request, SEQUENCES, SessionId,
    TAG_BYTES, ip_overhead, least_probe_bytes,
};
pub use report::{Arrival, Arrivals, REPORT_BYTES, Report};

/// Protocol version of this code. An authentic hello of another version, from 2 on, is rejected. Its first two bytes
/// and code, and the code and reason of a rejection, are the same in all versions.
pub const VERSION: u8 = 2;

/// Bytes that are no message of this version; contains the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of cellbed's recorder: {0}")]
pub struct Malformed(pub &'static str);
