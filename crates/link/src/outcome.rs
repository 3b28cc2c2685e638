//! How a packet ended.

use crate::time::Time;
use crate::units::Bytes;

/// A packet that has come out of a direction, or was dropped in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<P> {
    /// The caller's packet.
    pub packet: P,
    /// Its IP length.
    pub size: Bytes,
    /// When it reached the direction.
    pub arrived: Time,
    /// When its last byte left the last bottleneck that it passed; `arrived` if it passed none.
    pub released: Time,
    /// When it left the direction or was dropped.
    pub departed: Time,
    /// Which of the two.
    pub fate: Fate,
}

/// How a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It reached the far end.
    Delivered,
    /// It did not.
    Dropped(DropReason),
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The bottleneck queue had no room.
    QueueFull = 1,
    /// A loss stage took it.
    Loss = 2,
}
