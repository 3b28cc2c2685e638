//! Packets as from a device, generated for tests.

use super::reference::{ones_complement, pseudo_header};
use crate::offload::Vnet;
use crate::offload::vnet::{GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP};
use crate::outbox::Outbox;
use crate::pool::{Packet, Pool, Segment};

/// Variable fields of a flow's packet; all other fields are constant.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub payload: usize,
    pub segment: usize,
    pub flags: u8,
    /// Added to the flow's sequence and identification; mostly 0.
    pub gap: u16,
    pub window: u16,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    pub v6: bool,
    pub tcp: bool,
    /// Bytes of IPv4 options, or of an IPv6 extension header.
    pub network_options: usize,
    pub tcp_options: usize,
    pub ecn: u8,
}

/// Return a packet as from a device.
pub fn build(flow: Flow, draft: &Draft, sequence: u32, identification: u16) -> Vec<u8> {
    let protocol = if flow.tcp { 6 } else { 17 };
    let mut packet = if flow.v6 {
        let next = if flow.network_options > 0 {
            60
        } else {
            protocol
        };
        let mut header = vec![0x60, flow.ecn << 4, 0, 7, 0, 0, next, 64];
        header.extend([0xfd, 0x63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        header.extend([0xfd, 0x63, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        if flow.network_options > 0 {
            header.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
        }
        header
    } else {
        let words = (20 + flow.network_options) / 4;
        let mut header = vec![0x40 | words as u8, flow.ecn, 0, 0];
        header.extend(identification.to_be_bytes());
        header.extend([0x40, 0, 64, protocol, 0, 0, 100, 64, 0, 2, 100, 64, 64, 2]);
        header.resize(words * 4, 1);
        header
    };
    let transport = packet.len();
    packet.extend([0x30, 0x39, 0x07, 0x5b]);
    if flow.tcp {
        packet.extend(sequence.to_be_bytes());
        packet.extend(77u32.to_be_bytes());
        packet.extend([(((20 + flow.tcp_options) / 4) << 4) as u8, draft.flags]);
        packet.extend(draft.window.to_be_bytes());
        packet.extend([0; 4]);
        packet.resize(transport + 20 + flow.tcp_options, 1);
    } else {
        packet.extend([0; 4]);
    }
    let headers = packet.len();
    packet.extend((0..draft.payload).map(|at| (sequence as usize + at) as u8 ^ (at >> 8) as u8));
    let length = packet.len();
    if flow.v6 {
        packet[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let checksum = !ones_complement(&packet[..transport], 0);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    if !flow.tcp {
        packet[transport + 4..transport + 6]
            .copy_from_slice(&((length - transport) as u16).to_be_bytes());
    }
    let offset = if flow.tcp { 16 } else { 6 };
    let pseudo = ones_complement(&[], pseudo_header(&packet, transport, offset, !flow.v6));
    packet[transport + offset..transport + offset + 2].copy_from_slice(&pseudo.to_be_bytes());
    let ecn = if draft.flags & 0x80 != 0 { GSO_ECN } else { 0 };
    let is_super = draft.payload > draft.segment;
    let vnet = Vnet {
        partial_checksum: true,
        kind: match (is_super, flow.tcp, flow.v6) {
            (false, ..) => 0,
            (_, true, false) => GSO_TCPV4 | ecn,
            (_, true, true) => GSO_TCPV6 | ecn,
            (_, false, _) => GSO_UDP,
        },
        header: if is_super { headers as u16 } else { 0 },
        segment: if is_super { draft.segment as u16 } else { 0 },
        checksum_start: transport as u16,
        checksum_offset: offset as u16,
    };
    [vnet.to_bytes().as_slice(), &packet].concat()
}

/// Return the packets of a flow, in order.
pub fn build_all(flow: Flow, drafts: &[Draft]) -> Vec<Vec<u8>> {
    let (mut sequence, mut identification) = (u32::MAX - 20_000, u16::MAX - 20);
    let mut packets = Vec::new();
    for draft in drafts {
        let draft = Draft {
            segment: if flow.tcp {
                draft.segment
            } else {
                draft.segment.min(1452)
            },
            ..draft.clone()
        };
        sequence = sequence.wrapping_add(u32::from(draft.gap));
        identification = identification.wrapping_add(draft.gap);
        packets.push(build(flow, &draft, sequence, identification));
        sequence = sequence.wrapping_add(draft.payload as u32);
        identification =
            identification.wrapping_add(draft.payload.div_ceil(draft.segment).max(1) as u16);
    }
    packets
}

/// Reads a packet into the pool like the engine. Returns its slot and the number of segments, each with a reference.
fn read(pool: &mut Pool, bytes: &[u8]) -> (u32, u16) {
    assert!(pool.make_ready());
    let [head, rest] = pool.landing().unwrap();
    let split = bytes.len().min(head.len());
    head[..split].copy_from_slice(&bytes[..split]);
    rest[..bytes.len() - split].copy_from_slice(&bytes[split..]);
    let slot = pool.keep(bytes.len()).unwrap();
    let (packet, _) = Packet::parse(bytes, 0, 0);
    let segments = packet.layout.segments();
    pool.describe(slot, packet);
    pool.refer(slot, u32::from(segments) - 1);
    (slot, segments)
}

/// Return the packets that an outbox writes.
pub fn written(outbox: &mut Outbox, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    outbox.write(
        pool,
        |_, _| {},
        |parts| {
            packets.push(parts.iter().flat_map(|part| part.iter().copied()).collect());
            true
        },
    );
    packets
}

/// Read all packets; return all segments.
pub fn read_all(pool: &mut Pool, packets: &[Vec<u8>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for bytes in packets {
        let (slot, count) = read(pool, bytes);
        segments.extend((0..count).map(|index| Segment {
            index,
            ..Segment::first(slot)
        }));
    }
    segments
}

/// Marks a packet "congestion experienced". A wrong checksum stays wrong by the same amount.
pub fn mark(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        packet[1] |= 0x30;
        return;
    }
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    let more = packet[1] ^ (packet[1] | 3);
    packet[1] |= 3;
    // Sums of integers modulo 0xffff (RFC 1071, section 1).
    let mended = (i64::from(checksum) - i64::from(more)).rem_euclid(0xffff);
    packet[10..12].copy_from_slice(&(mended as u16).to_be_bytes());
}
