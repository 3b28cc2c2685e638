//! Mahimahi's PIE: an early draft's, in whole milliseconds, with the delay estimated from the departure rate.

use crate::schema::JsonSchema;

use super::super::fifo::Line;
use super::super::{Dropped, Limit, QueueDiscipline, QueueLevel, Refused, Surcharge};
use super::at_least_a_millisecond;
use super::{LARGEST, fits, level, millis, push_within, whole_millis};
use crate::outcome::DropReason;
use crate::packet::Item;
use crate::random::Seed;
use crate::time::{Duration, Time};

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
/// ms.
const UPDATE: u64 = 30;
/// Bytes of a measurement of the departure rate.
const MEASURED: u64 = 16384;

/// The queue; times in ms since the start of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Pie<P> {
    config: MahimahiPieConfig,
    line: Line<P>,
    zero: Time,
    last_update: u64,
    random: MinStd,
    control: Control,
}

/// Names as in the draft; delays in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Control {
    drop_prob: f64,
    burst_allowance: u64,
    qdelay_old: u64,
    qdelay: u64,
    /// A measurement under way: since when, and bytes that have left.
    measuring: Option<(u64, u64)>,
    /// Bytes per ms; 0 is not known.
    departure_rate: u64,
}

impl<P> QueueDiscipline<P> for Pie<P> {
    type Config = MahimahiPieConfig;

    fn check(config: &MahimahiPieConfig) -> Result<(), String> {
        at_least_a_millisecond("qdelay_ref_ns", config.target)?;
        at_least_a_millisecond("max_burst_ns", config.burst)
    }

    fn new(config: MahimahiPieConfig, _packet: Option<Duration>, zero: Time) -> Self {
        Self {
            line: Line::new(),
            zero,
            last_update: 0,
            random: MinStd::new(config.seed),
            control: Control::default(),
            config,
        }
    }

    fn restart(&mut self, zero: Time) {
        self.zero = zero;
        self.last_update = 0;
        self.random = MinStd::new(self.config.seed);
        self.control = Control::default();
    }

    fn push(
        &mut self,
        at: Time,
        item: Item<P>,
        _surcharge: Surcharge,
        _dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        let backlog = level(&self.line).bytes.0;
        self.update(millis(at, self.zero), backlog);
        if !fits(&self.config.limit, &self.line, &item) {
            return Err((item, DropReason::QueueFull));
        }
        if self.drops(backlog) {
            return Err((item, DropReason::Congestion));
        }
        self.line.push(item);
        Ok(())
    }

    fn pop(&mut self, at: Time, _dropped: &mut Dropped<P>) -> Option<Item<P>> {
        let now = millis(at, self.zero);
        let before = level(&self.line).bytes.0;
        let item = self.line.pop()?;
        let backlog = level(&self.line).bytes.0;
        self.control.measure(now, before - backlog, backlog);
        self.update(now, backlog);
        Some(item)
    }

    fn adopt(
        &mut self,
        item: Item<P>,
        _surcharge: Surcharge,
        _dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        push_within(&self.config.limit, &mut self.line, item)
    }

    fn remove(&mut self) -> Option<Item<P>> {
        self.line.pop()
    }

    fn level(&self) -> QueueLevel {
        self.line.level()
    }
}

impl<P> Pie<P> {
    fn drops(&mut self, backlog: u64) -> bool {
        let control = &self.control;
        let low =
            control.qdelay_old < whole_millis(self.config.target) / 2 && control.drop_prob < 0.2;
        if control.burst_allowance > 0 || low || backlog < 2 * LARGEST {
            return false;
        }
        self.random.unit() < self.control.drop_prob
    }

    /// Makes up for the updates due, as if each had found what waits now.
    fn update(&mut self, now: u64, backlog: u64) {
        let (target, burst) = (
            whole_millis(self.config.target),
            whole_millis(self.config.burst),
        );
        while now.saturating_sub(self.last_update) > UPDATE {
            self.last_update += UPDATE;
            let before = self.control;
            self.control.update(target, burst, backlog);
            if self.control == before {
                // Settled: the rest would change nothing.
                let missed = now.saturating_sub(self.last_update).saturating_sub(1) / UPDATE;
                self.last_update += missed * UPDATE;
            }
        }
    }
}

impl Control {
    /// A packet of `size` bytes has been taken and `backlog` bytes wait behind it.
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

/// The "minimal standard" generator (Park & Miller, "Random number generators: good ones are hard to find", CACM
/// 31(10), 1988): xₙ₊₁ = 16807 xₙ mod 2³¹ − 1, which is the default engine of the C++ library that the original is
/// built with.
#[derive(Clone, Debug)]
struct MinStd(u64);

impl MinStd {
    const MODULUS: u64 = (1 << 31) - 1;

    fn new(seed: Seed) -> Self {
        let state = (seed.0 & u64::from(u32::MAX)) % Self::MODULUS;
        Self(state.max(1))
    }

    /// From 0 up to the modulus less 2.
    fn next(&mut self) -> f64 {
        self.0 = self.0 * 16807 % Self::MODULUS;
        (self.0 - 1) as f64
    }

    /// A number from 0 up to but excluding 1, of two draws, the lower first (C++ standard, `generate_canonical`).
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
    use crate::units::Bytes;

    const TARGET: u64 = 20;
    const BURST: u64 = 100;

    fn control(drop_prob: f64, qdelay: u64, departure_rate: u64) -> Control {
        Control {
            drop_prob,
            qdelay,
            departure_rate,
            ..Control::default()
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
        let mut control = Control::default();
        control.measure(0, 1504, 16_383);
        assert_eq!(control.measuring, None, "too short a queue");
        for now in 1..=11 {
            control.measure(now, 1504, 20_000);
        }
        // 11 packets are the first to exceed 16384 bytes: 16544 bytes in 10 ms
        assert_eq!(control.departure_rate, 1654);
        assert_eq!(control.measuring, Some((11, 0)));
    }

    fn push(queue: &mut Pie<()>, at: Time) {
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
        let mut queue = Pie::new(config, None, Time::ZERO);
        queue.control = control(0.9, 100, 1000);
        push(&mut queue, Time::from_millis(30));
        assert_eq!(
            (queue.last_update, queue.control.qdelay),
            (0, 100),
            "due after 30 ms, not at 30 ms"
        );
        push(&mut queue, Time::MAX);
        let now = millis(Time::MAX, Time::ZERO);
        assert!(now - queue.last_update <= UPDATE);
        assert_eq!(queue.control.drop_prob, 0.0);
    }
}
