//! Packets, and the arena that holds those under way.

use super::units::{FlowId, HostId};

/// What a packet is for its transport: a number whose meaning is the transport's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub u8);

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its flow.
    pub flow: FlowId,
    /// The host to which it goes.
    pub to: HostId,
    /// The transport's.
    pub kind: Kind,
    /// Priority at a port with priorities, 0 the highest.
    pub priority: u8,
    /// Bytes on the wire.
    pub size: u16,
    /// The transport's, such as the number of the packet in its flow.
    pub sequence: u32,
    /// pFabric's order at a port: the smallest first, such as the packets that remain of the flow.
    pub rank: u64,
    /// The transport's.
    pub value: u64,
    /// Whether the transport understands ECN.
    pub ecn_capable: bool,
    /// Whether a port has marked it: congestion experienced.
    pub ecn: bool,
}

impl Packet {
    /// A packet of a flow; everything else is 0.
    pub const fn new(flow: FlowId, to: HostId, kind: Kind, size: u16) -> Self {
        Self {
            flow,
            to,
            kind,
            priority: 0,
            size,
            sequence: 0,
            rank: 0,
            value: 0,
            ecn_capable: false,
            ecn: false,
        }
    }
}

/// The place of a packet in the [`Arena`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

impl Place {
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// A packet under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) packet: Packet,
    /// The next in the queue, or in the list of free places.
    pub(super) next: Place,
    /// When it joined the queue in which it is.
    pub(super) queued: u64,
}

/// The packets under way. A place that becomes free is the next to be used, so the memory in use stays small and warm.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    slots: Vec<Slot>,
    free: Place,
    held: u64,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Place::NONE,
            held: 0,
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, packet: Packet) -> Place {
        self.held += u64::from(packet.size);
        let slot = Slot {
            packet,
            next: Place::NONE,
            queued: 0,
        };
        let place = self.free;
        if place == Place::NONE {
            self.slots.push(slot);
            return Place(self.slots.len() as u32 - 1);
        }
        let old = std::mem::replace(&mut self.slots[place.0 as usize], slot);
        self.free = old.next;
        place
    }

    #[inline]
    pub(super) fn remove(&mut self, place: Place) -> Packet {
        let slot = &mut self.slots[place.0 as usize];
        let packet = slot.packet;
        slot.next = self.free;
        self.free = place;
        self.held -= u64::from(packet.size);
        packet
    }

    /// Bytes of all packets.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.held
    }
}

impl std::ops::Index<Place> for Arena {
    type Output = Slot;
    #[inline]
    fn index(&self, place: Place) -> &Slot {
        &self.slots[place.0 as usize]
    }
}

impl std::ops::IndexMut<Place> for Arena {
    #[inline]
    fn index_mut(&mut self, place: Place) -> &mut Slot {
        &mut self.slots[place.0 as usize]
    }
}
