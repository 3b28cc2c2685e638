//! The managed queues of Mahimahi, which differ from the RFCs of their names.
//!
//! They reproduce `mm-link` of version 0.98, in whole milliseconds (Netravali et al., "Mahimahi: Accurate
//! Record-and-Replay for HTTP", USENIX ATC 2015). Each packet counts 4 bytes more, the header that the TUN device adds.
//! The packet in service does not count against the limits.

use crate::schema::JsonSchema;

use super::fifo::{Control, Line};
use super::{Dropped, Limit, QueueLevel, Refused, Surcharge};
use crate::packet::{DropReason, Item};
use crate::random::Seed;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Refuse a span shorter than a millisecond. name: the parameter.
fn at_least_a_millisecond(name: &str, span: Duration) -> Result<(), String> {
    if whole_millis(span) == 0 {
        let nanos = span.as_nanos();
        return Err(format!(
            "{name} is {nanos}, less than a millisecond; a queue of Mahimahi needs at least that"
        ));
    }
    Ok(())
}

/// Maximum packet with TUN header, bytes.
const LARGEST: u64 = 1504;

/// Whole milliseconds from `zero` to `at`.
fn millis(at: Time, zero: Time) -> u64 {
    whole_millis(at.since(zero))
}

fn whole_millis(span: Duration) -> u64 {
    span.as_nanos() / 1_000_000
}

/// The TUN headers of the waiting packets, without the packet in service.
const HEADERS: Surcharge = Surcharge {
    serving: QueueLevel {
        packets: Packets(0),
        bytes: Bytes(0),
    },
    overhead: Bytes(4),
};

/// Return the bytes of a line, TUN headers included.
fn backlog<P>(line: &Line<P>) -> u64 {
    HEADERS.on(line.level()).bytes.0
}

/// CoDel of `mm-link`. It differs from RFC 8289: the packet whose sojourn time calls for a drop is sent and the one
/// behind it is dropped in its place (an inner variable hides the outer one), all times are whole milliseconds, and the
/// spacing of drops is rounded down to them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MahimahiCoDelConfig {
    /// The least sojourn time that is acceptable as a standing queue; whole milliseconds of it count.
    #[serde(rename = "target_ns")]
    pub target: Duration,
    /// Time that the sojourn time must have stayed above the target, in whole milliseconds.
    #[serde(rename = "interval_ns")]
    pub interval: Duration,
    /// Maximum length of the queue, with 4 bytes more for each packet; the excess is dropped on arrival.
    #[serde(flatten)]
    pub limit: Limit,
}

impl Default for MahimahiCoDelConfig {
    /// The times of RFC 8289 and no limit; `mm-link` itself has no defaults.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit: Limit::default(),
        }
    }
}

