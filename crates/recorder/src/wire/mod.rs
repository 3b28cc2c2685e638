//! The messages between the two ends of a recorder, as bytes: encoding and decoding, and nothing else.
//!
//! All numbers are big-endian. Decoding any bytes gives a message or [`Malformed`], never a panic, and allocates no
//! more than a small multiple of the input. `docs/reference/recorder-protocol.md` is the specification.

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

/// The version that this code speaks. From version 2 on a hello of another version is rejected if it is authentic: its
/// first two bytes and its code, and the code and reason of a rejection, are the same in all versions.
pub const VERSION: u8 = 2;

/// Bytes that are no message of this version, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of cellbed's recorder: {0}")]
pub struct Malformed(pub &'static str);
