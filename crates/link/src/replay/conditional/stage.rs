//! The stage: a queue, served as the recorded network served packets in the same situation, and the path behind it.

use super::ConditionalConfig;
use super::loss::Losses;
use super::opportunities::Opportunities;
use crate::bottleneck::Admission;
use crate::delay::DelayLine;
use crate::packet::{DropReason, Item, Step};
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
    losses: Losses,
    queue: Queue<P>,
    /// The partly sent packet.
    serving: Option<Item<P>>,
    /// Unsent bytes of this packet.
    owed: f64,
    line: DelayLine<Item<P>>,
    /// Send time of the last packet; `None` for a new link, which was idle for long.
    sent: Option<Time>,
    /// Size of the last packet, and the minimum excess delay over the trend for this size.
    floor: (Bytes, Shift),
    /// Points of the trend up to the last packet.
    trend: usize,
    /// Bytes that can be sent at `instant`; negative if bytes were sent too early.
    credit: f64,
    instant: Time,
    /// Bytes of the opportunities taken at `instant`, by this link and by others that share a cell.
    taken: f64,
    /// Size of the last opportunity, bytes.
    each: f64,
    /// Time at which the next bytes can be sent.
    service: Option<Time>,
    /// Next event within, or next departure: read more often than it changes.
    event: Option<Time>,
    closed: bool,
    /// True while a cell serves another user.
    barred: bool,
    dropped: Dropped<P>,
}

impl<P> Configured<ConditionalConfig> for Conditional<P> {
    fn new(config: &ConditionalConfig, zero: Time) -> Self {
        Self {
            opportunities: Opportunities::new(config, zero),
            losses: Losses::new(config.seed_at(Duration::ZERO)),
            queue: config.new_queue(zero),
            serving: None,
            owed: 0.0,
            line: DelayLine::new(false),
            sent: None,
            floor: (Bytes(0), config.model.delays.floor(Bytes(0))),
            trend: 0,
            credit: 0.0,
            instant: Time::ZERO,
            taken: 0.0,
            each: 0.0,
            service: None,
            event: None,
            closed: false,
            barred: false,
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
        self.losses = Losses::new(self.config.seed_at(offset));
        self.queue.restart(zero);
        if self.is_empty() {
            self.sent = None;
        }
        self.opportunities.saturate(now, !self.is_empty());
        self.look_ahead();
    }

    /// Closed: sends nothing from `now` on. Open: continues as the saturated link.
    ///
    /// Barred: another user has the opportunities. After the end of a packet's delay or of a train, the packets wait
    /// for those of the saturated link.
    fn set_closed(&mut self, closed: bool, barred: bool, share: Share, now: Time) {
        let admitted = std::mem::replace(&mut self.barred, barred) && !barred;
        if admitted && !self.is_empty() {
            let all = self.offered_at(now);
            let taken = all - share.of(all);
            self.opportunities.skip(now, taken);
            self.taken = taken as f64;
            self.instant = now;
            self.credit = self.credit.min(0.0);
        }
        if self.closed && !closed {
            self.credit = 0.0;
            self.instant = now;
            self.opportunities.saturate(now, !self.is_empty());
        }
        self.closed = closed;
        self.look_ahead();
    }

    fn flush(&mut self) {
        self.queue.flush(self.serving.take(), &mut self.dropped);
        self.look_ahead();
    }

    fn ready(&self) -> Time {
        self.opportunities.ready()
    }

    fn left(&self, now: Time) -> Share {
        if now != self.instant {
            return Share::WHOLE;
        }
        let all = self.offered_at(now);
        Share::new(all.saturating_sub(self.taken as u64), all)
    }

    fn potential(&self, from: Time, to: Time) -> f64 {
        self.opportunities.saturated().capacity(from, to).0 as f64
    }

    fn queue_event(&self) -> Option<Time> {
        self.service
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
        let loss = self.config.model.loss.as_ref();
        if loss.is_some_and(|chain| self.losses.strikes(chain, now)) {
            return Admission::Refused(item, DropReason::Loss);
        }
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
        if self.is_empty() || self.closed || self.barred {
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
            self.each = self.opportunities.take(now);
            self.taken = self.each + if now == self.instant { self.taken } else { 0.0 };
            self.instant = now;
            self.credit += self.each;
        }
        let offered = self.credit;
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
        self.opportunities.spend(now, offered - self.credit);
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
        let delay = self.floor.1.applied_to(trend);
        self.sent = Some(now);
        let released = now;
        self.line.push(now + delay, Item { released, ..item });
    }

    /// Return the bytes of the saturated link's opportunities at `now`.
    fn offered_at(&self, now: Time) -> u64 {
        self.potential(now, now + Duration::from_nanos(1)) as u64
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
