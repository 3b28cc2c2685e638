//! The bottleneck: a queue served by a schedule.

use crate::packet::{DropReason, Item, Step};
use crate::queue::{Discipline, Dropped, Queue, QueueLevel, Surcharge};
use crate::schedule::{Head, Offer, Schedule, Service};
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time};
use crate::units::{Bytes, MTU, Packets, Share};

/// A bottleneck: its schedule, its queue and how bytes are charged.
///
/// Opportunities are served byte by byte. Each carries `opportunity` bytes: it may finish several packets, a partly
/// sent packet continues with the next opportunity, and unused bytes are lost. A packet may use the opportunities at or
/// after the instant of its arrival; at that instant earlier packets are served first.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, Bytes, Direction, Discipline, DropReason, Fate, Limit, Packets,
/// Schedule, Time};
///
/// let queue = Discipline::DropTail(Limit::packets(2));
/// let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))).with_queue(queue);
/// let mut link = Direction::new(vec![bottleneck.into()], Time::ZERO);
/// for packet in ["first", "second", "third"] {
///     link.accept(Time::ZERO, packet, Bytes(1500)); // 1 ms each
/// }
/// let full = link.poll(Time::ZERO).unwrap();
/// assert_eq!((full.packet, full.fate), ("third", Fate::Dropped(DropReason::QueueFull)));
/// assert_eq!(link.poll(Time::from_millis(5)).unwrap().departed, Time::from_millis(1));
/// assert_eq!(link.poll(Time::from_millis(5)).unwrap().departed, Time::from_millis(2));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BottleneckConfig {
    /// Times at which bytes may leave.
    pub schedule: Schedule,
    /// Discipline of the queue.
    pub queue: Discipline,
    /// Bytes that one opportunity of a trace carries.
    pub opportunity: Bytes,
    /// Bytes that a packet is charged beyond its size when a trace serves it.
    pub overhead: Bytes,
    /// Resolution of arrival times.
    pub clock: Clock,
}

/// The resolution of arrival times at a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// To the nanosecond.
    #[default]
    Exact,
    /// As in Mahimahi (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015;
    /// `link_queue.cc`): a packet's arrival time is the beginning of its millisecond, counted from the start of the
    /// schedule, and only opportunities of later milliseconds serve the packet. The limits of the queue count every
    /// packet with its `overhead`, except the packet in service.
    Milliseconds,
}

impl BottleneckConfig {
    /// A bottleneck with an infinite queue and cellbed's own accounting: opportunities of one [`MTU`], packets charged
    /// their IP length.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            queue: Discipline::Infinite,
            opportunity: MTU,
            overhead: Bytes(0),
            clock: Clock::Exact,
        }
    }

    /// A bottleneck with an infinite queue and the accounting of Mahimahi: opportunities of 1504 bytes, packets charged
    /// their IP length plus 4 bytes for the header of Mahimahi's TUN device, and times in
    /// [milliseconds](Clock::Milliseconds).
    pub fn mahimahi(schedule: Schedule) -> Self {
        Self {
            opportunity: Bytes(1504),
            overhead: Bytes(4),
            clock: Clock::Milliseconds,
            ..Self::new(schedule)
        }
    }

    /// The same bottleneck with another queue.
    pub fn with_queue(self, queue: Discipline) -> Self {
        Self { queue, ..self }
    }

    fn new_queue<P>(&self, zero: Time) -> Queue<P> {
        let packet = self.schedule.packet_time(self.opportunity, self.overhead);
        Queue::new(&self.queue, packet, zero)
    }
}

/// The stage. Departures are computed, not stepped through: only the packet in service is examined.
///
/// If the discipline decides on departure, the next packet leaves the queue only when the schedule can serve it:
/// packets before a stalled link stay in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Bottleneck<P> {
    config: BottleneckConfig,
    zero: Time,
    queue: Queue<P>,
    service: Service,
    serving: Option<Item<P>>,
    /// When the packet in service leaves the link or, without one, when the next packet leaves the queue.
    event: Option<Time>,
    /// While nothing is served: the unsent part of the packet in service, in parts of a byte.
    closed: Option<u128>,
    /// Packets that the queue has dropped.
    pub(crate) dropped: Dropped<P>,
}

/// Result of a packet's arrival at a bottleneck.
pub(crate) enum Admission<P> {
    Queued,
    Passed(Item<P>),
    Refused(Item<P>, DropReason),
}

