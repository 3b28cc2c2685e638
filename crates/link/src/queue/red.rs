//! Random early detection (Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM
//! Transactions on Networking 1(4), 1993), and its adaptive form (Floyd, Gummadi and Shenker, "Adaptive RED: An
//! Algorithm for Increasing the Robustness of RED's Active Queue Management", 2001).

use crate::schema::JsonSchema;

use super::fifo::{Control, Line};
use super::{Dropped, Limit, Refused, Surcharge, Timer};
use crate::packet::{DropReason, Item};
use crate::random::{Random, Seed};
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// RED's parameters. The average queue is measured in bytes, and the probability does not depend on the packet's size.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedConfig {
    /// Mean queue below which nothing is dropped.
    #[schemars(extend("least" = "1500 B", "most" = "1 GB"))]
    #[serde(rename = "minimum_bytes")]
    pub minimum: Bytes,
    /// Mean queue at which packets are dropped with the full probability.
    #[schemars(extend("least" = "1500 B", "most" = "1 GB"))]
    #[serde(rename = "maximum_bytes")]
    pub maximum: Bytes,
    /// Drop probability at the maximum; where adaptive, where it begins.
    #[schemars(extend("format" = "probability"))]
    pub probability: f64,
    /// Weight of a packet's arrival in the mean; left out: 0.002, where adaptive by the link's rate.
    ///
    /// There 1 − e^(−1 / rate) at the link's mean rate in packets per second (Adaptive RED §4.3).
    #[schemars(example = 0.002, extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub weight: Option<f64>,
    /// Raise the probability to 1 between once and twice the maximum.
    ///
    /// If not, at once (Adaptive RED §2; "Recommendation on using the gentle_ variant of RED", Floyd 2000).
    pub gentle: bool,
    /// Let the probability follow the queue (Adaptive RED).
    ///
    /// Within 0.01 and 0.5.
    pub adaptive: bool,
    /// Mark packets that allow it (ECN) instead of dropping them.
    ///
    /// While the probability is below 1.
    pub ecn: bool,
    /// Maximum length of the queue; the excess is dropped on arrival.
    #[serde(flatten)]
    pub limit: Limit,
    /// Seed of the drops.
    pub seed: Seed,
}

/// Interval at which Adaptive RED moves `max_p` to keep the average queue half way between the thresholds (§4, Figure
/// 1).
const INTERVAL: Duration = Duration::from_millis(500);
/// Maximum addition to `max_p` if the average is above the target, also limited to a quarter of `max_p` (α).
const INCREMENT: f64 = 0.01;
/// Factor of `max_p` if the average is below the target (β).
const FACTOR: f64 = 0.9;
/// Transmission time of a typical packet (`s`) without a mean rate; otherwise, one MTU determines it.
const LEAST_SERVICE: Duration = Duration::from_micros(1);

impl Default for RedConfig {
    /// Plain RED between 5 and 15 packets, with the values that its authors recommend: w_q 0.002, max_p 0.1 and gentle.
    fn default() -> Self {
        Self {
            minimum: Bytes(7_500),
            maximum: Bytes(22_500),
            probability: 0.1,
            weight: None,
            gentle: true,
            adaptive: false,
            ecn: false,
            limit: Limit::default(),
            seed: Seed::default(),
        }
    }
}

impl RedConfig {
    /// Return the default with other thresholds.
    pub fn new(minimum: Bytes, maximum: Bytes) -> Self {
        Self {
            minimum,
            maximum,
            ..Self::default()
        }
    }
}

/// Decision about an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Enter,
    Signal,
    Drop,
}

/// The control loop, names as in the paper.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    /// Average queue, bytes.
    avg: f64,
    /// Packets since the last drop; `None` while the average is below the lower threshold.
    count: Option<u32>,
    max_p: f64,
    weight: f64,
    /// Transmission time of a packet, s.
    service: f64,
    /// Since when the queue has been empty.
    q_time: Option<Time>,
    random: Random,
    timer: Timer,
}

impl Red {
    /// Update the average when an arriving packet finds `backlog`.
    fn average(&mut self, backlog: Bytes, now: Time) {
        match self.q_time.take() {
            Some(since) if backlog.0 == 0 => {
                let missed = now.since(since).as_secs_f64() / self.service;
                self.avg *= (1.0 - self.weight).powf(missed);
                self.q_time = Some(now);
            }
            _ => self.avg += self.weight * (backlog.0 as f64 - self.avg),
        }
    }

    /// p_b of the paper, with the slope of `gentle` above the upper threshold.
    fn base_probability(&self, config: &RedConfig) -> f64 {
        let (minimum, maximum) = (config.minimum.0 as f64, config.maximum.0 as f64);
        if self.avg < minimum {
            0.0
        } else if self.avg < maximum {
            self.max_p * (self.avg - minimum) / (maximum - minimum)
        } else if config.gentle && self.avg < 2.0 * maximum {
            self.max_p + (1.0 - self.max_p) * (self.avg - maximum) / maximum
        } else {
            1.0
        }
    }

