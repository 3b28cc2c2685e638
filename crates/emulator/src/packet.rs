//! Fields that the emulator reads from an IP packet: its destination, the fields of its log record, and those that the
//! queues of the path model use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cellbed_link::{Ecn, Tag};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Odd numbers without a pattern (the digits of π).
const KEYS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7345];

/// The fields of an IP packet that matter for routing and for the log.
///
/// Missing fields are zero: ports of ICMP, the sequence number of UDP, both in later fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination of the packet.
    pub destination: IpAddr,
    /// Transport protocol (IANA number), behind any IPv6 extension headers.
    pub protocol: u8,
    /// Source port of TCP and UDP.
    pub source_port: u16,
    /// Destination port of TCP and UDP.
    pub destination_port: u16,
    /// Sequence number of TCP.
    pub tcp_sequence: u32,
    /// Bytes after the transport header, or after the IP headers for other protocols.
    pub payload: u32,
    /// True for a fragment of an IP packet.
    pub fragment: bool,
}

impl Header {
    /// Read the headers of an IPv4 (RFC 791) or IPv6 (RFC 8200) packet; `None` without a readable destination.
    ///
    /// A truncated packet, or one with wrong lengths, yields its readable fields; nothing here panics.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            _ => None,
        }
    }

    fn parse_v4(packet: &[u8]) -> Option<Self> {
        let destination = Ipv4Addr::from(array::<4>(packet, 16)?);
        let header = usize::from(packet[0] & 0x0f) * 4;
        let total = usize::from(u16_at(packet, 2)?).min(packet.len());
        let fragment = u16_at(packet, 6)?;
        let transport = packet.get(header.max(20)..total).unwrap_or_default();
        let (destination, first) = (destination.into(), fragment & 0x1fff == 0);
        Some(Self {
            fragment: fragment & 0x3fff != 0,
            ..Self::with_transport(destination, packet[9], transport, first)
        })
    }

    fn parse_v6(packet: &[u8]) -> Option<Self> {
        let destination = Ipv6Addr::from(array::<16>(packet, 24)?);
        let total = (40 + usize::from(u16_at(packet, 4)?)).min(packet.len());
        let mut protocol = packet[6];
        let mut transport = packet.get(40..total).unwrap_or_default();
        let (mut fragment, mut first_fragment) = (false, true);
        // Extension headers chain; each step consumes at least eight bytes, so the walk ends.
        loop {
            let length = match protocol {
                // hop-by-hop options, routing, destination options, mobility: length in units of 8 bytes, less one
                0 | 43 | 60 | 135 => transport.get(1).map(|units| (usize::from(*units) + 1) * 8),
                44 => {
                    fragment = true;
                    first_fragment &= u16_at(transport, 2).is_none_or(|field| field >> 3 == 0);
                    Some(8)
                }
                // authentication header: units of 4 bytes, less two
                51 => transport.get(1).map(|units| (usize::from(*units) + 2) * 4),
                _ => break,
            };
            let Some(rest) = length.and_then(|length| transport.get(length..)) else {
                transport = &[];
                break;
            };
            protocol = transport[0];
            transport = rest;
            if !first_fragment {
                break;
            }
        }
        let destination = destination.into();
        Some(Self {
            fragment,
            ..Self::with_transport(destination, protocol, transport, first_fragment)
        })
    }

    fn with_transport(
        destination: IpAddr,
        protocol: u8,
        transport: &[u8],
        first_fragment: bool,
    ) -> Self {
        let whole = transport.len() as u32;
        let mut header = Self {
            destination,
            protocol,
            source_port: 0,
            destination_port: 0,
            tcp_sequence: 0,
            payload: whole,
            fragment: false,
        };
        if !first_fragment {
            return header;
        }
        let header_length = match protocol {
            TCP => transport
                .get(12)
                .map_or(20, |offset| u32::from(offset >> 4) * 4),
            UDP | ICMP | ICMPV6 => 8,
            _ => 0,
        };
        header.payload = whole.saturating_sub(header_length);
        if protocol == TCP || protocol == UDP {
            header.source_port = u16_at(transport, 0).unwrap_or(0);
            header.destination_port = u16_at(transport, 2).unwrap_or(0);
        }
        if protocol == TCP {
            header.tcp_sequence = array::<4>(transport, 4).map_or(0, u32::from_be_bytes);
        }
        header
    }

    /// Return the source of a packet.
    pub fn source(packet: &[u8]) -> Option<IpAddr> {
        match packet.first()? >> 4 {
            4 => Some(Ipv4Addr::from(array::<4>(packet, 12)?).into()),
            6 => Some(Ipv6Addr::from(array::<16>(packet, 8)?).into()),
            _ => None,
        }
    }

    /// Return whether the packet has a multicast or link-local destination: kernel traffic that no link carries.
    pub fn is_link_chatter(&self) -> bool {
        match self.destination {
            IpAddr::V4(address) => {
                address.is_multicast() || address.is_broadcast() || address.is_link_local()
            }
            IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
        }
    }

    /// Return the fields of a packet that queues use.
    ///
    /// The flow is a hash of addresses, protocol and ports (RFC 8290, section 4.1), the same in each run, so that a run
    /// can be repeated; each queue mixes in its seed. Fragments and packets without ports are hashed without ports.
    pub fn tag(&self, packet: &[u8]) -> Tag {
        let ports = match self.fragment {
            true => 0,
            false => u64::from(self.source_port) << 16 | u64::from(self.destination_port),
        };
        let mut flow = mix(KEYS[0] ^ (u64::from(self.protocol) << 32 | ports));
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
            dscp: class >> 2,
        }
    }
}

