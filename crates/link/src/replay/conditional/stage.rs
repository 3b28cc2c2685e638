//! The stage: a queue, served as the recorded network served packets in the same situation, and the path behind it.

use super::ConditionalConfig;
use super::opportunities::Opportunities;
use crate::bottleneck::Admission;
use crate::delay::DelayLine;
use crate::packet::{Item, Step};
use crate::queue::{Dropped, Queue, QueueLevel, Surcharge};
use crate::replay::Shift;
use crate::schedule::Offer;
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time, earlier};
use crate::units::{Bytes, Share};

/// The stage. A packet leaves the queue when sent: its arrival, less the minimum delay for its size.
#[derive(Clone, Debug)]
pub(crate) struct Conditional<P> {
    config: ConditionalConfig,
    opportunities: Opportunities,
    queue: Queue<P>,
    /// The partly sent packet.
    serving: Option<Item<P>>,
    /// Unsent bytes of this packet.
    owed: f64,
    line: DelayLine<Item<P>>,
    /// Send time of the last packet.
    sent: Time,
    /// Size of the last packet, and the minimum excess delay over the trend for this size.
    floor: (Bytes, Shift),
    /// Points of the trend up to the last packet.
    trend: usize,
    /// Bytes that can be sent at `instant`; negative if bytes were sent too early.
    credit: f64,
    instant: Time,
    /// Size of the last opportunity, bytes.
    each: f64,
    /// Time at which the next bytes can be sent.
    service: Option<Time>,
    /// Next event within, or next departure: read more often than it changes.
    event: Option<Time>,
    /// Begin of the present outage.
    closed: Option<Time>,
    dropped: Dropped<P>,
}

impl<P> Configured<ConditionalConfig> for Conditional<P> {
    fn new(config: &ConditionalConfig, zero: Time) -> Self {
        Self {
            opportunities: Opportunities::new(config, zero),
            queue: config.new_queue(zero),
            serving: None,
            owed: 0.0,
            line: DelayLine::new(false),
            sent: zero,
            floor: (Bytes(0), config.model.delays.floor(Bytes(0))),
            trend: 0,
            credit: 0.0,
            instant: Time::ZERO,
            each: 0.0,
            service: None,
            event: None,
            closed: None,
            dropped: Dropped::new(),
            config: config.clone(),
        }
    }

    /// Apply `config` from `now` on.
    fn change(&mut self, config: &ConditionalConfig, zero: Time, now: Time, offset: Duration) {
        let before = std::mem::replace(&mut self.config, config.clone());
        if before.queue != config.queue {
            let (next, surcharge) = (config.new_queue(zero), self.surcharge());
            self.queue.replace(next, surcharge, &mut self.dropped);
        }
        self.opportunities.change(config, zero, offset);
        self.floor = (Bytes(0), config.model.delays.floor(Bytes(0)));
        self.trend = 0;
        self.opportunities.saturate(now, !self.is_empty());
        self.look_ahead();
    }
}

impl<P> Behaviour<P> for Conditional<P> {
    /// Play the recording from `zero` on, as of `now`; the link is cold, packets stay.
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.opportunities.restart(&self.config, zero, offset);
        self.queue.restart(zero);
        if self.is_empty() {
            self.sent = zero; // idle for as long as a new link
        }
        self.opportunities.saturate(now, !self.is_empty());
        self.look_ahead();
    }

    /// Closed: sends nothing from `now` on. Open: continues as the saturated link, with the outage as idle time.
    fn set_closed(&mut self, closed: bool, _: bool, _: Share, now: Time) {
        match self.closed {
            None if closed => self.closed = Some(now),
            Some(since) if !closed => {
                self.closed = None;
                self.credit = 0.0;
                self.instant = now;
                let waiting = !self.is_empty();
                self.opportunities.resume(now, now.since(since), waiting);
            }
            _ => return,
        }
        self.look_ahead();
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.event
    }

    fn step(&mut self, now: Time) -> Option<Step<P>> {
        if self.line.next().is_some_and(|arrival| arrival <= now) {
            let step = self.line.pop().map(Step::Left);
            self.event = earlier(self.line.next(), self.service);
            return step;
        }
        self.serve(now);
        self.look_ahead();
        Some(Step::Within)
    }

    fn level(&self) -> Option<QueueLevel> {
        Some(self.queue.level().and_serving(self.serving.as_ref()))
    }

    fn offer(&self) -> Option<Offer> {
        let saturated = self.opportunities.saturated();
        Some(Offer::Saturated(Box::new(saturated)))
    }

    #[inline]
    fn dropped(&mut self) -> Option<&mut Dropped<P>> {
        Some(&mut self.dropped)
    }
}

