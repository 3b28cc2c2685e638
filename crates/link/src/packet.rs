//! What a queue may know of a packet beside its size: the flow that it belongs to, and its ECN field.

/// What the header says of a packet that the stages act on. The default is a packet of the one nameless flow whose
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
    /// The transport is not ECN-capable: congestion can only be told by a drop.
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

    /// Whether a queue may mark the packet rather than drop it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }

    /// Whether the packet belongs into the low-latency queue of a DualQ (RFC 9331 §5.1: ECT(1) and CE).
    pub const fn is_low_latency(self) -> bool {
        matches!(self, Self::Ect1 | Self::Ce)
    }
}
