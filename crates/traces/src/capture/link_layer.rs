//! Extraction of the IP packet from a frame.

use std::net::IpAddr;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket};

/// Fields read from a packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    pub from_port: u16,
    pub to_port: u16,
    /// IP length, headers included.
    pub bytes: u32,
    /// Bytes of the frame for the packet.
    pub room: u32,
    pub hop_limit: u8,
    /// True if the packet opens a TCP connection.
    pub opens: bool,
    pub fragment: bool,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Link type, which determines the header of frames (tcpdump's registry of link-layer header types).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkType {
    /// 1: Ethernet, with VLAN tags or without.
    Ethernet,
    /// 101, its variants on some systems (12, 14), 228 and 229: the IP packet itself.
    Raw,
    /// 0 and 108: four bytes of address family, in the byte order of the writer or of the network.
    Loopback,
    /// 113: Linux cooked capture.
    Cooked,
    /// 276: Linux cooked capture, version 2.
    Cooked2,
}

impl LinkType {
    pub(super) fn of(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            0 | 108 => Self::Loopback,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            _ => return None,
        })
    }

    /// Return the header of the IP packet in a frame; `None` without one. frame: captured bytes; whole: length of the
    /// frame.
    pub(super) fn header(self, frame: &[u8], whole: u32) -> Option<Header> {
        let (kind, start) = match self {
            Self::Ethernet => ethernet(frame)?,
            Self::Raw => (by_version(frame)?, 0),
            Self::Loopback => (by_version(frame.get(4..)?)?, 4),
            Self::Cooked => (number(frame, 14)?, 16),
            Self::Cooked2 => (number(frame, 0)?, 20),
        };
        let packet = LaxSlicedPacket::from_ether_type(EtherType(kind), frame.get(start..)?);
        read(packet.net.as_ref()?, frame, whole)
    }
}

/// Return type and offset of an Ethernet frame's payload; LLC and SNAP headers follow an IEEE 802.3 length.
fn ethernet(frame: &[u8]) -> Option<(u16, usize)> {
    match number(frame, 12)? {
        length if length < 1536 => {
            (frame.get(14..17)? == [0xaa, 0xaa, 0x03]).then_some(())?;
            Some((number(frame, 20)?, 22))
        }
        kind => Some((kind, 14)),
    }
}

fn by_version(packet: &[u8]) -> Option<u16> {
    match packet.first()? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([two[0], two[1]]))
}

fn read(net: &LaxNetSlice<'_>, frame: &[u8], whole: u32) -> Option<Header> {
    let payload = net.ip_payload_ref()?;
    let (from, to, hop_limit, said, start) = match net {
        LaxNetSlice::Ipv4(packet) => {
            let header = packet.header();
            let said = u32::from(header.total_len());
            let start = offset(frame, header.slice());
            let (from, to) = (header.source_addr(), header.destination_addr());
            (from.into(), to.into(), header.ttl(), said, start)
        }
        LaxNetSlice::Ipv6(packet) => {
            let header = packet.header();
            let said = match header.payload_length() {
                0 => 0, // a jumbogram, or length not set
                length => u32::from(length) + 40,
            };
            let start = offset(frame, header.slice());
            let (from, to) = (header.source_addr(), header.destination_addr());
            (
                IpAddr::V6(from),
                IpAddr::V6(to),
                header.hop_limit(),
                said,
                start,
            )
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let room = whole.saturating_sub(start);
    // With segmentation offload, the kernel leaves the length unset.
    let bytes = if said == 0 { room } else { said };
    let protocol = payload.ip_number.0;
    let with_ports = matches!(protocol, TCP | UDP | DCCP | SCTP) && !payload.fragmented;
    let port = |at| {
        with_ports
            .then(|| number(payload.payload, at))
            .flatten()
            .unwrap_or(0)
    };
    let flags = payload.payload.get(13).copied().unwrap_or(0);
    Some(Header {
        from,
        to,
        protocol,
        from_port: port(0),
        to_port: port(2),
        bytes,
        room,
        hop_limit,
        opens: protocol == TCP && !payload.fragmented && flags & 0x12 == 0x02,
        fragment: payload.fragmented,
    })
}

/// Return the offset in a frame at which a part of it begins.
fn offset(frame: &[u8], part: &[u8]) -> u32 {
    (part.as_ptr() as usize).saturating_sub(frame.as_ptr() as usize) as u32
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn datagram() -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
            .udp(5000, 80)
            .write(&mut bytes, &[0; 100])
            .unwrap();
        bytes
    }

    fn behind(head: &[u8]) -> Vec<u8> {
        [head, &datagram()].concat()
    }

    #[test]
    fn an_ip_packet_is_the_same_behind_every_kind_of_link_header() {
        let mac = [0u8; 12];
        let cases: [(u32, Vec<u8>); 12] = [
            (1, [&mac[..], &[8, 0]].concat()),
            (1, [&mac[..], &[0x81, 0, 0, 5, 8, 0]].concat()),
            (
                1,
                [&mac[..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat(),
            ),
            (
                1,
                [&mac[..], &[0, 136, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
            ),
            (101, vec![]),
            (12, vec![]),
            (228, vec![]),
            (0, vec![2, 0, 0, 0]),
            (108, vec![0, 0, 0, 2]),
            (113, [&[0u8; 14][..], &[8, 0]].concat()),
            (113, [&[0u8; 14][..], &[0x81, 0, 0, 5, 8, 0]].concat()),
            (276, [&[8, 0][..], &[0u8; 18]].concat()),
        ];
        for (number, head) in cases {
            let frame = behind(&head);
            let link = LinkType::of(number).unwrap();
            let header = link
                .header(&frame, frame.len() as u32)
                .expect("an IP packet");
            assert_eq!(
                (header.from_port, header.to_port, header.bytes),
                (5000, 80, 128),
                "{number}"
            );
            // A capture of the first bytes only has the same header.
            let start = &frame[..head.len() + 28];
            assert_eq!(
                link.header(start, frame.len() as u32),
                Some(header),
                "{number}"
            );
        }
    }

    #[test]
    fn a_length_that_was_left_open_is_the_frames() {
        let mut packet = datagram();
        packet[2..4].copy_from_slice(&[0, 0]);
        let header = LinkType::Raw.header(&packet, 9000).unwrap();
        assert_eq!(header.bytes, 9000);
    }

    #[test]
    fn a_packet_longer_than_its_frame_is_seen() {
        let header = LinkType::Raw.header(&datagram(), 127).unwrap();
        assert_eq!((header.bytes, header.room), (128, 127));
    }

    #[test]
    fn what_is_no_ip_packet_is_none() {
        assert_eq!(LinkType::of(127), None);
        for link in [
            LinkType::Ethernet,
            LinkType::Raw,
            LinkType::Cooked,
            LinkType::Cooked2,
            LinkType::Loopback,
        ] {
            for length in 0..40 {
                assert_eq!(link.header(&vec![0; length], length as u32), None);
            }
        }
    }
}