impl<P> Conditional<P> {
    /// Accept a packet; events up to `now` must have been taken.
    pub(crate) fn accept(&mut self, now: Time, mut item: Item<P>) -> Admission<P> {
        item.entered = now;
        let alone = self.is_empty();
        let size = item.size;
        let surcharge = self.surcharge();
        if let Err((item, reason)) = self.queue.push(now, item, surcharge, &mut self.dropped) {
            self.look_ahead();
            return Admission::Refused(item, reason);
        }
        if alone {
            self.opportunities.wake(now, size, self.sent);
            self.credit = 0.0;
            self.instant = now;
        }
        let level = self.queue.level().and_serving(self.serving.as_ref());
        let (packets, waiting) = (level.packets, self.waiting());
        let most = self.opportunities.grown(now, packets, waiting, self.sent);
        if alone || most || !self.dropped.is_empty() {
            self.look_ahead();
        }
        Admission::Queued
    }

    /// Update the state after a change of the queue or of its service.
    #[inline]
    fn look_ahead(&mut self) {
        self.service = self.next_service();
        self.event = earlier(self.line.next(), self.service);
    }

    /// Return when the next bytes can be sent.
    #[inline]
    fn next_service(&self) -> Option<Time> {
        if self.is_empty() || self.closed.is_some() {
            return None;
        }
        if self.credit > 0.0 {
            return Some(self.instant);
        }
        let next = self.opportunities.next()?;
        Some(next.max(self.instant))
    }

    fn serve(&mut self, now: Time) {
        if self.credit <= 0.0 {
            let earned = self.opportunities.take(now, self.sent);
            self.instant = now;
            self.each = earned.each;
            self.credit += earned.bytes;
        }
        // A packet leaves with the opportunity that carries most of it.
        let slack = 0.5 * self.each;
        while self.credit > 0.0 {
            if self.serving.is_some() {
                if self.owed > self.credit + slack {
                    self.owed -= self.credit;
                    self.credit = 0.0;
                    break;
                }
                self.credit -= self.owed;
                if let Some(item) = self.serving.take() {
                    self.send(now, item);
                }
            } else if let Some(item) = self.queue.pop(now, &mut self.dropped) {
                let owed = item.size.0 as f64;
                if owed > self.credit + slack {
                    self.owed = owed - self.credit;
                    self.serving = Some(item);
                    self.credit = 0.0;
                    break;
                }
                self.credit -= owed;
                self.send(now, item);
            } else {
                break;
            }
        }
        if self.is_empty() {
            self.credit = 0.0;
        } else {
            self.opportunities.look_up(now);
        }
    }

    /// Pass a completely sent packet to the path behind.
    #[inline]
    fn send(&mut self, now: Time, item: Item<P>) {
        let delays = &self.config.model.delays;
        if self.floor.0 != item.size {
            self.floor = (item.size, delays.floor(item.size));
        }
        let trend = delays.trend(self.opportunities.position(now), &mut self.trend);
        let hold = self.opportunities.take_hold();
        let delay = self.floor.1.applied_to(trend);
        self.sent = now;
        let released = now;
        self.line
            .push(now + delay + hold, Item { released, ..item });
    }

    fn is_empty(&self) -> bool {
        self.serving.is_none() && self.queue.is_empty()
    }

    fn waiting(&self) -> f64 {
        let rest = self.serving.as_ref().map_or(0.0, |_| self.owed);
        self.queue.level().bytes.0 as f64 + rest
    }

    fn surcharge(&self) -> Surcharge {
        Surcharge::of_serving(self.serving.as_ref())
    }
}
