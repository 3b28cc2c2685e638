//! The binary files of a run: a magic number of 16 bytes, then little-endian records of 64 bytes.

use crate::meter::{BIN_WIDTH, Bin};
use crate::queue::QueueLevel;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Bytes of a record in any of the files.
pub const RECORD_BYTES: usize = 64;

/// Number of capacities in a record of idle bins; the last one also holds for all later bins.
const CAPACITIES: usize = 12;

/// Beginning of the packet log.
pub const PACKETS_MAGIC: &[u8; 16] = b"cellbed packets1";

/// Beginning of the series file.
pub const SERIES_MAGIC: &[u8; 16] = b"cellbed series 2";

/// One packet in one direction, written when it leaves the direction or is dropped in it.
#[derive(Debug)]
pub struct PacketRecord {
    /// Running number, the same in all directions that the packet crosses.
    pub packet: u64,
    /// Modelled arrival at the direction.
    pub arrived: Time,
    /// Modelled time at which its last byte left the bottleneck.
    pub released: Time,
    /// Modelled departure; time of the drop for a packet that was dropped.
    pub departed: Time,
    /// Time at which the emulator forwarded it.
    pub observed: Time,
    /// Index of the direction.
    pub direction: u16,
    /// 0: delivered, 1: the queue was full, 2: lost, 3: dropped to signal congestion.
    pub drop: u8,
    /// Transport protocol (IANA number).
    pub protocol: u8,
    /// IP length.
    pub bytes: u32,
    /// Source port, or 0.
    pub source_port: u16,
    /// Destination port, or 0.
    pub destination_port: u16,
    /// TCP sequence number, or 0.
    pub tcp_sequence: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// Index of the sending vertex.
    pub source_vertex: u16,
    /// Index of the destination vertex.
    pub destination_vertex: u16,
}

/// Flag in the direction of a record of several idle bins.
const IDLE: u32 = 1 << 31;

/// The fields of a record, one after the other.
#[derive(Debug)]
pub struct Layout {
    bytes: [u8; RECORD_BYTES],
    at: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            bytes: [0; RECORD_BYTES],
            at: 0,
        }
    }
}

impl Layout {
    /// Append the bytes of a field.
    pub fn field<const N: usize>(mut self, value: [u8; N]) -> Self {
        self.bytes[self.at..self.at + N].copy_from_slice(&value);
        self.at += N;
        self
    }

    /// Append a time, signed.
    pub fn time(self, time: Time) -> Self {
        self.field(
            i64::try_from(time.as_nanos())
                .unwrap_or(i64::MAX)
                .to_le_bytes(),
        )
    }

    /// Return the complete record.
    pub fn done(self) -> [u8; RECORD_BYTES] {
        debug_assert_eq!(self.at, RECORD_BYTES);
        self.bytes
    }
}

impl PacketRecord {
    /// Return the record's bytes in the file.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        Layout::default()
            .field(self.packet.to_le_bytes())
            .time(self.arrived)
            .time(self.released)
            .time(self.departed)
            .time(self.observed)
            .field(self.direction.to_le_bytes())
            .field([self.drop])
            .field([self.protocol])
            .field(self.bytes.to_le_bytes())
            .field(self.source_port.to_le_bytes())
            .field(self.destination_port.to_le_bytes())
            .field(self.tcp_sequence.to_le_bytes())
            .field(self.payload.to_le_bytes())
            .field(self.source_vertex.to_le_bytes())
            .field(self.destination_vertex.to_le_bytes())
            .done()
    }
}

/// Maximum idle bins of a record: one second, which a killed emulator loses.
const MOST_BINS: u32 = 100;

/// Mark of an unlimited capacity in a record of idle bins.
const UNLIMITED: u32 = u32::MAX;

/// The series of all directions, with the unwritten idle bins of each.
#[derive(Debug)]
pub struct Series(Vec<Option<Idle>>);

impl Series {
    /// Return the series of this many directions.
    pub fn new(directions: usize) -> Self {
        Self(vec![None; directions])
    }

    /// Append the next bin of a direction. write: takes the records, in their order.
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

    /// Write the remaining idle bins.
    pub fn finish(self, mut write: impl FnMut([u8; RECORD_BYTES])) {
        for (direction, idle) in self.0.iter().enumerate() {
            if let Some(idle) = idle {
                write(idle.record(direction));
            }
        }
    }
}

/// Return the record of a bin: its start, the direction, the queue at its end and its peak, the capacity (maximum
/// number: unlimited), bytes that left the bottleneck and that arrived, and packets dropped by the queue and lost.
fn record(direction: usize, bin: &Bin) -> [u8; RECORD_BYTES] {
    let capacity = bin.capacity.map_or(u64::MAX, |bytes| bytes.0);
    Layout::default()
        .time(bin.start)
        .field((direction as u32).to_le_bytes())
        .field((bin.queue.packets.0 as u32).to_le_bytes())
        .field(bin.queue.bytes.0.to_le_bytes())
        .field(bin.peak.0.to_le_bytes())
        .field(capacity.to_le_bytes())
        .field(bin.used.0.to_le_bytes())
        .field(bin.arrived.0.to_le_bytes())
        .field((bin.queue_full.0 as u32).to_le_bytes())
        .field((bin.lost.0 as u32).to_le_bytes())
        .done()
}

/// Return the capacity of a whole bin without packets; `None` for other bins.
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

    /// Add a bin; `false` if it does not follow or has no room.
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

    /// Return the record: start and number of the bins, and the bytes offered in each. The last capacity holds for the
    /// remaining bins; the maximum number means unlimited.
    fn record(&self, direction: usize) -> [u8; RECORD_BYTES] {
        let head = Layout::default()
            .time(self.start)
            .field((direction as u32 | IDLE).to_le_bytes())
            .field(self.bins.to_le_bytes());
        let fields = self.capacities.iter().map(|it| it.to_le_bytes());
        fields.fold(head, Layout::field).done()
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

    /// Return, for each record of these bins of one direction, its first bin, number of bins and capacities.
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
