//! Proportional integral controller enhanced (RFC 8033): packets are dropped or marked on arrival, with a probability
//! that follows the queueing delay.

use crate::schema::JsonSchema;

use super::fifo::{Control, Line};
use super::{Dropped, Limit, Refused, Surcharge, Timer};
use crate::packet::{DropReason, Item};
use crate::random::{Random, Seed};
use crate::time::{Duration, Time};
use crate::units::{Bytes, MTU};

/// PIE's parameters. The default follows RFC 8033 Appendix A, with the optional elements of §5.4 and §5.5 and
/// without a limit.
///
/// The queueing delay is the one of the packet that left last, and zero once the queue is empty (§4.3, `deque` of
/// Appendix A; Linux, too, uses time stamps by default). §5.3, which switches PIE off while a third of the buffer is
/// not filled, is left out: the buffer may be without a limit.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PieConfig {
    /// The queueing delay that is aimed at.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "target_ns")]
    pub target: Duration,
    /// Interval of the computation of the drop probability.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "update_ns")]
    pub update: Duration,
    /// Gain of the delay's distance from the target, per second.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1000))]
    pub alpha: f64,
    /// Gain of the delay's growth, per second.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1000))]
    pub beta: f64,
    /// Time after a quiet period during which a burst passes without drops.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "burst_ns")]
    pub burst: Duration,
    /// Mark packets that allow it (ECN) instead of dropping them.
    ///
    /// While the drop probability is below 0.1 (`mark_ecnth`, §5.1).
    pub ecn: bool,
    /// Maximum length of the queue; the excess is dropped on arrival.
    #[serde(flatten)]
    pub limit: Limit,
    /// Seed of the drops.
    pub seed: Seed,
}

impl Default for PieConfig {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            update: Duration::from_millis(15),
            alpha: 0.125,
            beta: 1.25,
            burst: Duration::from_millis(150),
            ecn: false,
            limit: Limit::default(),
            seed: Seed::default(),
        }
    }
}

/// `mark_ecnth` (§5.1).
const MARK_BELOW: f64 = 0.1;

/// The control loop, names as in the RFC's Appendix A.
#[derive(Clone, Debug)]
pub(crate) struct Pie {
    drop_prob: f64,
    accu_prob: f64,
    /// Delay of the packet that left last, s.
    current_qdelay: f64,
    /// Delay at the last update, s.
    qdelay_old: f64,
    /// Remaining burst allowance, s.
    burst_allowance: f64,
    random: Random,
    timer: Timer,
}

impl Pie {
    /// `calculate_drop_prob` of RFC 8033 Appendix A, the step capped as in §5.5.
    fn update(&mut self, config: &PieConfig) {
        let (qdelay, target) = (self.current_qdelay, config.target.as_secs_f64());
        let mut step = config.alpha * (qdelay - target) + config.beta * (qdelay - self.qdelay_old);
        step *= auto_tuning(self.drop_prob);
        if self.drop_prob >= 0.1 && step > 0.02 {
            step = 0.02;
        }
        self.drop_prob += step;
        if qdelay == 0.0 && self.qdelay_old == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.qdelay_old = qdelay;
        self.burst_allowance = (self.burst_allowance - config.update.as_secs_f64()).max(0.0);
    }

    /// Return whether `enque` of RFC 8033 Appendix A drops a packet that finds `backlog`.
    fn drops(&mut self, config: &PieConfig, backlog: Bytes) -> bool {
        let half = config.target.as_secs_f64() / 2.0;
        if self.drop_prob == 0.0 && self.current_qdelay < half && self.qdelay_old < half {
            self.burst_allowance = config.burst.as_secs_f64();
        }
        self.burst_allowance <= 0.0 && self.drops_early(config, backlog)
    }

    /// `drop_early` of RFC 8033 Appendix B, with the derandomisation of §5.4. A mark resets it, as a drop does.
    fn drops_early(&mut self, config: &PieConfig, backlog: Bytes) -> bool {
        let low = self.qdelay_old < config.target.as_secs_f64() / 2.0 && self.drop_prob < 0.2;
        let few = backlog.0 <= 2 * MTU.0; // `MEAN_PKTSIZE`, §4.1
        if low || few {
            return false;
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        self.accu_prob += self.drop_prob;
        if self.accu_prob < 0.85 {
            return false;
        }
        let drops = self.accu_prob >= 8.5 || self.random.unit() < self.drop_prob;
        if drops {
            self.accu_prob = 0.0;
        }
        drops
    }

    /// Perform the missed updates before `now`; the queue has not changed since the last update.
    fn catch_up<P>(&mut self, config: &PieConfig, line: &Line<P>, now: Time) {
        while self.timer.due(now).is_some() {
            self.update(config);
            // With an empty queue and no learnt state, an arrival would undo the effect of further updates.
            if line.is_empty() && self.drop_prob == 0.0 && self.qdelay_old == 0.0 {
                self.timer.skip_to(now);
            }
        }
    }
}

/// Return the divisor of the steps while the probability is small (RFC 8033 §4.2 and Appendix A).
fn auto_tuning(drop_prob: f64) -> f64 {
    const SCALES: [(f64, f64); 6] = [
        (0.000_001, 2048.0),
        (0.000_01, 512.0),
        (0.000_1, 128.0),
        (0.001, 32.0),
        (0.01, 8.0),
        (0.1, 2.0),
    ];
    SCALES
        .iter()
        .find(|&&(below, _)| drop_prob < below)
        .map_or(1.0, |&(_, divisor)| 1.0 / divisor)
}

impl Control for Pie {
    type Config = PieConfig;

