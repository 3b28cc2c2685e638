//! The set of a flow's arrived packets.

/// A set of packet numbers from 0. Up to 64 packets need no heap memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    first: u64,
    rest: Vec<u64>,
    count: u32,
    /// The first missing number.
    upto: u32,
}

impl Arrivals {
    /// Return whether a packet has arrived.
    #[inline]
    pub fn contains(&self, packet: u32) -> bool {
        self.word(packet / 64) >> (packet % 64) & 1 == 1
    }

    #[inline]
    fn word(&self, index: u32) -> u64 {
        match index {
            0 => self.first,
            _ => self.rest.get(index as usize - 1).copied().unwrap_or(0),
        }
    }

    /// Add a packet. Return whether it is new.
    #[inline]
    pub fn insert(&mut self, packet: u32) -> bool {
        let (index, bit) = (packet as usize / 64, 1 << (packet % 64));
        let word = match index {
            0 => &mut self.first,
            _ => {
                if self.rest.len() < index {
                    self.rest.resize(index, 0);
                }
                &mut self.rest[index - 1]
            }
        };
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.count += 1;
        if packet == self.upto {
            self.upto = self.next_missing(packet);
        }
        true
    }

    /// Remove a packet.
    pub fn remove(&mut self, packet: u32) {
        if self.contains(packet) {
            let (index, bit) = (packet as usize / 64, 1 << (packet % 64));
            match index {
                0 => self.first &= !bit,
                _ => self.rest[index - 1] &= !bit,
            }
            self.count -= 1;
            self.upto = self.upto.min(packet);
        }
    }

    /// Add all packets before this one.
    pub fn insert_before(&mut self, packet: u32) {
        while self.upto < packet {
            self.insert(self.upto);
        }
    }

    /// Return the number of arrived packets.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Return the first packet that has not arrived.
    #[inline]
    pub fn upto(&self) -> u32 {
        self.upto
    }

    /// Return the first packet from `packet` on that has not arrived.
    #[inline]
    pub fn next_missing(&self, packet: u32) -> u32 {
        let mut index = packet / 64;
        let mut missing = !self.word(index) & (u64::MAX << (packet % 64));
        while missing == 0 {
            index += 1;
            missing = !self.word(index);
        }
        index * 64 + missing.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_packet_follows_what_has_arrived() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.insert(1) && arrivals.insert(64) && !arrivals.insert(64));
        assert_eq!((arrivals.upto(), arrivals.count()), (0, 2));
        arrivals.insert(0);
        assert_eq!((arrivals.upto(), arrivals.next_missing(64)), (2, 65));
        arrivals.insert_before(64);
        assert_eq!((arrivals.upto(), arrivals.count()), (65, 65));
        assert!(arrivals.contains(63) && !arrivals.contains(65) && !arrivals.contains(9_999));
        arrivals.remove(64);
        arrivals.remove(70);
        assert_eq!((arrivals.upto(), arrivals.count()), (64, 64));
    }
}
