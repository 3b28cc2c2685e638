//! Final treatment of a segment that has come out of a direction: marks, damage, second copies.

use cellbed_link::{Ecn, Fate, Outcome, Tag};

use crate::offload::{Layout, VNET_BYTES, single};
use crate::pool::{Pool, Segment};

impl Pool {
    /// Applies the marks and the damage of a direction to the segment and updates the references; returns the segment,
    /// unless it ended here.
    pub fn apply(&mut self, outcome: &Outcome<Segment>) -> Option<Segment> {
        let segment = outcome.packet;
        match (outcome.fate, outcome.corrupt_bit) {
            (Fate::Delivered, bit) => {
                let marked = segment.marked || outcome.marked;
                let segment = Segment { marked, ..segment };
                Some(bit.map_or(segment, |bit| self.damage(segment, bit)))
            }
            (Fate::Dropped(_), _) => {
                self.release(segment.slot, 1);
                None
            }
            (Fate::Doubled, _) => {
                self.refer(segment.slot, 1);
                None
            }
        }
    }

    /// Return the tag of a segment that queues use now.
    pub fn tag(&self, segment: Segment) -> Tag {
        let tag = self.packet(segment.slot).tag;
        match segment.marked {
            true => Tag {
                ecn: Ecn::Ce,
                ..tag
            },
            false => tag,
        }
    }

    /// Makes a segment a separate packet with complete checksums, and flips one of its bits (counted from the first of
    /// the IP header). Joined with no other, it has its receiver look at the checksums.
    fn damage(&mut self, segment: Segment, bit: u32) -> Segment {
        let packet = *self.packet(segment.slot);
        let mut vnet = [0; VNET_BYTES];
        vnet.copy_from_slice(&self.space(segment.slot)[..VNET_BYTES]);
        let mut bytes = single(&vnet, self.view(segment));
        if let Some(byte) = bytes.get_mut(VNET_BYTES + bit as usize / 8) {
            *byte ^= 0x80 >> (bit % 8);
        }
        let mut damaged = packet;
        damaged.number += u64::from(segment.index);
        damaged.layout = Layout {
            length: (bytes.len() - VNET_BYTES) as u32,
            ..Layout::default()
        };
        (damaged.payload, damaged.tcp_sequence) = packet.part(segment.index);
        damaged.tag = self.tag(segment);
        let Some(slot) = self.insert(&bytes, damaged) else {
            return segment; // longer than anything that was read
        };
        self.release(segment.slot, 1);
        Segment {
            slot,
            index: 0,
            marked: false,
        }
    }
}
