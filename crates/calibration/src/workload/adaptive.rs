//! Adaptive saturation: keeps a queue long, but bounded.

use std::collections::VecDeque;

use cellbed_link::{BitRate, Bytes, Duration, Time};

use super::FixedRateSaturator;

/// Interval between choices of a rate.
const TICK: Duration = Duration::from_millis(50);

/// Sends packets of one length at the rate that a [`QueueKeeper`] chooses.
#[derive(Clone, Debug)]
pub struct AdaptiveSaturator {
    keeper: QueueKeeper,
    pace: FixedRateSaturator,
    bytes: u16,
    end: Time,
    count: u32,
    /// Time of the next choice of a rate.
    tick: Time,
}

impl AdaptiveSaturator {
    /// A saturation from `start` (included) to `end` (excluded).
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

    /// Report an arrival: see [`QueueKeeper::arrived`].
    pub fn arrived(&mut self, now: Time, index: u32, sent_ns: i64, arrived_ns: i64) {
        self.keeper.arrived(now, index, sent_ns, arrived_ns);
    }

    /// Return the time of the next packet or choice of a rate; `None` after the end.
    pub fn next_event(&self) -> Option<Time> {
        let due = self.pace.next_event().unwrap_or(Time::MAX).min(self.tick);
        (due < self.end).then_some(due)
    }

    /// Return the index of a packet due at `now`; call until `None`.
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

/// Time span of arrivals that give the delivered rate, ns.
const SPAN_NS: i64 = 1_000_000_000;

/// Time for correcting the difference between the packets in flight and the target.
const CORRECTION: Duration = Duration::from_secs(1);

/// Time constant at which the target follows the delays.
const LEARNING: Duration = Duration::from_secs(10);

/// Minimum share of lost packets in [`SPAN_NS`] at which the queue overflows: the queue is too short for the intended
/// delay.
const OVERFLOWING: f64 = 0.05;

/// Ratio of the rate sent to an overflowing queue to the delivered rate. High enough to keep the queue full if the path
/// becomes faster within a second; low enough that most packets arrive.
const OVERLOAD: f64 = 2.0;

/// Minimum rate, packets/s, so that some arrivals are reported.
const SLOWEST: f64 = 20.0;

/// Time without reports until packets in flight count as lost: after an outage the path must be filled again.
const SILENCE: Duration = Duration::from_secs(6);

/// Chooses the rate of a saturation such that the queueing delay stays between two bounds, preferably in the middle
/// (bounds of Winstein et al., "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks",
/// NSDI 2013, §4.1: 0.75 and 3 s).
///
/// The paper widens a window by one for each packet with a short delay, and narrows it by 20 for each with a long
/// delay; a change of the path's rate is then visible only after the whole queue. Here the window is the rate delivered
/// in the last second times the intended delay. The rate is the delivered rate plus what the window lacks: it follows a
/// change within a second, and grows exponentially without a queue. A queue that overflows before the intended delay is
/// sent twice the delivered rate. Reports of arrivals must take another path than the saturated one.
#[derive(Clone, Debug, Default)]
pub struct QueueKeeper {
    least: Duration,
    most: Duration,
    bits: f64,
    /// Maximum rate, packets/s.
    fastest: f64,
    /// Intended delay, s: the middle of the bounds plus the path's travel time, which is learnt.
    aim: f64,
    /// Number of packets sent; estimated number sent since then; number known to have arrived or to have been
    /// overtaken.
    sent: u32,
    estimated: f64,
    passed: u32,
    /// Receiver's time stamps of the last [`SPAN_NS`], with packet numbers.
    arrivals: VecDeque<(i64, u32)>,
    /// Minimum difference of the two clocks' stamps.
    least_delay_ns: Option<i64>,
    /// Queueing delay of the latest known arrival: its delay less the minimum delay.
    waited: Option<Duration>,
    last_report: Time,
    rate: f64,
    /// Time of the last choice of a rate.
    chosen: Time,
}

impl QueueKeeper {
    /// A keeper for packets of `bytes` (IP length), queueing delays of `least` to `most`, and rates up to `fastest`.
    pub fn new(least: Duration, most: Duration, bytes: u16, fastest: BitRate, now: Time) -> Self {
        let bits = f64::from(bytes.max(1)) * 8.0;
        Self {
            least,
            most,
            bits,
            fastest: fastest.0 as f64 / bits,
            aim: (least + most).as_secs_f64() / 2.0,
            last_report: now,
            rate: SLOWEST.min(fastest.0 as f64 / bits),
            chosen: now,
            ..Self::default()
        }
    }

    /// Record that `count` packets have been sent in total.
    pub fn sent(&mut self, count: u32) {
        if count > self.sent {
            self.sent = count;
            self.estimated = 0.0;
        }
    }

    /// Record that packet `index`, sent at `sent_ns` on the sender's clock, arrived at `arrived_ns` on the receiver's
    /// clock. The clocks may differ.
    pub fn arrived(&mut self, now: Time, index: u32, sent_ns: i64, arrived_ns: i64) {
        self.last_report = self.last_report.max(now);
        self.passed = self.passed.max(index.saturating_add(1));
        self.sent(self.passed);
        let delay = arrived_ns.wrapping_sub(sent_ns);
        let least = self.least_delay_ns.map_or(delay, |least| least.min(delay));
        self.least_delay_ns = Some(least);
        self.waited = Some(Duration::from_nanos(delay.wrapping_sub(least) as u64));
        self.arrivals.push_back((arrived_ns, index));
        while let Some((first, _)) = self.arrivals.front()
            && arrived_ns.wrapping_sub(*first) > SPAN_NS
        {
            self.arrivals.pop_front();
        }
    }

