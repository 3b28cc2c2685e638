//! Storage of packets between arrival and departure.

use cellbed_link::{Ecn, Fate, Outcome, Tag};

use crate::offload::{Layout, VNET_BYTES, View, Vnet, single};
use crate::packet::{Header, TCP};

/// Slot sizes in bytes, device header included. The first holds packets that are not super-packets, the last the
/// largest packet. With sizes between them, a short super-packet that waits long does not occupy 64 KiB.
const SIZES: [usize; 4] = [2048, 8192, 32_768, 66_048];

/// The last size. A packet is read into a slot of this size and one of the first.
const LARGEST: usize = SIZES.len() - 1;

/// Approximate number of bytes added at a time. Pages never used take no memory.
const CHUNK_BYTES: usize = 1 << 20;

/// Position of the size in a slot's number: the upper bits.
const SIZE_SHIFT: u32 = 30;

/// No slot: the end of a free list.
const NONE: u32 = u32::MAX;

/// A packet or a segment of a super-packet, as seen by the path model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Slot of the packet.
    pub slot: u32,
    /// Index of the segment in the packet.
    pub index: u16,
    /// True if the path marked it "congestion experienced".
    pub marked: bool,
}

impl Segment {
    /// The first segment of a packet.
    pub fn first(slot: u32) -> Self {
        Self {
            slot,
            index: 0,
            marked: false,
        }
    }

    /// Return whether both are in one packet, `next` immediately after this one.
    pub fn precedes(&self, next: &Segment) -> bool {
        self.slot == next.slot && self.index + 1 == next.index
    }
}

/// Metadata of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Number of the first segment, the same in all directions on the way.
    pub number: u64,
    /// Layout of the packet.
    pub layout: Layout,
    /// Vertex that sent the packet.
    pub source: u16,
    /// Vertex of the destination.
    pub destination: u16,
    /// See [`crate::packet::Header`].
    pub protocol: u8,
    /// See [`crate::packet::Header`].
    pub source_port: u16,
    /// See [`crate::packet::Header`].
    pub destination_port: u16,
    /// Sequence number of the first segment ([`crate::packet::Header`]).
    pub tcp_sequence: u32,
    /// Payload bytes of all segments together ([`crate::packet::Header`]).
    pub payload: u32,
    /// Fields used by queues, as sent.
    pub tag: Tag,
    /// Number of segments that have neither left nor been dropped.
    references: u32,
    next_free: u32,
}

impl Packet {
    /// Read a packet from a vertex, device header included. Also returns the IP header, if the packet has a
    /// destination. Without a device header the metadata is empty.
    pub fn parse(bytes: &[u8], number: u64, source: u16) -> (Self, Option<Header>) {
        let Some((vnet, packet)) = bytes.split_first_chunk::<VNET_BYTES>() else {
            return (Self::default(), None);
        };
        let header = Header::parse(packet);
        let mut known = Self {
            number,
            source,
            layout: Layout::of(Vnet::parse(vnet), packet),
            ..Self::default()
        };
        if let Some(header) = &header {
            known.protocol = header.protocol;
            known.source_port = header.source_port;
            known.destination_port = header.destination_port;
            known.tcp_sequence = header.tcp_sequence;
            known.payload = header.payload;
            known.tag = header.tag(packet);
        }
        (known, header)
    }

    /// Payload bytes and TCP sequence number of the segment at `index`.
    pub fn part(&self, index: u16) -> (u32, u32) {
        if self.layout.segments() == 1 {
            return (self.payload, self.tcp_sequence);
        }
        let before = self.layout.start(index) - self.layout.start(0);
        let sequence = match self.protocol {
            TCP => self.tcp_sequence.wrapping_add(before as u32),
            _ => 0,
        };
        (self.layout.payload(index) as u32, sequence)
    }
}

/// Slots of one size: a slab with a free list threaded through it.
struct Shelf {
    size: usize,
    per_chunk: usize,
    chunks: Vec<Chunk>,
    free: u32,
}

