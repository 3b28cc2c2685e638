//! Where packets lie between their arrival and their departure.

/// Bytes a slot can hold: more than the MTU of the interfaces, so that no packet is cut.
pub const SLOT_BYTES: usize = 2048;

/// Slots are added this many at a time (2 MiB), and never moved.
const CHUNK: usize = 1024;

/// No slot: the end of the free list.
const NONE: u32 = u32::MAX;

/// What the emulator knows of a packet besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Running number, the same in all directions that the packet crosses.
    pub number: u64,
    /// IP length in bytes.
    pub length: u16,
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
    /// See [`crate::packet::Header`].
    pub tcp_sequence: u32,
    /// See [`crate::packet::Header`].
    pub payload: u32,
    next_free: u32,
}

struct Chunk {
    bytes: Box<[u8]>,
    packets: Box<[Packet]>,
}

/// A slab of packet slots with a free list threaded through them.
///
/// Taking and returning a slot allocates nothing. The slab grows by a chunk when all slots are taken, which only an
/// infinite queue or a long delay at a high rate brings about, up to a ceiling; then [`Pool::take`] says `None` and
/// the caller leaves further packets in the kernel's queue.
pub struct Pool {
    chunks: Vec<Chunk>,
    free: u32,
    ceiling: usize,
}

impl Pool {
    /// A pool of at least `initial` slots that never holds more than `ceiling`.
    pub fn new(initial: usize, ceiling: usize) -> Self {
        let ceiling = ceiling.max(1).div_ceil(CHUNK).min(NONE as usize / CHUNK);
        let mut pool = Self {
            chunks: Vec::with_capacity(ceiling),
            free: NONE,
            ceiling,
        };
        for _ in 0..initial.div_ceil(CHUNK).clamp(1, ceiling) {
            pool.grow();
        }
        pool
    }

    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK;
        let packets = (first..first + CHUNK)
            .map(|slot| Packet {
                next_free: if slot + 1 < first + CHUNK {
                    slot as u32 + 1
                } else {
                    self.free
                },
                ..Packet::default()
            })
            .collect();
        self.chunks.push(Chunk {
            bytes: vec![0; CHUNK * SLOT_BYTES].into(),
            packets,
        });
        self.free = first as u32;
    }

    /// A free slot, or `None` when the ceiling is reached.
    pub fn take(&mut self) -> Option<u32> {
        if self.free == NONE {
            if self.chunks.len() == self.ceiling {
                return None;
            }
            self.grow();
        }
        let slot = self.free;
        self.free = self.packet(slot).next_free;
        Some(slot)
    }

    /// Returns a slot that [`Pool::take`] gave.
    pub fn release(&mut self, slot: u32) {
        let free = self.free;
        self.packet_mut(slot).next_free = free;
        self.free = slot;
    }

    /// The account of the packet in `slot`.
    pub fn packet(&self, slot: u32) -> &Packet {
        &self.chunks[slot as usize / CHUNK].packets[slot as usize % CHUNK]
    }

    /// The account of the packet in `slot`, to fill in.
    pub fn packet_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.chunks[slot as usize / CHUNK].packets[slot as usize % CHUNK]
    }

    /// The bytes of the packet in `slot`.
    pub fn bytes(&self, slot: u32) -> &[u8] {
        let length = usize::from(self.packet(slot).length);
        let start = slot as usize % CHUNK * SLOT_BYTES;
        &self.chunks[slot as usize / CHUNK].bytes[start..start + length]
    }

    /// The whole space of `slot`, to read a packet into.
    pub fn space(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize % CHUNK * SLOT_BYTES;
        &mut self.chunks[slot as usize / CHUNK].bytes[start..start + SLOT_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn slots_are_distinct_until_the_ceiling() {
        let mut pool = Pool::new(1, 2 * CHUNK);
        let taken: HashSet<u32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 2 * CHUNK);
        pool.release(7);
        assert_eq!(pool.take(), Some(7));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn packets_stay_while_the_pool_grows() {
        let mut pool = Pool::new(1, 4 * CHUNK);
        let slots: Vec<u32> = (0..3 * CHUNK)
            .map(|number| {
                let slot = pool.take().unwrap();
                pool.space(slot)[..8].copy_from_slice(&number.to_be_bytes());
                pool.packet_mut(slot).length = 8;
                slot
            })
            .collect();
        for (number, slot) in slots.iter().enumerate() {
            assert_eq!(pool.bytes(*slot), number.to_be_bytes());
        }
    }
}
