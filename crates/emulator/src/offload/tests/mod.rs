//! What the segmentation code makes, held against the plain one.

mod cases;
mod draws;
mod path;

use proptest::prelude::*;
use proptest::sample::select;

use self::draws::Draws;
use super::by_hand::{read_all, written};
use super::reference::{ones_complement, pseudo_header, wire};
use super::vnet::Cut;
use super::{Layout, VNET_BYTES, Vnet};
use crate::outbox::Outbox;
use crate::pool::Pool;

/// What a packet of a flow looks like; what is not here is the same for all.
#[derive(Clone, Debug)]
struct Draft {
    payload: usize,
    segment: usize,
    flags: u8,
    /// Added to what the flow's sequence and identification would be: mostly nothing.
    gap: u16,
    window: u16,
    /// Which bit of the headers is not that of the flow; none if zero.
    twist: u64,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    v6: bool,
    tcp: bool,
    /// Bytes of IPv4 options, or of an IPv6 extension header.
    network_options: usize,
    tcp_options: usize,
    ecn: u8,
    /// What all else in the headers is drawn from: addresses, ports, options.
    seed: u64,
}

/// A packet as a device gives it.
fn build(flow: Flow, draft: &Draft, sequence: u32, identification: u16) -> Vec<u8> {
    let mut draws = Draws(flow.seed);
    let protocol = if flow.tcp { 6 } else { 17 };
    let mut packet = if flow.v6 {
        let next = if flow.network_options > 0 {
            60
        } else {
            protocol
        };
        let mut header = vec![0; 40 + flow.network_options];
        draws.fill(&mut header);
        header[0] = 0x60 | header[0] & 0x0f;
        header[1] = header[1] & 0xcf | flow.ecn << 4;
        header[6] = next;
        if flow.network_options > 0 {
            let length = flow.network_options as u8;
            header[40..44].copy_from_slice(&[protocol, length / 8 - 1, 1, length - 4]);
        }
        header
    } else {
        let mut header = vec![0; 20 + flow.network_options];
        draws.fill(&mut header);
        header[0] = 0x40 | (header.len() / 4) as u8;
        header[1] = header[1] & 0xfc | flow.ecn;
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[6] &= 0x40; // whether it may be cut on the way; it is no fragment
        header[7] = 0;
        header[9] = protocol;
        header
    };
    let transport = packet.len();
    let headers = transport + if flow.tcp { 20 + flow.tcp_options } else { 8 };
    packet.resize(headers, 0);
    draws.fill(&mut packet[transport..]);
    if flow.tcp {
        packet[transport + 4..transport + 8].copy_from_slice(&sequence.to_be_bytes());
        packet[transport + 12] = ((headers - transport) << 2) as u8;
        packet[transport + 13] = draft.flags;
        packet[transport + 14..transport + 16].copy_from_slice(&draft.window.to_be_bytes());
    }
    if draft.twist != 0 {
        twist(flow, &mut packet, transport, draft.twist);
    }
    packet.extend((0..draft.payload).map(|at| (sequence as usize + at) as u8 ^ (at >> 8) as u8));
    let length = packet.len();
    if flow.v6 {
        packet[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[10..12].fill(0);
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
    let cwr = flow.tcp && packet[transport + 13] & 0x80 != 0;
    let is_super = draft.payload > draft.segment;
    let vnet = Vnet {
        partial_checksum: true,
        cut: is_super.then_some(match (flow.tcp, flow.v6) {
            (true, false) => Cut::Tcp4 { cwr },
            (true, true) => Cut::Tcp6 { cwr },
            (false, _) => Cut::Udp,
        }),
        header: if is_super { headers as u16 } else { 0 },
        segment: if is_super { draft.segment as u16 } else { 0 },
        checksum_start: transport as u16,
        checksum_offset: offset as u16,
    };
    [vnet.to_bytes().as_slice(), &packet].concat()
}

/// Turns one bit of the headers round that says nothing of the packet's structure.
fn twist(flow: Flow, packet: &mut [u8], transport: usize, choice: u64) {
    let mut places: Vec<usize> = if flow.v6 {
        (1..4).chain(7..40).chain(44..transport).collect()
    } else {
        [1, 4, 5, 8].into_iter().chain(12..transport).collect()
    };
    if flow.tcp {
        places.extend((0..12).chain(13..16).map(|at| transport + at));
        places.extend(transport + 18..packet.len());
    } else {
        places.extend((0..4).map(|at| transport + at));
    }
    let mut draws = Draws(choice);
    packet[draws.one_of(&places)] ^= 1 << draws.below(8);
}

/// The packets of a flow, one after another.
fn build_all(flow: Flow, drafts: &[Draft]) -> Vec<Vec<u8>> {
    let mut draws = Draws(!flow.seed);
    let mut sequence = u32::MAX - draws.below(40_000) as u32;
    let mut identification = u16::MAX - draws.below(40) as u16;
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

fn flows() -> impl Strategy<Value = Flow> {
    (
        any::<bool>(),
        any::<bool>(),
        select(vec![0, 0, 0, 8]),
        select(vec![0, 12]),
        0u8..4,
        any::<u64>(),
    )
        .prop_map(|(v6, tcp, network_options, tcp_options, ecn, seed)| Flow {
            v6,
            tcp,
            network_options,
            tcp_options,
            ecn,
            seed,
        })
}

fn drafts() -> impl Strategy<Value = Draft> {
    let payload = prop_oneof![
        0usize..3000,
        Just(1448),
        Just(1448 * 3),
        0usize..20_000,
        Just(64_000)
    ];
    let flags = select(vec![
        0x10, 0x10, 0x10, 0x18, 0x11, 0x90, 0x98, 0x50, 0x02, 0x14, 0x30,
    ]);
    let gap = select(vec![0, 0, 0, 0, 1448]);
    let window = select(vec![500, 500, 500, 501]);
    let twist = prop_oneof![7 => Just(0), 1 => any::<u64>()];
    (
        payload,
        select(vec![1448, 1448, 1000]),
        flags,
        gap,
        window,
        twist,
    )
        .prop_map(|(payload, segment, flags, gap, window, twist)| Draft {
            payload,
            segment,
            flags,
            gap,
            window,
            twist,
        })
}

/// Marks a packet "congestion experienced". A checksum that was wrong stays wrong by the same amount.
fn mark(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        packet[1] |= 0x30;
        return;
    }
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    let more = packet[1] ^ (packet[1] | 3);
    packet[1] |= 3;
    // Sums are those of whole numbers modulo 0xffff (RFC 1071, section 1).
    let mended = (i64::from(checksum) - i64::from(more)).rem_euclid(0xffff);
    packet[10..12].copy_from_slice(&(mended as u16).to_be_bytes());
}

#[test]
fn a_marked_header_has_the_checksum_that_a_new_one_would_have() {
    for ecn in 0..4 {
        for identification in 0..=u16::MAX {
            let flow = Flow {
                v6: false,
                tcp: false,
                network_options: 8,
                tcp_options: 0,
                ecn,
                seed: 1,
            };
            let draft = Draft {
                payload: 0,
                segment: 1000,
                flags: 0,
                gap: 0,
                window: 0,
                twist: 0,
            };
            let mut packet = build(flow, &draft, 0, identification).split_off(VNET_BYTES);
            let mut plainly = packet.clone();
            super::mark(&mut packet);
            mark(&mut plainly);
            assert_eq!(packet, plainly);
            assert_eq!(packet[1] & 3, 3);
            assert_eq!(ones_complement(&packet[..28], 0), 0xffff);
        }
    }
}

proptest! {
    #[test]
    fn a_packet_that_leaves_whole_is_as_it_came(flow in flows(), draft in drafts()) {
        let packets = build_all(flow, &[draft]);
        let (mut pool, mut outbox) = (Pool::new(0), Outbox::default());
        for segment in read_all(&mut pool, &packets) {
            outbox.push(segment, &pool);
        }
        prop_assert_eq!(written(&mut outbox, &mut pool), packets);
    }

    #[test]
    fn the_segments_that_are_left_are_the_packets_on_the_wire(
        flow in flows(),
        drafts in proptest::collection::vec(drafts(), 1..8),
        fates in proptest::collection::vec(0u8..20, 400),
        alone in any::<bool>(),
    ) {
        let packets = build_all(flow, &drafts);
        let mut expected: Vec<Vec<u8>> = packets.iter().flat_map(|bytes| wire(bytes)).collect();
        let (mut pool, mut outbox) = (Pool::new(1 << 26), Outbox::default());
        let segments = read_all(&mut pool, &packets);
        prop_assert_eq!(segments.len(), expected.len());
        let mut out = Vec::new();
        let mut left = Vec::new();
        for (mut segment, (mut packet, fate)) in segments.into_iter().zip(expected.drain(..).zip(fates.iter().cycle())) {
            match *fate {
                0 => { // dropped
                    pool.release(segment.slot, 1);
                    continue;
                }
                // What has no open checksum is passed on as it is, marked or not; the kernel's packets all have one.
                1 => {
                    segment.marked = true;
                    mark(&mut packet);
                }
                2 => out.extend(written(&mut outbox, &mut pool)),
                _ => {}
            }
            outbox.push(segment, &pool);
            left.push(packet);
            if alone {
                out.extend(written(&mut outbox, &mut pool));
            }
        }
        out.extend(written(&mut outbox, &mut pool));
        let on_the_wire: Vec<Vec<u8>> = out.iter().flat_map(|bytes| wire(bytes)).collect();
        prop_assert_eq!(on_the_wire, left);
    }

    #[test]
    fn arbitrary_bytes_have_a_layout(vnet in any::<[u8; VNET_BYTES]>(), mut bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..6) {
        let mut vnet = Vnet::parse(&vnet);
        if let (Some(first), 1..) = (bytes.first_mut(), kind) {
            *first = if kind < 4 { 0x45 } else { 0x60 };
            vnet.partial_checksum = true;
            vnet.checksum_start = if kind < 4 { 20 } else { 40 };
            vnet.checksum_offset = if kind % 2 == 0 { 16 } else { 6 };
            let length = bytes.len() as u16;
            for (at, value) in [(2, length), (4, length.wrapping_sub(40))] {
                if let Some(field) = bytes.get_mut(at..at + 2) {
                    field.copy_from_slice(&value.to_be_bytes());
                }
            }
            for (at, value) in [(6, 0), (7, 0), (9, if kind % 2 == 0 { 6 } else { 17 })] {
                if let (Some(byte), 1..=3) = (bytes.get_mut(at), kind) {
                    *byte = value;
                }
            }
        }
        let layout = Layout::of(vnet, &bytes);
        let (mut pool, mut outbox) = (Pool::new(0), Outbox::default());
        let raw = [vnet.to_bytes().as_slice(), &bytes].concat();
        let segments = read_all(&mut pool, std::slice::from_ref(&raw));
        let sizes: usize = segments.iter().map(|segment| layout.size(segment.index)).sum();
        prop_assert_eq!(sizes, bytes.len() + (segments.len() - 1) * usize::from(layout.header));
        for segment in segments {
            outbox.push(segment, &pool);
        }
        prop_assert_eq!(written(&mut outbox, &mut pool), vec![raw]);
    }
}

#[test]
fn segments_of_different_packets_join() {
    let flow = Flow {
        v6: false,
        tcp: true,
        network_options: 0,
        tcp_options: 12,
        ecn: 0,
        seed: 1,
    };
    let draft = |payload, flags| Draft {
        payload,
        segment: 1448,
        flags,
        gap: 0,
        window: 500,
        twist: 0,
    };
    let packets = build_all(
        flow,
        &[
            draft(1448, 0x10),
            draft(2896, 0x10),
            draft(1000, 0x18),
            draft(1448, 0x10),
        ],
    );
    let (mut pool, mut outbox) = (Pool::new(0), Outbox::default());
    for segment in read_all(&mut pool, &packets) {
        outbox.push(segment, &pool);
    }
    let written = written(&mut outbox, &mut pool);
    let lengths: Vec<usize> = written.iter().map(Vec::len).collect();
    assert_eq!(lengths, [10 + 52 + 3 * 1448 + 1000, 10 + 52 + 1448]);
}
