//! Sealed messages of a session, under the two keys of its Noise handshake (ChaCha20-Poly1305, RFC 8439).

use snow::StatelessTransportState;

use super::Secret;
use crate::wire::{
    Encode, HEADER_BYTES, Header, Kind, Malformed, PROBE_BYTES, Probe, SEQUENCES, SessionId,
    TAG_BYTES,
};

/// One end of a session. Seals each outgoing message under a separate sequence number, and opens messages of the other
/// end.
pub struct Channel {
    session: SessionId,
    noise: StatelessTransportState,
    /// Next number of each series sent: datagrams, control, files.
    next: [u64; 3],
    /// Lowest number accepted in a frame of each series.
    expected: [u64; 3],
    /// Numbers of received datagrams.
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

impl From<Malformed> for Rejected {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Return the index of the series of sequence numbers of a kind.
fn series(kind: Kind) -> usize {
    match kind {
        Kind::Control => 1,
        Kind::File => 2,
        _ => 0,
    }
}

impl Channel {
    /// Return this end of the session that a handshake established.
    pub(super) fn new(session: SessionId, noise: StatelessTransportState) -> Self {
        Self {
            session,
            noise,
            next: [0; 3],
            expected: [0; 3],
            seen: ReplayWindow::default(),
            body: Vec::new(),
        }
    }

    /// Return the identifier of the session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Append a probe, with filler up to `payload_bytes` in total. Return its sequence number like [`Channel::seal`].
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

    /// Append a message and return its sequence number; `None`, without a message, if the 2⁴⁸ numbers of its series are
    /// used up.
    pub fn seal(&mut self, kind: Kind, body: &[u8], out: &mut Vec<u8>) -> Option<u64> {
        let next = &mut self.next[series(kind)];
        let sequence = *next;
        if sequence >= SEQUENCES {
            return None;
        }
        *next += 1;
        let header = Header {
            kind,
            session: self.session,
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

    /// Open a message of the other end. A rejected message changes no state. Datagrams may come in any order; a frame
    /// with a lower number than the last one of its series is rejected.
    pub fn open(&mut self, message: &[u8]) -> Result<Opened<'_>, Rejected> {
        let (header, rest) = Header::split(message)?;
        if header.session != self.session {
            return Err(Rejected::Malformed);
        }
        let expected = &mut self.expected[series(header.kind)];
        let length = match header.kind.is_datagram() {
            true => header.kind.body_bytes() + TAG_BYTES,
            false => rest.len().max(TAG_BYTES),
        };
        let sealed = rest.get(..length).ok_or(Rejected::Malformed)?;
        let old = match header.kind.is_datagram() {
            true => self.seen.standing(header.sequence) == Standing::TooOld,
            false => header.sequence < *expected,
        };
        if old {
            return Err(Rejected::Replayed);
        }
        self.body.resize(length - TAG_BYTES, 0);
        self.noise
            .read_message(nonce(&header), sealed, &mut self.body)
            .map_err(|_| Rejected::Forged)?;
        let again = match header.kind.is_datagram() {
            true => self.seen.see(header.sequence) != Standing::New,
            false => {
                *expected = header.sequence + 1;
                false
            }
        };
        if again && !header.kind.is_probe() {
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

/// Width of the window of received numbers (RFC 4303, §3.4.3). At 2 Gbit/s in packets of 1400 bytes it covers 45 ms.
const WIDTH: u64 = 1 << 13;

/// Remembers which numbers have been seen, down to [`WIDTH`] below the highest one.
#[derive(Clone)]
pub struct ReplayWindow {
    /// The last number seen of each remainder of the division by the width, as one more than its quotient; else 0.
    seen: Box<[u64]>,
    highest: u64,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self {
            seen: vec![0; WIDTH as usize].into(),
            highest: 0,
        }
    }
}

impl ReplayWindow {
    /// Return the state of this number.
    pub fn standing(&self, number: u64) -> Standing {
        if self.highest.saturating_sub(number) >= WIDTH {
            Standing::TooOld
        } else if self.seen[(number % WIDTH) as usize] == number / WIDTH + 1 {
            Standing::Seen
        } else {
            Standing::New
        }
    }

    /// Record this number and return its previous state. Numbers below the window are not recorded.
    pub fn see(&mut self, number: u64) -> Standing {
        let standing = self.standing(number);
        if standing == Standing::New {
            self.highest = self.highest.max(number);
            self.seen[(number % WIDTH) as usize] = number / WIDTH + 1;
        }
        standing
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::secure::HandshakeKeys;
    use crate::wire::{Offer, Welcome};

    fn ends() -> (Channel, Channel) {
        let keys = HandshakeKeys::new(&Secret::new([1; 32]));
        let welcome = Welcome {
            session: SessionId(4),
            offer: Offer::default(),
        };
        let (mut client, hello) = keys.greet().unwrap();
        let hello = &keys.of_client(&hello).unwrap().0[2..];
        let (frame, server) = keys.accept(hello).unwrap().welcome(&welcome).unwrap();
        let mut changed = frame.clone();
        changed[40] ^= 1;
        assert_eq!(client.read(&changed), None, "and changes nothing");
        assert_eq!(client.read(&frame), Some(welcome));
        (client.channel(&welcome).unwrap(), server)
    }

    #[test]
    fn a_message_is_opened_once_by_the_other_end_only() {
        for kind in [Kind::Control, Kind::Echo] {
            let (mut client, mut server) = ends();
            let body = [b'o'; crate::wire::ECHO_BYTES];
            let mut sent = Vec::new();
            assert_eq!(client.seal(kind, &body, &mut sent), Some(0));
            assert!(!sent.windows(5).any(|five| five == b"ooooo"));
            assert_eq!(client.open(&sent), Err(Rejected::Forged));
            assert_eq!(server.open(&sent).unwrap().body, body);
            assert_eq!(server.open(&sent), Err(Rejected::Replayed));
            let (mut ancient, mut late) = (Vec::new(), Vec::new());
            client.seal(kind, &body, &mut ancient);
            client.next[series(kind)] += WIDTH;
            client.seal(kind, &body, &mut late);
            assert_eq!(server.open(&late).unwrap().body, body);
            assert_eq!(server.open(&ancient), Err(Rejected::Replayed));
        }
    }

    #[test]
    fn no_sequence_number_is_used_twice() {
        let (mut client, _) = ends();
        client.next[1] = SEQUENCES - 1;
        let mut sent = Vec::new();
        assert_eq!(
            client.seal(Kind::Control, b"", &mut sent),
            Some(SEQUENCES - 1)
        );
        let length = sent.len();
        assert_eq!(client.seal(Kind::Control, b"", &mut sent), None);
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
