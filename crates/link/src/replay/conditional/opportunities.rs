//! Sources of opportunities: the delay of a single packet, a train as long as the queue, the saturated link.

use std::sync::Arc;

use super::saturated::{Opportunity, SaturatedPlayback};
use super::states::Families;
use super::warmup::{Share, Warmth};
use super::{ConditionalConfig, ConditionalModel};
use crate::random::Random;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Maximum busy time of a link that still counts as cold.
const COLD: Duration = Duration::from_micros(500);
/// Minimum idle time for first packets to find the device asleep, unlike packets of the trains.
const SLEEPY: Duration = Duration::from_millis(190);

/// The opportunities of a link, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Opportunities {
    model: Arc<ConditionalModel>,
    playback: SaturatedPlayback,
    random: Random,
    source: Source,
    families: Families,
    /// Arrival of the packet that found the link idle.
    busy_since: Time,
    warmth: Warmth,
    /// Last update of the warmth.
    updated: Time,
    /// Send time of the played train.
    anchor: Time,
    /// Excess delay over the minimum of a packet that found an idle link.
    hold: Duration,
    /// Random number: decides between trains of two lengths.
    luck: f64,
    /// True if the link was cold when it became busy.
    cold: bool,
    /// Delay of a first packet that may find the device asleep.
    late: Option<Duration>,
    /// The next opportunity of the saturated link, looked up only while packets wait.
    next: Option<Opportunity>,
    /// The share of these opportunities, kept while the warmth is about the same.
    share: Share,
}

/// Capacity earned by an opportunity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earned {
    /// Bytes that can be sent.
    pub bytes: f64,
    /// Bytes without the warm-up.
    pub each: f64,
}

