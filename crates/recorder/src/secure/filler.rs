//! What lengthens a probe.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};

const LENGTH: usize = 1 << 18;

/// Random bytes, made once, that no path can compress: consecutive packets carry different pieces of them.
pub struct Filler(Box<[u8]>);

impl Filler {
    /// The stream of ChaCha20 under this key, which nothing else may use.
    pub fn new(seed: &[u8; 32]) -> Self {
        let mut bytes = vec![0; LENGTH].into_boxed_slice();
        // The tag is of no use here: nothing vouches for filler.
        let _ = ChaCha20Poly1305::new(seed.into()).encrypt_inout_detached(
            &[0; 12].into(),
            &[],
            (&mut *bytes).into(),
        );
        Self(bytes)
    }

    /// Appends so many bytes for the packet with this number.
    pub fn append(&self, packet: u64, mut count: usize, out: &mut Vec<u8>) {
        let mut start = (packet as usize).wrapping_mul(1499) % LENGTH; // odd, so that all places come
        while count > 0 {
            let piece = &self.0[start..LENGTH.min(start + count)];
            out.extend_from_slice(piece);
            count -= piece.len();
            start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filler_has_the_length_and_does_not_repeat_from_packet_to_packet() {
        let filler = Filler::new(&[1; 32]);
        let packets: Vec<_> = (LENGTH as u64 - 300..LENGTH as u64 + 300)
            .map(|packet| {
                let mut out = Vec::new();
                filler.append(packet, 1400, &mut out);
                assert_eq!(out.len(), 1400);
                out
            })
            .collect();
        assert!(packets.windows(2).all(|pair| pair[0] != pair[1]));
        let mut counts = [0; 256];
        filler
            .0
            .iter()
            .for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(
            counts.iter().all(|count| (800..1250).contains(count)),
            "1024 of each are expected: {counts:?}"
        );
    }
}
