//! The messages before there is a session.
//!
//! A hello and the answers to it that need no session end with a code ([`crate::secure::HandshakeKeys`]), which is not
//! part of the encoding here. Hello and welcome carry the two messages of a Noise handshake; [`Claim`] and
//! [`Welcome`] are their payloads.

use super::{Kind, Malformed, Refusal, SessionId, TAG_BYTES, VERSION};
use crate::field::{Field, Reader, fields};

/// Length of a hello with its code; a datagram of another length is not a hello. Every answer to it is much smaller.
pub const HELLO_BYTES: usize = 1200;

/// Length of the codes that authenticate hellos and short answers.
pub const CODE_BYTES: usize = 32;

/// An ephemeral key of Curve25519, in front of each payload of Noise.
const KEY_BYTES: usize = 32;

/// Proof that who shows it can receive at its address; only the server can read or make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// When it was given, ns on the server's clock.
    pub given_ns: u64,
    /// The server's code over that and the client's address.
    pub code: [u8; 16],
}

impl Cookie {
    const NONE: Self = Self {
        given_ns: 0,
        code: [0; 16],
    };

    /// As it stands on the wire.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.given_ns.to_be_bytes());
        bytes[8..].copy_from_slice(&self.code);
        bytes
    }
}

/// A client asks for a session, or for its session at another address.
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

    /// Return the prologue of the first message of Noise.
    pub fn prologue(cookie: Option<Cookie>) -> [u8; 26] {
        let mut bytes = [0; 26];
        bytes[..2].copy_from_slice(&[Kind::Hello as u8, VERSION]);
        bytes[2..].copy_from_slice(&cookie.unwrap_or(Cookie::NONE).to_bytes());
        bytes
    }

    /// Appends it, padded, without its code.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&Self::prologue(self.cookie));
        out.extend_from_slice(&self.noise);
        out.resize(start + HELLO_BYTES - CODE_BYTES, 0);
    }

    /// Reads one without its code.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() != HELLO_BYTES - CODE_BYTES {
            return Err(Malformed("a hello has 1200 bytes"));
        }
        let mut reader = Reader::new(message);
        take_start(&mut reader, Kind::Hello)?;
        let cookie = Cookie::take(&mut reader)?;
        Ok(Self {
            cookie: (cookie != Cookie::NONE).then_some(cookie),
            noise: reader.bytes()?,
        })
    }
}

/// Request of a client: a new session, or to resume one whose keys it proves to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The session to resume.
    pub session: SessionId,
    /// A code over the hello's cookie under a key of the session.
    pub proof: [u8; CODE_BYTES],
}

impl Claim {
    /// Length of the payload.
    pub const BYTES: usize = 4 + CODE_BYTES;

    /// As the payload of Noise; `None` is all zero.
    pub fn to_bytes(claim: Option<Self>) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        if let Some(claim) = claim {
            bytes[..4].copy_from_slice(&claim.session.0.to_be_bytes());
            bytes[4..].copy_from_slice(&claim.proof);
        }
        bytes
    }

    /// Reads the payload; `None` asks for a new session.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(payload);
        let claim: Self = reader.take()?;
        reader.end()?;
        Ok((claim.session.0 != 0).then_some(claim))
    }
}

/// Answer of a server to a hello, without keeping state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The client must send another hello, with this cookie.
    Cookie(Cookie),
    /// There is no session.
    Rejection(Refusal),
}

impl Answer {
    /// Appends it without its code.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Cookie(cookie) => {
                out.extend_from_slice(&[Kind::CookieAnswer as u8, VERSION]);
                out.extend_from_slice(&cookie.to_bytes());
            }
            Self::Rejection(reason) => {
                out.extend_from_slice(&[Kind::Rejection as u8, VERSION]);
                reason.put(out);
            }
        }
    }

    /// Reads one without its code, of any version: a server of another version rejects.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let kind = Kind::of(message)?;
        let mut reader = Reader::new(&message[1..]);
        reader.u8()?;
        let answer = match kind {
            Kind::CookieAnswer => Self::Cookie(Cookie::take(&mut reader)?),
            Kind::Rejection => Self::Rejection(Refusal::take(&mut reader)?),
            _ => return Err(Malformed("it is of another kind")),
        };
        reader.end()?;
        Ok(answer)
    }
}

