//! One direction of a link: packets go in at one end and come out, or are dropped, in order of time.

use std::collections::VecDeque;

use crate::bottleneck::{Admission, Bottleneck};
use crate::meter::{Bin, Meter};
use crate::outcome::{DropReason, Fate, Outcome};
use crate::queue::QueueLevel;
use crate::schedule::Offer;
use crate::stage::{Item, Stage, StageConfig};
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// One direction of a link: [stages](StageConfig) in order, driven by the caller's clock.
///
/// `P` is whatever the caller needs to know its packet again, such as an index. The whole contract:
/// [`accept`](Self::accept) a packet when it arrives, then [`poll`](Self::poll) until it gives `None`, then come back at
/// [`next_event`](Self::next_event) or with the next packet. Coming late changes nothing but when the caller learns of
/// an outcome: its times are computed, not observed. Time never runs backwards here; an earlier `now` counts as the latest
/// one seen.
///
/// At one instant, packets leave a stage before others enter it. Once the queues have reached their greatest length,
/// nothing allocates.
#[derive(Clone, Debug)]
pub struct Direction<P> {
    stages: Vec<Stage<P>>,
    outcomes: VecDeque<Outcome<P>>,
    held: QueueLevel,
    zero: Time,
    clock: Time,
    /// Restarts in the future, in order.
    pending: VecDeque<Restart>,
    meter: Option<Meter>,
    /// Index of the first bottleneck.
    metered: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Restart {
    zero: Time,
    offset: Duration,
}

impl<P> Direction<P> {
    /// A direction whose schedules and recorded series start at `zero`. Before that a trace offers nothing.
    pub fn new(stages: Vec<StageConfig>, zero: Time) -> Self {
        let metered = stages
            .iter()
            .position(|stage| matches!(stage, StageConfig::Bottleneck(_)));
        let stages = stages
            .into_iter()
            .map(|stage| Stage::new(stage, zero))
            .collect();
        Self {
            stages,
            outcomes: VecDeque::new(),
            held: QueueLevel::default(),
            zero,
            clock: Time::ZERO,
            pending: VecDeque::new(),
            meter: None,
            metered,
        }
    }

    /// The same direction with a meter. Its [bins](Self::finished_bins) pile up until they are taken.
    pub fn with_meter(mut self) -> Self {
        self.meter = Some(Meter::new(self.zero, self.offer()));
        self
    }

    /// Starts schedules, recorded series, random generators and the bins of the meter anew at `zero`, with `offset`
    /// added to the configured offset of traces and series.
    ///
    /// Packets that are queued or on their way stay. If `zero` lies in the future all goes on as it was until then; if it
    /// lies in the past the schedules are where they would be had they started in time. A later call replaces those that
    /// were to come into force at its `zero` or after.
    pub fn restart(&mut self, zero: Time, offset: Duration) {
        while self.pending.back().is_some_and(|other| other.zero >= zero) {
            self.pending.pop_back();
        }
        self.pending.push_back(Restart { zero, offset });
        self.settle(self.clock);
    }

    /// Takes in a packet of `size` bytes (its IP length) that arrives at `now`.
    pub fn accept(&mut self, now: Time, packet: P, size: Bytes) {
        let now = self.settle(now);
        self.held.packets.0 += 1;
        self.held.bytes += size;
        if let Some(meter) = &mut self.meter {
            meter.arrived(now, size);
        }
        self.enter(
            0,
            now,
            Item {
                packet,
                size,
                arrived: now,
                released: now,
            },
        );
    }

    /// The earliest instant at which [`poll`](Self::poll) may have something, or `None` if that takes another packet.
    ///
    /// Never later than the next delivery. It may be earlier, and then `poll` gives nothing and this a later instant. A
    /// drop may be told later than it happened: by the least delay of the stages behind it.
    pub fn next_event(&self) -> Option<Time> {
        if !self.outcomes.is_empty() {
            return Some(self.clock);
        }
        let mut behind = Duration::ZERO;
        let mut earliest: Option<Time> = None;
        for stage in self.stages.iter().rev() {
            if let Some(event) = self.event_of(stage) {
                let delivery = event + behind;
                earliest = Some(earliest.map_or(delivery, |other| other.min(delivery)));
            }
            if let Stage::Delay(delay) = stage {
                behind += delay.least();
            }
        }
        earliest
    }

    /// The next packet that had left or been dropped by `now`, in order of that time; call until `None`.
    pub fn poll(&mut self, now: Time) -> Option<Outcome<P>> {
        self.settle(now);
        self.outcomes.pop_front()
    }