impl Earned {
    fn all(bytes: f64) -> Self {
        Self { bytes, each: bytes }
    }
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
            random: Random::new(config.seed),
            source: Source::Saturated,
            families: Families::of(&config.model.trains),
            busy_since: Time::ZERO,
            warmth: Warmth::default(),
            updated: Time::ZERO,
            anchor: Time::ZERO,
            hold: Duration::ZERO,
            luck: 0.0,
            cold: false,
            late: None,
            next: None,
            share: Share::default(),
        }
    }

    /// Play the recording from `zero` on; the link is cold. Call [`saturate`](Self::saturate) next.
    pub(super) fn restart(&mut self, config: &ConditionalConfig, zero: Time, offset: Duration) {
        self.playback = SaturatedPlayback::new(config, zero, offset);
        self.random = Random::new(config.seed);
        self.warmth = Warmth::default();
    }

    /// Apply `config`; the link stays as warm as before. Call [`saturate`](Self::saturate) next.
    pub(super) fn change(&mut self, config: &ConditionalConfig, zero: Time, offset: Duration) {
        self.model = Arc::clone(&config.model);
        self.playback = SaturatedPlayback::new(config, zero, offset);
        self.families = Families::of(&config.model.trains);
        self.share = Share::default();
    }

    /// Return the position of `now` in the recording.
    pub(super) fn position(&mut self, now: Time) -> Duration {
        self.playback.position(now)
    }

    /// Return the opportunities of the saturated link.
    pub(super) fn saturated(&self) -> SaturatedPlayback {
        self.playback.clone()
    }

    /// Take the excess delay over the minimum of the packet that is sent now.
    pub(super) fn take_hold(&mut self) -> Duration {
        std::mem::take(&mut self.hold)
    }

    /// Begin a busy period with a packet of `size` bytes; the previous one was sent at `sent`.
    pub(super) fn wake(&mut self, now: Time, size: Bytes, sent: Time) {
        let model = &self.model;
        let position = self.playback.position(now);
        let idle = now.since(sent);
        let drawn = model.delays.draw(position, idle, size, &mut self.random);
        self.warmth = model.warm_up.cooled(self.warmth, idle);
        self.busy_since = now;
        self.anchor = now;
        self.source = Source::Single(now + drawn.wait);
        self.hold = drawn.hold;
        self.luck = self.random.unit();
        self.cold = self.warmth.busy < COLD;
        self.late = (idle >= SLEEPY).then_some(drawn.wait);
    }

    /// Record that `packets` of `bytes` wait. Return whether this is the maximum of the busy period.
    pub(super) fn grown(&mut self, now: Time, packets: Packets, bytes: f64, sent: Time) -> bool {
        let most = bytes > self.warmth.peak;
        if most {
            self.warmth.peak = bytes;
            self.choose(now, packets.0, sent);
        }
        most
    }

    /// Changes to a train as long as the backlog.
    fn choose(&mut self, now: Time, packets: u64, sent: Time) {
        if !self.cold || packets < 2 {
            return;
        }
        let (peak, trains) = (self.warmth.peak, &self.model.trains);
        let mean = peak / packets as f64;
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
        let neighbours = self.model.delays.neighbours();
        let train = trains[wanted].draw(position, neighbours, &mut self.random);
        let arrivals = trains[wanted].train(train);
        let begun = self.is_begun(sent); // the first packet is gone
        if !begun && let Some(late) = self.late {
            self.anchor = back(self.busy_since + late, arrivals[0]).max(self.busy_since);
        }
        let since = now.since(self.anchor);
        let next = arrivals.partition_point(|&arrival| arrival < since);
        let next = next.max(usize::from(begun));
        if next < arrivals.len() {
            self.source = Source::Train(wanted, train, next);
            self.hold = Duration::ZERO; // the train includes it
        }
    }

    /// Return the next opportunity; `None` if there is none, or if not [looked up](Self::look_up).
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        match self.source {
            Source::Single(at) => Some(at),
            Source::Train(set, train, next) => {
                Some(self.anchor + self.model.trains[set].train(train)[next])
            }
            Source::Saturated => Some(self.next?.at),
        }
    }

    /// Take the next opportunity, at `now`. The last packet was sent at `sent`.
    pub(super) fn take(&mut self, now: Time, sent: Time) -> Earned {
        if !self.is_begun(sent) {
            self.updated = now; // the warm-up counts from the first packet on
        }
        self.warmth.busy += now.since(self.updated);
        self.updated = now;
        let saturated = self.model.saturated.size().0 as f64;
        match self.source {
            Source::Single(_) => {
                self.saturate(now, true);
                Earned::all(saturated)
            }
            Source::Train(set, train, next) => {
                let (length, packet) = {
                    let set = &self.model.trains[set];
                    (set.length(), set.packet())
                };
                if next + 1 < length {
                    self.source = Source::Train(set, train, next + 1);
                } else {
                    self.go_on(set, now);
                }
                Earned::all(packet.0 as f64)
            }
            Source::Saturated => {
                self.next = self.next.and_then(|next| self.playback.after(next));
                let share = self.model.warm_up.share(self.warmth, &mut self.share);
                Earned {
                    bytes: saturated * share,
                    each: saturated,
                }
            }
        }
    }

    /// Continue after the end of a train: like a longer train, or as the saturated link.
    fn go_on(&mut self, set: usize, now: Time) {
        let trains = &self.model.trains;
        let (ended, longer) = (&trains[set], set + 1);
        let most = self.model.reach * self.warmth.peak;
        let further = trains.get(longer).filter(|further| {
            further.packet() == ended.packet() && (further.bytes().0 as f64) < most
        });
        let Some(further) = further else {
            return self.saturate(now, true);
        };
        let (position, served) = (self.playback.position(now), ended.length());
        let neighbours = self.model.delays.neighbours();
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

    /// Continues with the saturated link after an idle time.
    pub(super) fn resume(&mut self, now: Time, idle: Duration, waited_for: bool) {
        self.warmth = self.model.warm_up.cooled(self.warmth, idle);
        self.updated = now;
        self.saturate(now, waited_for);
    }

    /// Find the saturated link's next opportunity after `now`, if needed and unknown.
    pub(super) fn look_up(&mut self, now: Time) {
        if self.source == Source::Saturated && self.next.is_none() {
            self.next = self.playback.first_at(now + Duration::from_nanos(1));
        }
    }

    /// Return whether the packet that found an idle link has been sent.
    fn is_begun(&self, sent: Time) -> bool {
        sent >= self.busy_since
    }
}

/// Return the instant a span before another.
fn back(from: Time, span: Duration) -> Time {
    Time::from_nanos(from.as_nanos().saturating_sub(span.as_nanos()))
}