    fn new(config: &PieConfig, _: Option<Duration>, zero: Time) -> Self {
        Self {
            drop_prob: 0.0,
            accu_prob: 0.0,
            current_qdelay: 0.0,
            qdelay_old: 0.0,
            burst_allowance: config.burst.as_secs_f64(),
            random: Random::new(config.seed),
            timer: Timer::new(zero, config.update),
        }
    }

    fn limit(config: &PieConfig) -> &Limit {
        &config.limit
    }

    fn push<P>(
        &mut self,
        config: &PieConfig,
        line: &mut Line<P>,
        now: Time,
        mut item: Item<P>,
        surcharge: Surcharge,
        _: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        self.catch_up(config, line, now);
        if !line.has_room(&config.limit, &item, surcharge) {
            self.accu_prob = 0.0;
            return Err((item, DropReason::QueueFull));
        }
        if self.drops(config, line.level().bytes) {
            let may_mark = config.ecn && self.drop_prob < MARK_BELOW;
            if !(may_mark && item.mark()) {
                return Err((item, DropReason::Congestion));
            }
        }
        line.push(item);
        Ok(())
    }

    fn pop<P>(
        &mut self,
        config: &PieConfig,
        line: &mut Line<P>,
        now: Time,
        _: &mut Dropped<P>,
    ) -> Option<Item<P>> {
        self.catch_up(config, line, now);
        let item = line.pop()?;
        self.current_qdelay = match line.is_empty() {
            true => 0.0,
            false => now.since(item.entered).as_secs_f64(),
        };
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_of_the_rfc() {
        let config = PieConfig::default();
        let mut control = Pie::new(&config, None, Time::ZERO);
        let update = |control: &mut Pie, qdelay: f64| {
            control.current_qdelay = qdelay;
            control.update(&config);
        };
        control.drop_prob = 0.2;
        update(&mut control, 0.020);
        // 0.125 · 0.005 + 1.25 · 0.020 = 0.025625, but at most 2 % at once above 10 %
        assert!((control.drop_prob - 0.22).abs() < 1e-12);
        update(&mut control, 0.018);
        // + 0.125 · 0.003 − 1.25 · 0.002
        assert!((control.drop_prob - 0.217_875).abs() < 1e-12);
        control.drop_prob = 0.005;
        update(&mut control, 0.018);
        // + 0.125 · 0.003 / 8, as below 1 %
        assert!((control.drop_prob - 0.005_046_875).abs() < 1e-12);
    }

    #[test]
    fn small_probabilities_take_small_steps() {
        let scales = [5e-7, 5e-6, 5e-5, 5e-4, 5e-3, 5e-2, 0.5].map(|p| 1.0 / auto_tuning(p));
        assert_eq!(scales, [2048.0, 512.0, 128.0, 32.0, 8.0, 2.0, 1.0]);
    }

    #[test]
    fn an_idle_queue_forgets() {
        let config = PieConfig::default();
        let mut control = Pie::new(&config, None, Time::ZERO);
        control.drop_prob = 0.5;
        control.update(&config);
        // (0.5 − 0.125 · 0.015) · 0.98
        assert!((control.drop_prob - 0.488_162_5).abs() < 1e-12);
        (0..1000).for_each(|_| control.update(&config));
        assert_eq!((control.drop_prob, control.burst_allowance), (0.0, 0.0));
        control.drops(&config, Bytes(0));
        assert_eq!(control.burst_allowance, 0.15, "ready for the next burst");
    }

    /// Return verdicts on packets at a long queue, with constant probability.
    fn verdicts(drop_prob: f64, packets: usize) -> Vec<bool> {
        let config = PieConfig::default();
        let mut control = Pie::new(&config, None, Time::ZERO);
        control.burst_allowance = 0.0;
        control.qdelay_old = 0.015;
        control.drop_prob = drop_prob;
        (0..packets)
            .map(|_| control.drops(&config, Bytes(100_000)))
            .collect()
    }

    #[test]
    fn drops_are_neither_bunched_nor_far_apart() {
        let verdicts = verdicts(0.1, 100_000);
        let drops: Vec<usize> = (0..verdicts.len())
            .filter(|&packet| verdicts[packet])
            .collect();
        let gaps: Vec<usize> = drops.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // §5.4: none before the probabilities add up to 0.85, and one for certain at 8.5
        assert_eq!(gaps.iter().min(), Some(&9));
        assert!(gaps.iter().all(|&gap| gap <= 86));
        // 8 packets that pass, then one in ten: a mean gap of 18
        let mean = gaps.iter().sum::<usize>() as f64 / gaps.len() as f64;
        assert!((mean - 18.0).abs() < 0.5, "{mean}");
    }

    #[test]
    fn nothing_is_dropped_in_a_burst_at_low_delay_or_from_a_short_queue() {
        let config = PieConfig::default();
        let drops = |burst: f64, qdelay: f64, prob: f64, backlog: u64| {
            let mut control = Pie::new(&config, None, Time::ZERO);
            control.burst_allowance = burst;
            control.qdelay_old = qdelay;
            control.drop_prob = prob;
            (0..100).any(|_| control.drops(&config, Bytes(backlog)))
        };
        assert!(drops(0.0, 0.015, 0.19, 3001));
        assert!(!drops(0.001, 0.015, 0.19, 3001));
        assert!(!drops(0.0, 0.007, 0.19, 3001));
        assert!(drops(0.0, 0.007, 0.21, 3001));
        assert!(!drops(0.0, 0.015, 0.19, 3000));
    }
}
