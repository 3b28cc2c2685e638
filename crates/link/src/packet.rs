//! A packet in transit, and the fields that a queue may use besides its size: flow, ECN and DSCP.

use std::num::NonZero;

use crate::time::Time;
use crate::units::Bytes;

/// The fields of a packet's header that stages use. The default is a single unnamed flow without ECN and DSCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Tag {
    /// Key of the packet's flow, such as a hash of addresses, protocol and ports: equal for the packets of a flow.
    pub flow: u64,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
    /// The differentiated services code point of the IP header (RFC 2474), 0 to 63.
    pub dscp: u8,
}

/// The ECN field of the IP header (RFC 3168 §5; RFC 9331 for ECT(1)).
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
    /// Congestion experienced: a previous queue has marked the packet.
    Ce = 0b11,
}

impl Ecn {
    /// Return the field in the two lowest bits of the IPv4 type of service or IPv6 traffic class.
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

/// A packet in transit.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Item<P> {
    pub(crate) packet: P,
    pub(crate) size: Bytes,
    pub(crate) arrived: Time,
    pub(crate) released: Time,
    /// Time at which it reached its present queue.
    pub(crate) entered: Time,
    pub(crate) flow: u64,
    // The niche of an optional item is in this byte, so that the previous fields are moved in whole words.
    pub(crate) marked: bool,
    pub(crate) ecn: Ecn,
    pub(crate) dscp: u8,
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
            dscp: 0,
            marked: false,
        }
    }

    /// Return the packet with fields of its header.
    pub(crate) fn tagged(self, tag: Tag) -> Self {
        Self {
            flow: tag.flow,
            ecn: tag.ecn,
            dscp: tag.dscp,
            ..self
        }
    }

    /// Return the flipped bit.
    pub(crate) fn corrupt_bit(&self) -> Option<u32> {
        self.corrupt.map(|next| next.get() - 1)
    }

    /// Flips a bit.
    pub(crate) fn corrupt(&mut self, bit: u32) {
        self.corrupt = NonZero::new(bit.saturating_add(1));
    }

    /// Mark the packet: congestion experienced. Return whether its transport allows marks. Marked packets stay
    /// marked.
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
    /// An event within the stage.
    Within,
}

/// A packet that has come out of a direction, or was dropped in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<P> {
    /// The caller's packet.
    pub packet: P,
    /// IP length of the packet.
    pub size: Bytes,
    /// Arrival at the direction.
    pub arrived: Time,
    /// Time at which its last byte left the last bottleneck on its way; `arrived` without a bottleneck. A link that
    /// depends on its load delays packets before they queue. There the time is earlier by this delay, as if the delay
    /// came after the queue: `released` − `arrived` is queueing and service for every link.
    pub released: Time,
    /// Time at which it left the direction, was dropped or duplicated.
    pub departed: Time,
    /// Fate of the packet.
    pub fate: Fate,
    /// True if a queue has marked it: the caller sets the ECN field of the header to CE and updates the checksum.
    pub marked: bool,
    /// The flipped bit, counted from the first bit of the IP header; less than 8 · size.
    pub corrupt_bit: Option<u32>,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It reached the far end.
    Delivered,
    /// It was dropped.
    Dropped(DropReason),
    /// It was duplicated, and has not ended: the caller will see the packet once more. This outcome comes before the
    /// outcomes of both copies.
    Doubled,
}

/// Reason for a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The bottleneck queue had no room.
    QueueFull = 1,
    /// A loss stage dropped it.
    Loss = 2,
    /// The queue's active management dropped it, to signal congestion to the sender.
    Congestion = 3,
    /// It waited at the beginning of an outage that [empties](crate::GateConfig::with_flushes) the queue, as at a
    /// handover; or it was [in flight](crate::GateConfig::with_in_flight).
    Handover = 4,
}
