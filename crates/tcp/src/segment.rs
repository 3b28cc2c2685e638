//! Segments between the two ends of a connection.

use cellbed_link::{Bytes, Time};

/// Size of IPv4 and TCP headers with the timestamps that Linux always negotiates (RFC 7323 §3.2), padded to 12 bytes.
const HEADERS: u64 = 20 + 20 + 12;
/// Size of Linux's SYN: maximum segment size, SACK permitted, timestamps and window scale take 20 bytes of options.
const SYN: u64 = 20 + 20 + 20;
/// Two bytes of padding, kind and length before the blocks (RFC 2018 §3).
const SELECTIVE: u64 = 4;
const BLOCK: u64 = 8;
/// Maximum bytes of a super-packet.
const LONGEST: u64 = 65_535;
/// Maximum number of blocks in addition to the timestamps.
pub const BLOCKS: usize = 3;

/// The kind of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// Requests a connection.
    Syn,
    /// Accepts a connection.
    SynAck,
    /// Carries data, an acknowledgement or both.
    #[default]
    Data,
}

/// A segment. Offsets count the bytes of a stream from 0; the data itself is not carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The segment's role in the connection.
    pub kind: SegmentKind,
    /// Offset of the first byte of data, in the stream of the segment's sender.
    pub start: u64,
    /// Bytes of data.
    pub length: u64,
    /// The receiving state of the segment's sender.
    pub acknowledgement: Acknowledgement,
    /// Send time: the timestamp of RFC 7323, with finer resolution.
    pub stamp: Time,
    /// Place in a super-packet.
    pub burst: Burst,
}

/// The place of a segment in the super-packet of its sender (segmentation offload).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Burst {
    /// The number of the super-packet.
    pub number: u32,
    /// Number of segments before this one.
    pub index: u32,
}

/// The receiver's state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acknowledgement {
    /// Offset before which all bytes have arrived.
    pub upto: u64,
    /// Later parts that have arrived, latest first; empty ones are unused (RFC 2018 §4).
    pub blocks: [(u64, u64); BLOCKS],
    /// True if the latest data is a duplicate (RFC 2883).
    pub duplicate: bool,
    /// The timestamp of the answered segment (RFC 7323 §4.3).
    pub echo: Time,
    /// Bytes of room after `upto`.
    pub window: u64,
    /// Number of segments that arrived with a congestion mark. The one bit echoed by DCTCP's receivers gives the sender
    /// the same count (RFC 8257 §3.2).
    pub marked: u64,
}

impl Acknowledgement {
    fn count(&self) -> u64 {
        let blocks = self.blocks.iter().filter(|(start, end)| end > start);
        (blocks.count() + usize::from(self.duplicate)).min(BLOCKS) as u64
    }
}

impl Segment {
    /// Return the offset after the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.length
    }

    /// Append `next` to segments of `size` bytes if the kernel would split a super-packet into the same segments: one
    /// header with the stamp, in milliseconds, and only the last segment may be shorter or have PSH. Linux sets PSH on
    /// the last segment of each sent super-packet.
    pub fn join(&mut self, next: &Self, size: u64) -> bool {
        let milliseconds = |stamp: Time| stamp.as_nanos() / 1_000_000;
        let joins = (1..=size).contains(&next.length)
            && next.start == self.end()
            && self.length.is_multiple_of(size)
            && HEADERS + self.length + next.length <= LONGEST
            && (next.burst.number == self.burst.number || self.burst.index == 0)
            && next.acknowledgement == self.acknowledgement
            && milliseconds(next.stamp) == milliseconds(self.stamp);
        if joins {
            self.length += next.length;
            self.burst = next.burst;
        }
        joins
    }

    /// Return the IP length over IPv4.
    pub fn size(&self) -> Bytes {
        Bytes(match self.kind {
            SegmentKind::Syn | SegmentKind::SynAck => SYN,
            SegmentKind::Data => {
                let options = match self.acknowledgement.count() {
                    0 => 0,
                    blocks => SELECTIVE + BLOCK * blocks,
                };
                HEADERS + options + self.length
            }
        })
    }
}
