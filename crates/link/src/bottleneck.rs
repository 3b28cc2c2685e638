//! The bottleneck: a queue served by a schedule.

use crate::outcome::DropReason;
use crate::queue::{Discipline, Dropped, Queue, QueueLevel, Surcharge};
use crate::schedule::{Offer, Schedule};
use crate::service::Service;
use crate::stage::{Item, Step};
use crate::time::{Duration, Time};
use crate::units::{Bytes, MTU};

/// A bottleneck: its schedule, its queue and how bytes are charged.
///
/// Opportunities are served byte by byte: each carries `opportunity` bytes, a partly sent packet carries over to the
/// next one, one opportunity may finish several packets, and what no waiting packet uses is lost. A packet may use the
/// opportunities at or after the instant of its arrival; at that instant the packets before it are served first.
#[derive(Clone, Debug, PartialEq)]
pub struct BottleneckConfig {
    /// When bytes may leave.
    pub schedule: Schedule,
    /// Where packets wait.
    pub queue: Discipline,
    /// Bytes that one opportunity of a trace carries.
    pub opportunity: Bytes,
    /// Bytes that a packet is charged beyond its size when a trace serves it.
    pub overhead: Bytes,
    /// How exactly arrivals are told.
    pub clock: Clock,
}

/// How exactly a bottleneck tells the time of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// To the nanosecond.
    #[default]
    Exact,
    /// As Mahimahi does (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015; `link_queue.cc`):
    /// a packet counts as having come at the beginning of its millisecond, counted from the start of the schedule, and
    /// may use the opportunities of strictly later milliseconds only. The limits of the queue do not count the packet in
    /// service, and count every other one with its `overhead`.
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
    /// their IP length and 4 bytes more, which is the header that its TUN device puts in front, and times in
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
}

/// The stage. Departures are computed, not stepped through: only the packet in service is ever looked at.
///
/// Where the discipline decides on departure, the next packet is taken from the queue at the instant at which the schedule
/// has something to serve it with, and not before: a queue in front of a link that stands still keeps waiting.
#[derive(Clone, Debug)]
pub(crate) struct Bottleneck<P> {
    config: BottleneckConfig,
    zero: Time,
    queue: Queue<P>,
    service: Service,
    serving: Option<Item<P>>,
    /// When the packet in service leaves or, if there is none, when the next one is taken from the queue.
    event: Option<Time>,
    /// Packets that the queue has given up.
    dropped: Dropped<P>,
}

/// What became of a packet that reached a bottleneck.
pub(crate) enum Admission<P> {
    Queued,
    Passed(Item<P>),
    Refused(Item<P>, DropReason),
}

impl<P> Bottleneck<P> {
    pub(crate) fn new(config: &BottleneckConfig, zero: Time) -> Self {
        Self {
            queue: Queue::new(&config.queue, zero),
            service: Service::new(config, zero),
            serving: None,
            event: None,
            dropped: Dropped::new(),
            zero,
            config: config.clone(),
        }
    }

