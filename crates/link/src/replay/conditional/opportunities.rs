//! Sources of opportunities: the delay of a single packet, a train as long as the queue, the saturated link.

use std::sync::Arc;

use super::saturated::{Opportunity, SaturatedPlayback};
use super::states::TrainSet;
use super::{ConditionalConfig, ConditionalModel};
use crate::random::Random;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// The opportunities of a link, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Opportunities {
    model: Arc<ConditionalModel>,
    playback: SaturatedPlayback,
    random: Random,
    source: Source,
    /// Number of the group of trains for the last idle time, if any.
    group: Option<usize>,
    /// Arrival of the packet that found the link idle.
    busy_since: Time,
    /// Maximum of waiting bytes in the busy period.
    peak: f64,
    /// Number of delays of an idle link up to the last position.
    hint: usize,
    /// Send time of the played train.
    anchor: Time,
    /// Random number: decides between trains of two lengths.
    luck: f64,
    /// Opportunity of the packet that found the link idle.
    first: Time,
    /// The next opportunity of the saturated link, looked up only while packets wait.
    next: Option<Opportunity>,
    /// Bytes of the saturated link's opportunities that are used, or were unused when last counted.
    used: f64,
    /// Bytes of those that had passed when last counted.
    passed: f64,
    /// Number of opportunities of a cycle before the last count.
    passed_hint: usize,
    /// Time until which too many bytes are ahead of the saturated link.
    held: Time,
}

/// Source of the next opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// One opportunity at an instant.
    Single(Time),
    /// A train: number of the set, of the train, and of the next packet.
    Train(usize, usize, usize),
    /// The saturated link.
    Saturated,
}

impl Opportunities {
    pub(super) fn new(config: &ConditionalConfig, zero: Time) -> Self {
        Self {
            model: Arc::clone(&config.model),
            playback: SaturatedPlayback::new(config, zero, Duration::ZERO),
            random: Random::new(config.seed_at(Duration::ZERO)),
            source: Source::Saturated,
            group: None,
            busy_since: Time::ZERO,
            peak: 0.0,
            hint: 0,
            anchor: Time::ZERO,
            luck: 0.0,
            first: Time::ZERO,
            next: None,
            used: 0.0,
            passed: 0.0,
            passed_hint: 0,
            held: Time::ZERO,
        }
    }

    /// Play the recording from `zero` on; the link is cold. Call [`saturate`](Self::saturate) next.
    pub(super) fn restart(&mut self, config: &ConditionalConfig, zero: Time, offset: Duration) {
        self.random = Random::new(config.seed_at(offset));
        self.play(config, zero, offset);
    }

    /// Apply `config`. Call [`saturate`](Self::saturate) next.
    pub(super) fn change(&mut self, config: &ConditionalConfig, zero: Time, offset: Duration) {
        self.model = Arc::clone(&config.model);
        self.group = None;
        self.play(config, zero, offset);
    }

    fn play(&mut self, config: &ConditionalConfig, zero: Time, offset: Duration) {
        self.playback = SaturatedPlayback::new(config, zero, offset);
        (self.used, self.passed) = (0.0, 0.0);
    }

    /// Return the position of `now` in the recording.
    pub(super) fn position(&mut self, now: Time) -> Duration {
        self.playback.position(now)
    }

    /// Return the opportunities of the saturated link.
    pub(super) fn saturated(&self) -> SaturatedPlayback {
        self.playback.clone()
    }

    /// Begin a busy period with a packet of `size` bytes; the previous one was sent at `sent`.
    pub(super) fn wake(&mut self, now: Time, size: Bytes, sent: Option<Time>) {
        self.hold();
        let model = &self.model;
        let position = self.playback.position(now);
        let idle = sent.map_or(Duration::MAX, |sent| now.since(sent));
        let wait = {
            let (random, hint) = (&mut self.random, &mut self.hint);
            model.delays.draw(position, idle, size, random, hint)
        };
        self.peak = 0.0;
        self.busy_since = now;
        self.anchor = now;
        self.next = None;
        self.first = self.held.max(now + wait);
        if model.aligned {
            self.next = self.playback.first_at(self.first);
            self.first = self.next.map_or(Time::MAX, |next| next.at);
        }
        self.source = Source::Single(self.first);
        self.luck = self.random.unit();
        let group = model.trains.partition_point(|group| group.idle() <= idle);
        self.group = group.checked_sub(1);
    }

    /// Record that `packets` of `bytes` wait. Return whether this is the maximum of the busy period.
    pub(super) fn grown(
        &mut self,
        now: Time,
        packets: Packets,
        bytes: f64,
        sent: Option<Time>,
    ) -> bool {
        let most = bytes > self.peak;
        if most {
            self.peak = bytes;
            self.choose(now, packets.0, sent);
        }
        most
    }

    /// Changes to a train as long as the backlog.
    fn choose(&mut self, now: Time, packets: u64, sent: Option<Time>) {
        let Some(group) = self.group.filter(|_| packets > 1) else {
            return;
        };
        let (peak, group) = (self.peak, &self.model.trains[group]);
        let trains = group.sets();
        let Some((first, last)) = group.nearest(peak / packets as f64) else {
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
        let neighbours = self.model.train_neighbours;
        let train = trains[wanted].draw(position, neighbours, &mut self.random);
        let arrivals = trains[wanted].train(train);
        let begun = self.is_begun(sent); // the first packet is gone
        if group.is_anchored() || now > self.busy_since {
            self.anchor = back(self.first, arrivals[0]);
        } else {
            self.anchor = now;
            self.first = now + arrivals[0];
        }
        let since = now.since(self.anchor);
        let next = arrivals.partition_point(|&arrival| arrival < since);
        let next = next.max(usize::from(begun));
        if next < arrivals.len() {
            self.source = Source::Train(wanted, train, next);
            self.hold();
        }
    }

    /// Return the next opportunity; `None` if there is none, or if not [looked up](Self::look_up).
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        match self.source {
            Source::Single(at) => Some(at).filter(|&at| at < Time::MAX),
            Source::Train(set, train, next) => {
                let at = self.anchor + self.sets().get(set)?.train(train)[next];
                Some(at.max(self.held))
            }
            Source::Saturated => Some(self.next?.at),
        }
    }

