//! The stage: a delay and a bottleneck that share a state.

use std::collections::VecDeque;

use super::{Anchor, IdleAt, Shift, WorkloadDependentConfig};
use crate::bottleneck::{Admission, Bottleneck};
use crate::delay::DelayLine;
use crate::packet::{Item, Step};
use crate::queue::{Dropped, QueueLevel};
use crate::schedule::{Head, Offer};
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time, earlier};
use crate::units::Share;

/// The public tool compares strictly (`cellular_queue.cc`: idle for *more* than F), in whole milliseconds: the link
/// must have been idle for one millisecond more than F. Otherwise, with F = 0, each packet of a burst would activate
/// the link again.
const TICK: Duration = Duration::from_millis(1);

/// The stage. An activation travels with its packet, and splices the schedule when the packet enters the queue, which
/// is then empty.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadDependent<P> {
    config: WorkloadDependentConfig,
    /// Packets on the way to the queue.
    line: DelayLine<Item<P>>,
    /// Number of packets that have reached the queue, and number that have arrived.
    entered: u64,
    come: u64,
    /// Activations on the way to the queue, with their packets' numbers; separate, because they are few.
    activations: VecDeque<(u64, Head)>,
    bottleneck: Bottleneck<P>,
    /// The base delay of the link while it is active.
    active: Option<Duration>,
    /// Departure of the last packet, if there is none left.
    empty_since: Time,
    /// Time of the last change of the schedule.
    spliced: Option<Time>,
}

impl<P> Configured<WorkloadDependentConfig> for WorkloadDependent<P> {
    fn new(config: &WorkloadDependentConfig, zero: Time) -> Self {
        Self {
            bottleneck: Bottleneck::new(&config.bottleneck(), zero),
            config: config.clone(),
            line: DelayLine::new(false),
            entered: 0,
            come: 0,
            activations: VecDeque::new(),
            active: None,
            empty_since: Time::ZERO,
            spliced: None,
        }
    }

    /// Apply `config` from `now` on. A new heavy recording serves the packets in the queue at once; delay and light
    /// opportunities follow the new recording from the next activation on.
    fn change(
        &mut self,
        config: &WorkloadDependentConfig,
        zero: Time,
        now: Time,
        offset: Duration,
    ) {
        self.bottleneck
            .change(&config.bottleneck(), zero, now, offset);
        self.config = config.clone();
    }
}

impl<P> Behaviour<P> for WorkloadDependent<P> {
    /// Play the recording from `zero` on, as of `now`. Packets and their light opportunities stay; an empty link is
    /// inactive.
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.bottleneck.restart(zero, now, offset);
        if self.is_empty() {
            self.active = None;
        }
    }

    fn set_closed(&mut self, closed: bool, _: bool, _: Share, now: Time) {
        self.bottleneck.set_closed(closed, false, Share::WHOLE, now);
    }

    fn next_event(&self) -> Option<Time> {
        earlier(self.bottleneck.next_event(), self.line.next())
    }

    /// Process the [event](Self::next_event) due at `now`: departures before arrivals.
    fn step(&mut self, now: Time) -> Option<Step<P>> {
        let departure = self.bottleneck.next_event();
        let step = if departure.is_some_and(|event| event <= now) {
            self.bottleneck.step(now).map(delay_behind_queue)
        } else {
            let item = self.line.pop()?;
            Some(self.enter(now, item))
        };
        if self.is_empty() {
            self.empty_since = now;
        }
        step
    }

    fn dropped(&mut self) -> Option<&mut Dropped<P>> {
        self.bottleneck.dropped()
    }

    fn level(&self) -> Option<QueueLevel> {
        self.bottleneck.level()
    }

    fn rank(&self) -> u32 {
        self.bottleneck.rank()
    }

    fn offer(&self) -> Option<Offer> {
        self.bottleneck.offer()
    }
}

