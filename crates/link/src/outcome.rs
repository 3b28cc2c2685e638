//! Outcome of a packet.

use crate::time::Time;
use crate::units::Bytes;

/// A packet that has come out of a direction, or was dropped in it.
///
/// ```
/// use cellbed_link::{DropReason, Fate, Outcome};
///
/// fn say(outcome: Outcome<&str>) -> String {
///     match outcome.fate {
///         Fate::Delivered => format!("{} took {}", outcome.packet, outcome.departed.since(outcome.arrived)),
///         Fate::Dropped(reason) => format!("{} was dropped: {reason:?}", outcome.packet),
///         Fate::Doubled => format!("{} will come twice", outcome.packet),
///     }
/// }
/// ```
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
