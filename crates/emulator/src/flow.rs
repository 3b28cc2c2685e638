//! Packet fields used by the path model's queues: the flow that it belongs to, and its ECN field.

use cellbed_link::{Ecn, Tag};

use crate::packet::Header;

/// Odd numbers without a pattern (the digits of π).
const KEYS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7345];

/// The tag of a packet with this header.
///
/// The flow is a hash of addresses, protocol and ports (RFC 8290, section 4.1): one of the machine and the run, so that
/// a run can be repeated; the queues mix in the seeds of their own. Fragments and what has no ports go by the rest.
pub fn tag(packet: &[u8], header: &Header) -> Tag {
    let ports = match header.fragment {
        true => 0,
        false => u64::from(header.source_port) << 16 | u64::from(header.destination_port),
    };
    let mut flow = mix(KEYS[0] ^ (u64::from(header.protocol) << 32 | ports));
    let (addresses, class) = match packet {
        [first, second, ..] if first >> 4 == 6 => (packet.get(8..40), first << 4 | second >> 4),
        [_, second, ..] => (packet.get(12..20), *second),
        _ => return Tag::default(),
    };
    for word in addresses.unwrap_or_default().chunks_exact(8) {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        flow = mix(flow ^ word);
    }
    Tag {
        flow,
        ecn: Ecn::of_traffic_class(class),
    }
}

/// Both halves of the long product: each bit of the result hangs on all bits of the word.
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ KEYS[0]) * u128::from(KEYS[1]);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A UDP packet from and to addresses that end in these numbers.
    fn packet(v6: bool, class: u8, ends: [u8; 2], ports: [u16; 2], fragment: bool) -> Vec<u8> {
        let mut packet = if v6 {
            let mut header = vec![0x60 | class >> 4, class << 4, 0, 0, 0, 8, 17, 64];
            for end in ends {
                header.extend([0xfd, 0x63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
            }
            header
        } else {
            let more = if fragment { 0x20 } else { 0 };
            let mut header = vec![0x45, class, 0, 28, 0, 0, more, 0, 64, 17, 0, 0];
            for end in ends {
                header.extend([100, 64, 0, end]);
            }
            header
        };
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.extend([0, 8, 0, 0]);
        packet
    }

    fn tag_of(packet: &[u8]) -> Tag {
        tag(packet, &Header::parse(packet).unwrap())
    }

    #[test]
    fn flows_differ_in_any_part_of_the_five_tuple() {
        for v6 in [false, true] {
            let mut flows = HashSet::new();
            for source in 0..8 {
                for target in 0..8 {
                    for port in 0..64 {
                        let packet = packet(v6, 0, [source, target], [40_000 + port, 443], false);
                        flows.insert(tag_of(&packet).flow);
                    }
                }
            }
            assert_eq!(flows.len(), 8 * 8 * 64);
            // spread over the queues of FQ-CoDel, which takes the upper bits of their mix
            let slots: HashSet<u64> = flows.iter().map(|flow| flow >> 54).collect();
            assert!(slots.len() > 900, "{}", slots.len()); // 1005 of 1024 expected
        }
    }

    #[test]
    fn the_ecn_field_is_read_and_makes_no_other_flow() {
        for v6 in [false, true] {
            let tags = [0x00, 0xb9, 0x02, 0xff]
                .map(|class| tag_of(&packet(v6, class, [1, 2], [3, 4], false)));
            assert_eq!(
                tags.map(|tag| tag.ecn),
                [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce]
            );
            assert!(tags.iter().all(|tag| tag.flow == tags[0].flow));
        }
    }

    #[test]
    fn fragments_of_a_packet_are_one_flow() {
        let first = packet(false, 0, [1, 2], [3, 4], true);
        let mut later = packet(false, 0, [1, 2], [9, 9], false);
        later[7] = 1;
        assert_eq!(tag_of(&first), tag_of(&later));
    }
}