/// The limits of a server for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Maximum rate that the server sends to the client, counting IP lengths, bit/s.
    pub rate_bps: u64,
    /// Maximum total that the client may send and receive, counting IP lengths, bytes.
    pub bytes: u64,
    /// Maximum duration of its probing, ns.
    pub duration_ns: u64,
    /// The most packets that answer a train.
    pub answer_packets: u16,
    /// The longest packet of the server, IP length, bytes.
    pub packet_bytes: u16,
}

/// A session has begun, or is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Identifier of the session.
    pub session: SessionId,
    /// The key of the proofs that resume it.
    pub resumption: [u8; 32],
    /// Limits that the server offers.
    pub offer: Offer,
}

impl Welcome {
    const BYTES: usize = 4 + 32 + 28;

    /// Length of a welcome on the wire.
    pub const DATAGRAM_BYTES: usize = 2 + KEY_BYTES + Self::BYTES + TAG_BYTES;

    /// Appends it as the payload of Noise.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.put(out);
    }

    /// Reads the payload.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let welcome = reader.take()?;
        reader.end()?;
        Ok(welcome)
    }

    /// The second message of Noise in a datagram.
    pub fn noise(datagram: &[u8]) -> Result<&[u8], Malformed> {
        let mut reader = Reader::new(datagram);
        take_start(&mut reader, Kind::Welcome)?;
        Ok(reader.rest())
    }
}

fields! {
    Cookie { given_ns, code };
    Claim { session, proof };
    Offer { rate_bps, bytes, duration_ns, answer_packets, packet_bytes };
    Welcome { session, resumption, offer };
}

fn take_start(reader: &mut Reader<'_>, kind: Kind) -> Result<(), Malformed> {
    if reader.u8()? != kind as u8 {
        return Err(Malformed("it is of another kind"));
    }
    if reader.u8()? != VERSION {
        return Err(Malformed("it is of another version"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_messages_come_back() {
        let cookie = Cookie {
            given_ns: 5,
            code: [3; 16],
        };
        for cookie in [None, Some(cookie)] {
            let (mut bytes, noise) = (Vec::new(), [7; 84]);
            let hello = Hello { cookie, noise };
            hello.encode(&mut bytes);
            assert_eq!(bytes.len(), HELLO_BYTES - CODE_BYTES);
            assert_eq!(Hello::decode(&bytes), Ok(hello));
            assert!(Hello::decode(&bytes[1..]).is_err());
            bytes[1] += 1;
            assert!(Hello::decode(&bytes).is_err());
        }
        let claim = Claim {
            session: SessionId(9),
            proof: [1; 32],
        };
        for claim in [None, Some(claim)] {
            assert_eq!(Claim::decode(&Claim::to_bytes(claim)), Ok(claim));
        }
        let reason = Refusal::RateOverLimit { rate_bps: 1 << 40 };
        for answer in [Answer::Cookie(cookie), Answer::Rejection(reason)] {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            assert!(bytes.len() + CODE_BYTES < HELLO_BYTES / 10);
            assert_eq!(Answer::decode(&bytes), Ok(answer));
            assert!(Answer::decode(&bytes[..bytes.len() - 1]).is_err());
        }
        let offer = Offer {
            rate_bps: 1,
            bytes: 2,
            duration_ns: 3,
            answer_packets: 4,
            packet_bytes: 5,
        };
        let welcome = Welcome {
            session: SessionId(1),
            resumption: [8; 32],
            offer,
        };
        let mut bytes = Vec::new();
        welcome.encode(&mut bytes);
        assert_eq!(bytes.len(), Welcome::BYTES);
        assert_eq!(Welcome::decode(&bytes), Ok(welcome));
    }
}
