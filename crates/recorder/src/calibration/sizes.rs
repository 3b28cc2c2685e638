//! comp(s): how much later packets of a size arrive than those of 1400 bytes (§4.4).

use super::PACKET_BYTES;
use super::design::sizes;
use super::error::CalibrationError;
use super::estimate::Estimate;
use super::experiment::{Purpose, TimedTrain};
use super::trains::enough;
use crate::packet::Way;

/// comp(s) in ns by size, and the standard error of each.
pub(super) struct SizeOffsets {
    pub offsets: Vec<(u16, i64)>,
    pub errors: Vec<u64>,
}

/// From the round-trip times of packets of each size: the difference of means to the largest size, each without a tenth at either end.
pub(super) fn offsets(
    way: Way,
    trains: &[TimedTrain],
    times: &[Option<f64>],
) -> Result<SizeOffsets, CalibrationError> {
    let of = |size: u16| {
        let of_size = |timed: &TimedTrain| match way {
            Way::Uplink => timed.train.up_bytes == size,
            Way::Downlink => timed.train.down_bytes == size,
        };
        let all = trains.iter().zip(times).filter(|(timed, _)| of_size(timed));
        let sent = all.clone().count();
        let times: Vec<f64> = all.filter_map(|(_, time)| *time).collect();
        enough(way, Purpose::Sizes(way), sent, times.len())?;
        Ok(Estimate::trimmed(&times))
    };
    let largest = of(PACKET_BYTES)?;
    let mut found = SizeOffsets {
        offsets: Vec::new(),
        errors: Vec::new(),
    };
    for size in sizes() {
        if let (Some(one), Some(largest)) = (of(size)?, largest) {
            let error = if size == PACKET_BYTES {
                0.0
            } else {
                one.error.hypot(largest.error)
            };
            found.offsets.push((size, (one.mean - largest.mean) as i64));
            found.errors.push(error as u64);
        }
    }
    Ok(found)
}
