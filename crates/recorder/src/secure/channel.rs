//! Sealed messages of a session, under the two keys of its Noise handshake (ChaCha20-Poly1305, RFC 8439).

use snow::StatelessTransportState;

use crate::wire::{
    HEADER_BYTES, Header, Kind, PROBE_BYTES, Probe, SEQUENCES, SessionId, TAG_BYTES,
};

use super::{Filler, ReplayWindow, Resumption, Standing};

/// One end of a session: seals what it sends, each message under a separate sequence number, and opens what the other
/// end sent.
pub struct Channel {
    resumption: Resumption,
    noise: StatelessTransportState,
    next: u64,
    seen: ReplayWindow,
    /// The body of the last message that was opened.
    body: Vec<u8>,
}

/// A message that the other end sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// In clear, but vouched for.
    pub header: Header,
    /// Sealed content, without filler.
    pub body: &'a [u8],
    /// True for a repeated message: the network made a copy of it, or somebody replays it. Only of probes; other
    /// messages are rejected then.
    pub again: bool,
}

/// Why a message is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Not a sealed message at all, or too short.
    #[error("malformed message")]
    Malformed,
    /// Of another session.
    #[error("message of another session")]
    OtherSession,
    /// Not sealed by the other end of this session, or changed under way.
    #[error("forged message")]
    Forged,
    /// It came before, or so late that nobody knows.
    #[error("replayed message")]
    Replayed,
}

/// The session has used up its 2⁴⁸ sequence numbers, and none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session has sent 2^48 messages, its limit; start another")]
pub struct Unsealable;

impl Channel {
    /// This end of the session whose handshake ended so.
    pub(super) fn new(resumption: Resumption, noise: StatelessTransportState) -> Self {
        Self {
            resumption,
            noise,
            next: 0,
            seen: ReplayWindow::default(),
            body: Vec::new(),
        }
    }

    /// Return the identifier of the session.
    pub fn session(&self) -> SessionId {
        self.resumption.session
    }

    /// Return the state that resumes the session.
    pub fn resumption(&self) -> Resumption {
        self.resumption
    }

    /// Appends a control message; its sequence number.
    pub fn seal_control(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<u64, Unsealable> {
        self.seal(Kind::Control, body, out)
    }

    /// Appends a probe of this many bytes of payload in all, or with no filler if it is not that short; its sequence
    /// number.
    pub fn seal_probe(
        &mut self,
        kind: Kind,
        probe: &Probe,
        payload_bytes: usize,
        filler: &Filler,
        out: &mut Vec<u8>,
    ) -> Result<u64, Unsealable> {
        let sequence = self.seal(kind, &probe.to_bytes(), out)?;
        let missing = payload_bytes.saturating_sub(HEADER_BYTES + PROBE_BYTES + TAG_BYTES);
        filler.append(sequence, missing, out);
        Ok(sequence)
    }

    fn seal(&mut self, kind: Kind, body: &[u8], out: &mut Vec<u8>) -> Result<u64, Unsealable> {
        let sequence = self.next;
        if sequence >= SEQUENCES {
            return Err(Unsealable);
        }
        self.next += 1;
        let header = Header {
            kind,
            session: self.session(),
            sequence,
        };
        out.extend_from_slice(&header.to_bytes());
        let start = out.len();
        out.resize(start + body.len() + TAG_BYTES, 0);
        self.noise
            .write_message(nonce(&header), body, &mut out[start..])
            .map_err(|_| Unsealable)?; // only of bodies over 65 519 bytes
        Ok(sequence)
    }

    /// Opens a message of the other end. One that it rejects changes nothing here.
    pub fn open(&mut self, datagram: &[u8]) -> Result<Opened<'_>, Rejected> {
        let (header, rest) = Header::decode(datagram).map_err(|_| Rejected::Malformed)?;
        if header.session != self.session() {
            return Err(Rejected::OtherSession);
        }
        let is_probe = header.kind != Kind::Control;
        let length = if is_probe {
            PROBE_BYTES + TAG_BYTES
        } else {
            rest.len().max(TAG_BYTES)
        };
        let sealed = rest.get(..length).ok_or(Rejected::Malformed)?;
        if self.seen.standing(header.sequence) == Standing::TooOld {
            return Err(Rejected::Replayed);
        }
        self.body.resize(length - TAG_BYTES, 0);
        self.noise
            .read_message(nonce(&header), sealed, &mut self.body)
            .map_err(|_| Rejected::Forged)?;
        let again = self.seen.see(header.sequence) != Standing::New;
        if again && !is_probe {
            return Err(Rejected::Replayed);
        }
        Ok(Opened {
            header,
            body: &self.body,
            again,
        })
    }
}

/// Each key seals in one direction of one session, whose sequence numbers come once, so no nonce comes twice. The kind
/// is in it, too: with the session's key it vouches for all of the header.
fn nonce(header: &Header) -> u64 {
    u64::from(header.kind as u8) << 48 | header.sequence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::{HandshakeKeys, Secret};
    use crate::wire::{Hello, Offer, Welcome};

    fn ends() -> (Channel, Channel) {
        let keys = HandshakeKeys::new(&Secret::new([1; 32]));
        let offer = Offer {
            rate_bps: 0,
            bytes: 0,
            duration_ns: 0,
            answer_packets: 0,
            packet_bytes: 0,
        };
        let welcome = Welcome {
            session: SessionId(4),
            resumption: [5; 32],
            offer,
        };
        let (mut client, hello) = keys.greet(None, None).unwrap();
        let hello = Hello::decode(keys.of_client(&hello).unwrap().0).unwrap();
        let (server, claim) = keys.accept(&hello).unwrap();
        assert_eq!(claim, None);
        let (datagram, server) = server.welcome(&welcome).unwrap();
        let mut changed = datagram.clone();
        changed[40] ^= 1;
        assert_eq!(client.read(&changed), None, "and changes nothing");
        assert_eq!(client.read(&datagram), Some(welcome));
        (client.channel(&welcome).unwrap(), server)
    }

    #[test]
    fn a_message_is_opened_once_by_the_other_end_only() {
        let (mut client, mut server) = ends();
        let mut sent = Vec::new();
        assert_eq!(client.seal_control(b"hello", &mut sent), Ok(0));
        assert!(!sent.windows(5).any(|five| five == b"hello"));
        assert_eq!(client.open(&sent), Err(Rejected::Forged));
        assert_eq!(server.open(&sent).unwrap().body, b"hello");
        assert_eq!(server.open(&sent), Err(Rejected::Replayed));
    }

    #[test]
    fn no_sequence_number_is_used_twice() {
        let (mut client, _) = ends();
        client.next = SEQUENCES - 1;
        assert_eq!(
            client.seal_control(b"last", &mut Vec::new()),
            Ok(SEQUENCES - 1)
        );
        assert_eq!(
            client.seal_control(b"none", &mut Vec::new()),
            Err(Unsealable)
        );
        assert_eq!(
            client.seal_control(b"none", &mut Vec::new()),
            Err(Unsealable)
        );
    }
}
