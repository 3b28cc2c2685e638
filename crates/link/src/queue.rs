//! The bottleneck queue: which packets may wait, in what order.

use std::collections::VecDeque;

use crate::units::{Bytes, Packets};

/// What a queue does when packets come faster than they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Discipline {
    /// Every packet waits.
    #[default]
    Infinite,
    /// A packet that would exceed a limit is dropped on arrival. The limits count every packet that has not left the
    /// bottleneck, the one in service included; `None` does not limit.
    DropTail {
        /// Most packets held.
        packets: Option<Packets>,
        /// Most bytes held. A single packet larger than this never passes.
        bytes: Option<Bytes>,
    },
}

/// How full a queue is, the packet in service included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueLevel {
    /// Packets held.
    pub packets: Packets,
    /// Bytes held.
    pub bytes: Bytes,
}

/// A first-in-first-out queue with a [`Discipline`]. Its memory grows to the longest queue seen and stays.
#[derive(Clone, Debug)]
pub(crate) struct Queue<T> {
    discipline: Discipline,
    waiting: VecDeque<(Bytes, T)>,
    bytes: Bytes,
}

impl<T> Queue<T> {
    pub(crate) fn new(discipline: Discipline) -> Self {
        Self {
            discipline,
            waiting: VecDeque::new(),
            bytes: Bytes(0),
        }
    }

    /// Takes the packet in, or gives it back if there is no room.
    pub(crate) fn push(&mut self, size: Bytes, packet: T) -> Result<(), T> {
        if !self.has_room(size) {
            return Err(packet);
        }
        self.bytes += size;
        self.waiting.push_back((size, packet));
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let (size, packet) = self.waiting.pop_front()?;
        self.bytes = Bytes(self.bytes.0.saturating_sub(size.0));
        Some(packet)
    }

    /// Size of the packet at the head.
    pub(crate) fn head(&self) -> Option<Bytes> {
        self.waiting.front().map(|(size, _)| *size)
    }

    pub(crate) fn level(&self) -> QueueLevel {
        QueueLevel {
            packets: Packets(self.waiting.len() as u64),
            bytes: self.bytes,
        }
    }

    fn has_room(&self, size: Bytes) -> bool {
        match self.discipline {
            Discipline::Infinite => true,
            Discipline::DropTail { packets, bytes } => {
                packets.is_none_or(|limit| (self.waiting.len() as u64) < limit.0)
                    && bytes.is_none_or(|limit| self.bytes + size <= limit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_tail_queue_refuses_what_exceeds_either_limit() {
        let mut queue = Queue::new(Discipline::DropTail {
            packets: Some(Packets(3)),
            bytes: Some(Bytes(3000)),
        });
        assert_eq!(queue.push(Bytes(1500), 'a'), Ok(()));
        assert_eq!(queue.push(Bytes(1501), 'b'), Err('b')); // one byte too many
        assert_eq!(queue.push(Bytes(40), 'c'), Ok(()));
        assert_eq!(queue.push(Bytes(40), 'd'), Ok(()));
        assert_eq!(queue.push(Bytes(40), 'e'), Err('e')); // one packet too many
        assert_eq!(
            queue.level(),
            QueueLevel {
                packets: Packets(3),
                bytes: Bytes(1580)
            }
        );
        assert_eq!(queue.pop(), Some('a'));
        assert_eq!(queue.push(Bytes(40), 'f'), Ok(()));
    }

    #[test]
    fn an_infinite_queue_takes_everything() {
        let mut queue = Queue::new(Discipline::Infinite);
        assert!((0..10_000).all(|packet| queue.push(Bytes(1500), packet).is_ok()));
        assert_eq!(queue.level().bytes, Bytes(15_000_000));
    }
}
