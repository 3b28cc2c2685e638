//! Packets, and the arena of packets in transit.

use std::num::NonZeroU32;

use crate::units::{FlowId, HostId};
use cellbed_tcp::slab::Slab;

/// Kind of a packet: a number that the transport defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub u8);

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Flow of the packet.
    pub flow: FlowId,
    /// The destination host.
    pub to: HostId,
    /// Kind, defined by the transport.
    pub kind: Kind,
    /// Priority at a port with priorities, 0 the highest.
    pub priority: u8,
    /// Bytes on the wire.
    pub size: u16,
    /// Value of the transport, e.g. the number of the packet in its flow.
    pub sequence: u32,
    /// pFabric's order at a port, smallest first, e.g. the remaining packets of the flow.
    pub rank: u64,
    /// Value of the transport.
    pub value: u64,
    /// True if the transport understands ECN.
    pub ecn_capable: bool,
    /// True if a port has marked the packet: congestion experienced.
    pub ecn: bool,
    /// Stop on the way to a user, or back, that the packet is addressed to; 0 for its end. The fabric sets it.
    pub via: u8,
}

impl Packet {
    /// Return a packet of a flow; all other fields are 0.
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
            via: 0,
        }
    }
}

/// The place of a packet in the [`Arena`]: its index + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(NonZeroU32);

/// A packet in transit, one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) packet: Packet,
    /// Arrival in the queue; later the time at which the port began to send the packet.
    pub(super) since: u64,
    /// Arrival at the next node, once known.
    pub(super) reaches: u64,
    /// Next and previous packet in the [`List`].
    pub(super) next: Option<Place>,
    previous: Option<Place>,
}

/// The packets in transit.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    slots: Slab<Slot>,
    held: u64,
}

impl Arena {
    #[inline]
    pub(super) fn insert(&mut self, packet: Packet) -> Place {
        self.held += u64::from(packet.size);
        let slot = Slot {
            packet,
            since: 0,
            reaches: 0,
            next: None,
            previous: None,
        };
        let index = self.slots.insert(slot);
        Place(NonZeroU32::new(index + 1).expect("fewer than 2^32 packets under way"))
    }

    #[inline]
    pub(super) fn remove(&mut self, place: Place) -> Packet {
        let packet = self.slots.remove(place.0.get() - 1).packet;
        self.held -= u64::from(packet.size);
        packet
    }

    /// Return the bytes of all packets.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.held
    }
}

impl std::ops::Index<Place> for Arena {
    type Output = Slot;
    #[inline]
    fn index(&self, place: Place) -> &Slot {
        &self.slots[place.0.get() - 1]
    }
}

impl std::ops::IndexMut<Place> for Arena {
    #[inline]
    fn index_mut(&mut self, place: Place) -> &mut Slot {
        &mut self.slots[place.0.get() - 1]
    }
}

/// A list of packets in the arena. A packet is in at most one list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct List {
    pub(super) first: Option<Place>,
    last: Option<Place>,
}

impl List {
    #[inline]
    pub(super) fn push_back(&mut self, place: Place, arena: &mut Arena) {
        let last = self.last.replace(place);
        let slot = &mut arena[place];
        slot.next = None;
        slot.previous = last;
        match last {
            Some(last) => arena[last].next = Some(place),
            None => self.first = Some(place),
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self, arena: &mut Arena) -> Option<Place> {
        let place = self.first?;
        self.first = arena[place].next;
        match self.first {
            Some(first) => arena[first].previous = None,
            None => self.last = None,
        }
        Some(place)
    }

    pub(super) fn pop_back(&mut self, arena: &mut Arena) -> Option<Place> {
        let place = self.last?;
        self.last = arena[place].previous;
        match self.last {
            Some(last) => arena[last].next = None,
            None => self.first = None,
        }
        Some(place)
    }
}