    /// Take the next opportunity, at `now`; return its bytes. Call [`look_up`](Self::look_up) next if packets wait.
    pub(super) fn take(&mut self, now: Time) -> f64 {
        let saturated = self.model.saturated.size().0 as f64;
        match self.source {
            Source::Single(_) => {
                // Several opportunities can have one time.
                self.next = self.next.and_then(|next| self.playback.after(next));
                self.source = Source::Saturated;
                saturated
            }
            Source::Train(set, train, next) => {
                let (length, packet) = {
                    let set = &self.sets()[set];
                    (set.length(), set.packet())
                };
                if next + 1 < length {
                    self.source = Source::Train(set, train, next + 1);
                } else {
                    self.go_on(set, now);
                }
                packet.0 as f64
            }
            Source::Saturated => {
                self.next = self.next.and_then(|next| self.playback.after(next));
                saturated
            }
        }
    }

    /// Record that `bytes` are sent at `now`.
    ///
    /// Delays of single packets and trains do not limit the rate. The saturated link does: a limited number of bytes
    /// passes ahead of its opportunities, as through a token bucket that they fill. They are counted when the bucket
    /// could be empty, which is seldom; so up to twice this number of bytes passes after an idle time.
    #[inline]
    pub(super) fn spend(&mut self, now: Time, bytes: f64) {
        self.used += bytes;
        if self.used - self.passed > self.model.ahead.0 as f64 {
            let passed = self.playback.passed(now, &mut self.passed_hint);
            self.passed = passed as f64 * self.model.saturated.size().0 as f64;
            self.used = self.used.max(self.passed + bytes);
        }
        if let Source::Train(..) = self.source {
            self.hold();
        }
    }

    /// Find the time until which single packets and trains wait for the saturated link.
    #[inline]
    fn hold(&mut self) {
        let excess = self.used - self.model.ahead.0 as f64;
        self.held = Time::ZERO;
        if excess > self.passed {
            let last = (excess / self.model.saturated.size().0 as f64).ceil() as u64 - 1;
            self.held = self.playback.time_of(last).unwrap_or(Time::MAX);
        }
    }

    /// Continue after the end of a train: like a longer train, or as the saturated link.
    fn go_on(&mut self, set: usize, now: Time) {
        let trains = self
            .group
            .map_or(&[][..], |group| self.model.trains[group].sets());
        let (ended, longer) = (&trains[set], set + 1);
        let most = self.model.reach * self.peak;
        let further = trains.get(longer).filter(|further| {
            further.packet() == ended.packet() && (further.bytes().0 as f64) < most
        });
        let Some(further) = further else {
            return self.saturate(now, false);
        };
        let (position, served) = (self.playback.position(now), ended.length());
        let neighbours = self.model.train_neighbours;
        let train = further.draw(position, neighbours, &mut self.random);
        self.anchor = back(now, further.train(train)[served - 1]);
        self.source = Source::Train(longer, train, served);
    }

    /// Continues with the saturated link, at opportunities after `now`. The next one is looked up only if `waited_for`.
    pub(super) fn saturate(&mut self, now: Time, waited_for: bool) {
        self.source = Source::Saturated;
        self.next = None;
        if waited_for {
            self.look_up(now);
        }
    }

    /// Continue at `now`, after others had the opportunities before, and `taken` bytes of those at `now`.
    pub(super) fn skip(&mut self, now: Time, taken: u64) {
        match self.source {
            Source::Single(at) if at > now || at == now && taken == 0 => return,
            Source::Train(set, train, next) => {
                let arrivals = &self.sets()[set].train(train)[next..];
                let passed = arrivals.partition_point(|&arrival| self.anchor + arrival < now);
                if passed < arrivals.len() {
                    self.source = Source::Train(set, train, next + passed);
                    return;
                }
            }
            _ => {}
        }
        self.source = Source::Saturated;
        if self.next.is_none_or(|next| next.at <= now) {
            self.next = self.playback.first_at(now);
            for _ in 0..taken.div_ceil(self.model.saturated.size().0) {
                self.next = self.next.and_then(|next| self.playback.after(next));
            }
        }
    }

    /// Return the earliest time at which waiting packets can get the saturated link's opportunities.
    pub(super) fn ready(&self) -> Time {
        match self.source {
            Source::Saturated => Time::ZERO,
            _ => self.next().unwrap_or(Time::MAX),
        }
    }

    /// Find the saturated link's next opportunity after `now`, if needed and unknown.
    pub(super) fn look_up(&mut self, now: Time) {
        if self.source == Source::Saturated && self.next.is_none() {
            self.next = self.playback.first_at(now + Duration::from_nanos(1));
        }
    }

    /// Return the train sets for the last idle time.
    #[inline]
    fn sets(&self) -> &[TrainSet] {
        self.group
            .map_or(&[], |group| self.model.trains[group].sets())
    }

    /// Return whether the packet that found an idle link has been sent.
    fn is_begun(&self, sent: Option<Time>) -> bool {
        sent >= Some(self.busy_since)
    }
}

/// Return the instant a span before another.
fn back(from: Time, span: Duration) -> Time {
    Time::from_nanos(from.as_nanos().saturating_sub(span.as_nanos()))
}
