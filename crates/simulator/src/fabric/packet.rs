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
pub(super) struct Place(u32);

impl Place {
    const NONE: Self = Self(u32::MAX);
}

/// A packet under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) packet: Packet,
    /// When it joined the queue in which it is; then when the port began to send it.
    pub(super) since: u64,
    /// Its neighbours in the [`List`] in which it is; the next free place.
    next: Place,
    previous: Place,
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
            since: 0,
            next: Place::NONE,
            previous: Place::NONE,
        };
        let place = self.free;
        if place == Place::NONE {
            self.slots.push(slot);
            return Place(self.slots.len() as u32 - 1);
        }
        let old = std::mem::replace(&mut self[place], slot);
        self.free = old.next;
        place
    }

    #[inline]
    pub(super) fn remove(&mut self, place: Place) -> Packet {
        let free = std::mem::replace(&mut self.free, place);
        let slot = &mut self[place];
        slot.next = free;
        let packet = slot.packet;
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

/// A list of packets of the arena. A packet is in one list at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: Place,
    last: Place,
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: Place::NONE,
            last: Place::NONE,
        }
    }
}

impl List {
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.first == Place::NONE
    }

    #[inline]
    pub(super) fn first(self) -> Option<Place> {
        (!self.is_empty()).then_some(self.first)
    }

    /// The packet behind another.
    #[inline]
    pub(super) fn after(self, place: Place, arena: &Arena) -> Option<Place> {
        let next = arena[place].next;
        (next != Place::NONE).then_some(next)
    }

    #[inline]
    pub(super) fn push_back(&mut self, place: Place, arena: &mut Arena) {
        let last = std::mem::replace(&mut self.last, place);
        let slot = &mut arena[place];
        slot.next = Place::NONE;
        slot.previous = last;
        if last == Place::NONE {
            self.first = place;
        } else {
            arena[last].next = place;
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self, arena: &mut Arena) -> Option<Place> {
        let place = self.first()?;
        self.first = arena[place].next;
        if self.first == Place::NONE {
            self.last = Place::NONE;
        } else {
            arena[self.first].previous = Place::NONE;
        }
        Some(place)
    }

    pub(super) fn pop_back(&mut self, arena: &mut Arena) -> Option<Place> {
        let place = (!self.is_empty()).then_some(self.last)?;
        self.last = arena[place].previous;
        if self.last == Place::NONE {
            self.first = Place::NONE;
        } else {
            arena[self.last].next = Place::NONE;
        }
        Some(place)
    }
}
