//! The managed queues of Mahimahi, which differ from the RFCs of their names.
//!
//! They reproduce what its `mm-link` does, in whole milliseconds and with the 4 bytes counted that its TUN device puts
//! in front of every packet (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015; the
//! behaviour of version 0.98). The packet in service is outside of their limits.

mod codel;
mod pie;

use super::fifo::Line;
use super::{Limit, QueueLevel, Refused};
use crate::outcome::DropReason;
use crate::packet::Item;
use crate::time::{Duration, Time};
use crate::units::Bytes;

pub(crate) use codel::CoDel;
pub use codel::MahimahiCoDelConfig;
pub use pie::MahimahiPieConfig;
pub(crate) use pie::Pie;

/// Refuses a span that no whole millisecond fits into, by its name.
fn at_least_a_millisecond(name: &str, span: Duration) -> Result<(), String> {
    if whole_millis(span) == 0 {
        let nanos = span.as_nanos();
        return Err(format!(
            "{name} is {nanos}, less than a millisecond; a queue of Mahimahi needs at least that"
        ));
    }
    Ok(())
}

/// Bytes that count beyond the IP packet.
const HEADER: u64 = 4;
/// The largest packet, with its header.
const LARGEST: u64 = 1504;

/// Whole milliseconds from `zero` to `at`.
fn millis(at: Time, zero: Time) -> u64 {
    whole_millis(at.since(zero))
}

fn whole_millis(span: Duration) -> u64 {
    span.as_nanos() / 1_000_000
}

/// Return the level of a line with the headers counted.
fn level<P>(line: &Line<P>) -> QueueLevel {
    let plain = line.level();
    QueueLevel {
        packets: plain.packets,
        bytes: plain.bytes + Bytes(plain.packets.0.saturating_mul(HEADER)),
    }
}

fn fits<P>(limit: &Limit, line: &Line<P>, item: &Item<P>) -> bool {
    limit.holds(level(line).plus(item.size + Bytes(HEADER)))
}

fn push_within<P>(limit: &Limit, line: &mut Line<P>, item: Item<P>) -> Result<(), Refused<P>> {
    if !fits(limit, line, &item) {
        return Err((item, DropReason::QueueFull));
    }
    line.push(item);
    Ok(())
}
