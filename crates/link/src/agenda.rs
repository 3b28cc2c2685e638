//! Selection of the next event among many places.

use crate::time::Time;

/// A binary heap over the next events of places, such as directions, that can change each of them.
///
/// `O(log n)` per change: hundreds of links cost hardly more than two. Places with the same time come in the order of
/// their numbers, which keeps a run reproducible.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    /// Events with their places.
    heap: Vec<(Time, u32)>,
    /// Position in the heap of each place's event.
    place: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Agenda {
    /// Return an agenda of this many places, without events.
    pub fn new(places: usize) -> Self {
        Self {
            heap: Vec::with_capacity(places),
            place: vec![ABSENT; places],
        }
    }

    /// Add a place without an event.
    pub fn push(&mut self) {
        self.place.push(ABSENT);
    }

    /// Remove all places.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.place.clear();
    }

    /// Return the earliest event and its place.
    pub fn first(&self) -> Option<(Time, usize)> {
        self.heap.first().map(|&(time, it)| (time, it as usize))
    }

    /// Set the next event of place `which`, if any.
    pub fn set(&mut self, which: usize, time: Option<Time>) {
        let place = self.place[which];
        match (time, place) {
            (None, ABSENT) => {}
            (None, _) => self.remove(place as usize),
            (Some(time), ABSENT) => {
                self.heap.push((time, which as u32));
                self.rise(self.heap.len() - 1);
            }
            (Some(time), _) => {
                let place = place as usize;
                let before = std::mem::replace(&mut self.heap[place].0, time);
                if time < before {
                    self.rise(place);
                } else if time > before {
                    self.sink(place);
                }
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let (_, which) = self.heap.swap_remove(place);
        self.place[which as usize] = ABSENT;
        if place < self.heap.len() {
            self.rise(place);
            self.sink(place);
        }
    }

    /// Move the entry at `place` towards the front to its position.
    fn rise(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] < entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Move the entry at `place` towards the back to its position.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let mut child = 2 * place + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1] < self.heap[child] {
                child += 1;
            }
            if entry < self.heap[child] {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.place[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_is_the_least(changes in proptest::collection::vec((0usize..9, proptest::option::of(0u64..50)), 1..200)) {
            let mut agenda = Agenda::new(9);
            let mut model = [None; 9];
            for (direction, time) in changes {
                let time = time.map(Time::from_nanos);
                agenda.set(direction, time);
                model[direction] = time;
                let least = model.iter().enumerate().filter_map(|(d, t)| t.map(|t| (t, d))).min();
                prop_assert_eq!(agenda.first(), least);
            }
        }
    }
}
