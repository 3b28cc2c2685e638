//! The stage: a queue that is served as the recorded network served what came in the same situation, and the way behind it.

use super::ConditionalConfig;
use super::saturated::{Opportunity, SaturatedPlayback};
use super::trains::Families;
use super::warmup::{Share, Warmth};
use crate::bottleneck::Admission;
use crate::delay::Flight;
use crate::outcome::DropReason;
use crate::queue::{Dropped, Queue, QueueLevel, Surcharge};
use crate::random::Random;
use crate::replay::Shift;
use crate::schedule::Offer;
use crate::stage::{Item, Step};
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// The stage. A packet leaves the queue when it was sent, which is the least delay of its size before it was there.
#[derive(Clone, Debug)]
pub(crate) struct Conditional<P> {
    config: ConditionalConfig,
    playback: SaturatedPlayback,
    random: Random,
    queue: Queue<P>,
    /// The packet of which a part has been sent.
    serving: Option<Item<P>>,
    /// Its bytes that have not been sent.
    owed: f64,
    flight: Flight<Item<P>>,
    /// When the last packet was sent.
    sent: Time,
    /// When the packet came that found nothing before it.
    busy_since: Time,
    warmth: Warmth,
    /// Up to when the warmth is told.
    told: Time,
    source: Source,
    families: Families,
    /// When the train that is played was sent.
    anchor: Time,
    /// How much longer than at the least its packet is underway that found nothing before it.
    hold: Duration,
    /// Decides between trains of two lengths.
    luck: f64,
    /// Whether the link was cold when it became busy.
    cold: bool,
    /// By how much the first packet was late, where the trains' were not.
    late: Option<Duration>,
    /// The next opportunity of the saturated link. Not looked up before something waits for it.
    next: Option<Opportunity>,
    /// The share of its opportunities, for as long as the warmth is about the same.
    share: Share,
    /// Size of the last packet that was sent, and the least that it took more than the trend.
    floor: (Bytes, Shift),
    /// Points of the trend before it.
    trend: usize,
    /// Bytes that can be sent at `instant`; below zero what was sent too early.
    credit: f64,
    instant: Time,
    /// What the last opportunity was one of, bytes.
    each: f64,
    /// When the next bytes can be sent.
    service: Option<Time>,
    /// When something happens within, or a packet leaves: asked for more often than it changes.
    event: Option<Time>,
    dropped: Dropped<P>,
}

/// Where opportunities come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// One at an instant.
    Single(Time),
    /// A train: number of the set, of the train, and of the next packet.
    Train(usize, usize, usize),
    /// The saturated link.
    Saturated,
}

impl<P> Conditional<P> {
    pub(crate) fn new(config: ConditionalConfig, zero: Time) -> Self {
        Self {
            playback: SaturatedPlayback::new(&config, zero, Duration::ZERO),
            random: Random::new(config.seed),
            queue: Queue::new(&config.queue, zero),
            serving: None,
            owed: 0.0,
            flight: Flight::new(false),
            sent: zero,
            busy_since: Time::ZERO,
            warmth: Warmth::default(),
            told: Time::ZERO,
            source: Source::Saturated,
            anchor: Time::ZERO,
            hold: Duration::ZERO,
            luck: 0.0,
            cold: false,
            late: None,
            next: None,
            share: Share::default(),
            floor: (Bytes(0), config.model.delays.floor(Bytes(0))),
            trend: 0,
            credit: 0.0,
            instant: Time::ZERO,
            each: 0.0,
            service: None,
            event: None,
            families: Families::of(&config.model.trains),
            dropped: Dropped::new(),
            config,
        }
    }