struct Chunk {
    bytes: Box<[u8]>,
    packets: Box<[Packet]>,
}

impl Shelf {
    fn new(size: usize) -> Self {
        Self {
            size,
            per_chunk: CHUNK_BYTES / size,
            chunks: Vec::new(),
            free: NONE,
        }
    }

    fn grow(&mut self) {
        let first = self.chunks.len() * self.per_chunk;
        let last = first + self.per_chunk - 1;
        let packets = (first..=last)
            .map(|index| Packet {
                next_free: if index < last {
                    index as u32 + 1
                } else {
                    self.free
                },
                ..Packet::default()
            })
            .collect();
        self.chunks.push(Chunk {
            bytes: vec![0; self.per_chunk * self.size].into(),
            packets,
        });
        self.free = first as u32;
    }

    fn packet(&mut self, index: u32) -> &mut Packet {
        let index = index as usize;
        &mut self.chunks[index / self.per_chunk].packets[index % self.per_chunk]
    }

    fn space(&mut self, index: u32) -> &mut [u8] {
        let start = index as usize % self.per_chunk * self.size;
        &mut self.chunks[index as usize / self.per_chunk].bytes[start..start + self.size]
    }

    fn release(&mut self, index: u32) {
        let free = self.free;
        self.packet(index).next_free = free;
        self.free = index;
    }
}

/// Slots for packets, in a few sizes. Each slot begins with the device's header.
///
/// Taking and returning a slot allocates nothing. If all slots of a size are in use, the pool grows by a chunk, up to a
/// ceiling. Only an infinite queue or a long delay at a high rate makes it grow. At the ceiling [`Pool::make_ready`]
/// returns `false`, and the caller leaves further packets in the kernel's queue.
///
/// A packet is read into two slots at once: its first bytes into a small slot, the others into a large slot after an
/// equally long gap. So a small packet takes no large slot, and only the first bytes of a large packet are copied.
pub struct Pool {
    shelves: [Shelf; SIZES.len()],
    /// Free slots of the first and the last size, for the next packet.
    landing: [Option<u32>; 2],
    /// Number of bytes that may still be added.
    room: usize,
    /// Number of slots that hold a packet.
    held: u64,
}

impl Pool {
    /// A pool for at most `ceiling` bytes of packets, but with a minimum of room.
    pub fn new(ceiling: usize) -> Self {
        let mut pool = Self {
            shelves: SIZES.map(Shelf::new),
            landing: [None; 2],
            room: ceiling.max(8 * CHUNK_BYTES),
            held: 0,
        };
        pool.make_ready();
        pool
    }

    /// Prepare slots for the next packet; return `false` if there is no room.
    pub fn make_ready(&mut self) -> bool {
        for (place, size) in [(0, 0), (1, LARGEST)] {
            if self.landing[place].is_none() {
                self.landing[place] = self.take(size);
            }
        }
        self.landing.iter().all(Option::is_some)
    }

    /// Return the two buffers for the next packet and its device header, after [`Pool::make_ready`].
    pub fn landing(&mut self) -> Option<[&mut [u8]; 2]> {
        let (small, large) = (self.landing[0]?, self.landing[1]?);
        let [shelf, .., large_shelf] = &mut self.shelves;
        Some([
            shelf.space(small),
            &mut large_shelf.space(large)[SIZES[0]..],
        ])
    }

    /// Keep the packet just read (`length` bytes with device header). Return its slot, with one reference.
    pub fn keep(&mut self, length: usize) -> Option<u32> {
        let (small, large) = (self.landing[0]?, self.landing[1]?);
        let size = SIZES.iter().position(|&size| length <= size)?;
        let slot = if size == 0 {
            self.landing[0] = None;
            slot_of(0, small)
        } else {
            let [shelf, middle @ .., large_shelf] = &mut self.shelves;
            let head = shelf.space(small);
            let whole = large_shelf.space(large);
            whole[..SIZES[0]].copy_from_slice(head);
            let moved = match middle.get_mut(size - 1) {
                Some(shelf) => take(shelf, size, &mut self.room).map(|index| {
                    shelf.space(index)[..length].copy_from_slice(&whole[..length]);
                    slot_of(size, index)
                }),
                None => None,
            };
            moved.unwrap_or_else(|| {
                self.landing[1] = None;
                slot_of(LARGEST, large)
            })
        };
        self.packet_mut(slot).references = 1;
        self.held += 1;
        Some(slot)
    }