impl<P> Configured<BottleneckConfig> for Bottleneck<P> {
    fn new(config: &BottleneckConfig, zero: Time) -> Self {
        Self {
            queue: config.new_queue(zero),
            service: Service::new(config, zero),
            serving: None,
            event: None,
            closed: None,
            dropped: Dropped::new(),
            zero,
            config: config.clone(),
        }
    }

    /// Apply `config` from `now` on. Packets stay in order, except those that exceed a smaller limit. A queue whose
    /// discipline or parameters change loses its learnt state.
    fn change(&mut self, config: &BottleneckConfig, _: Time, now: Time, offset: Duration) {
        let before = std::mem::replace(&mut self.config, config.clone());
        let same_service = before.schedule == config.schedule
            && before.opportunity == config.opportunity
            && before.overhead == config.overhead;
        if !same_service {
            self.service.change(config, self.zero, now, offset);
        }
        if before.queue != config.queue {
            let (next, surcharge) = (config.new_queue(self.zero), self.surcharge());
            self.queue.replace(next, surcharge, &mut self.dropped);
        }
        match self.serving {
            None => self.turn_to_next(now),
            Some(_) => self.look_ahead(),
        }
    }
}

impl<P> Behaviour<P> for Bottleneck<P> {
    /// Restart the schedule at `zero`, as of `now`; packets stay, and sent bytes of the one in service stay sent.
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.zero = zero;
        self.service.restart(zero, now, offset);
        self.queue.restart(zero);
        self.look_ahead();
    }

    /// Closed or barred: serves nothing from `now` on; sent bytes of the packet in service stay sent. Open: serves
    /// again. The capacity meanwhile is lost; of the capacity at `now`, `share` is left.
    fn set_closed(&mut self, closed: bool, barred: bool, share: Share, now: Time) {
        let closed = closed || barred;
        match self.closed {
            None if closed => {
                self.closed = Some(self.service.owed(now));
                self.event = None;
            }
            Some(owed) if !closed => {
                self.closed = None;
                self.service.wake(now);
                self.service.restrict(now, share);
                if self.serving.is_some() {
                    self.service.owe(owed);
                    self.look_ahead();
                } else {
                    self.turn_to_next(now);
                }
            }
            _ => {}
        }
    }

    /// Drop the waiting packets and the packet in service, while nothing is served.
    fn flush(&mut self) {
        self.queue.flush(self.serving.take(), &mut self.dropped);
        self.event = None;
    }

    fn next_event(&self) -> Option<Time> {
        self.event
    }

    fn is_steady(&self) -> bool {
        self.service.is_steady()
    }

    fn left(&self, now: Time) -> Share {
        self.service.left(now)
    }

    fn potential(&self, from: Time, to: Time) -> f64 {
        self.service.offer().potential(from, to)
    }

    #[inline]
    fn step(&mut self, now: Time) -> Option<Step<P>> {
        self.event?;
        let Some(mut item) = self.serving.take() else {
            self.serve_next(now);
            return Some(Step::Within);
        };
        self.service.finish(now);
        self.turn_to_next(now);
        item.released = now;
        Some(Step::Left(item))
    }

    #[inline]
    fn dropped(&mut self) -> Option<&mut Dropped<P>> {
        Some(&mut self.dropped)
    }

    #[inline]
    fn level(&self) -> Option<QueueLevel> {
        Some(self.queue.level().and_serving(self.serving.as_ref()))
    }

    fn rank(&self) -> u32 {
        self.queue.rank(self.serving.as_ref())
    }

    fn offer(&self) -> Option<Offer> {
        Some(self.service.offer())
    }
}

