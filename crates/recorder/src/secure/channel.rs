//! Sealed messages of a session, under the two keys of its Noise handshake (ChaCha20-Poly1305, RFC 8439).

use snow::StatelessTransportState;

use super::Secret;
use crate::wire::{
    Field, HEADER_BYTES, Header, Kind, PROBE_BYTES, Probe, Reader, Resumption, SEQUENCES,
    SessionId, TAG_BYTES,
};

/// One end of a session. Seals each outgoing message under a separate sequence number, and opens messages of the other
/// end.
pub struct Channel {
    resumption: Resumption,
    noise: StatelessTransportState,
    next: u64,
    seen: ReplayWindow,
    /// Body of the last opened message or of the last sealed probe.
    body: Vec<u8>,
}

/// A message sealed by the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// In clear, but authenticated.
    pub header: Header,
    /// Sealed content, without filler.
    pub body: &'a [u8],
    /// True for a repeated message, copied by the network or replayed. Only for probes; other repeated messages are
    /// rejected.
    pub again: bool,
}

/// Reason why a message is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Not a sealed message of this session, or too short.
    Malformed,
    /// Not sealed by the other end of this session, or changed in transit.
    Forged,
    /// Received before, or too old for the replay window.
    Replayed,
}

impl Channel {
    /// Return this end of the session that a handshake established.
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

    /// Append a control message and return its sequence number; `None`, without a message, if the session's 2⁴⁸
    /// numbers are used up.
    pub fn seal_control(&mut self, body: &[u8], out: &mut Vec<u8>) -> Option<u64> {
        self.seal(Kind::Control, body, out)
    }

    /// Append a probe, with filler up to `payload_bytes` in total. Return its sequence number like
    /// [`Channel::seal_control`].
    pub fn seal_probe(
        &mut self,
        kind: Kind,
        probe: &Probe,
        payload_bytes: usize,
        filler: &Filler,
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let mut body = std::mem::take(&mut self.body); // no allocation for each probe
        body.clear();
        probe.put(&mut body);
        let sequence = self.seal(kind, &body, out);
        self.body = body;
        let sequence = sequence?;
        let missing = payload_bytes.saturating_sub(HEADER_BYTES + PROBE_BYTES + TAG_BYTES);
        filler.append(sequence, missing, out);
        Some(sequence)
    }

    fn seal(&mut self, kind: Kind, body: &[u8], out: &mut Vec<u8>) -> Option<u64> {
        let (session, sequence) = (self.session(), self.next);
        if sequence >= SEQUENCES {
            return None;
        }
        self.next += 1;
        let header = Header {
            kind,
            session,
            sequence,
        };
        header.put(out);
        let start = out.len();
        out.resize(start + body.len() + TAG_BYTES, 0);
        let sealed = self
            .noise
            .write_message(nonce(&header), body, &mut out[start..]);
        sealed.ok().map(|_| sequence) // fails only for bodies over 65 519 bytes
    }

    /// Open a message of the other end. A rejected message changes no state.
    pub fn open(&mut self, datagram: &[u8]) -> Result<Opened<'_>, Rejected> {
        let mut reader = Reader::new(datagram);
        let header: Header = reader.take().map_err(|_| Rejected::Malformed)?;
        if header.session != self.session() {
            return Err(Rejected::Malformed);
        }
        let is_probe = header.kind != Kind::Control;
        let length = match is_probe {
            true => PROBE_BYTES + TAG_BYTES,
            false => reader.rest().len().max(TAG_BYTES),
        };
        let sealed = reader.slice(length).map_err(|_| Rejected::Malformed)?;
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

/// No nonce repeats: each key seals one direction of one session, where each sequence number is used once. The nonce
/// contains the kind, so that the session's key authenticates the whole header.
fn nonce(header: &Header) -> u64 {
    u64::from(header.kind as u8) << 48 | header.sequence
}

/// Length of the filler: more than the window of common compressors.
const FILLER_BYTES: usize = 1 << 16;

/// Random filler of probes that no path can compress: consecutive packets carry different pieces.
pub struct Filler(Box<[u8]>);

impl Filler {
    /// Derive the filler from a seed that has no other use.
    pub fn new(seed: &[u8; 32]) -> Self {
        let (seed, pieces) = (Secret::new(*seed), 0..FILLER_BYTES as u64 / 32);
        let pieces = pieces.flat_map(|piece| seed.derive(b"filler", piece));
        Self(pieces.collect())
    }

    /// Append `count` bytes for the packet with this number.
    pub fn append(&self, packet: u64, mut count: usize, out: &mut Vec<u8>) {
        let mut start = (packet as usize).wrapping_mul(1499) % FILLER_BYTES; // odd factor: reaches all positions
        while count > 0 {
            let piece = &self.0[start..FILLER_BYTES.min(start + count)];
            out.extend_from_slice(piece);
            count -= piece.len();
            start = 0;
        }
    }
}

/// State of a number in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not seen before.
    New,
    /// Seen before.
    Seen,
    /// Below the window: unknown.
    TooOld,
}