    /// The bins of the meter that had ended by `now` and were not taken before, in order of time, without a gap.
    ///
    /// The first one holds `zero`, or the first packet if that came earlier. Nothing without a
    /// [meter](Self::with_meter).
    pub fn finished_bins(&mut self, now: Time) -> impl Iterator<Item = Bin> + '_ {
        let now = self.settle(now);
        let mut meter = self.meter.as_mut();
        std::iter::from_fn(move || meter.as_mut()?.next_bin(now))
    }

    /// The queue of the first bottleneck, as of the last call.
    pub fn queue(&self) -> QueueLevel {
        self.bottleneck().map(Bottleneck::level).unwrap_or_default()
    }

    /// All packets that have neither left nor been dropped, as of the last call.
    pub fn held(&self) -> QueueLevel {
        self.held
    }

    /// Brings everything up to `now`, a pending restart at its instant. Returns the time of the direction.
    fn settle(&mut self, now: Time) -> Time {
        let now = now.max(self.clock);
        while let Some(&Restart { zero, offset }) = self.pending.front() {
            if zero > now {
                break;
            }
            self.pending.pop_front();
            let at = zero.max(self.clock);
            // What leaves before the restart leaves by the old schedule, what would leave at it by the new one.
            if let Some(before) = at.as_nanos().checked_sub(1).map(Time::from_nanos) {
                self.run(before);
            }
            self.restart_stages(zero, at, offset);
        }
        self.run(now);
        self.clock = now;
        now
    }

    fn restart_stages(&mut self, zero: Time, at: Time, offset: Duration) {
        for stage in &mut self.stages {
            stage.restart(zero, at, offset);
        }
        self.zero = zero;
        let offer = self.offer();
        if let Some(meter) = &mut self.meter {
            meter.restart(zero, at, offer);
        }
    }

    /// Moves packets from stage to stage in order of time, up to and including `until`.
    fn run(&mut self, until: Time) {
        while let Some((index, now)) = self.next_departure().filter(|&(_, now)| now <= until) {
            let Some(item) = self.stages[index].take(now) else {
                return;
            };
            self.left(index, now, item.size);
            self.enter(index + 1, now, item);
        }
    }

    /// The stage that a packet leaves next, and when; of several at one instant the last one.
    fn next_departure(&self) -> Option<(usize, Time)> {
        let mut next: Option<(usize, Time)> = None;
        for (index, stage) in self.stages.iter().enumerate() {
            if let Some(departure) = stage.next_departure()
                && next.is_none_or(|(_, earliest)| departure <= earliest)
            {
                next = Some((index, departure));
            }
        }
        next
    }

    /// Lets a packet into the given stage and on through those that hold nothing back.
    fn enter(&mut self, first: usize, now: Time, mut item: Item<P>) {
        for index in first..self.stages.len() {
            match &mut self.stages[index] {
                Stage::Loss(loss) => {
                    if loss.strikes() {
                        return self.finish(now, item, Fate::Dropped(DropReason::Loss));
                    }
                }
                Stage::Bottleneck(bottleneck) => match bottleneck.accept(now, item.size, item) {
                    Admission::Queued => return self.queue_changed(index, now),
                    Admission::Refused(item) => {
                        return self.finish(now, item, Fate::Dropped(DropReason::QueueFull));
                    }
                    Admission::Passed(passed) => {
                        item = Item {
                            released: now,
                            ..passed
                        };
                        self.left(index, now, item.size);
                    }
                },
                Stage::Delay(delay) => return delay.accept(now, item),
            }
        }
        self.finish(now, item, Fate::Delivered);
    }

    fn finish(&mut self, now: Time, item: Item<P>, fate: Fate) {
        let Item {
            packet,
            size,
            arrived,
            released,
        } = item;
        self.held.packets.0 = self.held.packets.0.saturating_sub(1);
        self.held.bytes.0 = self.held.bytes.0.saturating_sub(size.0);
        if let Some(meter) = &mut self.meter {
            match fate {
                Fate::Dropped(reason) => meter.dropped(now, reason),
                Fate::Delivered if self.metered.is_none() => {
                    meter.left(now, size, QueueLevel::default())
                }
                Fate::Delivered => {}
            }
        }
        self.outcomes.push_back(Outcome {
            packet,
            size,
            arrived,
            released,
            departed: now,
            fate,
        });
    }

