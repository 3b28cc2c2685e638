//! The messages before a session.
//!
//! The first frame of a connection, and the rejection that may answer it, end with a code
//! ([`crate::secure::HandshakeKeys`]), which is not part of the encoding here. Hello and welcome carry the two messages
//! of a Noise handshake. The payload of the latter is a [`Welcome`].

use serde::{Deserialize, Serialize};

use super::{Encode, Kind, SessionId, TAG_BYTES, VERSION};

/// Length of the codes that authenticate first frames and rejections.
pub const CODE_BYTES: usize = 32;

/// Length of a datagram of a client of version 2, which began sessions over UDP. The answer is much shorter.
pub const OLD_HELLO_BYTES: usize = 1200;

/// Length of an ephemeral key of Curve25519, before each payload of Noise.
const KEY_BYTES: usize = 32;

/// The first bytes of a frame of a kind, which are the same in all versions but for the version.
pub const fn start(kind: Kind) -> [u8; 2] {
    [kind as u8, VERSION]
}

/// Length of the first message of Noise.
pub const NOISE_BYTES: usize = KEY_BYTES + TAG_BYTES;

/// The limits of a server for one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Maximum rate of the server's packets to the client, by IP lengths, bit/s.
    pub rate_bps: u64,
    /// Maximum packets in the answer to a train.
    pub answer_packets: u16,
}

/// A session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Identifier of the session.
    pub session: SessionId,
    /// Limits that the server offers.
    pub offer: Offer,
}

impl Welcome {
    /// Return the length of the welcome on the wire.
    pub fn frame_bytes(&self) -> usize {
        2 + KEY_BYTES + self.encode().len() + TAG_BYTES
    }
}
