//! First in, first out, with limits and without any other control.

use std::collections::VecDeque;

use super::{Dropped, Limit, QueueDiscipline, QueueLevel, Refused, Surcharge};
use crate::outcome::DropReason;
use crate::packet::Item;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Packets in order of arrival, and how many bytes they are.
#[derive(Clone, Debug)]
pub(crate) struct Line<P> {
    items: VecDeque<Item<P>>,
    bytes: Bytes,
}

impl<P> Line<P> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            bytes: Bytes(0),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, item: Item<P>) {
        self.bytes += item.size;
        self.items.push_back(item);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Item<P>> {
        let item = self.items.pop_front()?;
        self.bytes = Bytes(self.bytes.0.saturating_sub(item.size.0));
        Some(item)
    }

    #[inline]
    pub(crate) fn head(&self) -> Option<&Item<P>> {
        self.items.front()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    #[inline]
    pub(crate) fn level(&self) -> QueueLevel {
        QueueLevel {
            packets: Packets(self.items.len() as u64),
            bytes: self.bytes,
        }
    }

    /// Takes the packet in if the limit allows.
    #[inline]
    pub(crate) fn push_within(
        &mut self,
        limit: &Limit,
        item: Item<P>,
        surcharge: Surcharge,
    ) -> Result<(), Refused<P>> {
        if !limit.holds(surcharge.on(self.level().plus(item.size))) {
            return Err((item, DropReason::QueueFull));
        }
        self.push(item);
        Ok(())
    }
}

/// A queue that drops the arriving packet when it is full.
#[derive(Clone, Debug)]
pub(crate) struct DropTail<P> {
    line: Line<P>,
    limit: Limit,
}

impl<P> QueueDiscipline<P> for DropTail<P> {
    type Config = Limit;

    fn check(limit: &Limit) -> Result<(), String> {
        match *limit == Limit::default() {
            true => Err("a drop-tail queue needs a limit in \"packets\" or \"bytes\"".to_owned()),
            false => Ok(()),
        }
    }

    #[inline]
    fn new(limit: Limit, _packet: Option<Duration>, _zero: Time) -> Self {
        let line = Line::new();
        Self { line, limit }
    }

    #[inline]
    fn decides_late(&self) -> bool {
        false
    }

    #[inline]
    fn admits(&self, size: Bytes) -> bool {
        self.limit.holds(QueueLevel::default().plus(size))
    }

    #[inline]
    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        _dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        self.line.push_within(&self.limit, item, surcharge)
    }

    #[inline]
    fn pop(&mut self, _now: Time, _dropped: &mut Dropped<P>) -> Option<Item<P>> {
        self.line.pop()
    }

    fn remove(&mut self) -> Option<Item<P>> {
        self.line.pop()
    }

    #[inline]
    fn level(&self) -> QueueLevel {
        self.line.level()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    fn restart(&mut self, _zero: Time) {}
}

/// A queue that drops its oldest packets when it is full.
#[derive(Clone, Debug)]
pub(crate) struct DropHead<P> {
    line: Line<P>,
    limit: Limit,
}

impl<P> QueueDiscipline<P> for DropHead<P> {
    type Config = Limit;

    fn new(limit: Limit, _packet: Option<Duration>, _zero: Time) -> Self {
        let line = Line::new();
        Self { line, limit }
    }

    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        self.line.push(item);
        while !self.limit.holds(surcharge.on(self.line.level())) {
            let Some(oldest) = self.line.pop() else { break };
            dropped.push_back((oldest, DropReason::QueueFull));
        }
        Ok(())
    }

    fn pop(&mut self, _now: Time, _dropped: &mut Dropped<P>) -> Option<Item<P>> {
        self.line.pop()
    }

    fn remove(&mut self) -> Option<Item<P>> {
        self.line.pop()
    }

    fn level(&self) -> QueueLevel {
        self.line.level()
    }

    fn restart(&mut self, _zero: Time) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(packet: char, size: u64) -> Item<char> {
        Item::new(packet, Bytes(size), Time::ZERO)
    }

    fn limit(packets: u64, bytes: u64) -> Limit {
        Limit {
            packets: Some(Packets(packets)),
            bytes: Some(Bytes(bytes)),
        }
    }

    /// Pushes a packet, and returns those that were dropped for it.
    fn push(queue: &mut impl QueueDiscipline<char>, packet: char, size: u64) -> String {
        let mut dropped = Dropped::new();
        let refused = queue.adopt(item(packet, size), Surcharge::default(), &mut dropped);
        dropped.extend(refused.err());
        dropped.iter().map(|(item, _)| item.packet).collect()
    }

    #[test]
    fn a_drop_tail_queue_refuses_what_exceeds_either_limit() {
        let mut queue = DropTail::new(limit(3, 3000), None, Time::ZERO);
        assert_eq!(push(&mut queue, 'a', 1500), "");
        assert_eq!(push(&mut queue, 'b', 1501), "b"); // one byte too many
        assert_eq!(push(&mut queue, 'c', 40), "");
        assert_eq!(push(&mut queue, 'd', 40), "");
        assert_eq!(push(&mut queue, 'e', 40), "e"); // one packet too many
        assert_eq!(
            queue.level(),
            QueueLevel {
                packets: Packets(3),
                bytes: Bytes(1580)
            }
        );
        assert_eq!(queue.remove().map(|item| item.packet), Some('a'));
        assert_eq!(push(&mut queue, 'f', 40), "");
    }

    #[test]
    fn a_drop_head_queue_gives_up_the_oldest() {
        let mut queue = DropHead::new(limit(3, 3000), None, Time::ZERO);
        for packet in ['a', 'b', 'c'] {
            assert_eq!(push(&mut queue, packet, 500), "");
        }
        assert_eq!(push(&mut queue, 'd', 500), "a"); // one packet too many
        assert_eq!(push(&mut queue, 'e', 2500), "bc"); // 1000 + 2500 bytes are too many, and so are 3 + 1 packets
        assert_eq!(push(&mut queue, 'f', 3001), "def"); // never fits
        assert_eq!(queue.level(), QueueLevel::default());
    }

    #[test]
    fn an_infinite_queue_takes_everything() {
        let mut queue = DropTail::new(Limit::default(), None, Time::ZERO);
        assert!((0..10_000).all(|_| push(&mut queue, 'a', 1500).is_empty()));
        assert_eq!(queue.level().bytes, Bytes(15_000_000));
    }
}
