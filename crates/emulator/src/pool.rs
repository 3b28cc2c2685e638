//! Storage of packets between their arrival and their departure.

use cellbed_link::{Ecn, Fate, Outcome, Tag};

use crate::offload::{Layout, VNET_BYTES, View, Vnet, single};
use crate::packet::{Header, TCP};

/// Sizes of the slots, each with room for the device's header. The first holds what is not a super-packet, the last
/// the largest one. Those between keep a short super-packet that waits for long from holding 64 KiB.
const SIZES: [usize; 4] = [2048, 8192, 32_768, 66_048];

/// The last size: what a packet is read into, together with the first.
const LARGEST: usize = SIZES.len() - 1;

/// Bytes that are added at a time, about. Pages of them that were never used take no memory.
const CHUNK_BYTES: usize = 1 << 20;

/// A slot's number contains its size in the upper bits.
const SIZE_SHIFT: u32 = 30;

/// No slot: the end of a free list.
const NONE: u32 = u32::MAX;

/// A packet, super-packet or not, as the path model sees it: one of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The slot of the packet.
    pub slot: u32,
    /// Number of the segment in it.
    pub index: u16,
    /// True if it was marked "congestion experienced" on the way.
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

    /// Return whether the two are neighbours in one packet, this one before `next`.
    pub fn precedes(&self, next: &Segment) -> bool {
        self.slot == next.slot && self.index + 1 == next.index
    }
}

/// Metadata of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Running number of its first segment, the same in all directions that it crosses.
    pub number: u64,
    /// Layout of the packet.
    pub layout: Layout,
    /// Vertex that sent it.
    pub source: u16,
    /// Vertex that it goes to.
    pub destination: u16,
    /// See [`crate::packet::Header`].
    pub protocol: u8,
    /// See [`crate::packet::Header`].
    pub source_port: u16,
    /// See [`crate::packet::Header`].
    pub destination_port: u16,
    /// The [`crate::packet::Header`] of the first segment.
    pub tcp_sequence: u32,
    /// The [`crate::packet::Header`] of all segments together.
    pub payload: u32,
    /// Fields used by queues, as they were sent.
    pub tag: Tag,
    /// Segments that have neither left nor been dropped.
    references: u32,
    next_free: u32,
}

impl Packet {
    /// Reads a packet that comes from a vertex, behind the device's header; also returns its IP header, if it has a
    /// destination. Without the device's header nothing is known of it.
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
/// Taking and returning a slot allocates nothing. The pool grows by a chunk when all slots of a size are taken, which
/// only an infinite queue or a long delay at a high rate brings about, up to a ceiling; then [`Pool::make_ready`] is
/// `false` and the caller leaves further packets in the kernel's queue.
///
/// A packet is read into two slots at once, its beginning into a small one and the rest into a large one behind the
/// room for the beginning: so neither a small packet takes a large slot nor is more than the beginning of a large one
/// copied.
pub struct Pool {
    shelves: [Shelf; SIZES.len()],
    /// A free slot of the first size and one of the last, that the next packet is read into.
    landing: [Option<u32>; 2],
    /// Bytes that may yet be added.
    room: usize,
    /// Slots that hold a packet.
    held: u64,
}

impl Pool {
    /// A pool that never holds more than `ceiling` bytes of packets, but always room for some.
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

    /// Makes sure that a packet can be read; `false` if there is no room.
    pub fn make_ready(&mut self) -> bool {
        for (place, size) in [(0, 0), (1, LARGEST)] {
            if self.landing[place].is_none() {
                self.landing[place] = self.take(size);
            }
        }
        self.landing.iter().all(Option::is_some)
    }

    /// Return the buffers into which to read a packet with the device's header before it, in two parts, after
    /// [`Pool::make_ready`].
    pub fn landing(&mut self) -> Option<[&mut [u8]; 2]> {
        let (small, large) = (self.landing[0]?, self.landing[1]?);
        let [shelf, .., large_shelf] = &mut self.shelves;
        Some([
            shelf.space(small),
            &mut large_shelf.space(large)[SIZES[0]..],
        ])
    }

    /// Keeps what was read, `length` bytes with the device's header: its slot, with one reference.
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

    /// Puts in a packet that was made here, `bytes` with the device's header, with one reference: its slot.
    ///
    /// It finds room beyond the ceiling, too: it takes the place of one that was read, which goes.
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

    /// Notes what is known of the packet in `slot`, which has one reference.
    pub fn describe(&mut self, slot: u32, packet: Packet) {
        *self.packet_mut(slot) = Packet {
            references: 1,
            ..packet
        };
    }

    /// Adds references to a slot.
    pub fn refer(&mut self, slot: u32, more: u32) {
        self.packet_mut(slot).references += more;
    }

    /// Takes references away; with the last one the slot is free.
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

    /// Packets that have neither left nor been dropped.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The account of the packet in `slot`.
    pub fn packet(&self, slot: u32) -> &Packet {
        let (size, index) = parts(slot);
        let shelf = &self.shelves[size];
        &shelf.chunks[index as usize / shelf.per_chunk].packets[index as usize % shelf.per_chunk]
    }

    fn packet_mut(&mut self, slot: u32) -> &mut Packet {
        let (size, index) = parts(slot);
        self.shelves[size].packet(index)
    }

    /// All that was read into `slot`, up to the size of the slot: the device's header, then the packet.
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

    /// A segment with all there is to know of it.
    pub fn view(&self, segment: Segment) -> View<'_> {
        View {
            packet: self.bytes(segment.slot),
            layout: &self.packet(segment.slot).layout,
            index: segment.index,
            marked: segment.marked,
        }
    }

    /// Applies the marks and the damage of a direction to the segment and updates the references; returns the segment,
    /// unless it ended here.
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

    /// Return the tag of a segment that queues use now.
    pub fn tag(&self, segment: Segment) -> Tag {
        let tag = self.packet(segment.slot).tag;
        let ecn = if segment.marked { Ecn::Ce } else { tag.ecn };
        Tag { ecn, ..tag }
    }

    /// Makes a segment a separate packet with complete checksums, and flips one of its bits (counted from the first of
    /// the IP header). Joined with no other, it has its receiver look at the checksums.
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
            return segment; // longer than anything that was read
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

    /// "Reads" a packet of `length` bytes that are all `mark`.
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
