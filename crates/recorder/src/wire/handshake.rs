//! The messages before there is a session. Each is followed by the code that authenticates it
//! ([`crate::secure::HandshakeKeys`]), which is not part of what is encoded here.

use super::field::Reader;
use super::{Kind, Malformed, Refusal, SessionId, VERSION};

/// Length of a hello with its code; one that is shorter or longer is none. Every answer to it is much smaller.
pub const HELLO_BYTES: usize = 1200;

const CODE_BYTES: usize = 32;

/// Proof that who shows it can receive at its address; only the server can read or make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// When it was given, ns on the server's clock.
    pub given_ns: u64,
    /// The server's code over that, the client's address and the client's random bytes.
    pub code: [u8; 16],
}

impl Cookie {
    /// Stands in a hello for none.
    pub const NONE: Self = Self {
        given_ns: 0,
        code: [0; 16],
    };

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.given_ns.to_be_bytes());
        out.extend_from_slice(&self.code);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            given_ns: reader.u64()?,
            code: reader.bytes()?,
        })
    }
}

/// The session that a client goes on with, and its proof that it has that session's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Which session.
    pub session: SessionId,
    /// A code over the hello's random bytes and cookie under a key of the session.
    pub proof: [u8; 32],
}

/// A client asks for a session, or for its session at another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Fresh for each handshake; the same in both hellos of one handshake.
    pub client_random: [u8; 32],
    /// From the server's [`CookieAnswer`]; `None` in the first hello.
    pub cookie: Option<Cookie>,
    /// The session to go on with; `None` for a new one.
    pub resumes: Option<Resumption>,
}

impl Hello {
    /// Appends it, padded, without its code.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_start(out, Kind::Hello, &self.client_random);
        self.cookie.unwrap_or(Cookie::NONE).put(out);
        let none = Resumption {
            session: SessionId(0),
            proof: [0; 32],
        };
        let resumes = self.resumes.unwrap_or(none);
        out.extend_from_slice(&resumes.session.0.to_be_bytes());
        out.extend_from_slice(&resumes.proof);
        out.resize(start + HELLO_BYTES - CODE_BYTES, 0);
    }

    /// Reads one without its code.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        if message.len() != HELLO_BYTES - CODE_BYTES {
            return Err(Malformed("a hello has 1200 bytes"));
        }
        let mut reader = Reader::new(message);
        let client_random = take_start(&mut reader, Kind::Hello)?;
        let cookie = Cookie::take(&mut reader)?;
        let resumes = Resumption {
            session: SessionId(reader.u32()?),
            proof: reader.bytes()?,
        };
        Ok(Self {
            client_random,
            cookie: (cookie != Cookie::NONE).then_some(cookie),
            resumes: (resumes.session.0 != 0).then_some(resumes),
        })
    }
}

/// The server asks the client to send its hello again with this cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieAnswer {
    /// Of the hello that it answers.
    pub client_random: [u8; 32],
    /// To be put into the next hello.
    pub cookie: Cookie,
}

impl CookieAnswer {
    /// Appends it without its code.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_start(out, Kind::CookieAnswer, &self.client_random);
        self.cookie.put(out);
    }

    /// Reads one without its code.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let client_random = take_start(&mut reader, Kind::CookieAnswer)?;
        let cookie = Cookie::take(&mut reader)?;
        reader.end()?;
        Ok(Self {
            client_random,
            cookie,
        })
    }
}

/// What a server lets one session do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the server sends to it at most, counting IP lengths, bit/s.
    pub rate_bps: u64,
    /// What it may send and be sent, all in all, counting IP lengths, bytes.
    pub bytes: u64,
    /// How long it may probe, ns.
    pub duration_ns: u64,
    /// The most packets that answer a train.
    pub answer_packets: u16,
    /// The longest packet of the server, IP length, bytes.
    pub packet_bytes: u16,
}

/// A session has begun, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Of the hello that it answers.
    pub client_random: [u8; 32],
    /// The session's; for a resumed one the random bytes it began with.
    pub server_random: [u8; 32],
    /// Which session it is.
    pub session: SessionId,
    /// What it may do.
    pub offer: Offer,
}