/// Number of words in the window of received numbers (RFC 4303, §3.4.3; ring of words: RFC 6479).
const WORDS: usize = 128;
/// Minimum numbers remembered: all words except the one being filled.
const WIDTH: u64 = (WORDS as u64 - 1) * 64;

/// Remembers which of the 8128 numbers up to the highest one have been seen. At 2 Gbit/s in packets of 1400 bytes the
/// window covers 45 ms.
#[derive(Clone)]
pub struct ReplayWindow {
    words: Box<[u64; WORDS]>,
    highest: Option<u64>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self {
            words: Box::new([0; WORDS]),
            highest: None,
        }
    }
}

impl ReplayWindow {
    /// Return the state of this number.
    pub fn standing(&self, number: u64) -> Standing {
        match self.highest {
            Some(highest) if number <= highest => {
                if highest - number >= WIDTH {
                    Standing::TooOld
                } else if self.words[word(number)] & bit(number) != 0 {
                    Standing::Seen
                } else {
                    Standing::New
                }
            }
            _ => Standing::New,
        }
    }

    /// Record this number and return its previous state. Numbers below the window are not recorded.
    pub fn see(&mut self, number: u64) -> Standing {
        let standing = self.standing(number);
        if standing == Standing::New {
            self.advance(number);
            self.words[word(number)] |= bit(number);
        }
        standing
    }

    /// Clear the words between the highest number so far and this one.
    fn advance(&mut self, number: u64) {
        let from = self.highest.map_or(0, |highest| highest / 64 + 1);
        if self.highest.is_none_or(|highest| number > highest) {
            let to = number / 64;
            for block in from.max((to + 1).saturating_sub(WORDS as u64))..=to {
                self.words[(block % WORDS as u64) as usize] = 0;
            }
            self.highest = Some(number);
        }
    }
}

fn word(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::secure::HandshakeKeys;
    use crate::wire::{Hello, Offer, Welcome};

    fn ends() -> (Channel, Channel) {
        let keys = HandshakeKeys::new(&Secret::new([1; 32]));
        let resumption = Resumption {
            session: SessionId(4),
            key: [5; 32],
        };
        let welcome = Welcome {
            resumption,
            offer: Offer::default(),
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
        assert_eq!(client.seal_control(b"hello", &mut sent), Some(0));
        assert!(!sent.windows(5).any(|five| five == b"hello"));
        assert_eq!(client.open(&sent), Err(Rejected::Forged));
        assert_eq!(server.open(&sent).unwrap().body, b"hello");
        assert_eq!(server.open(&sent), Err(Rejected::Replayed));
        let (mut ancient, mut late) = (Vec::new(), Vec::new());
        client.seal_control(b"ancient", &mut ancient);
        client.next += WIDTH;
        client.seal_control(b"late", &mut late);
        assert_eq!(server.open(&late).unwrap().body, b"late");
        assert_eq!(server.open(&ancient), Err(Rejected::Replayed));
    }

    #[test]
    fn no_sequence_number_is_used_twice() {
        let (mut client, _) = ends();
        client.next = SEQUENCES - 1;
        let mut sent = Vec::new();
        assert_eq!(client.seal_control(b"", &mut sent), Some(SEQUENCES - 1));
        let length = sent.len();
        assert_eq!(client.seal_control(b"", &mut sent), None);
        assert_eq!(sent.len(), length);
    }

    #[test]
    fn filler_has_the_length_and_does_not_repeat_from_packet_to_packet() {
        let filler = Filler::new(&[1; 32]);
        let packets: Vec<_> = (FILLER_BYTES as u64 - 300..FILLER_BYTES as u64 + 300)
            .map(|packet| {
                let mut out = Vec::new();
                filler.append(packet, 1400, &mut out);
                assert_eq!(out.len(), 1400);
                out
            })
            .collect();
        assert!(packets.windows(2).all(|pair| pair[0] != pair[1]));
        let mut counts = [0; 256];
        let bytes = filler.0.iter();
        bytes.for_each(|byte| counts[usize::from(*byte)] += 1);
        let fair = |count| (150..370).contains(count); // 256 of each are expected
        assert!(counts.iter().all(fair), "{counts:?}");
    }

    proptest! {
        #[test]
        fn each_number_is_new_once(steps in prop::collection::vec((0u64..20_000, any::<bool>()), 1..400), start in 0..u64::MAX / 2) {
            let mut window = ReplayWindow::default();
            let (mut seen, mut highest, mut at) = (HashSet::new(), 0, start);
            for (step, back) in steps {
                at = if back { at.saturating_sub(step) } else { at + step / 8 };
                let expected = match seen.contains(&at) {
                    _ if !seen.is_empty() && at <= highest && highest - at >= WIDTH => Standing::TooOld,
                    true => Standing::Seen,
                    false => Standing::New,
                };
                prop_assert_eq!(window.see(at), expected);
                if expected == Standing::New {
                    seen.insert(at);
                    highest = highest.max(at);
                }
            }
        }
    }
}
