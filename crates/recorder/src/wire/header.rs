//! Unencrypted header of every sealed message.

use super::Malformed;
use crate::field::Reader;

/// Kind of a datagram: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client asks for a session or resumes one.
    Hello = 0x01,
    /// The server asks for proof of the client's address.
    CookieAnswer = 0x02,
    /// The session that the client has now.
    Welcome = 0x03,
    /// Why it gets none.
    Rejection = 0x04,
    /// A sealed [`Request`](super::Request) or [`Reply`](super::Reply).
    Control = 0x10,
    /// A sealed [`Probe`](super::Probe) of a train, and filler.
    Train = 0x11,
    /// A sealed [`Probe`](super::Probe) of a saturation, and filler.
    Saturation = 0x12,
}

impl Kind {
    /// The kind in the first byte of a datagram.
    pub fn of(datagram: &[u8]) -> Result<Self, Malformed> {
        match datagram.first() {
            Some(0x01) => Ok(Self::Hello),
            Some(0x02) => Ok(Self::CookieAnswer),
            Some(0x03) => Ok(Self::Welcome),
            Some(0x04) => Ok(Self::Rejection),
            Some(0x10) => Ok(Self::Control),
            Some(0x11) => Ok(Self::Train),
            Some(0x12) => Ok(Self::Saturation),
            Some(_) => Err(Malformed("its kind is unknown")),
            None => Err(Malformed("it is empty")),
        }
    }

    /// Return whether messages of this kind are sealed with a session's keys.
    pub fn is_sealed(self) -> bool {
        matches!(self, Self::Control | Self::Train | Self::Saturation)
    }
}

/// Identifier of the session that a message belongs to; never 0. Drawn by the server, and no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// Length of a [`Header`] on the wire.
pub const HEADER_BYTES: usize = 11;

/// Length of the authentication tag behind a sealed body.
pub const TAG_BYTES: usize = 16;

/// Sequence numbers are below it: they have 48 bits on the wire.
pub const SEQUENCES: u64 = 1 << 48;

/// Kind, session and sequence number of a sealed message. All of it is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of the sealed kinds.
    pub kind: Kind,
    /// Session whose keys seal the message.
    pub session: SessionId,
    /// The number of the message in its direction of its session, below [`SEQUENCES`]; each is used once.
    pub sequence: u64,
}

impl Header {
    /// As it stands on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1..5].copy_from_slice(&self.session.0.to_be_bytes());
        bytes[5..].copy_from_slice(&self.sequence.to_be_bytes()[2..]);
        bytes
    }

    /// The header of a sealed message, and what follows it.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let kind = Kind::of(datagram)?;
        if !kind.is_sealed() {
            return Err(Malformed("its kind is not sealed"));
        }
        let mut reader = Reader::new(&datagram[1..]);
        let session = reader.take()?;
        let mut sequence = [0; 8];
        sequence[2..].copy_from_slice(&reader.bytes::<6>()?);
        let sequence = u64::from_be_bytes(sequence);
        Ok((
            Self {
                kind,
                session,
                sequence,
            },
            reader.rest(),
        ))
    }
}
