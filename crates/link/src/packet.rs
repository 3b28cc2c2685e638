//! A packet on its way, and what a queue may know of it beside its size: its flow and its ECN field.

use std::num::NonZero;

use crate::time::Time;
use crate::units::Bytes;

/// The fields of a packet's header that stages use. The default is a packet of the one nameless flow whose
/// transport does not know ECN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Tag {
    /// Key of the packet's flow, such as a hash of addresses, protocol and ports: equal for the packets of a flow.
    pub flow: u64,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
}

/// The ECN field of the IP header (RFC 3168 §5; RFC 9331 for what ECT(1) means).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The transport is not ECN-capable: congestion can only be signalled by a drop.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, and a sender of Low Latency, Low Loss and Scalable throughput (L4S).
    Ect1 = 0b01,
    /// ECN-capable, with the classic response.
    Ect0 = 0b10,
    /// Congestion experienced: a queue before has marked the packet.
    Ce = 0b11,
}

impl Ecn {
    /// The field in the two lowest bits of the IPv4 type of service or IPv6 traffic class.
    pub const fn of_traffic_class(octet: u8) -> Self {
        match octet & 0b11 {
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            0b11 => Self::Ce,
            _ => Self::NotEct,
        }
    }

    /// Return whether a queue may mark the packet rather than drop it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }

    /// Return whether the packet belongs to the low-latency queue of a DualQ (RFC 9331 §5.1: ECT(1) and CE).
    pub const fn is_low_latency(self) -> bool {
        matches!(self, Self::Ect1 | Self::Ce)
    }
}

/// A packet on its way.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Item<P> {
    pub(crate) packet: P,
    pub(crate) size: Bytes,
    pub(crate) arrived: Time,
    pub(crate) released: Time,
    /// When it reached the queue that it is in.
    pub(crate) entered: Time,
    pub(crate) flow: u64,
    // The niche of an optional item is in this byte, so that the fields before it are moved in whole words.
    pub(crate) marked: bool,
    pub(crate) ecn: Ecn,
    pub(crate) corrupt: Option<NonZero<u32>>,
}

impl<P> Item<P> {
    pub(crate) fn new(packet: P, size: Bytes, now: Time) -> Self {
        Self {
            packet,
            size,
            arrived: now,
            released: now,
            entered: now,
            flow: 0,
            corrupt: None,
            ecn: Ecn::NotEct,
            marked: false,
        }
    }

    /// The same packet with fields of its header.
    pub(crate) fn tagged(self, tag: Tag) -> Self {
        Self {
            flow: tag.flow,
            ecn: tag.ecn,
            ..self
        }
    }

    /// The bit that was turned round.
    pub(crate) fn corrupt_bit(&self) -> Option<u32> {
        self.corrupt.map(|next| next.get() - 1)
    }

    /// Turns a bit round.
    pub(crate) fn corrupt(&mut self, bit: u32) {
        self.corrupt = NonZero::new(bit.saturating_add(1));
    }

    /// Marks the packet as having met congestion. Returns whether its transport allows that; one that is marked already
    /// stays so.
    pub(crate) fn mark(&mut self) -> bool {
        let capable = self.ecn.is_capable();
        if capable {
            self.ecn = Ecn::Ce;
            self.marked = true;
        }
        capable
    }
}

/// Result of a stage's event.
pub(crate) enum Step<P> {
    /// A packet leaves the stage.
    Left(Item<P>),
    /// Something happened within.
    Within,
}

/// A packet that has come out of a direction, or was dropped in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<P> {
    /// The caller's packet.
    pub packet: P,
    /// Its IP length.
    pub size: Bytes,
    /// When it reached the direction.
    pub arrived: Time,
    /// When its last byte left the last bottleneck that it passed; `arrived` if it passed none. A link that depends on
    /// its load delays packets before they queue: there it is as much earlier as that delay, as if the delay came after
    /// the queue, so that `released` − `arrived` is queueing and service for every link.
    pub released: Time,
    /// When it left the direction, was dropped or doubled.
    pub departed: Time,
    /// Fate of the packet.
    pub fate: Fate,
    /// True if a queue has marked it: the caller sets the ECN field of the header to CE and updates the checksum.
    pub marked: bool,
    /// The bit that the line has turned round, counted from the first of the IP header; less than 8 · size.
    pub corrupt_bit: Option<u32>,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It reached the far end.
    Delivered,
    /// It did not.
    Dropped(DropReason),
    /// It has not ended: a second one like it is on its way from here on. The caller will see its packet once more than
    /// it would have. Comes before the outcomes of either.
    Doubled,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The bottleneck queue had no room.
    QueueFull = 1,
    /// A loss stage took it.
    Loss = 2,
    /// The queue's active management dropped it, to signal congestion to the sender.
    Congestion = 3,
    /// It was waiting when an outage began that [empties](crate::GateConfig::with_flushes) the queue, as at a handover;
    /// or it was [in flight](crate::GateConfig::with_in_flight).
    Handover = 4,
}
