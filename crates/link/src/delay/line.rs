//! A delay line: packets that wait for their departure.

use std::collections::{BTreeMap, VecDeque};

use crate::time::Time;

/// Packets in transit with their departures, which may be set to keep the order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct DelayLine<T> {
    /// Packets that keep the order of arrival.
    fifo: VecDeque<(Time, T)>,
    /// The latest departure from `fifo` so far.
    last: Time,
    /// Packets that others may overtake, by departure and number.
    unordered: BTreeMap<(Time, u64), T>,
    /// Number of the next packet in `unordered`.
    number: u64,
    reordering: bool,
}

impl<T> DelayLine<T> {
    pub(crate) fn new(reordering: bool) -> Self {
        Self {
            fifo: VecDeque::new(),
            last: Time::ZERO,
            unordered: BTreeMap::new(),
            number: 0,
            reordering,
        }
    }

    /// Set whether packets that arrive from now on may overtake others.
    pub(crate) fn set_reordering(&mut self, reordering: bool) {
        if self.reordering && !reordering {
            // Later packets must not overtake those in transit.
            let latest = self.unordered.last_key_value();
            let latest = latest.map(|(&(departure, _), _)| departure);
            self.last = self.last.max(latest.unwrap_or_default());
        }
        self.reordering = reordering;
    }

    /// Add a packet. Without reordering it departs no earlier than the packets before it.
    #[inline]
    pub(crate) fn push(&mut self, departure: Time, packet: T) {
        if self.reordering {
            self.unordered.insert((departure, self.number), packet);
            self.number += 1;
        } else {
            self.last = self.last.max(departure);
            self.fifo.push_back((self.last, packet));
        }
    }

    /// Return the next departure.
    pub(crate) fn next(&self) -> Option<Time> {
        let fifo = self.fifo.front().map(|&(departure, _)| departure);
        match self.unordered.first_key_value() {
            None => fifo,
            Some((&(unordered, _), _)) => Some(fifo.map_or(unordered, |fifo| fifo.min(unordered))),
        }
    }

    /// Return the packets that keep their order, with their departures.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (Time, &T)> {
        self.fifo
            .iter()
            .map(|(departure, packet)| (*departure, packet))
    }

    /// Return the latest departure so far of the packets that keep their order.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// Remove the packet that departs next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let fifo = self.fifo.front().map(|&(departure, _)| departure);
        match self.unordered.first_entry() {
            Some(entry) if fifo.is_none_or(|fifo| entry.key().0 < fifo) => Some(entry.remove()),
            _ => self.fifo.pop_front().map(|(_, packet)| packet),
        }
    }

    /// Remove all packets, in order of departure. Later ones need not wait for them.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.last = Time::ZERO;
        std::iter::from_fn(|| self.pop()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(line: &mut DelayLine<char>) -> String {
        std::iter::from_fn(|| line.pop()).collect()
    }

    fn filled(reordering: bool) -> DelayLine<char> {
        let mut line = DelayLine::new(reordering);
        for (at, packet) in [(30, 'a'), (10, 'b'), (20, 'c'), (10, 'd')] {
            line.push(Time::from_millis(at), packet);
        }
        line
    }

    #[test]
    fn packets_overtake_only_with_reordering() {
        assert_eq!(drain(&mut filled(false)), "abcd");
        assert_eq!(drain(&mut filled(true)), "bdca");
    }

    #[test]
    fn a_change_of_reordering_applies_to_later_packets_only() {
        let mut line = filled(false);
        line.set_reordering(true);
        line.push(Time::from_millis(5), 'e');
        assert_eq!(line.next(), Some(Time::from_millis(5)));
        line.set_reordering(false);
        line.push(Time::from_millis(7), 'f');
        assert_eq!(drain(&mut line), "eabcdf");
    }
}
