//! Which direction has the next event.

use cellbed_link::time::Time;

/// A binary heap over the directions' next events that can change each of them.
///
/// `O(log n)` per change, so that hundreds of links cost hardly more than two. Directions with the same time come in
/// the order of their numbers, which keeps a run reproducible.
pub struct Agenda {
    times: Vec<Time>,
    heap: Vec<u32>,
    place: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Agenda {
    /// An agenda for `directions` directions, none of which has an event.
    pub fn new(directions: usize) -> Self {
        Self {
            times: vec![Time::from_nanos(0); directions],
            heap: Vec::with_capacity(directions),
            place: vec![ABSENT; directions],
        }
    }

    /// The earliest event and its direction.
    pub fn first(&self) -> Option<(Time, usize)> {
        self.heap
            .first()
            .map(|&direction| (self.times[direction as usize], direction as usize))
    }

    /// Says when `direction` has its next event, if it has one.
    pub fn set(&mut self, direction: usize, time: Option<Time>) {
        let place = self.place[direction];
        match (time, place) {
            (None, ABSENT) => {}
            (None, _) => self.remove(place as usize),
            (Some(time), ABSENT) => {
                self.times[direction] = time;
                self.place[direction] = self.heap.len() as u32;
                self.heap.push(direction as u32);
                self.rise(self.heap.len() - 1);
            }
            (Some(time), _) => {
                self.times[direction] = time;
                self.rise(place as usize);
                self.sink(self.place[direction] as usize);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let direction = self.heap.swap_remove(place);
        self.place[direction as usize] = ABSENT;
        if let Some(&moved) = self.heap.get(place) {
            self.place[moved as usize] = place as u32;
            self.rise(place);
            self.sink(self.place[moved as usize] as usize);
        }
    }

    fn key(&self, place: usize) -> (Time, u32) {
        (self.times[self.heap[place] as usize], self.heap[place])
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a] as usize] = a as u32;
        self.place[self.heap[b] as usize] = b as u32;
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.key(place) < self.key((place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn sink(&mut self, mut place: usize) {
        while let Some(least) = [2 * place + 1, 2 * place + 2]
            .into_iter()
            .filter(|&child| child < self.heap.len())
            .min_by_key(|&c| self.key(c))
        {
            if self.key(place) <= self.key(least) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
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