/// The control of CoDel; times in ms since the start of the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoDel {
    zero: Time,
    first_above: Option<u64>,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Control for CoDel {
    type Config = MahimahiCoDelConfig;

    fn check(config: &MahimahiCoDelConfig) -> Result<(), String> {
        at_least_a_millisecond("target_ns", config.target)?;
        at_least_a_millisecond("interval_ns", config.interval)
    }

    fn new(_: &MahimahiCoDelConfig, _: Option<Duration>, zero: Time) -> Self {
        Self {
            zero,
            first_above: None,
            drop_next: 0,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    fn limit(config: &MahimahiCoDelConfig) -> &Limit {
        &config.limit
    }

    fn surcharge(_: Surcharge) -> Surcharge {
        HEADERS
    }

    fn pop<P>(
        &mut self,
        config: &MahimahiCoDelConfig,
        line: &mut Line<P>,
        at: Time,
        dropped: &mut Dropped<P>,
    ) -> Option<Item<P>> {
        let now = millis(at, self.zero);
        let (sent, may_drop) = self.take(config, line, now)?;
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now >= self.drop_next {
                self.dropping = self.drop_next_behind(config, line, now, dropped);
                self.count = self.count.saturating_add(1);
                if self.dropping {
                    self.drop_next = self.space_from(config, self.drop_next);
                }
            }
        } else if may_drop {
            self.drop_next_behind(config, line, now, dropped);
            self.dropping = true;
            let recently = now
                .checked_sub(self.drop_next)
                .is_some_and(|since| since < whole_millis(config.interval).saturating_mul(16));
            let delta = self.count.wrapping_sub(self.last_count);
            self.count = if delta > 1 && recently { delta } else { 1 };
            self.drop_next = self.space_from(config, now);
            self.last_count = self.count;
        }
        Some(sent)
    }
}

impl CoDel {
    /// Take the head; also returns whether the queue was too long for an interval.
    fn take<P>(
        &mut self,
        config: &MahimahiCoDelConfig,
        line: &mut Line<P>,
        now: u64,
    ) -> Option<(Item<P>, bool)> {
        let item = line.pop()?;
        let sojourn = now.saturating_sub(millis(item.entered, self.zero));
        let above =
            !line.is_empty() && sojourn >= whole_millis(config.target) && backlog(line) > LARGEST;
        let mut may_drop = false;
        match (above, self.first_above) {
            (false, _) => self.first_above = None,
            (true, None) => {
                self.first_above = Some(now.saturating_add(whole_millis(config.interval)));
            }
            (true, Some(first_above)) => may_drop = now >= first_above,
        }
        Some((item, may_drop))
    }

    /// Drop the present head and return whether the queue was still too long with this packet.
    fn drop_next_behind<P>(
        &mut self,
        config: &MahimahiCoDelConfig,
        line: &mut Line<P>,
        now: u64,
        dropped: &mut Dropped<P>,
    ) -> bool {
        let Some((item, may_drop)) = self.take(config, line, now) else {
            return false;
        };
        dropped.push_back((item, DropReason::Congestion));
        may_drop
    }

    /// Return `from` + interval / √count, rounded down.
    fn space_from(&self, config: &MahimahiCoDelConfig, from: u64) -> u64 {
        let interval = whole_millis(config.interval) as f64;
        from.saturating_add((interval / f64::from(self.count).sqrt()) as u64)
    }
}

/// PIE of `mm-link`: draft-ietf-aqm-pie-09, with α = 0.125, β = 1.25 per millisecond, updates every 30 ms
/// that are made up for when a packet comes or is taken, and a departure rate measured over 16384 bytes in whole bytes
/// per millisecond. It does not even out the drops, as RFC 8033 §5.4 does.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MahimahiPieConfig {
    /// The delay that is aimed at (`qdelay_ref`); whole milliseconds of it count.
    #[serde(rename = "qdelay_ref_ns")]
    pub target: Duration,
    /// Time after an idle period during which nothing is dropped (`max_burst`), in whole milliseconds.
    #[serde(rename = "max_burst_ns")]
    pub burst: Duration,
    /// Maximum length of the queue, with 4 bytes more for each packet; the excess is dropped on arrival.
    #[serde(flatten)]
    pub limit: Limit,
    /// Seed of the drops, which are then those that the original would make if its generator were seeded so; its lower
    /// 32 bits count. The original takes a new one from the system each time.
    #[serde(default)]
    pub seed: Seed,
}

impl Default for MahimahiPieConfig {
    /// The times of RFC 8033 and no limit; `mm-link` itself has no defaults.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            burst: Duration::from_millis(150),
            limit: Limit::default(),
            seed: Seed::default(),
        }
    }
}

const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Interval of the updates, ms.
const UPDATE: u64 = 30;
/// Bytes per measurement of the departure rate.
const MEASURED: u64 = 16384;

/// The control of PIE, names as in the draft; times and delays in ms since the start of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Pie {
    zero: Time,
    last_update: u64,
    random: MinStd,
    state: State,
}

/// The control loop's state. Names as in the draft; delays in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct State {
    drop_prob: f64,
    burst_allowance: u64,
    qdelay_old: u64,
    qdelay: u64,
    /// Start of the present measurement, and the bytes that have left since.
    measuring: Option<(u64, u64)>,
    /// Bytes per ms; 0 if unknown.
    departure_rate: u64,
}

