//! Packets into the pool and out of an outbox without a device.

use super::{Layout, VNET_BYTES, Vnet};
use crate::outbox::Outbox;
use crate::pool::{Pool, Segment};

/// Reads a packet into the pool as the engine does; its slot and its segments, each with a reference.
fn read(pool: &mut Pool, bytes: &[u8]) -> (u32, u16) {
    assert!(pool.make_ready());
    let [head, rest] = pool.landing().unwrap();
    let split = bytes.len().min(head.len());
    head[..split].copy_from_slice(&bytes[..split]);
    rest[..bytes.len() - split].copy_from_slice(&bytes[split..]);
    let slot = pool.keep(bytes.len()).unwrap();
    let vnet = Vnet::parse(bytes[..VNET_BYTES].try_into().unwrap());
    let layout = Layout::of(vnet, &bytes[VNET_BYTES..]);
    pool.packet_mut(slot).layout = layout;
    pool.refer(slot, u32::from(layout.segments()) - 1);
    (slot, layout.segments())
}

/// What an outbox writes, packet by packet.
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

/// All segments of all packets.
pub fn read_all(pool: &mut Pool, packets: &[Vec<u8>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for bytes in packets {
        let (slot, count) = read(pool, bytes);
        segments.extend((0..count).map(|index| Segment {
            slot,
            index,
            marked: false,
        }));
    }
    segments
}
