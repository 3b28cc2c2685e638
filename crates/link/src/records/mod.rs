//! The binary files of a run: a magic number of 16 bytes, then little-endian records of 64 bytes.

mod series;

use crate::time::Time;
pub use series::Series;

/// Bytes of a record in any of the files.
pub const RECORD_BYTES: usize = 64;

/// Capacities in a record of idle bins; the last of them holds for the bins that follow, too.
pub const CAPACITIES: usize = 12;

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
    /// Time at which the emulator passed it on.
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
    /// Index of the vertex that sent it.
    pub source_vertex: u16,
    /// Index of the vertex that it goes to.
    pub destination_vertex: u16,
}

/// Set in the direction of a record that stands for several idle bins.
const IDLE: u32 = 1 << 31;

/// One direction over one bin of 10 ms.
#[derive(Debug)]
pub struct SeriesRecord {
    /// Begin of the bin.
    pub start: Time,
    /// Index of the direction.
    pub direction: u32,
    /// Packets in the queue at the end of the bin.
    pub queue_packets: u32,
    /// Bytes in the queue at the end of the bin.
    pub queue_bytes: u64,
    /// Most bytes that were in the queue within the bin.
    pub queue_peak_bytes: u64,
    /// Bytes that the schedule offered; `None` where it has no limit.
    pub capacity: Option<u64>,
    /// Bytes that left the bottleneck.
    pub used: u64,
    /// Bytes that reached the direction.
    pub arrived: u64,
    /// Packets dropped by the queue, for want of room or to signal congestion.
    pub dropped_queue: u32,
    /// Packets lost.
    pub dropped_loss: u32,
}

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
    /// Appends the bytes of a field.
    pub fn field<const N: usize>(mut self, value: [u8; N]) -> Self {
        self.bytes[self.at..self.at + N].copy_from_slice(&value);
        self.at += N;
        self
    }

    /// Appends a time, signed.
    pub fn time(self, time: Time) -> Self {
        self.field(
            i64::try_from(time.as_nanos())
                .unwrap_or(i64::MAX)
                .to_le_bytes(),
        )
    }

    /// The complete record.
    pub fn done(self) -> [u8; RECORD_BYTES] {
        debug_assert_eq!(self.at, RECORD_BYTES);
        self.bytes
    }
}

/// Consecutive idle bins of 10 ms of a direction, as one record: when they begin, how many they are, and the
/// bytes that the schedule offered in each; the last holds for the rest, and the largest number is for no limit.
pub fn idle_record(
    start: Time,
    direction: u32,
    bins: u32,
    capacities: &[u32; CAPACITIES],
) -> [u8; RECORD_BYTES] {
    let head = Layout::default()
        .time(start)
        .field((direction | IDLE).to_le_bytes())
        .field(bins.to_le_bytes());
    let fields = capacities.iter().map(|it| it.to_le_bytes());
    fields.fold(head, Layout::field).done()
}

impl PacketRecord {
    /// The record as it stands in the file.
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

impl SeriesRecord {
    /// The record as it stands in the file.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        Layout::default()
            .time(self.start)
            .field(self.direction.to_le_bytes())
            .field(self.queue_packets.to_le_bytes())
            .field(self.queue_bytes.to_le_bytes())
            .field(self.queue_peak_bytes.to_le_bytes())
            .field(self.capacity.unwrap_or(u64::MAX).to_le_bytes())
            .field(self.used.to_le_bytes())
            .field(self.arrived.to_le_bytes())
            .field(self.dropped_queue.to_le_bytes())
            .field(self.dropped_loss.to_le_bytes())
            .done()
    }
}
