//! A radio access network with one device in it: the rate that a device gets depends on the signal, on other users and
//! on the traffic of the device.
//!
//! No recording is needed, and every effect has a parameter. The model shows what the replay of a recorded saturation
//! misses (Sentosa et al., "CellReplay: Towards accurate record-and-replay for cellular networks", NSDI 2025, §3):
//! delays that vary, and delivery rates that depend on the load. [`Profile`] has two operators in five conditions.

mod access;
mod channel;
mod config;
mod noise;
mod profile;

pub use config::{
    Carrier, Cell, Channel, Fade, Grant, Handover, Harq, Path, RadioConfig, Ramp, Release, Second,
    Sleep, Slots, Users, Way,
};
pub use profile::{Band, Condition, Profile};

use crate::bottleneck::Admission;
use crate::delay::DelayLine;
use crate::packet::{DropReason, Item, Step};
use crate::queue::{Dropped, Queue, QueueLevel, Surcharge};
use crate::random::Seed;
use crate::schedule::Offer;
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time, earlier};
use crate::units::Share;
use access::{Access, Aggregation, Retransmissions, Warmth};
pub(crate) use channel::Potential;
use channel::{Cache, Route, Surroundings};
pub(crate) use config::RadioTable;

/// The stage. Only slots that carry data are events: an empty queue has none, and the next slot after a pause is found
/// without stepping through the pause.
#[derive(Clone, Debug)]
pub(crate) struct Radio<P> {
    config: RadioConfig,
    zero: Time,
    offset: Duration,
    surroundings: Surroundings,
    cache: Cache,
    route: Route,
    access: Access,
    warmth: Warmth,
    aggregation: Aggregation,
    retransmissions: Retransmissions,
    queue: Queue<P>,
    /// The partly sent packet, and its unsent bytes.
    serving: Option<(Item<P>, u64)>,
    /// True if bytes of the partly sent packet are lost.
    broken: bool,
    /// The next slot that carries data, and its beginning.
    slot: Option<(u64, Time)>,
    /// Arrival of the last block; blocks arrive in order.
    decoded: Time,
    line: DelayLine<Item<P>>,
    /// Packets whose last byte is in the slot that is being sent.
    complete: Vec<Item<P>>,
    /// True during an outage.
    closed: bool,
    /// True while a cell serves another user.
    barred: bool,
    /// The first slot lost to other users since the last transmission.
    barred_from: Option<u64>,
    /// Earliest position of a slot for the waiting packets.
    ready: Duration,
    /// An instant, and the unused share of the slot that begins then.
    share: (Time, Share),
    dropped: Dropped<P>,
}

impl<P> Configured<RadioConfig> for Radio<P> {
    fn new(config: &RadioConfig, zero: Time) -> Self {
        Self {
            zero,
            offset: config.offset,
            surroundings: Surroundings::new(config),
            cache: Cache::default(),
            route: Route::new(config),
            access: Access::default(),
            warmth: Warmth::COLD,
            aggregation: Aggregation::default(),
            retransmissions: Retransmissions::new(config),
            queue: Queue::new(&config.queue, None, zero),
            serving: None,
            broken: false,
            slot: None,
            decoded: Time::ZERO,
            line: DelayLine::new(false),
            complete: Vec::new(),
            closed: false,
            barred: false,
            barred_from: None,
            ready: Duration::ZERO,
            share: (Time::ZERO, Share::WHOLE),
            dropped: Dropped::new(),
            config: config.clone(),
        }
    }

    /// Apply `config`, except its offset, from `now` on. Packets stay in order, except those that exceed a smaller
    /// limit.
    fn change(&mut self, config: &RadioConfig, _: Time, now: Time, _: Duration) {
        let before = std::mem::replace(&mut self.config, config.clone());
        self.surroundings = Surroundings::new(config);
        self.cache = Cache::default();
        self.route = Route::new(config);
        self.retransmissions = Retransmissions::new(config);
        if before.queue != config.queue {
            let next = Queue::new(&config.queue, None, self.zero);
            let surcharge = self.surcharge();
            self.queue.replace(next, surcharge, &mut self.dropped);
        }
        self.look_ahead(now);
    }
}

