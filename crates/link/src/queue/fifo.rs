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
