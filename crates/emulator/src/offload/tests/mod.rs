//! Comparison of the segmentation code with the plain reference.

mod drafts;
mod path;
mod reference;

use proptest::prelude::*;
use proptest::sample::select;

use super::{Layout, VNET_BYTES, Vnet};
use crate::outbox::Outbox;
use crate::pool::Pool;
use drafts::{Draft, Flow, build, build_all, mark, read_all, written};
use reference::ones_complement;

fn flows() -> impl Strategy<Value = Flow> {
    (
        any::<bool>(),
        any::<bool>(),
        select(vec![0, 0, 0, 8]),
        select(vec![0, 12]),
        0u8..4,
    )
        .prop_map(|(v6, tcp, network_options, tcp_options, ecn)| Flow {
            v6,
            tcp,
            network_options,
            tcp_options,
            ecn,
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
    (payload, select(vec![1448, 1448, 1000]), flags, gap, window).prop_map(
        |(payload, segment, flags, gap, window)| Draft {
            payload,
            segment,
            flags,
            gap,
            window,
        },
    )
}

#[test]
fn a_marked_header_has_the_checksum_that_a_new_one_would_have() {
    for ecn in 0..4 {
        let flow = Flow {
            network_options: 8,
            ecn,
            ..Flow::default()
        };
        for identification in 0..=u16::MAX {
            let draft = Draft::default();
            let mut packet = build(flow, &draft, 0, identification).split_off(VNET_BYTES);
            let mut plainly = packet.clone();
            super::mark(&mut packet);
            mark(&mut plainly);
            assert_eq!(packet, plainly);
            assert_eq!(packet[1], 3);
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
        tcp: true,
        tcp_options: 12,
        ..Flow::default()
    };
    let drafts = [(1448, 0x10), (2896, 0x10), (1000, 0x18), (1448, 0x10)];
    let drafts = drafts.map(|(payload, flags)| Draft {
        payload,
        segment: 1448,
        flags,
        ..Draft::default()
    });
    let packets = build_all(flow, &drafts);
    let (mut pool, mut outbox) = (Pool::new(0), Outbox::default());
    for segment in read_all(&mut pool, &packets) {
        outbox.push(segment, &pool);
    }
    let written = written(&mut outbox, &mut pool);
    let lengths: Vec<usize> = written.iter().map(Vec::len).collect();
    assert_eq!(lengths, [10 + 52 + 3 * 1448 + 1000, 10 + 52 + 1448]);
}
