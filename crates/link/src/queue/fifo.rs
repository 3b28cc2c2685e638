//! A line of packets, and disciplines with one line: drop-tail and drop-head here, managed queues in their own files.

use std::collections::VecDeque;

use super::{Dropped, Limit, QueueDiscipline, QueueLevel, Refused, Surcharge};
use crate::packet::{DropReason, Item};
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Packets in order of arrival, and their total bytes.
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

    /// Return whether the limit allows another packet.
    #[inline]
    pub(crate) fn has_room(&self, limit: &Limit, item: &Item<P>, surcharge: Surcharge) -> bool {
        limit.holds(surcharge.on(self.level().plus(item.size)))
    }

    /// Append a packet, or give it back if the limit does not allow it.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        limit: &Limit,
        item: Item<P>,
        surcharge: Surcharge,
    ) -> Result<(), Refused<P>> {
        if !self.has_room(limit, &item, surcharge) {
            return Err((item, DropReason::QueueFull));
        }
        self.push(item);
        Ok(())
    }
}

/// The control of one line of packets: decides which packets enter and leave.
pub(crate) trait Control: Sized {
    /// Parameters of the control.
    type Config: Clone;

    /// True if the next packet to be served can change while the server waits for the schedule.
    const DECIDES_LATE: bool = true;

    /// See [`QueueDiscipline::check`].
    fn check(_: &Self::Config) -> Result<(), String> {
        Ok(())
    }

    /// Return a control whose generators and timers start at `zero`. packet: transmission time at the link's mean
    /// rate, if any.
    fn new(config: &Self::Config, packet: Option<Duration>, zero: Time) -> Self;

    /// Return the limits of the line.
    fn limit(config: &Self::Config) -> &Limit;

    /// Return the data that counts against the limits besides the waiting packets.
    #[inline]
    fn surcharge(surcharge: Surcharge) -> Surcharge {
        surcharge
    }

    /// See [`QueueDiscipline::adopt`].
    #[inline]
    fn adopt<P>(
        &mut self,
        config: &Self::Config,
        line: &mut Line<P>,
        item: Item<P>,
        surcharge: Surcharge,
        _: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        line.admit(Self::limit(config), item, surcharge)
    }

    /// See [`QueueDiscipline::push`].
    #[inline]
    fn push<P>(
        &mut self,
        config: &Self::Config,
        line: &mut Line<P>,
        _: Time,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        self.adopt(config, line, item, surcharge, dropped)
    }

    /// See [`QueueDiscipline::pop`].
    #[inline]
    fn pop<P>(
        &mut self,
        _: &Self::Config,
        line: &mut Line<P>,
        _: Time,
        _: &mut Dropped<P>,
    ) -> Option<Item<P>> {
        line.pop()
    }
}

/// One line under control.
#[derive(Clone, Debug)]
pub(crate) struct Managed<P, C: Control> {
    config: C::Config,
    packet: Option<Duration>,
    pub(super) line: Line<P>,
    pub(super) control: C,
}

impl<P, C: Control> QueueDiscipline<P> for Managed<P, C> {
    type Config = C::Config;

    fn check(config: &C::Config) -> Result<(), String> {
        C::check(config)
    }

    fn new(config: C::Config, packet: Option<Duration>, zero: Time) -> Self {
        Self {
            control: C::new(&config, packet, zero),
            line: Line::new(),
            packet,
            config,
        }
    }

    fn restart(&mut self, zero: Time) {
        self.control = C::new(&self.config, self.packet, zero);
    }

    #[inline]
    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        let Self { config, line, .. } = self;
        self.control
            .adopt(config, line, item, C::surcharge(surcharge), dropped)
    }

    #[inline]
    fn push(
        &mut self,
        now: Time,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        let Self { config, line, .. } = self;
        self.control
            .push(config, line, now, item, C::surcharge(surcharge), dropped)
    }

    #[inline]
    fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>> {
        let Self { config, line, .. } = self;
        self.control.pop(config, line, now, dropped)
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

    #[inline]
    fn decides_late(&self) -> bool {
        C::DECIDES_LATE
    }

    #[inline]
    fn admits(&self, size: Bytes) -> bool {
        !C::DECIDES_LATE && C::limit(&self.config).holds(QueueLevel::default().plus(size))
    }
}

/// Drops the arriving packet when the queue is full.
#[derive(Clone, Debug)]
pub(crate) struct DropTail;

impl Control for DropTail {
    type Config = Limit;

    const DECIDES_LATE: bool = false;

    fn check(limit: &Limit) -> Result<(), String> {
        match *limit == Limit::default() {
            true => Err("a drop-tail queue needs a limit in \"packets\" or \"bytes\"".to_owned()),
            false => Ok(()),
        }
    }

    fn new(_: &Limit, _: Option<Duration>, _: Time) -> Self {
        Self
    }

    #[inline]
    fn limit(limit: &Limit) -> &Limit {
        limit
    }
}

/// Drops the oldest packets when the queue is full.
#[derive(Clone, Debug)]
pub(crate) struct DropHead;

impl Control for DropHead {
    type Config = Limit;

    fn new(_: &Limit, _: Option<Duration>, _: Time) -> Self {
        Self
    }

    fn limit(limit: &Limit) -> &Limit {
        limit
    }

    fn adopt<P>(
        &mut self,
        limit: &Limit,
        line: &mut Line<P>,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        line.push(item);
        while !limit.holds(surcharge.on(line.level()))
            && let Some(oldest) = line.pop()
        {
            dropped.push_back((oldest, DropReason::QueueFull));
        }
        Ok(())
    }
}