impl<P> Behaviour<P> for Radio<P> {
    /// Restart the surroundings at `zero`, from position `offset`; the scheduler is cold. Packets stay.
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.zero = zero;
        self.offset = self.config.offset + offset;
        self.access = Access::default();
        self.warmth = Warmth::COLD;
        self.aggregation = Aggregation::default();
        self.retransmissions.clear();
        self.share = (Time::ZERO, Share::WHOLE);
        self.queue.restart(zero);
        self.look_ahead(now);
    }

    /// Closed: sends nothing in slots that begin at `now` or later. Open: the device asks for slots again.
    fn set_closed(&mut self, closed: bool, barred: bool, share: Share, now: Time) {
        self.set_barred(barred, share, now);
        if closed && self.slot.take().is_some() {
            self.warmth.rest(now);
        }
        let opens = self.closed && !closed;
        self.closed = closed;
        if opens && (self.serving.is_some() || !self.queue.is_empty()) {
            let ready = self.access.ready(&self.config, self.position(now));
            self.turn_to(ready, now);
        }
    }

    fn flush(&mut self) {
        let serving = self.serving.take().map(|(item, _)| item);
        self.broken = false;
        self.queue.flush(serving, &mut self.dropped);
        self.slot = None;
    }

    fn left(&self, now: Time) -> Share {
        let (at, share) = self.share;
        if at == now { share } else { Share::WHOLE }
    }

    /// Return the earliest time of a slot for the waiting packets.
    fn ready(&self) -> Time {
        self.instant(self.ready).unwrap_or(Time::MAX)
    }

    #[inline(never)]
    fn next_event(&self) -> Option<Time> {
        let slot = self.slot.map(|(_, begin)| begin);
        earlier(self.line.next(), slot)
    }

    fn next_delivery(&self) -> Option<Time> {
        let behind = self.config.slots.length + self.config.harq.decode + self.route.least();
        earlier(self.line.next(), self.slot.map(|(_, begin)| begin + behind))
    }

    #[inline(never)]
    fn step(&mut self, now: Time) -> Option<Step<P>> {
        if self.line.next().is_some_and(|left| left <= now) {
            return self.line.pop().map(Step::Left);
        }
        let (slot, begin) = self.slot?;
        self.send(slot, begin);
        Some(Step::Within)
    }

    #[inline]
    fn dropped(&mut self) -> Option<&mut Dropped<P>> {
        Some(&mut self.dropped)
    }

    fn level(&self) -> Option<QueueLevel> {
        let serving = self.serving.as_ref().map(|(item, _)| item);
        Some(self.queue.level().and_serving(serving))
    }

    fn rank(&self) -> u32 {
        self.queue.rank(self.serving.as_ref().map(|(item, _)| item))
    }

    fn queue_event(&self) -> Option<Time> {
        self.slot.map(|(_, begin)| begin)
    }

    fn potential(&self, from: Time, to: Time) -> f64 {
        let position = |at| self.position(at);
        self.surroundings.offered(position(from), position(to)) as f64
    }

    /// Return the capacity for a device with a warm scheduler.
    fn offer(&self) -> Option<Offer> {
        Some(Offer::Radio(Box::new(Potential {
            surroundings: self.surroundings.clone(),
            zero: self.zero,
            offset: self.offset,
        })))
    }
}

impl<P> Radio<P> {
    /// Barred: a cell gives the slots that begin at `now` or later to another user. The device stays connected and
    /// keeps its grants. Not barred: `share` of a slot that begins at `now` is left.
    fn set_barred(&mut self, barred: bool, share: Share, now: Time) {
        if barred == self.barred {
            return;
        }
        self.barred = barred;
        if barred {
            let lost = self.slot.take().map(|(slot, _)| slot);
            self.barred_from = self.barred_from.or(lost);
            return;
        }
        self.share = (now, share);
        if !self.closed && (self.serving.is_some() || !self.queue.is_empty()) {
            self.turn_to(self.ready.max(self.position(now)), now);
        }
    }

    /// Return the device and its direction, if its directions are coupled.
    pub(crate) fn device(&self) -> Option<((Seed, u16), Way)> {
        let config = &self.config;
        config
            .coupled
            .then_some(((config.seed, config.device), config.way))
    }

    /// Return the end of the last set-up of a connection.
    pub(crate) fn connected(&self) -> Time {
        self.instant(self.access.connected).unwrap_or(Time::MAX)
    }

    /// Record that the device has data in its other direction at `now`, and is connected from `connected` on. Packets
    /// that wait for the device to listen are sent as soon as it can receive.
    pub(crate) fn rouse(&mut self, now: Time, connected: Time) {
        let connected = self.position(connected);
        let next = self.access.rouse(self.position(now), connected) + Duration::from_nanos(1);
        let waits = self.serving.is_some() || !self.queue.is_empty();
        if waits && !self.closed && self.config.grant.is_none() && next < self.ready {
            self.turn_to(next, now);
        }
    }

    /// Accept a packet; events up to `now` must have been taken.
    #[inline(never)] // the other stages' path stays short
    pub(crate) fn accept(&mut self, now: Time, mut item: Item<P>) -> Admission<P> {
        item.entered = now;
        let surcharge = self.surcharge();
        let first = match self.barred {
            false => self.slot.is_none(),
            true => self.serving.is_none() && self.queue.is_empty(),
        };
        if let Err((item, reason)) = self.queue.push(now, item, surcharge, &mut self.dropped) {
            return Admission::Refused(item, reason);
        }
        if first && !self.closed {
            // A slot that begins at this instant is already allocated.
            let next = self.position(now) + Duration::from_nanos(1);
            let ready = self.access.ready(&self.config, next);
            self.turn_to(ready, now);
        }
        Admission::Queued
    }