    /// Plays the schedule from `zero` on, as of `now`; packets stay, and so does what was sent of the one in service.
    ///
    /// Events before `now` must have been taken.
    pub(crate) fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.zero = zero;
        self.service.restart(zero, now, offset);
        self.queue.restart(zero);
        self.look_ahead();
    }

    /// Goes on as `config` says from `now` on. Packets stay in order, but those that a smaller limit has no room for. A
    /// queue whose discipline or parameters change forgets what it has learnt.
    ///
    /// Events before `now` must have been taken.
    pub(crate) fn change(&mut self, config: &BottleneckConfig, now: Time, offset: Duration) {
        let before = std::mem::replace(&mut self.config, config.clone());
        let same_service = before.schedule == config.schedule
            && before.opportunity == config.opportunity
            && before.overhead == config.overhead;
        if !same_service {
            self.service.change(config, self.zero, now, offset);
        }
        if before.queue != config.queue {
            let mut old = std::mem::replace(&mut self.queue, Queue::new(&config.queue, self.zero));
            while let Some(item) = old.remove() {
                let surcharge = self.surcharge();
                self.queue.adopt(item, surcharge, &mut self.dropped);
            }
        }
        match self.serving {
            None => self.turn_to_next(now),
            Some(_) => self.look_ahead(),
        }
    }

    /// Events up to and including `now` must have been taken.
    pub(crate) fn accept(&mut self, now: Time, mut item: Item<P>) -> Admission<P> {
        let idle = self.serving.is_none() && self.queue.is_empty();
        if idle && matches!(self.service, Service::Unlimited(_)) {
            return Admission::Passed(item);
        }
        item.entered = self.stamp(now);
        if idle && !self.decides_late() && self.queue.admits(item.size) {
            // The same as below, without the way through the queue.
            self.service.wake(now);
            self.serve(item);
            return Admission::Queued;
        }
        let surcharge = self.surcharge();
        if let Err((item, reason)) =
            self.queue
                .push(item.entered, item, surcharge, &mut self.dropped)
        {
            return Admission::Refused(item, reason);
        }
        if idle {
            self.service.wake(self.first_use(now));
            self.turn_to_next(now);
        } else if self.serving.is_none() && self.queue.is_empty() {
            self.event = None; // what waited was dropped
        }
        Admission::Queued
    }

    pub(crate) fn next_event(&self) -> Option<Time> {
        self.event
    }

    /// Lets happen what happens at `now`, the [next event](Self::next_event).
    pub(crate) fn step(&mut self, now: Time) -> Option<Step<P>> {
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

    /// Takes a packet that the queue has given up.
    pub(crate) fn next_dropped(&mut self) -> Option<(Item<P>, DropReason)> {
        self.dropped.pop_front()
    }

    pub(crate) fn level(&self) -> QueueLevel {
        let waiting = self.queue.level();
        match &self.serving {
            Some(item) => waiting.plus(item.size),
            None => waiting,
        }
    }

    /// What the schedule offers, used or not.
    pub(crate) fn offer(&self) -> Offer {
        self.service.offer()
    }

    /// The server is free.
    fn turn_to_next(&mut self, now: Time) {
        if self.queue.is_empty() {
            self.event = None;
        } else if self.decides_late() {
            self.look_ahead();
        } else {
            self.serve_next(now);
        }
    }

    /// Mahimahi always takes the next packet at an opportunity; it is in the queue until then, and counts.
    fn decides_late(&self) -> bool {
        self.config.clock == Clock::Milliseconds || self.queue.decides_late()
    }

    fn serve_next(&mut self, now: Time) {
        match self.queue.pop(now, &mut self.dropped) {
            Some(item) => self.serve(item),
            None => self.event = None,
        }
    }

    fn serve(&mut self, item: Item<P>) {
        self.service.begin(item.size);
        self.event = self.service.departure();
        self.serving = Some(item);
    }

    fn look_ahead(&mut self) {
        self.event = match &self.serving {
            Some(_) => self.service.departure(),
            None if self.queue.is_empty() => None,
            None => self.service.start(),
        };
    }

    fn surcharge(&self) -> Surcharge {
        match (self.config.clock, &self.serving) {
            (Clock::Exact, Some(item)) => Surcharge {
                serving: QueueLevel::default().plus(item.size),
                overhead: Bytes(0),
            },
            (Clock::Exact, None) => Surcharge::default(),
            (Clock::Milliseconds, _) => Surcharge {
                serving: QueueLevel::default(),
                overhead: self.config.overhead,
            },
        }
    }

    /// When a packet that comes `now` counts as having come.
    fn stamp(&self, now: Time) -> Time {
        match self.config.clock {
            Clock::Exact => now,
            Clock::Milliseconds => {
                let into = now.since(self.zero).as_nanos() % MILLISECOND.as_nanos();
                now - Duration::from_nanos(into)
            }
        }
    }

    /// From when on a packet that comes `now` may be served.
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
    use crate::trace::Trace;
    use crate::units::{BitRate, Packets};

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn looped(millis: &[u64]) -> Schedule {
        Schedule::looped(Arc::new(
            Trace::from_millis(millis.iter().copied()).unwrap(),
        ))
    }

    /// Departures of packets given as (arrival in ms, size); `None` for those dropped.
    fn departures(config: BottleneckConfig, packets: &[(u64, u64)]) -> Vec<Option<Time>> {
        let mut bottleneck = Bottleneck::new(&config, Time::ZERO);
        let mut departures = vec![None; packets.len()];
        for (index, &(arrival, size)) in packets.iter().enumerate() {
            take_until(&mut bottleneck, ms(arrival), &mut departures);
            if let Admission::Passed(_) = accept(&mut bottleneck, ms(arrival), Bytes(size), index) {
                departures[index] = Some(ms(arrival));
            }
        }
        take_until(&mut bottleneck, Time::MAX, &mut departures);
        departures
    }

    fn take_until(bottleneck: &mut Bottleneck<usize>, now: Time, departures: &mut [Option<Time>]) {
        while let Some(departure) = bottleneck
            .next_event()
            .filter(|&departure| departure <= now)
        {
            if let Some(Step::Left(item)) = bottleneck.step(departure) {
                departures[item.packet] = Some(departure);
            }
        }
    }

    fn accept<P>(
        bottleneck: &mut Bottleneck<P>,
        now: Time,
        size: Bytes,
        packet: P,
    ) -> Admission<P> {
        bottleneck.accept(now, Item::new(packet, size, now))
    }

    fn at<const N: usize>(millis: [u64; N]) -> Vec<Option<Time>> {
        millis.map(|millis| Some(ms(millis))).to_vec()
    }

    #[test]
    fn one_opportunity_finishes_several_small_packets() {
        let config = BottleneckConfig::new(looped(&[5, 10]));
        assert_eq!(
            departures(config, &[(0, 500), (1, 500), (2, 500), (3, 1)]),
            at([5, 5, 5, 10])
        );
    }

    #[test]
    fn a_partly_sent_packet_carries_over() {
        let config = BottleneckConfig::new(looped(&[1, 2, 3, 4]));
        // 1400 + 100 | 1300 + 200 | 1200
        assert_eq!(
            departures(config, &[(0, 1400), (0, 1400), (0, 1400)]),
            at([1, 2, 3])
        );
        let config = BottleneckConfig::new(looped(&[1, 2, 3, 4]));
        assert_eq!(
            departures(config, &[(0, 4000), (0, 500), (0, 1)]),
            at([3, 3, 4])
        );
    }

    #[test]
    fn unused_bytes_are_lost() {
        let config = BottleneckConfig::new(looped(&[1, 2, 10]));
        // the opportunity at 1 ms has 1499 bytes left, which a packet of 1.5 ms cannot have
        let mut bottleneck = Bottleneck::new(&config, Time::ZERO);
        let mut departures = [None; 3];
        accept(&mut bottleneck, Time::ZERO, Bytes(1), 0);
        take_until(&mut bottleneck, ms(1), &mut departures);
        accept(&mut bottleneck, Time::from_micros(1500), Bytes(1500), 1);
        accept(&mut bottleneck, Time::from_micros(1600), Bytes(1), 2);
        take_until(&mut bottleneck, Time::MAX, &mut departures);
        assert_eq!(departures.to_vec(), at([1, 2, 10]));
    }

    #[test]
    fn a_packet_may_use_what_is_left_at_the_instant_of_its_arrival() {
        let config = BottleneckConfig::new(looped(&[1, 9]));
        assert_eq!(
            departures(config, &[(0, 500), (1, 1000), (1, 1)]),
            at([1, 1, 9])
        );
    }

    #[test]
    fn other_accountings_are_two_numbers() {
        // Mahimahi's: 1504 bytes an opportunity, 4 more a packet
        let config = BottleneckConfig {
            opportunity: Bytes(1504),
            overhead: Bytes(4),
            ..BottleneckConfig::new(looped(&[1, 2]))
        };
        assert_eq!(
            departures(config, &[(0, 1500), (0, 748), (0, 748), (0, 1)]),
            at([1, 2, 2, 3])
        );
        let nothing = BottleneckConfig {
            opportunity: Bytes(0),
            ..BottleneckConfig::new(looped(&[1]))
        };
        assert_eq!(departures(nothing, &[(0, 1)]), [None]);
    }

    #[test]
    fn a_gap_of_78_seconds_holds_the_queue() {
        let config = BottleneckConfig::new(looped(&[10, 78_329, 78_330]));
        assert_eq!(
            departures(config, &[(11, 1500), (12, 1500), (78_400, 40)]),
            at([78_329, 78_330, 156_659])
        );
    }

    #[test]
    fn a_full_queue_drops_the_packet_that_comes() {
        let config = BottleneckConfig::new(looped(&[10])).with_queue(Discipline::DropTail {
            packets: Some(Packets(1)),
            bytes: None,
        });
        assert_eq!(
            departures(config, &[(0, 1500), (1, 1500), (10, 1500)]),
            [Some(ms(10)), None, Some(ms(20))]
        );
    }

    #[test]
    fn a_constant_rate_sends_back_to_back() {
        let config = BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))); // 1500 B in 1 ms
        assert_eq!(
            departures(config, &[(0, 1500), (0, 3000), (10, 750)])[..2],
            at([1, 3])
        );
        let config = BottleneckConfig::new(Schedule::Constant(BitRate(3))); // 8 bits in 2 666 666 666.7 ns
        let departures_at_3 = departures(config, &[(0, 1), (0, 1), (0, 1)]);
        let expected =
            [2_666_666_667, 5_333_333_334, 8_000_000_000].map(|at| Some(Time::from_nanos(at)));
        assert_eq!(departures_at_3, expected, "rounding up does not add up");
        let stopped = BottleneckConfig::new(Schedule::Constant(BitRate(0)));
        assert_eq!(departures(stopped, &[(0, 1)]), [None]);
    }

    #[test]
    fn an_unlimited_schedule_holds_nothing_back() {
        let config = BottleneckConfig::new(Schedule::Unlimited);
        assert_eq!(
            departures(config, &[(0, 1500), (0, 1 << 40), (3, 1)]),
            at([0, 0, 3])
        );
    }

    #[test]
    fn what_was_sent_before_a_restart_stays_sent() {
        let config = BottleneckConfig::new(looped(&[10, 20]));
        let mut bottleneck = Bottleneck::new(&config, Time::ZERO);
        accept(&mut bottleneck, Time::ZERO, Bytes(4000), ());
        bottleneck.restart(ms(15), ms(15), Duration::ZERO); // 1500 bytes have left, the rest takes 25 and 35 ms
        assert_eq!(bottleneck.next_event(), Some(ms(35)));
        bottleneck.restart(ms(16), ms(16), Duration::from_millis(9)); // from 9 ms on: 17, 27, …
        assert_eq!(bottleneck.next_event(), Some(ms(27)));
    }
}