    /// When a packet leaves a stage, or may: a pending restart can change that for a bottleneck.
    fn event_of(&self, stage: &Stage<P>) -> Option<Time> {
        let departure = stage.next_departure();
        match (stage, self.pending.front()) {
            (Stage::Bottleneck(bottleneck), Some(restart))
                if bottleneck.level().packets > Packets(0) =>
            {
                Some(departure.map_or(restart.zero, |departure| departure.min(restart.zero)))
            }
            _ => departure,
        }
    }

    fn queue_changed(&mut self, index: usize, now: Time) {
        if self.metered == Some(index) {
            let level = self.queue();
            if let Some(meter) = &mut self.meter {
                meter.queue(now, level);
            }
        }
    }

    fn left(&mut self, index: usize, now: Time, size: Bytes) {
        if self.metered == Some(index) {
            let level = self.queue();
            if let Some(meter) = &mut self.meter {
                meter.left(now, size, level);
            }
        }
    }

    fn bottleneck(&self) -> Option<&Bottleneck<Item<P>>> {
        match &self.stages[self.metered?] {
            Stage::Bottleneck(bottleneck) => Some(bottleneck),
            Stage::Loss(_) | Stage::Delay(_) => None,
        }
    }

    fn offer(&self) -> Offer {
        self.bottleneck()
            .map_or(Offer::Unlimited, Bottleneck::offer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bottleneck::BottleneckConfig;
    use crate::delay::DelayConfig;
    use crate::loss::{LossConfig, Probability};
    use crate::queue::Discipline;
    use crate::random::Seed;
    use crate::schedule::Schedule;
    use crate::trace::Trace;
    use crate::units::BitRate;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn looped(millis: &[u64]) -> BottleneckConfig {
        BottleneckConfig::new(Schedule::looped(Arc::new(
            Trace::from_millis(millis.iter().copied()).unwrap(),
        )))
    }

    fn delay(millis: u64) -> StageConfig {
        DelayConfig::Fixed(Duration::from_millis(millis)).into()
    }

    fn loss(probability: f64) -> StageConfig {
        LossConfig::Independent {
            probability: Probability::new(probability).unwrap(),
            seed: Seed(1),
        }
        .into()
    }

    /// All outcomes by waiting for one event after the other: (packet, released, departed, fate).
    fn drain(direction: &mut Direction<char>) -> Vec<(char, Time, Time, Fate)> {
        let mut outcomes = Vec::new();
        while let Some(next) = direction.next_event() {
            while let Some(outcome) = direction.poll(next) {
                outcomes.push((
                    outcome.packet,
                    outcome.released,
                    outcome.departed,
                    outcome.fate,
                ));
            }
        }
        outcomes
    }

    #[test]
    fn stages_add_up() {
        let mut direction = Direction::new(
            vec![delay(3), looped(&[2, 5]).into(), delay(10)],
            Time::ZERO,
        );
        direction.accept(ms(0), 'a', Bytes(1500)); // at the bottleneck at 3, released at 5
        direction.accept(ms(0), 'b', Bytes(1500));
        assert_eq!(
            drain(&mut direction),
            [
                ('a', ms(5), ms(15), Fate::Delivered),
                ('b', ms(7), ms(17), Fate::Delivered)
            ]
        );
        assert_eq!(direction.held(), QueueLevel::default());
    }

    #[test]
    fn without_stages_a_packet_passes_at_once() {
        let mut direction = Direction::new(vec![], Time::ZERO);
        direction.accept(ms(4), 'a', Bytes(40));
        assert_eq!(direction.next_event(), Some(ms(4)));
        assert_eq!(
            drain(&mut direction),
            [('a', ms(4), ms(4), Fate::Delivered)]
        );
        assert_eq!(direction.next_event(), None);
    }

    #[test]
    fn a_lost_packet_takes_no_room_in_the_queue() {
        let tight = looped(&[2]).with_queue(Discipline::DropTail {
            packets: Some(Packets(1)),
            bytes: None,
        });
        let mut direction = Direction::new(vec![loss(1.0), tight.clone().into()], Time::ZERO);
        direction.accept(ms(0), 'a', Bytes(40));
        assert_eq!(
            drain(&mut direction),
            [('a', ms(0), ms(0), Fate::Dropped(DropReason::Loss))]
        );
        let mut direction = Direction::new(vec![loss(0.0), tight.into()], Time::ZERO);
        direction.accept(ms(0), 'a', Bytes(40));
        direction.accept(ms(0), 'b', Bytes(40));
        assert_eq!(
            drain(&mut direction),
            [
                ('b', ms(0), ms(0), Fate::Dropped(DropReason::QueueFull)),
                ('a', ms(2), ms(2), Fate::Delivered)
            ]
        );
    }

    #[test]
    fn the_next_event_is_the_delivery_not_the_release() {
        let mut direction = Direction::new(vec![looped(&[5]).into(), delay(10)], Time::ZERO);
        direction.accept(ms(0), 'a', Bytes(1500));
        assert_eq!(direction.next_event(), Some(ms(15)));
        assert_eq!(direction.poll(ms(14)), None);
        assert_eq!(
            direction.poll(ms(15)).map(|outcome| outcome.departed),
            Some(ms(15))
        );
    }

    #[test]
    fn time_does_not_run_backwards() {
        let mut direction = Direction::new(vec![delay(1)], Time::ZERO);
        direction.accept(ms(5), 'a', Bytes(40));
        direction.accept(ms(3), 'b', Bytes(40));
        assert_eq!(
            drain(&mut direction)
                .iter()
                .map(|outcome| outcome.2)
                .collect::<Vec<_>>(),
            [ms(6), ms(6)]
        );
    }

    #[test]
    fn nothing_is_offered_before_zero() {
        let mut direction = Direction::new(vec![looped(&[2]).into()], ms(100));
        direction.accept(ms(50), 'a', Bytes(1500));
        assert_eq!(direction.next_event(), Some(ms(102)));
    }

    #[test]
    fn a_restart_in_the_future_leaves_the_present_as_it_is() {
        let mut direction = Direction::new(vec![looped(&[10]).into()], Time::ZERO); // 10, 20, …
        direction.restart(ms(25), Duration::ZERO); // then 35, 45, …
        for (arrival, packet) in [(0, 'a'), (11, 'b'), (21, 'c'), (22, 'd')] {
            direction.accept(ms(arrival), packet, Bytes(1500));
        }
        let departures: Vec<_> = drain(&mut direction)
            .iter()
            .map(|outcome| outcome.2)
            .collect();
        assert_eq!(departures, [10, 20, 35, 45].map(ms));
    }

    #[test]
    fn a_restart_in_the_past_is_where_it_would_be() {
        let mut direction = Direction::new(vec![looped(&[10]).into()], Time::ZERO);
        direction.accept(ms(21), 'a', Bytes(1500));
        direction.restart(ms(5), Duration::from_millis(4)); // from 4 ms on at 5: 11, 21, 31, …
        direction.accept(ms(22), 'b', Bytes(1500));
        let departures: Vec<_> = drain(&mut direction)
            .iter()
            .map(|outcome| outcome.2)
            .collect();
        assert_eq!(
            departures,
            [21, 31].map(ms),
            "the opportunity at 21 ms has not passed when `a` is there"
        );
    }

    #[test]
    fn a_restart_wakes_a_queue_that_the_old_schedule_never_served() {
        let trace = Arc::new(Trace::from_millis([5]).unwrap());
        let once = BottleneckConfig::new(Schedule::once(trace));
        let mut direction = Direction::new(vec![once.into()], Time::ZERO);
        direction.accept(ms(6), 'a', Bytes(1500));
        assert_eq!(direction.next_event(), None);
        direction.restart(ms(50), Duration::ZERO);
        assert_eq!(
            drain(&mut direction),
            [('a', ms(55), ms(55), Fate::Delivered)]
        );
    }

    #[test]
    fn a_restart_repeats_losses_and_recorded_delays() {
        let points = [(0, 1), (100, 101)]
            .map(|(time, delay)| (Duration::from_millis(time), Duration::from_millis(delay)))
            .to_vec();
        let series = DelayConfig::Series(Arc::new(crate::delay::DelaySeries::new(points).unwrap()));
        let mut direction = Direction::new(vec![loss(0.5), series.into()], Time::ZERO);
        let mut pass = |zero: u64| {
            direction.restart(ms(zero), Duration::ZERO);
            for step in 0..50 {
                direction.accept(ms(zero + step), 'a', Bytes(40));
            }
            let outcomes = drain(&mut direction);
            outcomes
                .iter()
                .map(|outcome| (outcome.2 - ms(zero), outcome.3))
                .collect::<Vec<_>>()
        };
        assert_eq!(pass(0), pass(10_000));
    }

    #[test]
    fn a_constant_rate_and_a_delay_make_a_plain_link() {
        let rate = BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000)));
        let mut direction = Direction::new(vec![rate.into(), delay(25)], Time::ZERO);
        direction.accept(ms(0), 'a', Bytes(1500));
        direction.accept(ms(0), 'b', Bytes(1500));
        let departures: Vec<_> = drain(&mut direction)
            .iter()
            .map(|outcome| outcome.2)
            .collect();
        assert_eq!(departures, [26, 27].map(ms));
    }
}