    /// Send the bytes that fit into a slot.
    fn send(&mut self, slot: u64, begin: Time) {
        let waiting = self.waiting();
        let warmth = self.warmth.share(&self.config.ramp, begin, waiting);
        let mut warm = self.surroundings.capacity(slot, &mut self.cache);
        if let Some(second) = &self.config.second {
            warm *= self.aggregation.share(second, begin, waiting, warm);
        }
        let offered = (warm * warmth).max(1.0) as u64;
        let taken = self
            .retransmissions
            .taken(self.barred_from.take().unwrap_or(slot), slot);
        let share = Behaviour::<P>::left(self, begin);
        let room = share
            .of(offered)
            .saturating_sub(taken)
            .min(self.access.limit(&self.config));
        let sent = self.fill(room, begin);
        let used = taken.saturating_add(sent);
        self.share = (
            begin,
            Share::new(share.of(offered).saturating_sub(used), offered),
        );
        let mut from = self.position(begin);
        let mut lost = false;
        if sent > 0 || !self.complete.is_empty() {
            let (at, harq) = (from, &self.config.harq);
            let least = self.cache.failure(harq.fade);
            let (late, gone) = self.retransmissions.send(harq, slot, sent, least, |span| {
                let next = self.surroundings.next_slot(at + span)?;
                let start = self.surroundings.start(next)?;
                Some((next, start.saturating_sub(at)))
            });
            let there = begin + self.config.slots.length + self.config.harq.decode + late;
            lost = gone;
            self.decoded = self.decoded.max(there);
            from = self.access.sent(&self.config, from);
        }
        let there = self.position(self.decoded);
        // The first packet that is complete may have lost bytes in an earlier slot.
        let broken = std::mem::take(&mut self.broken);
        let mut hit = broken || lost;
        self.broken = self.serving.is_some() && (lost || broken && self.complete.is_empty());
        for mut item in self.complete.drain(..) {
            if std::mem::replace(&mut hit, lost) {
                self.dropped.extend([(item, DropReason::Loss)]);
                continue;
            }
            item.released = self.decoded;
            let delay = self.route.delay(there, item.size.0);
            self.line.push(self.decoded + delay, item);
        }
        if self.serving.is_none() && self.queue.is_empty() {
            self.slot = None;
            self.warmth.rest(begin);
        } else {
            let behind = self.surroundings.start(slot.saturating_add(1));
            match behind {
                Some(behind) => self.turn_to(from.max(behind), begin),
                None => self.slot = None,
            }
        }
    }

    /// Take up to `room` waiting bytes, and collect the completed packets. Return the number of bytes.
    fn fill(&mut self, room: u64, now: Time) -> u64 {
        let mut left = room;
        loop {
            let Some((item, rest)) = self.serving.take().or_else(|| {
                // A packet is taken from the queue only when there is room for a part of it.
                let item = (left > 0).then(|| self.queue.pop(now, &mut self.dropped))??;
                let size = item.size.0;
                Some((item, size))
            }) else {
                return room - left;
            };
            if rest > left {
                self.serving = Some((item, rest - left));
                return room;
            }
            left -= rest;
            self.complete.push(item);
        }
    }

    /// Return the bytes that wait for slots.
    fn waiting(&self) -> u64 {
        let rest = self.serving.as_ref().map_or(0, |(_, rest)| *rest);
        self.queue.level().bytes.0.saturating_add(rest)
    }

    /// Select the first available slot from position `ready` on.
    fn turn_to(&mut self, ready: Duration, now: Time) {
        self.ready = ready;
        if self.barred {
            return;
        }
        let next = self.surroundings.next_slot(ready);
        self.slot = next.and_then(|slot| {
            let start = self.surroundings.start(slot)?;
            let begin = self.instant(start)?;
            // A slot that began before the packet's arrival, or before a restart, is lost.
            (begin >= now).then_some((slot, begin))
        });
    }

    /// Select the next slot again.
    fn look_ahead(&mut self, now: Time) {
        self.slot = None;
        if !self.closed && (self.serving.is_some() || !self.queue.is_empty()) {
            let position = self.position(now);
            self.turn_to(position, now);
        }
    }

    /// Return the position in the surroundings at an instant; before the start, the start position.
    fn position(&self, now: Time) -> Duration {
        now.since(self.zero) + self.offset
    }

    /// Return the instant of a position; `None` beyond the end of time.
    fn instant(&self, position: Duration) -> Option<Time> {
        let since = position.saturating_sub(self.offset).as_nanos();
        let nanos = self.zero.as_nanos().checked_add(since)?;
        Some(Time::from_nanos(nanos)).filter(|&instant| instant < Time::MAX)
    }

    fn surcharge(&self) -> Surcharge {
        Surcharge::of_serving(self.serving.as_ref().map(|(item, _)| item))
    }
}

#[cfg(test)]
mod tests;
