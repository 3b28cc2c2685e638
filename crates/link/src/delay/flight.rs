//! Packets on their way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::time::Time;

/// Packets with the instants at which they leave: in the order in which they came, or in that of the instants.
#[derive(Clone, Debug)]
pub(crate) struct Flight<T> {
    line: VecDeque<(Time, T)>,
    /// The last departure from the line.
    last: Time,
    /// Packets that others may overtake, by departure and number.
    loose: BinaryHeap<Reverse<Loose<T>>>,
    number: u64,
    reordering: bool,
}

#[derive(Clone, Debug)]
struct Loose<T> {
    departure: Time,
    number: u64,
    packet: T,
}

impl<T> Flight<T> {
    pub(crate) fn new(reordering: bool) -> Self {
        Self {
            line: VecDeque::new(),
            last: Time::ZERO,
            loose: BinaryHeap::new(),
            number: 0,
            reordering,
        }
    }

    /// Set whether packets that arrive from now on may overtake others.
    pub(crate) fn set_reordering(&mut self, reordering: bool) {
        if self.reordering && !reordering {
            // Who comes next may not overtake those who are on their way.
            let latest = self
                .loose
                .iter()
                .map(|Reverse(loose)| loose.departure)
                .max();
            self.last = self.last.max(latest.unwrap_or_default());
        }
        self.reordering = reordering;
    }

    #[inline]
    pub(crate) fn push(&mut self, departure: Time, packet: T) {
        if self.reordering {
            let number = self.number;
            self.number += 1;
            self.loose.push(Reverse(Loose {
                departure,
                number,
                packet,
            }));
        } else {
            self.last = self.last.max(departure);
            self.line.push_back((self.last, packet));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        let line = self.line.front().map(|(departure, _)| *departure);
        match self.loose.peek() {
            None => line,
            Some(Reverse(loose)) => {
                Some(line.map_or(loose.departure, |line| line.min(loose.departure)))
            }
        }
    }

    /// Those that nobody may overtake, with their departures, in order.
    pub(crate) fn in_line(&self) -> impl Iterator<Item = (Time, &T)> {
        self.line
            .iter()
            .map(|(departure, packet)| (*departure, packet))
    }

    /// The last departure from the line up to now.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let line = self.line.front().map(|(departure, _)| *departure);
        match self.loose.peek() {
            Some(Reverse(loose)) if line.is_none_or(|line| loose.departure < line) => {
                self.loose.pop().map(|Reverse(loose)| loose.packet)
            }
            _ => self.line.pop_front().map(|(_, packet)| packet),
        }
    }
}

impl<T> PartialEq for Loose<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Loose<T> {}

impl<T> PartialOrd for Loose<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Loose<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.departure, self.number).cmp(&(other.departure, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(flight: &mut Flight<char>) -> String {
        std::iter::from_fn(|| flight.pop()).collect()
    }

    fn filled(reordering: bool) -> Flight<char> {
        let mut flight = Flight::new(reordering);
        for (at, packet) in [(30, 'a'), (10, 'b'), (20, 'c'), (10, 'd')] {
            flight.push(Time::from_millis(at), packet);
        }
        flight
    }

    #[test]
    fn packets_overtake_only_when_asked() {
        assert_eq!(drain(&mut filled(false)), "abcd");
        assert_eq!(drain(&mut filled(true)), "bdca");
    }

    #[test]
    fn a_change_leaves_those_on_their_way_alone() {
        let mut flight = filled(false);
        flight.set_reordering(true);
        flight.push(Time::from_millis(5), 'e');
        assert_eq!(flight.next(), Some(Time::from_millis(5)));
        flight.set_reordering(false);
        flight.push(Time::from_millis(7), 'f');
        assert_eq!(drain(&mut flight), "eabcdf");
    }
}