impl Control for Pie {
    type Config = MahimahiPieConfig;

    fn check(config: &MahimahiPieConfig) -> Result<(), String> {
        at_least_a_millisecond("qdelay_ref_ns", config.target)?;
        at_least_a_millisecond("max_burst_ns", config.burst)
    }

    fn new(config: &MahimahiPieConfig, _: Option<Duration>, zero: Time) -> Self {
        Self {
            zero,
            last_update: 0,
            random: MinStd::new(config.seed),
            state: State::default(),
        }
    }

    fn limit(config: &MahimahiPieConfig) -> &Limit {
        &config.limit
    }

    fn surcharge(_: Surcharge) -> Surcharge {
        HEADERS
    }

    fn push<P>(
        &mut self,
        config: &MahimahiPieConfig,
        line: &mut Line<P>,
        at: Time,
        item: Item<P>,
        surcharge: Surcharge,
        _: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        let backlog = backlog(line);
        self.update(config, millis(at, self.zero), backlog);
        if !line.has_room(&config.limit, &item, surcharge) {
            return Err((item, DropReason::QueueFull));
        }
        if self.drops(config, backlog) {
            return Err((item, DropReason::Congestion));
        }
        line.push(item);
        Ok(())
    }

    fn pop<P>(
        &mut self,
        config: &MahimahiPieConfig,
        line: &mut Line<P>,
        at: Time,
        _: &mut Dropped<P>,
    ) -> Option<Item<P>> {
        let now = millis(at, self.zero);
        let before = backlog(line);
        let item = line.pop()?;
        let backlog = backlog(line);
        self.state.measure(now, before - backlog, backlog);
        self.update(config, now, backlog);
        Some(item)
    }
}

impl Pie {
    fn drops(&mut self, config: &MahimahiPieConfig, backlog: u64) -> bool {
        let state = &self.state;
        let low = state.qdelay_old < whole_millis(config.target) / 2 && state.drop_prob < 0.2;
        if state.burst_allowance > 0 || low || backlog < 2 * LARGEST {
            return false;
        }
        self.random.unit() < self.state.drop_prob
    }

    /// Perform the due updates, as if each had found the present backlog.
    fn update(&mut self, config: &MahimahiPieConfig, now: u64, backlog: u64) {
        let [target, burst] = [config.target, config.burst].map(whole_millis);
        while now.saturating_sub(self.last_update) > UPDATE {
            self.last_update += UPDATE;
            let before = self.state;
            self.state.update(target, burst, backlog);
            if self.state == before {
                // Settled: more updates would change nothing.
                let missed = now.saturating_sub(self.last_update).saturating_sub(1) / UPDATE;
                self.last_update += missed * UPDATE;
            }
        }
    }
}

impl State {
    /// Measure the departure of a packet of `size` bytes; `backlog` bytes wait behind it.
    fn measure(&mut self, now: u64, size: u64, backlog: u64) {
        if backlog >= MEASURED && self.measuring.is_none() {
            self.measuring = Some((now, 0));
        }
        let Some((since, bytes)) = &mut self.measuring else {
            return;
        };
        *bytes = bytes.saturating_add(size);
        let took = now.saturating_sub(*since);
        if *bytes <= MEASURED || took == 0 {
            return;
        }
        let sample = *bytes / took;
        self.departure_rate = match self.departure_rate {
            0 => sample,
            rate => rate - (rate >> 3) + (sample >> 3),
        };
        self.measuring = (backlog >= MEASURED).then_some((now, 0));
        self.burst_allowance = self.burst_allowance.saturating_sub(took);
    }