    fn take(&mut self, size: usize) -> Option<u32> {
        take(&mut self.shelves[size], size, &mut self.room)
    }

    /// Store a packet made here (`bytes` with device header). Return its slot, with one reference.
    ///
    /// May exceed the ceiling: the packet replaces one that was read and is then released.
    pub fn insert(&mut self, bytes: &[u8], packet: Packet) -> Option<u32> {
        let size = SIZES.iter().position(|&size| bytes.len() <= size)?;
        let mut beyond = usize::MAX;
        let index = match self.take(size) {
            Some(index) => index,
            None => take(&mut self.shelves[size], size, &mut beyond)?,
        };
        self.shelves[size].space(index)[..bytes.len()].copy_from_slice(bytes);
        let slot = slot_of(size, index);
        self.describe(slot, packet);
        self.held += 1;
        Some(slot)
    }

    /// Set the metadata of the packet in `slot`, with one reference.
    pub fn describe(&mut self, slot: u32, packet: Packet) {
        *self.packet_mut(slot) = Packet {
            references: 1,
            ..packet
        };
    }

    /// Add references to a slot.
    pub fn refer(&mut self, slot: u32, more: u32) {
        self.packet_mut(slot).references += more;
    }

    /// Remove references; free the slot with the last one.
    pub fn release(&mut self, slot: u32, references: u32) {
        let (size, index) = parts(slot);
        let shelf = &mut self.shelves[size];
        let packet = shelf.packet(index);
        packet.references -= references;
        if packet.references == 0 {
            shelf.release(index);
            self.held -= 1;
        }
    }

    /// Number of slots that hold a packet.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Return the metadata of the packet in `slot`.
    pub fn packet(&self, slot: u32) -> &Packet {
        let (size, index) = parts(slot);
        let shelf = &self.shelves[size];
        &shelf.chunks[index as usize / shelf.per_chunk].packets[index as usize % shelf.per_chunk]
    }

    fn packet_mut(&mut self, slot: u32) -> &mut Packet {
        let (size, index) = parts(slot);
        self.shelves[size].packet(index)
    }

    /// Return the whole slot: the device's header, the packet, unused bytes.
    pub fn space(&self, slot: u32) -> &[u8] {
        let (size, index) = parts(slot);
        let shelf = &self.shelves[size];
        let start = index as usize % shelf.per_chunk * shelf.size;
        &shelf.chunks[index as usize / shelf.per_chunk].bytes[start..start + shelf.size]
    }

    /// The bytes of the packet in `slot`, from the IP header on.
    pub fn bytes(&self, slot: u32) -> &[u8] {
        &self.space(slot)[VNET_BYTES..][..self.packet(slot).layout.length as usize]
    }

