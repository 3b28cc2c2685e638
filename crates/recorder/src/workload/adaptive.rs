//! Saturation of as much as keeps a queue long, but not endless.

use cellbed_link::{BitRate, Bytes, Duration, Time};

use super::{FixedRateSaturator, QueueKeeper};

/// Interval of the choice of a rate.
const TICK: Duration = Duration::from_millis(50);

/// Packets of one length at the rate that a [`QueueKeeper`] chooses.
#[derive(Clone, Debug)]
pub struct AdaptiveSaturator {
    keeper: QueueKeeper,
    pace: FixedRateSaturator,
    bytes: u16,
    end: Time,
    count: u32,
    /// When the next rate is chosen.
    tick: Time,
}

impl AdaptiveSaturator {
    /// From `start` up to but excluding `end`.
    pub fn new(keeper: QueueKeeper, bytes: u16, start: Time, end: Time) -> Self {
        Self {
            keeper,
            pace: pace(BitRate(1), bytes, start, end),
            bytes,
            end,
            count: 0,
            tick: start,
        }
    }

    /// Takes news: see [`QueueKeeper::arrived`].
    pub fn arrived(&mut self, now: Time, index: u32, sent_ns: i64, arrived_ns: i64) {
        self.keeper.arrived(now, index, sent_ns, arrived_ns);
    }

    /// When the next packet or the next choice of a rate is due; `None` after the end.
    pub fn next_event(&self) -> Option<Time> {
        let due = self.pace.next_event().unwrap_or(Time::MAX).min(self.tick);
        (due < self.end).then_some(due)
    }

    /// The index of a packet that is due at `now`; to be called until there is none.
    pub fn emit(&mut self, now: Time) -> Option<u32> {
        if now >= self.tick && now < self.end {
            self.tick = now + TICK;
            self.keeper.sent(self.count);
            let rate = self.keeper.choose(now);
            let next = self.pace.next_event().unwrap_or(now);
            let spacing = rate.time_for(Bytes(self.bytes.into())).unwrap_or(TICK);
            self.pace = pace(rate, self.bytes, next.min(now + spacing), self.end);
        }
        self.pace.emit(now)?;
        let index = self.count;
        self.count = index.checked_add(1)?;
        Some(index)
    }
}

fn pace(rate: BitRate, bytes: u16, start: Time, end: Time) -> FixedRateSaturator {
    FixedRateSaturator::new(rate, Bytes(bytes.into()), start, end)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const LEAST: Duration = Duration::from_millis(750);
    const MOST: Duration = Duration::from_millis(3_000);

    /// Waits of packets, with when they arrived, at a bottleneck that takes `spacing` a packet and loses the packets of
    /// `lost`; packets travel for `travel` beside, and news comes 20 ms later, from a clock that is an hour behind.
    fn waits(
        spacing: Duration,
        seconds: u64,
        travel: Duration,
        lost: impl Fn(Time) -> bool,
    ) -> Vec<(Time, Duration)> {
        let end = Time::from_millis(seconds * 1_000);
        let keeper = QueueKeeper::new(LEAST, MOST, 1400, BitRate(1_000_000_000), Time::ZERO);
        let mut saturator = AdaptiveSaturator::new(keeper, 1400, Time::ZERO, end);
        let mut free = Time::ZERO;
        let mut underway: VecDeque<(Time, u32, Time)> = VecDeque::new();
        let mut waits = Vec::new();
        for millisecond in 0..seconds * 1_000 {
            let now = Time::from_millis(millisecond);
            while let Some(&(arrival, index, sent)) = underway.front()
                && arrival + Duration::from_millis(20) <= now
            {
                underway.pop_front();
                waits.push((arrival, arrival - (sent + travel)));
                let stamp = arrival.as_nanos() as i64 - 3_600_000_000_000;
                saturator.arrived(now, index, sent.as_nanos() as i64, stamp);
            }
            while let Some(index) = saturator.emit(now) {
                if !lost(now) {
                    free = free.max(now) + spacing;
                    underway.push_back((free + travel, index, now));
                }
            }
        }
        waits
    }

    #[test]
    fn the_queue_grows_into_its_bounds_and_stays() {
        for spacing in [Duration::from_micros(500), Duration::from_millis(10)] {
            for travel in [Duration::from_millis(10), Duration::from_millis(600)] {
                let settled: Vec<_> = waits(spacing, 60, travel, |_| false)
                    .into_iter()
                    .filter(|(arrival, _)| *arrival > Time::from_millis(20_000))
                    .map(|(_, wait)| wait)
                    .collect();
                assert!(settled.len() > 3_800, "{}", settled.len());
                assert!(settled.iter().all(|wait| (LEAST..=MOST).contains(wait)));
            }
        }
    }

    #[test]
    fn a_queue_that_overflows_is_sent_twice_what_it_delivers() {
        // The queue holds 200 ms at 1000 packets/s.
        let (spacing, room) = (Duration::from_millis(1), Duration::from_millis(200));
        let end = Time::from_millis(30_000);
        let keeper = QueueKeeper::new(LEAST, MOST, 1400, BitRate(1_000_000_000), Time::ZERO);
        let mut saturator = AdaptiveSaturator::new(keeper, 1400, Time::ZERO, end);
        let (mut free, mut sent) = (Time::ZERO, Vec::new());
        let mut underway: VecDeque<(Time, u32, Time)> = VecDeque::new();
        for millisecond in 0..30_000 {
            let now = Time::from_millis(millisecond);
            while let Some(&(arrival, index, at)) = underway.front()
                && arrival <= now
            {
                underway.pop_front();
                let stamps = [at, arrival].map(|time| time.as_nanos() as i64);
                saturator.arrived(now, index, stamps[0], stamps[1]);
            }
            while let Some(index) = saturator.emit(now) {
                sent.push(now);
                if free < now + room {
                    free = free.max(now) + spacing;
                    underway.push_back((free, index, now));
                }
            }
        }
        let late = sent.iter().filter(|&&at| at >= Time::from_millis(10_000));
        let share = late.count() as f64 / 20_000.0;
        assert!(
            (1.5..2.2).contains(&share),
            "{share} times what is delivered"
        );
    }

    #[test]
    fn a_path_that_was_gone_is_filled_again() {
        // All packets of some seconds are lost: no arrival is ever reported.
        let waits = waits(
            Duration::from_millis(5),
            60,
            Duration::from_millis(20),
            |now| (10_000..20_000).contains(&(now.as_nanos() / 1_000_000)),
        );
        let after = waits
            .iter()
            .filter(|(arrival, _)| *arrival > Time::from_millis(40_000))
            .count();
        assert!(after > 3_900, "{after} of 4000 packets that fit in 20 s");
    }
}
