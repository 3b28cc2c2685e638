//! The 10 ms series of directions as records; consecutive bins of an idle direction share one.

use super::{CAPACITIES, RECORD_BYTES, SeriesRecord, idle_record};
use crate::meter::{BIN_WIDTH, Bin};
use crate::queue::QueueLevel;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Idle bins of a record at most: one second, which a killed emulator loses.
const MOST_BINS: u32 = 100;

/// A capacity without a limit in a record of idle bins.
const UNLIMITED: u32 = u32::MAX;

/// The series of all directions: of each, the idle bins that are not written.
#[derive(Debug)]
pub struct Series(Vec<Option<Idle>>);

impl Series {
    /// Series of so many directions.
    pub fn new(directions: usize) -> Self {
        Self(vec![None; directions])
    }

    /// Appends the next bin of a direction. write: takes the records, in their order.
    pub fn push(&mut self, direction: usize, bin: &Bin, mut write: impl FnMut([u8; RECORD_BYTES])) {
        let pending = &mut self.0[direction];
        let capacity = idle_capacity(bin);
        if let (Some(idle), Some(capacity)) = (pending.as_mut(), capacity)
            && idle.extend(bin.start, capacity)
        {
            return;
        }
        if let Some(idle) = pending.take() {
            write(idle.record(direction));
        }
        match capacity {
            Some(capacity) => *pending = Some(Idle::new(bin.start, capacity)),
            None => write(record(direction, bin)),
        }
    }

    /// Writes the idle bins that are left.
    pub fn finish(self, mut write: impl FnMut([u8; RECORD_BYTES])) {
        for (direction, idle) in self.0.iter().enumerate() {
            if let Some(idle) = idle {
                write(idle.record(direction));
            }
        }
    }
}

fn record(direction: usize, bin: &Bin) -> [u8; RECORD_BYTES] {
    let record = SeriesRecord {
        start: bin.start,
        direction: direction as u32,
        queue_packets: bin.queue.packets.0 as u32,
        queue_bytes: bin.queue.bytes.0,
        queue_peak_bytes: bin.peak.0,
        capacity: bin.capacity.map(|bytes| bytes.0),
        used: bin.used.0,
        arrived: bin.arrived.0,
        dropped_queue: bin.queue_full.0 as u32,
        dropped_loss: bin.lost.0 as u32,
    };
    record.to_bytes()
}

/// Capacity of a whole bin without any packet; `None` for any other.
fn idle_capacity(bin: &Bin) -> Option<u32> {
    let idle = bin.end == bin.start + BIN_WIDTH
        && (bin.used, bin.arrived, bin.peak) == (Bytes(0), Bytes(0), Bytes(0))
        && bin.queue == QueueLevel::default()
        && (bin.queue_full, bin.lost) == (Packets(0), Packets(0));
    let capacity = match bin.capacity {
        None => UNLIMITED,
        Some(bytes) => u32::try_from(bytes.0).ok().filter(|it| *it < UNLIMITED)?,
    };
    idle.then_some(capacity)
}

/// Consecutive idle bins.
#[derive(Clone, Debug)]
struct Idle {
    start: Time,
    bins: u32,
    capacities: [u32; CAPACITIES],
}

impl Idle {
    fn new(start: Time, capacity: u32) -> Self {
        Self {
            start,
            bins: 1,
            capacities: [capacity; CAPACITIES],
        }
    }

    /// Adds a bin; `false` if it does not follow or has no room.
    fn extend(&mut self, start: Time, capacity: u32) -> bool {
        let width = Duration::from_nanos(u64::from(self.bins) * BIN_WIDTH.as_nanos());
        if self.bins == MOST_BINS || start != self.start + width {
            return false;
        }
        let next = self.bins as usize;
        if next < CAPACITIES {
            self.capacities[next..].fill(capacity);
        } else if self.capacities[CAPACITIES - 1] != capacity {
            return false;
        }
        self.bins += 1;
        true
    }

    fn record(&self, direction: usize) -> [u8; RECORD_BYTES] {
        idle_record(self.start, direction as u32, self.bins, &self.capacities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(number: u64, capacity: Option<u64>, arrived: u64) -> Bin {
        let start = Time::from_millis(10 * number);
        Bin {
            start,
            end: start + BIN_WIDTH,
            capacity: capacity.map(Bytes),
            used: Bytes(0),
            arrived: Bytes(arrived),
            queue: QueueLevel::default(),
            peak: Bytes(0),
            queue_full: Packets(0),
            lost: Packets(0),
        }
    }

    /// Of each record of these bins of one direction: its first bin, how many it has, and their capacities.
    fn written(bins: impl IntoIterator<Item = Bin>) -> Vec<(u64, u32, Vec<u32>)> {
        let mut records = Vec::new();
        let mut series = Series::new(1);
        for bin in bins {
            series.push(0, &bin, |record| records.push(record));
        }
        series.finish(|record| records.push(record));
        let word =
            |record: &[u8], at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        records
            .iter()
            .map(|record| {
                let start = u64::from_le_bytes(record[..8].try_into().unwrap()) / 10_000_000;
                let idle = word(record, 8) & (1 << 31) != 0;
                let bins = if idle { word(record, 12) } else { 1 };
                let capacities = (0..bins.min(12)).filter(|_| idle);
                let capacities = capacities.map(|it| word(record, 16 + 4 * it as usize));
                (start, bins, capacities.collect())
            })
            .collect()
    }

    #[test]
    fn idle_bins_of_one_capacity_share_a_record_a_second() {
        let records = written((0..250).map(|number| bin(number, None, 0)));
        let lengths: Vec<_> = records.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(lengths, [(0, 100), (100, 100), (200, 50)]);
        assert!(records[0].2.iter().all(|it| *it == UNLIMITED));
    }

    #[test]
    fn idle_bins_of_changing_capacity_share_a_record_by_twelve() {
        let records = written((0..30).map(|number| bin(number, Some(1500 * number), 0)));
        let lengths: Vec<_> = records.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(lengths, [(0, 12), (12, 12), (24, 6)]);
        assert_eq!(records[2].2, [24, 25, 26, 27, 28, 29].map(|it| it * 1500));
    }

    #[test]
    fn a_bin_with_events_or_after_a_gap_begins_a_record() {
        let bins = [
            bin(0, None, 0),
            bin(1, None, 40),
            bin(2, None, 0),
            bin(3, None, 0),
            bin(7, None, 0),
        ];
        let lengths: Vec<_> = written(bins).iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(lengths, [(0, 1), (1, 1), (2, 2), (7, 1)]);
    }
}