    /// Return a segment with the data of its packet.
    pub fn view(&self, segment: Segment) -> View<'_> {
        View {
            packet: self.bytes(segment.slot),
            layout: &self.packet(segment.slot).layout,
            index: segment.index,
            marked: segment.marked,
        }
    }

    /// Apply the outcome of a direction (mark, damage) to the segment and update the references. Return the
    /// segment, unless the outcome ends it.
    pub fn apply(&mut self, outcome: &Outcome<Segment>) -> Option<Segment> {
        let segment = outcome.packet;
        match (outcome.fate, outcome.corrupt_bit) {
            (Fate::Delivered, bit) => {
                let marked = segment.marked || outcome.marked;
                let segment = Segment { marked, ..segment };
                Some(bit.map_or(segment, |bit| self.damage(segment, bit)))
            }
            (Fate::Dropped(_), _) => {
                self.release(segment.slot, 1);
                None
            }
            (Fate::Doubled, _) => {
                self.refer(segment.slot, 1);
                None
            }
        }
    }

    /// Return the current tag of a segment, used by queues.
    pub fn tag(&self, segment: Segment) -> Tag {
        let tag = self.packet(segment.slot).tag;
        let ecn = if segment.marked { Ecn::Ce } else { tag.ecn };
        Tag { ecn, ..tag }
    }

    /// Make a segment a separate packet with complete checksums, then flips bit `bit`, counted from the IP header on.
    /// The receiver verifies the checksums of a packet that is not joined with others.
    fn damage(&mut self, segment: Segment, bit: u32) -> Segment {
        let packet = *self.packet(segment.slot);
        let mut vnet = [0; VNET_BYTES];
        vnet.copy_from_slice(&self.space(segment.slot)[..VNET_BYTES]);
        let mut bytes = single(&vnet, self.view(segment));
        if let Some(byte) = bytes.get_mut(VNET_BYTES + bit as usize / 8) {
            *byte ^= 0x80 >> (bit % 8);
        }
        let mut damaged = packet;
        damaged.number += u64::from(segment.index);
        damaged.layout = Layout {
            length: (bytes.len() - VNET_BYTES) as u32,
            ..Layout::default()
        };
        (damaged.payload, damaged.tcp_sequence) = packet.part(segment.index);
        damaged.tag = self.tag(segment);
        let Some(slot) = self.insert(&bytes, damaged) else {
            return segment; // longer than any packet that was read
        };
        self.release(segment.slot, 1);
        Segment::first(slot)
    }
}

fn take(shelf: &mut Shelf, size: usize, room: &mut usize) -> Option<u32> {
    if shelf.free == NONE {
        let bytes = shelf.per_chunk * SIZES[size];
        *room = room.checked_sub(bytes)?;
        shelf.grow();
    }
    let index = shelf.free;
    shelf.free = shelf.packet(index).next_free;
    Some(index)
}

fn slot_of(size: usize, index: u32) -> u32 {
    (size as u32) << SIZE_SHIFT | index
}

fn parts(slot: u32) -> (usize, u32) {
    (
        (slot >> SIZE_SHIFT) as usize,
        slot & ((1 << SIZE_SHIFT) - 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// "Reads" a packet of `length` bytes, each of value `mark`.
    fn read(pool: &mut Pool, length: usize, mark: u8) -> Option<u32> {
        if !pool.make_ready() {
            return None;
        }
        let [head, rest] = pool.landing().unwrap();
        let split = length.min(head.len());
        head[..split].fill(mark);
        rest[..length - split].fill(mark);
        pool.keep(length)
    }

    #[test]
    fn packets_of_all_sizes_stay_as_they_are_until_the_ceiling() {
        let mut pool = Pool::new(20 * CHUNK_BYTES);
        let mut kept = HashMap::new();
        for step in 0.. {
            let (length, mark) = ([60, 2048, 2049, 8192, 30_000, 65_545][step % 6], step as u8);
            let Some(slot) = read(&mut pool, length, mark) else {
                break;
            };
            assert_eq!(
                kept.insert(slot, (length, mark)),
                None,
                "a slot given twice"
            );
        }
        for (slot, (length, mark)) in &kept {
            assert!(pool.space(*slot)[..*length].iter().all(|byte| byte == mark));
        }
        let slot = *kept
            .iter()
            .find(|(_, (length, _))| *length == 65_545)
            .unwrap()
            .0;
        let held = pool.held();
        assert_eq!(held, kept.len() as u64);
        pool.refer(slot, 2);
        pool.release(slot, 2);
        assert_eq!(read(&mut pool, 65_545, 1), None);
        assert_eq!(pool.held(), held);
        pool.release(slot, 1);
        assert_eq!(pool.held(), held - 1);
        assert_eq!(read(&mut pool, 65_545, 1), Some(slot));
    }
}