    fn judge(&mut self, config: &RedConfig) -> Verdict {
        let base = self.base_probability(config);
        if self.avg < config.minimum.0 as f64 {
            self.count = None;
            return Verdict::Enter;
        }
        if base >= 1.0 {
            self.count = Some(0);
            return Verdict::Drop;
        }
        let count = self.count.map_or(0, |count| count.saturating_add(1));
        self.count = Some(count);
        // p_a = p_b / (1 − count · p_b): the gaps between drops are uniform up to 1 / p_b (§7)
        let spread = 1.0 - f64::from(count) * base;
        if spread <= 0.0 || self.random.unit() < base / spread {
            self.count = Some(0);
            return Verdict::Signal;
        }
        Verdict::Enter
    }

    /// Perform the missed adaptations before `now`; the average has not changed since the last one.
    fn catch_up(&mut self, config: &RedConfig, now: Time) {
        while config.adaptive && self.timer.due(now).is_some() {
            let before = self.max_p;
            self.adapt(config);
            if self.max_p == before {
                self.timer.skip_to(now);
            }
        }
    }

    fn adapt(&mut self, config: &RedConfig) {
        let (minimum, maximum) = (config.minimum.0 as f64, config.maximum.0 as f64);
        let part = |share: f64| minimum + share * (maximum - minimum);
        if self.avg > part(0.6) && self.max_p <= 0.5 {
            self.max_p += INCREMENT.min(self.max_p / 4.0);
        } else if self.avg < part(0.4) && self.max_p >= 0.01 {
            self.max_p *= FACTOR;
        }
    }
}

impl Control for Red {
    type Config = RedConfig;

    fn check(config: &RedConfig) -> Result<(), String> {
        let (minimum, maximum) = (config.minimum, config.maximum);
        if minimum >= maximum {
            return Err(format!(
                "the minimum, {minimum}, must be less than the maximum, {maximum}: write maximum = '{}'",
                Bytes(minimum.0.saturating_mul(3))
            ));
        }
        Ok(())
    }

    fn new(config: &RedConfig, packet: Option<Duration>, zero: Time) -> Self {
        let service = packet.unwrap_or(LEAST_SERVICE);
        let weight = match config.adaptive {
            true => 1.0 - (-service.as_secs_f64()).exp(),
            false => 0.002,
        };
        Self {
            avg: 0.0,
            count: None,
            max_p: config.probability,
            weight: config.weight.unwrap_or(weight),
            service: service.max(Duration::from_nanos(1)).as_secs_f64(),
            q_time: Some(zero),
            random: Random::new(config.seed),
            timer: Timer::new(zero, INTERVAL),
        }
    }

    fn limit(config: &RedConfig) -> &Limit {
        &config.limit
    }

    fn push<P>(
        &mut self,
        config: &RedConfig,
        line: &mut Line<P>,
        now: Time,
        mut item: Item<P>,
        surcharge: Surcharge,
        _: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        self.catch_up(config, now);
        self.average(line.level().bytes, now);
        if !line.has_room(&config.limit, &item, surcharge) {
            return Err((item, DropReason::QueueFull));
        }
        match self.judge(config) {
            Verdict::Enter => {}
            Verdict::Signal if config.ecn && item.mark() => {}
            Verdict::Signal | Verdict::Drop => return Err((item, DropReason::Congestion)),
        }
        self.q_time = None;
        line.push(item);
        Ok(())
    }

    fn pop<P>(
        &mut self,
        _: &RedConfig,
        line: &mut Line<P>,
        now: Time,
        _: &mut Dropped<P>,
    ) -> Option<Item<P>> {
        let item = line.pop();
        if line.is_empty() {
            self.q_time = Some(now);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red(config: &RedConfig) -> Red {
        Red::new(config, Some(Duration::from_millis(1)), Time::ZERO)
    }

    #[test]
    fn the_average_is_that_of_the_paper() {
        let mut control = red(&RedConfig::new(Bytes(5_000), Bytes(15_000)));
        control.q_time = None;
        for _ in 0..1000 {
            control.average(Bytes(10_000), Time::ZERO);
        }
        let expected = 10_000.0 * (1.0 - 0.998f64.powi(1000)); // 8649.6
        assert!((control.avg - expected).abs() < 1e-6, "{}", control.avg);
        // idle for 500 ms, enough for 500 typical packets
        control.q_time = Some(Time::ZERO);
        control.average(Bytes(0), Time::from_millis(500));
        assert!((control.avg - expected * 0.998f64.powi(500)).abs() < 1e-6);
    }

    #[test]
    fn max_p_adapts_as_the_paper_says() {
        let config = RedConfig {
            adaptive: true,
            ..RedConfig::new(Bytes(5_000), Bytes(15_000))
        };
        let mut control = red(&config);
        let mut after = |avg: f64, times: usize| {
            control.avg = avg;
            (0..times).for_each(|_| control.adapt(&config));
            control.max_p
        };
        assert_eq!(
            after(10_000.0, 10),
            0.1,
            "within the target of 9000 to 11000"
        );
        assert!((after(12_000.0, 1) - 0.11).abs() < 1e-12);
        let most = after(12_000.0, 100);
        assert!(
            (0.5..=0.511).contains(&most),
            "the first step beyond 0.5 is the last: {most}"
        );
        assert!((after(8_000.0, 1) - most * 0.9).abs() < 1e-9);
        let least = after(8_000.0, 100);
        assert!((0.009..0.01).contains(&least), "{least}");
        assert!(
            (after(12_000.0, 1) - least * 1.25).abs() < 1e-12,
            "by a quarter while it is small"
        );
        assert!((control.weight - 0.001).abs() < 1e-6, "1 − exp(−1 / 1000)");
    }
}
