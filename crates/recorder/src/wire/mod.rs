//! Encoding and decoding of the messages between both ends of a recorder.
//!
//! Decoding any bytes returns a message or [`Malformed`], never panics, and allocates at most a small multiple of the
//! input. `docs/reference/recorder-protocol.md` is the specification.

mod frame;
mod handshake;
mod message;
mod report;

use serde::{Serialize, de::DeserializeOwned};

pub use frame::{FRAME_BYTES, FrameReader, put_frame};
pub use handshake::{CODE_BYTES, NOISE_BYTES, OLD_HELLO_BYTES, Offer, Welcome, start};
pub use message::{
    ECHO_BYTES, Echo, HEADER_BYTES, Header, Kind, PROBE_BYTES, Probe, Refusal, Reply, Request,
    SEQUENCES, SessionId, TAG_BYTES, ip_overhead, least_probe_bytes,
};
pub use report::{Arrival, Arrivals, Report, RunCounts};

/// Protocol version of this code. An authentic first message of another version, from 2 on, is rejected. Its first two
/// bytes and code, and the code and content of that rejection, are the same in all versions.
pub const VERSION: u8 = 4;

/// Bytes that are no message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A value as bytes, in the format of the crate `postcard`.
pub trait Encode: Serialize + DeserializeOwned {
    /// Append the value.
    fn put(&self, out: &mut Vec<u8>) {
        let start = std::mem::take(out);
        *out = postcard::to_extend(self, start).expect("serializable, as there is memory");
    }

    /// Return the bytes of the value.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes
    }

    /// Take a value off the front of `bytes`; return the bytes after it.
    fn take(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        postcard::take_from_bytes(bytes).map_err(|_| Malformed)
    }

    /// Read a value from all of `bytes`.
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match Self::take(bytes)? {
            (value, []) => Ok(value),
            _ => Err(Malformed),
        }
    }
}

impl<T: Serialize + DeserializeOwned> Encode for T {}