    /// Plays the recording from `zero` on, as of `now`; the link is cold, packets stay.
    pub(crate) fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.playback = SaturatedPlayback::new(&self.config, zero, offset);
        self.random = Random::new(self.config.seed);
        self.queue.restart(zero);
        self.warmth = Warmth::default();
        if self.level().packets.0 == 0 {
            self.sent = zero; // idle for as long as a new link
        }
        self.saturate(now);
        self.look_ahead();
    }

    /// Goes on as `config` says from `now` on.
    pub(crate) fn change(
        &mut self,
        config: &ConditionalConfig,
        zero: Time,
        now: Time,
        offset: Duration,
    ) {
        let before = std::mem::replace(&mut self.config, config.clone());
        if before.queue != config.queue {
            let mut old = std::mem::replace(&mut self.queue, Queue::new(&config.queue, zero));
            while let Some(item) = old.remove() {
                let surcharge = self.surcharge();
                self.queue.adopt(item, surcharge, &mut self.dropped);
            }
        }
        self.playback = SaturatedPlayback::new(config, zero, offset);
        self.share = Share::default();
        self.floor = (Bytes(0), config.model.delays.floor(Bytes(0)));
        self.trend = 0;
        self.families = Families::of(&config.model.trains);
        self.saturate(now);
        self.look_ahead();
    }

    /// Events up to and including `now` must have been taken.
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
            self.wake(now, size);
        }
        let waiting = self.waiting();
        let most = waiting > self.warmth.peak;
        if most {
            self.warmth.peak = waiting;
            self.choose(now);
        }
        if alone || most || self.has_dropped() {
            self.look_ahead();
        }
        Admission::Queued
    }

    /// When something happens within, or a packet leaves.
    #[inline]
    pub(crate) fn next_event(&self) -> Option<Time> {
        self.event
    }

    /// Lets happen what happens at `now`, the [next event](Self::next_event).
    pub(crate) fn step(&mut self, now: Time) -> Option<Step<P>> {
        if self.flight.next().is_some_and(|arrival| arrival <= now) {
            let step = self.flight.pop().map(Step::Left);
            self.event = earlier(self.flight.next(), self.service);
            return step;
        }
        self.serve(now);
        self.look_ahead();
        Some(Step::Within)
    }

    /// What is queued, or when it is served, has changed.
    #[inline]
    fn look_ahead(&mut self) {
        self.service = self.next_service();
        self.event = earlier(self.flight.next(), self.service);
    }

    /// A packet of `size` bytes finds nothing before it.
    fn wake(&mut self, now: Time, size: Bytes) {
        let model = &self.config.model;
        let position = self.playback.position(now);
        let idle = now.since(self.sent);
        let drawn = model.delays.draw(position, idle, size, &mut self.random);
        self.warmth = model.warm_up.cooled(self.warmth, idle);
        self.busy_since = now;
        self.anchor = now;
        self.source = Source::Single(now + drawn.wait);
        self.hold = drawn.hold;
        self.luck = self.random.unit();
        self.cold = self.warmth.busy < COLD;
        self.late = (idle >= SLEEPY).then_some(drawn.wait);
        self.credit = 0.0;
        self.instant = now;
    }

    /// Turns to a train as long as what waits.
    fn choose(&mut self, now: Time) {
        let packets = self.level().packets.0;
        if !self.cold || packets < 2 {
            return;
        }
        let (peak, trains) = (self.warmth.peak, &self.config.model.trains);
        let mean = self.waiting() / packets as f64;
        let Some((first, last)) = self.families.nearest(mean) else {
            return;
        };
        let bytes = |set: usize| trains[set].bytes().0 as f64;
        let after =
            first + trains[first..=last].partition_point(|set| set.bytes().0 as f64 <= peak);
        let wanted = if after == first || after > last {
            after.min(last)
        } else {
            let part = (peak / bytes(after - 1)).ln() / (bytes(after) / bytes(after - 1)).ln();
            after - usize::from(self.luck >= part)
        };
        if let Source::Train(set, ..) = self.source
            && wanted <= set
        {
            return;
        }
        let position = self.playback.position(now);
        let neighbours = self.config.model.delays.neighbours();
        let train = trains[wanted].draw(position, neighbours, &mut self.random);
        let arrivals = trains[wanted].train(train);
        let begun = self.sent >= self.busy_since; // the first packet is gone
        if !begun && let Some(late) = self.late {
            self.anchor = back(self.busy_since + late, arrivals[0]).max(self.busy_since);
        }
        let since = now.since(self.anchor);
        let next = arrivals.partition_point(|&arrival| arrival < since);
        let next = next.max(usize::from(begun));
        if next < arrivals.len() {
            self.source = Source::Train(wanted, train, next);
            self.hold = Duration::ZERO; // the train has its own
        }
    }

    /// When the next bytes can be sent.
    #[inline]
    fn next_service(&self) -> Option<Time> {
        if self.is_empty() {
            return None;
        }
        if self.credit > 0.0 {
            return Some(self.instant);
        }
        let at = match self.source {
            Source::Single(at) => at,
            Source::Train(set, train, next) => {
                self.anchor + self.config.model.trains[set].train(train)[next]
            }
            Source::Saturated => self.next?.at,
        };
        Some(at.max(self.instant))
    }

    fn serve(&mut self, now: Time) {
        if self.credit <= 0.0 {
            self.earn(now);
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
        } else if self.source == Source::Saturated && self.next.is_none() {
            self.seek(now);
        }
    }

    /// All of a packet has been sent.
    #[inline]
    fn send(&mut self, now: Time, item: Item<P>) {
        let delays = &self.config.model.delays;
        if self.floor.0 != item.size {
            self.floor = (item.size, delays.floor(item.size));
        }
        let trend = delays.trend(self.playback.position(now), &mut self.trend);
        let hold = std::mem::take(&mut self.hold);
        let delay = self.floor.1.applied_to(trend);
        self.sent = now;
        let released = now;
        self.flight
            .push(now + delay + hold, Item { released, ..item });
    }

    /// Bytes of the next opportunity.
    fn earn(&mut self, now: Time) {
        if self.sent < self.busy_since {
            self.told = now; // the warm-up is told from the first packet on
        }
        self.warmth.busy += now.since(self.told);
        self.told = now;
        self.instant = now;
        self.each = self.config.model.saturated.each().0 as f64;
        let mut earned = self.each;
        match self.source {
            Source::Single(_) => self.saturate(now),
            Source::Train(set, train, next) => {
                let length = self.config.model.trains[set].length();
                self.each = self.config.model.trains[set].packet().0 as f64;
                earned = self.each;
                if next + 1 < length {
                    self.source = Source::Train(set, train, next + 1);
                } else {
                    self.go_on(set, now);
                }
            }
            Source::Saturated => {
                self.next = self.next.and_then(|next| self.playback.after(next));
                earned *= self
                    .config
                    .model
                    .warm_up
                    .share(self.warmth, &mut self.share);
            }
        }
        self.credit += earned;
    }

    /// A train of a set has ended: goes on as a longer one does from there, or as the saturated link.
    fn go_on(&mut self, set: usize, now: Time) {
        let trains = &self.config.model.trains;
        let (ended, longer) = (&trains[set], set + 1);
        let most = self.config.model.reach * self.warmth.peak;
        let further = trains.get(longer).filter(|further| {
            further.packet() == ended.packet() && (further.bytes().0 as f64) < most
        });
        let Some(further) = further else {
            return self.saturate(now);
        };
        let (position, served) = (self.playback.position(now), ended.length());
        let neighbours = self.config.model.delays.neighbours();
        let train = further.draw(position, neighbours, &mut self.random);
        self.anchor = back(now, further.train(train)[served - 1]);
        self.source = Source::Train(longer, train, served);
    }

    /// Goes on with the saturated link, at opportunities after `now`.
    fn saturate(&mut self, now: Time) {
        self.source = Source::Saturated;
        self.next = None;
        if !self.is_empty() {
            self.seek(now);
        }
    }

    fn seek(&mut self, now: Time) {
        self.next = self.playback.first_at(now + Duration::from_nanos(1));
    }

    fn is_empty(&self) -> bool {
        self.serving.is_none() && self.queue.is_empty()
    }

    fn waiting(&self) -> f64 {
        let rest = self.serving.as_ref().map_or(0.0, |_| self.owed);
        self.queue.level().bytes.0 as f64 + rest
    }

    /// What waits to be sent.
    pub(crate) fn level(&self) -> QueueLevel {
        self.queue.level().and_serving(self.serving.as_ref())
    }

    /// What the saturated link was offered, used or not.
    pub(crate) fn offer(&self) -> Offer {
        Offer::Saturated(Box::new(self.playback.clone()))
    }

    #[inline]
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    pub(crate) fn next_dropped(&mut self) -> Option<(Item<P>, DropReason)> {
        self.dropped.pop_front()
    }

    fn surcharge(&self) -> Surcharge {
        let serving = self.serving.as_ref();
        Surcharge {
            serving: serving.map_or_else(QueueLevel::default, |item| {
                QueueLevel::default().plus(item.size)
            }),
            overhead: Bytes(0),
        }
    }
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Up to here a link that has been busy is cold all the same.
const COLD: Duration = Duration::from_micros(500);
/// After an idleness like this first packets may find the device asleep, unlike those of the trains.
const SLEEPY: Duration = Duration::from_millis(190);
/// The instant a span before another one.
fn back(from: Time, span: Duration) -> Time {
    Time::from_nanos(from.as_nanos().saturating_sub(span.as_nanos()))
}
