//! First in, first out, with limits and without any other control.

use std::collections::VecDeque;

use super::{Dropped, Limit, QueueLevel, Surcharge};
use crate::outcome::DropReason;
use crate::packet::Item;
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
    ) -> Result<(), (Item<P>, DropReason)> {
        if !limit.holds(surcharge.on(self.level().plus(item.size))) {
            return Err((item, DropReason::QueueFull));
        }
        self.push(item);
        Ok(())
    }
}

/// Drop-tail or drop-head.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<P> {
    line: Line<P>,
    limit: Limit,
    drops_head: bool,
}

impl<P> Fifo<P> {
    #[inline]
    pub(crate) fn drop_tail(limit: Limit) -> Self {
        Self {
            line: Line::new(),
            limit,
            drops_head: false,
        }
    }

    #[inline]
    pub(crate) fn drop_head(limit: Limit) -> Self {
        Self {
            drops_head: true,
            ..Self::drop_tail(limit)
        }
    }

    #[inline]
    pub(crate) fn drops_head(&self) -> bool {
        self.drops_head
    }

    /// Whether the limits have room for a packet alone.
    #[inline]
    pub(crate) fn admits(&self, size: Bytes) -> bool {
        self.limit.holds(QueueLevel::default().plus(size))
    }

    #[inline]
    pub(crate) fn push(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), (Item<P>, DropReason)> {
        if !self.drops_head {
            return self.line.push_within(&self.limit, item, surcharge);
        }
        self.line.push(item);
        while !self.limit.holds(surcharge.on(self.line.level())) {
            let Some(oldest) = self.line.pop() else { break };
            dropped.push_back((oldest, DropReason::QueueFull));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Item<P>> {
        self.line.pop()
    }

    #[inline]
    pub(crate) fn level(&self) -> QueueLevel {
        self.line.level()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

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
    fn push(queue: &mut Fifo<char>, packet: char, size: u64) -> String {
        let mut dropped = Dropped::new();
        let refused = queue.push(item(packet, size), Surcharge::default(), &mut dropped);
        dropped.extend(refused.err());
        dropped.iter().map(|(item, _)| item.packet).collect()
    }

    #[test]
    fn a_drop_tail_queue_refuses_what_exceeds_either_limit() {
        let mut queue = Fifo::drop_tail(limit(3, 3000));
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
        assert_eq!(queue.pop().map(|item| item.packet), Some('a'));
        assert_eq!(push(&mut queue, 'f', 40), "");
    }

    #[test]
    fn a_drop_head_queue_gives_up_the_oldest() {
        let mut queue = Fifo::drop_head(limit(3, 3000));
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
        let mut queue = Fifo::drop_tail(Limit::default());
        assert!((0..10_000).all(|_| push(&mut queue, 'a', 1500).is_empty()));
        assert_eq!(queue.level().bytes, Bytes(15_000_000));
    }
}