    fn update(&mut self, target: u64, burst: u64, backlog: u64) {
        self.qdelay_old = self.qdelay;
        self.qdelay = backlog.checked_div(self.departure_rate).unwrap_or(0);
        let distance = self.qdelay as f64 - target as f64;
        let change = self.qdelay as f64 - self.qdelay_old as f64;
        let step = ALPHA * distance + BETA * change;
        self.drop_prob += match self.drop_prob {
            small if small < 0.01 => step / 128.0,
            middle if middle < 0.1 => step / 32.0,
            _ => step / 16.0,
        };
        let certain = self.drop_prob > 1.0;
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        let idle = self.qdelay == 0 && self.qdelay_old == 0;
        if idle && backlog == 0 && !certain {
            self.drop_prob *= 0.98;
        }
        self.burst_allowance = self.burst_allowance.saturating_sub(UPDATE);
        let low = self.qdelay < target / 2 && self.qdelay_old < target / 2;
        if self.drop_prob == 0.0 && low && self.departure_rate > 0 {
            self.measuring = None;
            self.departure_rate = 0;
            self.burst_allowance = burst;
        }
    }
}

/// The "minimal standard" generator xₙ₊₁ = 16807 xₙ mod 2³¹ − 1 (Park & Miller, "Random number generators: good ones
/// are hard to find", CACM 31(10), 1988), the default engine of Mahimahi's C++ library.
#[derive(Clone, Debug)]
struct MinStd(u64);

impl MinStd {
    const MODULUS: u64 = (1 << 31) - 1;

    fn new(seed: Seed) -> Self {
        let state = (seed.0 & u64::from(u32::MAX)) % Self::MODULUS;
        Self(state.max(1))
    }

    /// Return 0 to the modulus less 2.
    fn next(&mut self) -> f64 {
        self.0 = self.0 * 16807 % Self::MODULUS;
        (self.0 - 1) as f64
    }

