//! The packets in a network: directions hold their numbers only.

use crate::event::{DatagramKind, End};
use cellbed_tcp::Segment;
use cellbed_tcp::slab::Slab;

/// Content of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Datagram {
        run: u64,
        kind: DatagramKind,
        label: u64,
        at: End,
    },
    Segment {
        connection: u64,
        segment: Segment,
        at: End,
    },
    /// The answer of an end that has closed to a segment.
    Reset {
        connection: u64,
        sequence: u32,
        at: End,
    },
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// Its number in the network.
    pub number: u64,
    pub from: u16,
    pub to: u16,
    /// Source and destination.
    pub ports: (u16, u16),
    /// A checksum will detect that a bit has changed.
    pub corrupt: bool,
    pub content: Content,
}

/// Packets. One that a link has doubled stays until both have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    slots: Slab<(Packet, u32)>,
}

impl Pool {
    pub fn insert(&mut self, packet: Packet) -> u32 {
        self.slots.insert((packet, 1))
    }

    pub fn get(&self, slot: u32) -> &Packet {
        &self.slots[slot].0
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.slots[slot].0
    }

    pub fn double(&mut self, slot: u32) {
        self.slots[slot].1 += 1;
    }

    pub fn release(&mut self, slot: u32) {
        let references = &mut self.slots[slot].1;
        *references -= 1;
        if *references == 0 {
            self.slots.remove(slot);
        }
    }
}