impl<P> WorkloadDependent<P> {
    pub(crate) fn accept(&mut self, now: Time, item: Item<P>) {
        let shift = self.config.compensation.of(item.size);
        let delay = match self.active {
            Some(delay) if !self.is_cold(now, shift, delay) => delay,
            _ => {
                let (position, delay) = self.base_delay(now);
                let base = match self.config.anchor {
                    Anchor::BaseDelay => now + delay,
                    Anchor::FirstPacket => now + shift.applied_to(delay),
                };
                let head = Head::new(&self.config.light, position, base);
                self.activations.push_back((self.come, head));
                self.active = Some(delay);
                delay
            }
        };
        self.come += 1;
        self.line.push(now + shift.applied_to(delay), item);
    }

    fn enter(&mut self, now: Time, item: Item<P>) -> Step<P> {
        let number = self.entered;
        self.entered += 1;
        if self
            .activations
            .front()
            .is_some_and(|&(first, _)| first == number)
            && let Some((_, head)) = self.activations.pop_front()
        {
            self.spliced = Some(head.base().max(now));
            self.bottleneck.splice(now, head);
        }
        match self.bottleneck.accept(now, item) {
            Admission::Queued => Step::Within,
            Admission::Refused(item, reason) => {
                self.bottleneck.dropped.push_back((item, reason));
                Step::Within
            }
            Admission::Passed(item) => Step::Left(item),
        }
    }

    /// Take the time of a change of the schedule since the last call.
    pub(crate) fn take_spliced(&mut self) -> Option<Time> {
        self.spliced.take()
    }

    /// Return the position in the recording, and the base delay there.
    fn base_delay(&self, now: Time) -> (Duration, Duration) {
        let position = self.bottleneck.service().position(now);
        (position, self.config.light.base_delay(position))
    }

    /// Return whether the link, active until now, is inactive for a packet that arrives now.
    ///
    /// active: the base delay of the active link.
    fn is_cold(&self, now: Time, shift: Shift, active: Duration) -> bool {
        let idle = self.config.idle;
        match self.config.idle_at {
            IdleAt::Link => self.is_empty() && now >= self.empty_since + idle,
            IdleAt::Queue => {
                let last = self.line.last();
                let entry = |delay| last.max(now + shift.applied_to(delay));
                let idle = idle + TICK;
                // The first comparison saves the others while packets follow each other. The last comparison ensures
                // that the packet still finds an empty queue with the new base delay, which may be shorter, because its
                // schedule begins there.
                entry(active) >= last + idle
                    && self.empties().is_some_and(|empty| {
                        entry(active) >= empty + idle && entry(self.base_delay(now).1) >= empty
                    })
            }
        }
    }

    /// Return when the last present packet leaves, if none is dropped; `None` if unknown.
    fn empties(&self) -> Option<Time> {
        if self.is_empty() {
            return Some(self.empty_since);
        }
        if self.bottleneck.is_closed() {
            return None;
        }
        let (mut service, mut free) = self.bottleneck.drained(self.empty_since)?;
        let mut activations = self.activations.iter().peekable();
        for (number, (entry, item)) in (self.entered..).zip(self.line.in_order()) {
            if let Some((_, head)) = activations.next_if(|(first, _)| *first == number) {
                service.splice(entry, head.clone());
            }
            if entry > free {
                service.wake(entry);
            }
            service.begin(item.size);
            free = service.departure()?;
            service.finish(free);
        }
        Some(free)
    }

    fn is_empty(&self) -> bool {
        self.line.next().is_none() && self.bottleneck.is_empty()
    }
}

/// Accounts for a packet's delay as if it came after the queue, as on other links: `released` − `arrived` is queueing
/// and service, and the rest until departure is the delay.
fn delay_behind_queue<P>(step: Step<P>) -> Step<P> {
    match step {
        Step::Left(item) => {
            let released = item.arrived + item.released.since(item.entered);
            Step::Left(Item { released, ..item })
        }
        Step::Within => Step::Within,
    }
}
