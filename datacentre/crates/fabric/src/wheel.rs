//! The event queue: a timing wheel for near events, a heap for far ones.
//!
//! G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 4: nearly all events of a
//! simulation are within a few microseconds. There, pushing and popping cost the same for any number of events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Number of slots of the wheel.
const SLOTS: usize = 8192;
const WORDS: usize = SLOTS / 64;
/// The end of a list of entries.
const NONE: u32 = u32::MAX;
/// Number that is no slot.
const NEVER: u64 = u64::MAX;

/// Order of events at the same time: the earlier variant is first, even if pushed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// In the order of the upper 62 bits of these numbers.
    Lot(u64),
    /// In order of insertion.
    Ordinary,
    /// In order of insertion, after all others.
    Last,
}

/// Events in order of time, then of turn, then of insertion, on any machine.
///
/// The caller chooses the tick. The wheel allocates only when it exceeds its previous maximum of events.
///
/// ```
/// use cellbed_fabric::wheel::Wheel;
///
/// let mut wheel = Wheel::new(10); // slots of 2^10 ticks
/// wheel.push(3_000, 'b');
/// wheel.push(40, 'a');
/// wheel.push(3_000, 'c');
/// assert_eq!(std::iter::from_fn(|| wheel.pop()).collect::<Vec<_>>(), [(40, 'a'), (3_000, 'b'), (3_000, 'c')]);
/// ```
#[derive(Clone, Debug)]
pub struct Wheel<E> {
    /// Binary logarithm of the ticks per slot.
    shift: u32,
    pushed: u64,
    /// Current slot, counted from time 0. The wheel's entries are in later slots, fewer than `SLOTS` away.
    slot: u64,
    /// Events of the current slot, in order; the first `popped` of them have been popped.
    current: Vec<Entry<E>>,
    popped: usize,
    /// The first entry of each slot's list, which is unordered.
    heads: Box<[u32; SLOTS]>,
    /// One bit per slot: whether the slot has entries. `words` has one bit per word of `occupied`.
    occupied: [u64; WORDS],
    words: [u64; WORDS / 64],
    /// Entries, each with the next of its list; free entries form a list as well.
    entries: Vec<(Entry<E>, u32)>,
    free: u32,
    /// Events that were beyond the wheel when pushed, and the slot of the first one.
    far: BinaryHeap<Entry<E>>,
    far_slot: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: u64,
    order: u64,
    event: E,
}

impl<E> Entry<E> {
    const fn key(&self) -> (u64, u64) {
        (self.at, self.order)
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest entry is the greatest: `BinaryHeap` pops the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E: Copy> Wheel<E> {
    /// Return an empty wheel with slots of 2^`shift` ticks.
    pub fn new(shift: u32) -> Self {
        Self {
            shift,
            pushed: 0,
            slot: 0,
            current: Vec::new(),
            popped: 0,
            heads: Box::new([NONE; SLOTS]),
            occupied: [0; WORDS],
            words: [0; WORDS / 64],
            entries: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            far_slot: NEVER,
        }
    }

    /// Add an event. An event earlier than the last popped one is next.
    #[inline]
    pub fn push(&mut self, at: u64, event: E) {
        self.push_turn(at, Turn::Ordinary, event);
    }

    /// Add an event with a turn among events at the same time.
    #[inline]
    pub fn push_turn(&mut self, at: u64, turn: Turn, event: E) {
        let order = match turn {
            Turn::Lot(lot) => lot >> 2,
            Turn::Ordinary => 1 << 62 | self.pushed,
            Turn::Last => 1 << 63 | self.pushed,
        };
        self.pushed += 1;
        let entry = Entry { at, order, event };
        let slot = at >> self.shift;
        if slot.wrapping_sub(self.slot + 1) < SLOTS as u64 - 1 {
            self.insert(slot as usize % SLOTS, entry);
        } else if slot <= self.slot {
            self.join(entry);
        } else {
            self.far.push(entry);
            self.far_slot = self.far_slot.min(slot);
        }
    }

    /// Remove the next event and return it with its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        if let Some(&Entry { at, event, .. }) = self.current.get(self.popped) {
            self.popped += 1;
            return Some((at, event));
        }
        let near = self.next_occupied();
        let index = near as usize % SLOTS;
        let head = self.heads[index];
        if near < self.far_slot
            && let (Entry { at, event, .. }, NONE) = self.entries[head as usize]
        {
            // In most cases a slot has a single event.
            self.slot = near;
            self.clear(index);
            self.entries[head as usize].1 = std::mem::replace(&mut self.free, head);
            return Some((at, event));
        }
        self.turn(near);
        let &Entry { at, event, .. } = self.current.first()?;
        self.popped = 1;
        Some((at, event))
    }

    /// Return whether no event is left.
    pub fn is_empty(&self) -> bool {
        self.popped == self.current.len() && self.words == [0; WORDS / 64] && self.far.is_empty()
    }

    #[inline]
    fn insert(&mut self, index: usize, entry: Entry<E>) {
        let place = self.free;
        let next = std::mem::replace(&mut self.heads[index], place);
        if let Some(free) = self.entries.get_mut(place as usize) {
            self.free = free.1;
            *free = (entry, next);
        } else {
            self.heads[index] = self.entries.len() as u32;
            self.entries.push((entry, next));
        }
        self.occupied[index / 64] |= 1 << (index % 64);
        self.words[index / 4096] |= 1 << (index / 64 % 64);
    }