impl<P> Bottleneck<P> {
    /// Return whether no packet is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.serving.is_none() && self.queue.is_empty()
    }

    /// Return whether nothing is served at present.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Accept a packet; events up to `now` must have been taken.
    #[inline]
    pub(crate) fn accept(&mut self, now: Time, mut item: Item<P>) -> Admission<P> {
        let idle = self.is_empty();
        let open = self.closed.is_none();
        if idle && open && matches!(self.service, Service::Unlimited(_)) {
            item.released = now;
            return Admission::Passed(item);
        }
        item.entered = self.stamp(now);
        if idle && open && !self.decides_late() && self.queue.admits(item.size) {
            // Same result as below, without a pass through the queue.
            self.service.wake(now);
            self.serve(item);
            return Admission::Queued;
        }
        let (entered, surcharge) = (item.entered, self.surcharge());
        let pushed = self.queue.push(entered, item, surcharge, &mut self.dropped);
        if let Err((item, reason)) = pushed {
            return Admission::Refused(item, reason);
        }
        if idle {
            self.service.wake(self.first_use(now));
            self.turn_to_next(now);
        } else if self.serving.is_none() && self.queue.is_empty() {
            self.event = None; // the waiting packets were dropped
        }
        Admission::Queued
    }

    /// Put other opportunities before the recorded ones, from `now` on.
    pub(crate) fn splice(&mut self, now: Time, head: Head) {
        self.service.splice(now, head);
        self.look_ahead();
    }

    /// Return the server, for predictions of its service.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Return the server after it has sent all present packets, and the time at which it has: `idle_since` without
    /// packets. `None` if it never has. Packets that the queue would drop count as sent.
    pub(crate) fn drained(&self, idle_since: Time) -> Option<(Service, Time)> {
        let mut service = self.service.clone();
        let mut free = idle_since;
        if self.serving.is_some() {
            free = self.event?;
            service.finish(free);
        }
        let waiting = self.queue.level();
        if waiting.packets > Packets(0) {
            let more = self.config.overhead.0.saturating_mul(waiting.packets.0 - 1);
            service.begin(waiting.bytes + Bytes(more));
            free = service.departure()?;
            service.finish(free);
        }
        Some((service, free))
    }

    /// Turn the free server to the next packet.
    #[inline]
    fn turn_to_next(&mut self, now: Time) {
        if self.queue.is_empty() || self.closed.is_some() {
            self.event = None;
        } else if self.decides_late() {
            self.look_ahead();
        } else {
            self.serve_next(now);
        }
    }

    /// Return whether a packet stays in the queue until its opportunity; with Mahimahi's clock it always does.
    #[inline]
    fn decides_late(&self) -> bool {
        self.config.clock == Clock::Milliseconds || self.queue.decides_late()
    }

    #[inline]
    fn serve_next(&mut self, now: Time) {
        match self.queue.pop(now, &mut self.dropped) {
            Some(item) => self.serve(item),
            None => self.event = None,
        }
    }

    #[inline]
    fn serve(&mut self, item: Item<P>) {
        self.service.begin(item.size);
        self.event = self.service.departure();
        self.serving = Some(item);
    }

    fn look_ahead(&mut self) {
        self.event = match &self.serving {
            _ if self.closed.is_some() => None,
            Some(_) => self.service.departure(),
            None if self.queue.is_empty() => None,
            None => self.service.start(),
        };
    }

    #[inline]
    fn surcharge(&self) -> Surcharge {
        match self.config.clock {
            Clock::Exact => Surcharge::of_serving(self.serving.as_ref()),
            Clock::Milliseconds => Surcharge {
                overhead: self.config.overhead,
                ..Surcharge::default()
            },
        }
    }

    /// Return the arrival time assigned to a packet received at `now`.
    fn stamp(&self, now: Time) -> Time {
        match self.config.clock {
            Clock::Exact => now,
            Clock::Milliseconds => {
                let into = now.since(self.zero).as_nanos() % MILLISECOND.as_nanos();
                now - Duration::from_nanos(into)
            }
        }
    }

    /// Return the earliest service of a packet received at `now`.
    fn first_use(&self, now: Time) -> Time {
        match self.config.clock {
            Clock::Exact => now,
            Clock::Milliseconds if now < self.zero => now,
            Clock::Milliseconds => self.stamp(now) + MILLISECOND,
        }
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::schedule::RateSeries;
    use crate::trace::Trace;
    use crate::units::BitRate;

    #[test]
    fn a_packet_takes_its_time_at_the_mean_rate() {
        let secs = Duration::from_secs;
        let steps = vec![
            (secs(0), BitRate(100_000_000)),
            (secs(1), BitRate(1_000_000)),
        ];
        let series = |period| Schedule::Series {
            series: Arc::new(RateSeries::new(steps.clone(), period).unwrap()),
            offset: Duration::ZERO,
        };
        let looped = || Schedule::looped(Arc::new(Trace::from_millis([2, 4]).unwrap()));
        let half = BottleneckConfig {
            opportunity: Bytes(750),
            ..BottleneckConfig::new(looped())
        };
        for (bottleneck, nanos) in [
            (
                BottleneckConfig::new(series(Some(secs(100)))),
                Some(6_030_151),
            ), // 12,000 bits at 1.99 Mbit/s
            (BottleneckConfig::new(series(None)), Some(120_000)),
            (BottleneckConfig::mahimahi(looped()), Some(2_000_000)),
            (half, Some(4_000_000)),
            (BottleneckConfig::new(Schedule::Unlimited), None),
        ] {
            let time = bottleneck
                .schedule
                .packet_time(bottleneck.opportunity, bottleneck.overhead);
            assert_eq!(time, nanos.map(Duration::from_nanos));
        }
    }
}
