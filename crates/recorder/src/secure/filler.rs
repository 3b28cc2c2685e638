//! Filler that lengthens a probe.

use std::sync::OnceLock;

use super::Secret;

/// More than common compressors look back.
const LENGTH: usize = 1 << 16;

/// Random bytes, made once, that no path can compress: consecutive packets carry different pieces of them.
pub struct Filler {
    seed: Secret,
    bytes: OnceLock<Box<[u8]>>,
}

impl Filler {
    /// Bytes derived from a seed that nothing else may use. They are made when they are first needed.
    pub fn new(seed: &[u8; 32]) -> Self {
        Self {
            seed: Secret::new(*seed),
            bytes: OnceLock::new(),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| {
            (0..LENGTH as u64 / 32)
                .flat_map(|piece| self.seed.derive(b"filler", piece))
                .collect()
        })
    }

    /// Appends so many bytes for the packet with this number.
    pub fn append(&self, packet: u64, mut count: usize, out: &mut Vec<u8>) {
        let mut start = (packet as usize).wrapping_mul(1499) % LENGTH; // odd, so that all places come
        let bytes = self.bytes();
        while count > 0 {
            let piece = &bytes[start..LENGTH.min(start + count)];
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
            .bytes()
            .iter()
            .for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(
            counts.iter().all(|count| (150..370).contains(count)),
            "256 of each are expected: {counts:?}"
        );
    }
}
