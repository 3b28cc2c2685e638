//! A packet on its way, and what a queue may know of it beside its size: its flow and its ECN field.

use std::num::NonZero;

use crate::time::Time;
use crate::units::Bytes;

/// The fields of a packet's header that stages use. The default is a packet of the one nameless flow whose
/// transport does not know ECN.
///
/// ```
/// use cellbed_link::{Bytes, DelayConfig, Direction, Duration, Ecn, Tag, Time};
///
/// let mut link = Direction::new(vec![DelayConfig::Fixed(Duration::from_millis(1)).into()], Time::ZERO);
/// let tag = Tag { flow: 7, ecn: Ecn::of_traffic_class(0b10) };
/// link.accept_tagged(Time::ZERO, "hello", Bytes(100), tag);
/// assert!(tag.ecn.is_capable() && !tag.ecn.is_low_latency());
/// ```
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