    /// Return a number in [0, 1) from two draws, the low part first (C++ standard, `generate_canonical`).
    fn unit(&mut self) -> f64 {
        let range = (Self::MODULUS - 1) as f64;
        let low = self.next();
        let sum = low + self.next() * range;
        (sum / (range * range)).min(1.0 - f64::EPSILON / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueDiscipline;
    use crate::queue::fifo::Managed;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn queue(limit: Limit) -> Managed<u64, CoDel> {
        let config = MahimahiCoDelConfig {
            limit,
            ..MahimahiCoDelConfig::default()
        };
        Managed::new(config, None, Time::ZERO)
    }

    fn item(number: u64, entered: u64) -> Item<u64> {
        Item::new(number, Bytes(1500), ms(entered))
    }

    fn push(queue: &mut Managed<u64, CoDel>, item: Item<u64>) -> Result<(), Refused<u64>> {
        queue.adopt(item, Surcharge::default(), &mut Dropped::new())
    }

    #[test]
    fn the_late_packet_is_sent_and_those_behind_it_are_dropped() {
        let mut queue = queue(Limit::default());
        (0..500).for_each(|number| push(&mut queue, item(number, 0)).unwrap());
        let (mut sent, mut lost) = (Vec::new(), Vec::new());
        for now in 10..400 {
            let mut dropped = Dropped::new();
            sent.push(queue.pop(ms(now), &mut dropped).unwrap().packet);
            lost.extend(dropped.into_iter().map(|(item, _)| (now, item.packet)));
        }
        // Above target from 10 ms on. At 110 ms packet 100 is late: it is sent and 101 is dropped. The next drops
        // follow after 100 / √1, 100 / √2 … ms, rounded down: 210, 280, 337, 387. Each drops the packet behind the sent
        // one.
        assert_eq!(
            lost,
            [(110, 101), (210, 202), (280, 273), (337, 331), (387, 382)]
        );
        assert_eq!(sent[100..102], [100, 102]);
    }

    #[test]
    fn a_packet_alone_or_with_one_behind_is_never_dropped() {
        let mut queue = queue(Limit::default());
        let mut dropped = Dropped::new();
        for now in (1000..5000).step_by(50) {
            push(&mut queue, item(now, now - 500)).unwrap();
            push(&mut queue, item(now + 1, now - 500)).unwrap(); // 1504 bytes behind the first
            while queue.pop(ms(now), &mut dropped).is_some() {}
        }
        assert!(dropped.is_empty());
    }

    #[test]
    fn limits_count_the_header() {
        let mut queue = queue(Limit::bytes(3007));
        assert!(push(&mut queue, item(0, 0)).is_ok());
        assert!(push(&mut queue, item(1, 0)).is_err(), "3008 bytes");
    }
}

#[cfg(test)]
mod pie_tests {
    use super::*;
    use crate::queue::QueueDiscipline;
    use crate::queue::fifo::Managed;

    const TARGET: u64 = 20;
    const BURST: u64 = 100;

    fn control(drop_prob: f64, qdelay: u64, departure_rate: u64) -> State {
        State {
            drop_prob,
            qdelay,
            departure_rate,
            ..State::default()
        }
    }

    #[test]
    fn the_generator_is_park_and_millers() {
        let mut random = MinStd::new(Seed(1));
        (0..10_000).for_each(|_| {
            random.next();
        });
        assert_eq!(random.0, 1_043_618_065); // as the paper gives it
        // (x₁ − 1 + (x₂ − 1) · r) / r² with r = 2³¹ − 2, x₁ = 16807, x₂ = 16807²
        let r = 2_147_483_646.0;
        let expected = (16806.0 + 282_475_248.0 * r) / (r * r);
        assert_eq!(MinStd::new(Seed(1)).unit(), expected);
    }

    #[test]
    fn steps_are_smaller_while_the_probability_is() {
        // 1000 bytes/ms and 50 kB: 50 ms. 0.125 · (50 − 20) + 1.25 · (50 − 40) = 16.25
        for (drop_prob, divisor) in [(0.0, 128.0), (0.05, 32.0), (0.2, 16.0)] {
            let mut control = control(drop_prob, 40, 1000);
            control.update(TARGET, BURST, 50_000);
            assert_eq!(
                control.drop_prob,
                f64::min(1.0, drop_prob + 16.25 / divisor)
            );
            assert_eq!((control.qdelay, control.qdelay_old), (50, 40));
        }
    }

    #[test]
    fn a_quiet_time_gives_a_burst_allowance_and_forgets_the_rate() {
        let mut control = control(0.01, 0, 1000);
        control.update(TARGET, BURST, 0); // 0.01 − 0.125 · 20 / 32 is below 0
        assert_eq!(control.drop_prob, 0.0);
        assert_eq!(
            (control.departure_rate, control.burst_allowance),
            (0, BURST)
        );
        control.update(TARGET, BURST, 0);
        assert_eq!(control.burst_allowance, BURST - UPDATE);
    }

    #[test]
    fn the_departure_rate_is_measured_over_16_kib() {
        let mut control = State::default();
        control.measure(0, 1504, 16_383);
        assert_eq!(control.measuring, None, "too short a queue");
        for now in 1..=11 {
            control.measure(now, 1504, 20_000);
        }
        // 11 packets are the first to exceed 16384 bytes: 16544 bytes in 10 ms
        assert_eq!(control.departure_rate, 1654);
        assert_eq!(control.measuring, Some((11, 0)));
    }

    fn push(queue: &mut Managed<(), Pie>, at: Time) {
        let item = Item::new((), Bytes(40), Time::ZERO);
        let pushed = queue.push(at, item, Surcharge::default(), &mut Dropped::new());
        pushed.unwrap();
    }

    #[test]
    fn updates_are_made_up_for_after_any_silence() {
        let config = MahimahiPieConfig {
            target: Duration::from_millis(TARGET),
            burst: Duration::from_millis(BURST),
            limit: Limit::default(),
            seed: Seed(1),
        };
        let mut queue = Managed::<_, Pie>::new(config, None, Time::ZERO);
        queue.control.state = control(0.9, 100, 1000);
        push(&mut queue, Time::from_millis(30));
        assert_eq!(
            (queue.control.last_update, queue.control.state.qdelay),
            (0, 100),
            "due after 30 ms, not at 30 ms"
        );
        push(&mut queue, Time::MAX);
        let now = millis(Time::MAX, Time::ZERO);
        assert!(now - queue.control.last_update <= UPDATE);
        assert_eq!(queue.control.state.drop_prob, 0.0);
    }
}