    /// Add an event to the current slot, mostly at the end.
    fn join(&mut self, entry: Entry<E>) {
        if self.popped == self.current.len() {
            self.current.clear();
            self.popped = 0;
        }
        if self
            .current
            .last()
            .is_none_or(|last| last.key() < entry.key())
        {
            return self.current.push(entry);
        }
        let waiting = &self.current[self.popped..];
        let place = self.popped + waiting.partition_point(|other| other.key() < entry.key());
        self.current.insert(place, entry);
    }

    /// Move to the next slot with events, in the wheel (`near`) or far away, and take these events.
    fn turn(&mut self, near: u64) {
        self.current.clear();
        self.popped = 0;
        let slot = near.min(self.far_slot);
        if slot == NEVER {
            return;
        }
        self.slot = slot;
        if near == slot {
            let index = slot as usize % SLOTS;
            let mut at = self.heads[index];
            self.clear(index);
            while at != NONE {
                let (entry, next) = &mut self.entries[at as usize];
                self.current.push(*entry);
                let next = std::mem::replace(next, self.free);
                self.free = at;
                at = next;
            }
        }
        while self.far_slot == slot {
            self.current.extend(self.far.pop());
            self.far_slot = self
                .far
                .peek()
                .map_or(NEVER, |entry| entry.at >> self.shift);
        }
        self.current.sort_unstable_by_key(Entry::key);
    }

    /// Mark a slot as empty.
    #[inline]
    fn clear(&mut self, index: usize) {
        self.heads[index] = NONE;
        self.occupied[index / 64] &= !(1 << (index % 64));
        if self.occupied[index / 64] == 0 {
            self.words[index / 4096] &= !(1 << (index / 64 % 64));
        }
    }

    /// Return the next slot of the wheel with entries, counted from time 0, or `NEVER`.
    #[inline]
    fn next_occupied(&self) -> u64 {
        let from = (self.slot as usize + 1) % SLOTS;
        let bits = self.occupied[from / 64] >> (from % 64);
        if bits != 0 {
            return self.slot + 1 + u64::from(bits.trailing_zeros()); // in most cases
        }
        match self.find_occupied(from).or_else(|| self.find_occupied(0)) {
            Some(index) => self.slot + 1 + ((index + SLOTS - from) % SLOTS) as u64,
            None => NEVER,
        }
    }

    /// Return the first index at or after `from` whose slot has entries.
    fn find_occupied(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let bits = self.occupied[word] & (u64::MAX << (from % 64));
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let next = word + 1;
        (next / 64..self.words.len()).find_map(|group| {
            let mask = if group == next / 64 {
                u64::MAX << (next % 64)
            } else {
                u64::MAX
            };
            let bits = self.words[group] & mask;
            (bits != 0).then(|| {
                let word = group * 64 + bits.trailing_zeros() as usize;
                word * 64 + self.occupied[word].trailing_zeros() as usize
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_of_one_time_come_by_lot_then_in_order_then_the_last_turn() {
        let mut wheel = Wheel::new(10);
        wheel.push_turn(5, Turn::Last, 'c');
        wheel.push(5, 'a');
        wheel.push(5, 'b');
        wheel.push_turn(5, Turn::Lot(u64::MAX), 'B');
        wheel.push_turn(5, Turn::Lot(4), 'A');
        wheel.push(1 << 40, 'd');
        let order: String = std::iter::from_fn(|| wheel.pop()).map(|it| it.1).collect();
        assert_eq!(order, "ABabcd");
    }

    #[test]
    fn a_time_that_has_passed_counts_as_now() {
        let mut wheel = Wheel::new(10);
        wheel.push(1_000_000, 'a');
        assert_eq!(wheel.pop(), Some((1_000_000, 'a')));
        wheel.push(1_000_001 + (8191 << 10), 'c');
        wheel.push(7, 'b');
        assert_eq!(wheel.pop(), Some((7, 'b')));
        assert_eq!(wheel.pop(), Some((1_000_001 + (8191 << 10), 'c')));
        assert_eq!(wheel.pop(), None);
    }

    proptest! {
        /// Steps of pushing (by a delay from the current time) and popping.
        #[test]
        fn its_order_is_that_of_a_sorted_list(
            steps in prop::collection::vec(
                prop::option::of((prop_oneof![0..8u64, 0..5_000u64, 0..9_000_000u64, 0..40_000_000u64], any::<bool>())),
                1..400,
            ),
            shift in 0..12u32,
        ) {
            let mut wheel = Wheel::new(shift);
            let mut list: Vec<(u64, bool, usize)> = Vec::new();
            let mut now = 0;
            for (number, step) in steps.into_iter().enumerate() {
                if let Some((delay, last)) = step {
                    wheel.push_turn(now + delay, if last { Turn::Last } else { Turn::Ordinary }, number);
                    list.push((now + delay, last, number));
                } else {
                    list.sort_unstable();
                    let expected = (!list.is_empty()).then(|| list.remove(0));
                    prop_assert_eq!(wheel.pop(), expected.map(|it| (it.0, it.2)));
                    now = expected.map_or(now, |it| it.0);
                }
            }
            list.sort_unstable();
            let rest: Vec<_> = std::iter::from_fn(|| wheel.pop()).collect();
            prop_assert_eq!(rest, list.into_iter().map(|it| (it.0, it.2)).collect::<Vec<_>>());
        }
    }
}