    /// Return the rate of recent arrivals, packets/s.
    fn delivered(&self) -> f64 {
        let (Some((first, _)), Some((last, _))) = (self.arrivals.front(), self.arrivals.back())
        else {
            return 0.0;
        };
        // The first arrival was sent before the span: not counted. Spans below 0.1 s are too short.
        let span = (last.wrapping_sub(*first) as f64 * 1e-9).max(0.1);
        (self.arrivals.len() - 1) as f64 / span
    }

    /// Return whether the queue overflows.
    fn overflows(&self) -> bool {
        let (Some((_, first)), Some((_, last))) = (self.arrivals.front(), self.arrivals.back())
        else {
            return false;
        };
        let sent = f64::from(last.saturating_sub(*first)) + 1.0;
        1.0 - self.arrivals.len() as f64 / sent > OVERFLOWING
    }

    /// Choose the rate from now on. Call this every 50 or 100 ms.
    pub fn choose(&mut self, now: Time) -> BitRate {
        let since = now.since(self.chosen);
        self.estimated += self.rate * since.as_secs_f64();
        if now.since(self.last_report) >= SILENCE {
            self.passed = self.sent;
            self.estimated = 0.0;
            self.arrivals.clear();
            self.last_report = now;
        }
        if let Some(waited) = self.waited {
            let middle = (self.least + self.most).as_secs_f64() / 2.0;
            let step = since.as_secs_f64().min(0.2) / LEARNING.as_secs_f64();
            self.aim = (self.aim + (middle - waited.as_secs_f64()) * step)
                .clamp(middle, middle + self.most.as_secs_f64());
        }
        let delivered = self.delivered();
        let underway = f64::from(self.sent - self.passed) + self.estimated;
        let lacking = delivered * self.aim - underway;
        let most = if self.overflows() {
            OVERLOAD * delivered
        } else {
            self.fastest
        };
        self.rate = (delivered + lacking / CORRECTION.as_secs_f64())
            .min(most)
            .max(SLOWEST)
            .min(self.fastest);
        self.chosen = now;
        BitRate((self.rate * self.bits) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(750);
    const MOST: Duration = Duration::from_millis(3_000);

    /// Return sending times, and (arrival, queueing delay) of packets. The bottleneck takes `spacing` per packet, holds
    /// `room`, and loses the packets of `lost`. Packets travel for `travel` in addition. Reports come 20 ms later, from
    /// a clock an hour behind.
    fn drive(
        spacing: Duration,
        room: Duration,
        travel: Duration,
        lost: impl Fn(Time) -> bool,
    ) -> (Vec<Time>, Vec<(Time, Duration)>) {
        let end = Time::from_millis(60_000);
        let keeper = QueueKeeper::new(LEAST, MOST, 1400, BitRate(1_000_000_000), Time::ZERO);
        let mut saturator = AdaptiveSaturator::new(keeper, 1400, Time::ZERO, end);
        let mut free = Time::ZERO;
        let mut underway: VecDeque<(Time, u32, Time)> = VecDeque::new();
        let (mut departures, mut waits) = (Vec::new(), Vec::new());
        for millisecond in 0..60_000 {
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
                departures.push(now);
                if !lost(now) && free < now + room {
                    free = free.max(now) + spacing;
                    underway.push_back((free + travel, index, now));
                }
            }
        }
        (departures, waits)
    }

    #[test]
    fn the_queue_grows_into_its_bounds_and_stays() {
        for (spacing, travel) in [(1, 600), (10, 10), (10, 600)] {
            let [spacing, travel] = [spacing, travel].map(Duration::from_millis);
            let (_, mut waits) = drive(spacing, Duration::MAX, travel, |_| false);
            waits.retain(|(arrival, _)| *arrival > Time::from_millis(20_000));
            assert!(waits.len() > 3_800, "{}", waits.len());
            assert!(waits.iter().all(|(_, wait)| (LEAST..=MOST).contains(wait)));
        }
    }

    #[test]
    fn a_queue_that_overflows_is_sent_twice_what_it_delivers() {
        // The queue holds 200 ms at 1000 packets/s.
        let [spacing, room] = [1, 200].map(Duration::from_millis);
        let (sent, _) = drive(spacing, room, Duration::ZERO, |_| false);
        let late = sent.iter().filter(|&&at| at >= Time::from_millis(10_000));
        let share = late.count() as f64 / 50_000.0;
        assert!((1.5..2.2).contains(&share), "{share} times the delivered");
    }

    #[test]
    fn a_path_that_was_gone_is_filled_again() {
        // All packets of some seconds are lost: their arrival is never reported.
        let [spacing, travel] = [5, 20].map(Duration::from_millis);
        let gone = |now: Time| (10_000..20_000).contains(&(now.as_nanos() / 1_000_000));
        let (_, waits) = drive(spacing, Duration::MAX, travel, gone);
        let late = Time::from_millis(40_000);
        let after = waits.iter().filter(|(at, _)| *at > late).count();
        assert!(after > 3_900, "{after} of 4000 packets that fit in 20 s");
    }
}