/// Fold the long product: each bit of the result depends on all bits of the word.
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ KEYS[0]) * u128::from(KEYS[1]);
    (product >> 64) as u64 ^ product as u64
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn v4(protocol: u8, transport: &[u8]) -> Vec<u8> {
        let total = (20 + transport.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(total.to_be_bytes());
        packet.extend([
            0, 0, 0x40, 0, 64, protocol, 0, 0, 100, 64, 0, 2, 100, 64, 64, 2,
        ]);
        packet.extend(transport);
        packet
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((rest.len() as u16).to_be_bytes());
        packet.extend([next, 64]);
        packet.extend(Ipv6Addr::new(0xfd63, 0, 0, 0, 0, 0, 0, 2).octets());
        packet.extend(Ipv6Addr::new(0xfd63, 0, 0, 1, 0, 0, 0, 2).octets());
        packet.extend(rest);
        packet
    }

    fn tcp(payload: &[u8]) -> Vec<u8> {
        let mut segment = vec![
            0x30, 0x39, 0x07, 0x5b, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x10, 0, 0, 0, 0, 0, 0,
        ];
        segment.extend([1u8; 12]); // options: the data offset is 32 bytes
        segment.extend(payload);
        segment
    }

    #[test]
    fn tcp_over_both_families() {
        let expected = |destination: &str| Header {
            destination: destination.parse().unwrap(),
            protocol: TCP,
            source_port: 12345,
            destination_port: 1883,
            tcp_sequence: 256,
            payload: 5,
            fragment: false,
        };
        assert_eq!(
            Header::parse(&v4(TCP, &tcp(b"hello"))),
            Some(expected("100.64.64.2"))
        );
        assert_eq!(
            Header::parse(&v6(TCP, &tcp(b"hello"))),
            Some(expected("fd63:0:0:1::2"))
        );
    }

    #[test]
    fn extension_headers_are_passed() {
        let mut rest = vec![60, 0, 1, 4, 0, 0, 0, 0]; // hop-by-hop options, then destination options
        rest.extend([UDP, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        rest.extend([0, 53, 0, 80, 0, 10, 0, 0, 7, 7]);
        let header = Header::parse(&v6(0, &rest)).unwrap();
        assert_eq!(
            (
                header.protocol,
                header.source_port,
                header.destination_port,
                header.payload
            ),
            (UDP, 53, 80, 2)
        );
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let mut packet = v4(UDP, &[1; 32]);
        packet[6..8].copy_from_slice(&185u16.to_be_bytes());
        let header = Header::parse(&packet).unwrap();
        assert_eq!(
            (header.protocol, header.source_port, header.payload),
            (UDP, 0, 32)
        );

        let mut rest = vec![UDP, 0, 5, 0xc8, 0, 0, 0, 1];
        rest.extend([1; 32]);
        let header = Header::parse(&v6(44, &rest)).unwrap();
        assert_eq!(
            (header.protocol, header.source_port, header.payload),
            (UDP, 0, 32)
        );
    }

    #[test]
    fn trailing_bytes_are_no_payload() {
        let mut packet = v4(UDP, &[0, 1, 0, 2, 0, 9, 0, 0, 42]);
        packet.extend([0; 100]);
        assert_eq!(Header::parse(&packet).unwrap().payload, 1);
    }

    #[test]
    fn no_destination_is_none() {
        assert_eq!(Header::parse(&[]), None);
        assert_eq!(Header::parse(&[0x45; 19]), None);
        assert_eq!(Header::parse(&[0x60; 39]), None);
        assert_eq!(Header::parse(&[0x20; 60]), None);
    }

    /// A UDP packet between addresses that end in these numbers.
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
        Header::parse(packet).unwrap().tag(packet)
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
            // FQ-CoDel selects a queue by the upper bits of the mixed flow
            let slots: HashSet<u64> = flows.iter().map(|flow| flow >> 54).collect();
            assert!(slots.len() > 900, "{}", slots.len()); // 1005 of 1024 expected
        }
    }

    #[test]
    fn the_ecn_field_is_read_but_not_in_the_flow() {
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

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0u8..3) {
            if let (Some(first), 4 | 6) = (bytes.first_mut(), version * 2 + 2) {
                *first = *first & 0x0f | ((version * 2 + 2) << 4);
            }
            if let Some(header) = Header::parse(&bytes) {
                prop_assert!(header.payload as usize <= bytes.len());
                let _ = header.is_link_chatter();
            }
        }

        #[test]
        fn chained_extension_headers_never_panic(chain in proptest::collection::vec(
            (prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60), Just(135)], 0u8..3), 0..20), cut in 0usize..400) {
            let mut rest = Vec::new();
            for (next, units) in chain {
                let mut header = vec![0; (usize::from(units) + 1) * 8];
                (header[0], header[1]) = (next, units);
                rest.extend(header);
            }
            rest.truncate(cut);
            prop_assert!(Header::parse(&v6(0, &rest)).is_some());
        }
    }
}