impl Welcome {
    /// Appends it without its code.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_start(out, Kind::Welcome, &self.client_random);
        out.extend_from_slice(&self.server_random);
        out.extend_from_slice(&self.session.0.to_be_bytes());
        out.extend_from_slice(&self.offer.rate_bps.to_be_bytes());
        out.extend_from_slice(&self.offer.bytes.to_be_bytes());
        out.extend_from_slice(&self.offer.duration_ns.to_be_bytes());
        out.extend_from_slice(&self.offer.answer_packets.to_be_bytes());
        out.extend_from_slice(&self.offer.packet_bytes.to_be_bytes());
    }

    /// Reads one without its code.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let client_random = take_start(&mut reader, Kind::Welcome)?;
        let welcome = Self {
            client_random,
            server_random: reader.bytes()?,
            session: SessionId(reader.u32()?),
            offer: Offer {
                rate_bps: reader.u64()?,
                bytes: reader.u64()?,
                duration_ns: reader.u64()?,
                answer_packets: reader.u16()?,
                packet_bytes: reader.u16()?,
            },
        };
        reader.end()?;
        Ok(welcome)
    }
}

/// Why there is no session, told only to who has proved its address and knows the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Of the hello that it answers.
    pub client_random: [u8; 32],
    /// The reason.
    pub reason: Refusal,
}

impl Rejection {
    /// Appends it without its code.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_start(out, Kind::Rejection, &self.client_random);
        self.reason.put(out);
    }

    /// Reads one without its code.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let client_random = take_start(&mut reader, Kind::Rejection)?;
        let reason = Refusal::take(&mut reader)?;
        reader.end()?;
        Ok(Self {
            client_random,
            reason,
        })
    }
}

fn put_start(out: &mut Vec<u8>, kind: Kind, client_random: &[u8; 32]) {
    out.push(kind as u8);
    out.push(VERSION);
    out.extend_from_slice(client_random);
}

fn take_start(reader: &mut Reader<'_>, kind: Kind) -> Result<[u8; 32], Malformed> {
    if reader.u8()? != kind as u8 {
        return Err(Malformed("it is of another kind"));
    }
    if reader.u8()? != VERSION {
        return Err(Malformed("it is of another version"));
    }
    reader.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_messages_come_back() {
        let client_random = [7; 32];
        let cookie = Cookie {
            given_ns: 5,
            code: [3; 16],
        };
        let mut bytes = Vec::new();
        let hello = Hello {
            client_random,
            cookie: Some(cookie),
            resumes: Some(Resumption {
                session: SessionId(9),
                proof: [1; 32],
            }),
        };
        hello.encode(&mut bytes);
        assert_eq!(bytes.len(), HELLO_BYTES - CODE_BYTES);
        assert_eq!(Hello::decode(&bytes), Ok(hello));
        assert!(Hello::decode(&bytes[1..]).is_err());

        bytes.clear();
        let first = Hello {
            client_random,
            cookie: None,
            resumes: None,
        };
        first.encode(&mut bytes);
        assert_eq!(Hello::decode(&bytes), Ok(first));

        bytes.clear();
        let answer = CookieAnswer {
            client_random,
            cookie,
        };
        answer.encode(&mut bytes);
        assert_eq!(CookieAnswer::decode(&bytes), Ok(answer));

        bytes.clear();
        let offer = Offer {
            rate_bps: 1,
            bytes: 2,
            duration_ns: 3,
            answer_packets: 4,
            packet_bytes: 5,
        };
        let welcome = Welcome {
            client_random,
            server_random: [8; 32],
            session: SessionId(1),
            offer,
        };
        welcome.encode(&mut bytes);
        assert!(bytes.len() + CODE_BYTES < HELLO_BYTES / 4);
        assert_eq!(Welcome::decode(&bytes), Ok(welcome));

        bytes.clear();
        let rejection = Rejection {
            client_random,
            reason: Refusal::RateOverLimit { rate_bps: 1 << 40 },
        };
        rejection.encode(&mut bytes);
        assert_eq!(Rejection::decode(&bytes), Ok(rejection));
        bytes[1] += 1;
        assert!(Rejection::decode(&bytes).is_err());
    }
}
