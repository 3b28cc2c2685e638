//! The messages before a session.
//!
//! A hello, and answers to it without a session, end with a code ([`crate::secure::HandshakeKeys`]), which is not part
//! of the encoding here. Hello and welcome carry the two messages of a Noise handshake. Their payloads are an optional
//! [`Claim`] and a [`Welcome`].

use super::{
    Field, Kind, Malformed, Reader, Refusal, SessionId, TAG_BYTES, VERSION, fields, variants,
};

/// Length of a hello with its code; other datagrams are no hellos. Every answer is much smaller.
pub const HELLO_BYTES: usize = 1200;

/// Length of the codes that authenticate hellos and short answers.
pub const CODE_BYTES: usize = 32;

/// Length of an ephemeral key of Curve25519, before each payload of Noise.
const KEY_BYTES: usize = 32;

/// Proof that a client receives at its address; only the server can read or make one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie {
    /// Time of creation, ns on the server's clock.
    pub given_ns: u64,
    /// The server's code over this time and the client's address.
    pub code: [u8; 16],
}

/// A client requests a session, or its session at another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server's [`Answer::Cookie`]; `None` in the first hello.
    pub cookie: Option<Cookie>,
    /// The first message of Noise, with a [`Claim`].
    pub noise: [u8; Self::NOISE_BYTES],
}

impl Hello {
    /// Length of the first message of Noise.
    pub const NOISE_BYTES: usize = KEY_BYTES + Claim::BYTES + TAG_BYTES;
    const START: [u8; 2] = [Kind::Hello as u8, VERSION];
    const PADDING: usize = HELLO_BYTES - CODE_BYTES - 2 - 24 - Self::NOISE_BYTES;

    /// Return the prologue of the first message of Noise.
    pub fn prologue(cookie: Option<Cookie>) -> Vec<u8> {
        let mut bytes = Self::START.to_vec();
        cookie.put(&mut bytes);
        bytes
    }
}

/// Padded, without the code.
impl Field for Hello {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&Self::prologue(self.cookie));
        self.noise.put(out);
        out.extend_from_slice(&[0; Self::PADDING]);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if reader.take::<[u8; 2]>()? != Self::START {
            return Err(Malformed("it is not a hello of this version"));
        }
        let (cookie, noise) = (reader.take()?, reader.take()?);
        reader.slice(Self::PADDING)?;
        Ok(Self { cookie, noise })
    }
}

/// Request of a client to resume a session whose keys it proves to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The session to resume.
    pub session: SessionId,
    /// A code over the hello's cookie under a key of the session.
    pub proof: [u8; CODE_BYTES],
}

impl Claim {
    /// Length of the payload.
    pub const BYTES: usize = 4 + CODE_BYTES;
}

/// Stateless answer of a server to a hello, without its code. The version is the server's. All versions are read: a
/// server of another version sends a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The client must send another hello, with this cookie.
    Cookie(u8, Cookie),
    /// There is no session.
    Rejection(u8, Refusal),
}

variants! { Answer:
    0x02 Cookie(version, cookie);
    0x04 Rejection(version, reason);
}

/// The limits of a server for one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Maximum rate of the server's packets to the client, by IP lengths, bit/s.
    pub rate_bps: u64,
    /// Maximum total sent and received by the client, by IP lengths, bytes.
    pub bytes: u64,
    /// Maximum probing time, ns.
    pub duration_ns: u64,
    /// Maximum packets in the answer to a train.
    pub answer_packets: u16,
    /// Maximum IP length of the server's packets, bytes.
    pub packet_bytes: u16,
}

/// State that resumes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Identifier of the session.
    pub session: SessionId,
    /// Key of the proofs that resume the session.
    pub key: [u8; 32],
}

/// A session began or was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The session and its key.
    pub resumption: Resumption,
    /// Limits that the server offers.
    pub offer: Offer,
}

impl Welcome {
    /// First bytes of a welcome, before the second message of Noise.
    pub const START: [u8; 2] = [Kind::Welcome as u8, VERSION];
    /// Length of a welcome on the wire.
    pub const DATAGRAM_BYTES: usize = 2 + KEY_BYTES + (4 + 32 + 28) + TAG_BYTES;
}

fields! {
    Cookie { given_ns, code };
    Claim { session, proof };
    Offer { rate_bps, bytes, duration_ns, answer_packets, packet_bytes };
    Resumption { session, key };
    Welcome { resumption, offer };
}
