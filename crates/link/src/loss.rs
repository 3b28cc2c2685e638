//! Loss of packets.

use std::sync::Arc;

use crate::schema::JsonSchema;
use serde::Deserialize;

use crate::random::{Probability, Random, Seed};
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time};

/// Model of the loss of packets.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LossConfig {
    /// Each packet is lost with the same probability, independently of the others.
    #[serde(rename = "loss")]
    #[schemars(extend("table" = false, "text" = "loss {probability}", "idle" = "probability"))]
    Independent {
        /// Probability of a loss.
        probability: Probability,
        /// Seed of this stage's generator.
        seed: Seed,
    },
    /// Losses in bursts: a Markov chain of a good and a bad state, with a step after each packet.
    ///
    /// Gilbert, "Capacity of a Burst-Noise Channel", Bell System Technical Journal 39(5), 1960, with no loss in the
    /// good state; Elliott, "Estimates of Error Rates for Codes on Burst-Noise Channels", BSTJ 42(5), 1963, with one in
    /// each. It begins in the good state. In the long run the share `to_bad` / (`to_bad` + `to_good`) of all packets
    /// meets the bad state, in stays of 1 / `to_good` packets on average.
    #[schemars(extend("text" = "loss in bursts (to bad {to_bad}, to good {to_good}, lost {loss_good} and {loss_bad})"))]
    GilbertElliott {
        /// Probability of a step from the good to the bad state.
        #[schemars(example = 0.01)]
        to_bad: Probability,
        /// Probability of a step back; a burst lasts 1 / to_good packets on average.
        #[schemars(example = 0.25)]
        to_good: Probability,
        /// Probability of a loss in the good state.
        #[serde(default)]
        loss_good: Probability,
        /// Probability of a loss in the bad state.
        #[serde(default = "certain")]
        loss_bad: Probability,
        /// Seed of this stage's generator.
        seed: Seed,
    },
    /// A probability of loss over time: each value holds until the next one; before the first it is 0.
    #[serde(rename = "loss-series")]
    #[schemars(extend("table" = "series", "text" = "loss {steps.least} to {steps.most} in {steps.count} steps"))]
    Series {
        /// Pairs of a time and the probability from then on.
        #[serde(rename = "steps")]
        #[schemars(example = 0.01)]
        series: Arc<LossSeries>,
        /// Seed of this stage's generator.
        seed: Seed,
    },
    /// Times without losses that alternate with times of total loss.
    #[schemars(extend("text" = "passes {on_ns} and loses {off_ns} in turn{exponential: on average}"))]
    OnOff {
        /// Duration of each interval without loss.
        #[serde(rename = "on_ns")]
        #[schemars(example = "10 s", extend("least" = "1 ms", "most" = "24 h"))]
        on: Duration,
        /// Duration of each interval of loss.
        #[serde(rename = "off_ns")]
        #[schemars(example = "500 ms", extend("least" = "1 ms", "most" = "24 h"))]
        off: Duration,
        /// Draw both durations from exponential distributions with these means.
        #[serde(default)]
        exponential: bool,
        /// Seed of this stage's generator.
        seed: Seed,
    },
}

fn certain() -> Probability {
    Probability::ALWAYS
}

impl LossConfig {
    fn seed(&self) -> Seed {
        match self {
            Self::Independent { seed, .. }
            | Self::GilbertElliott { seed, .. }
            | Self::Series { seed, .. }
            | Self::OnOff { seed, .. } => *seed,
        }
    }
}

/// Minimum length of a spell, so that time advances.
const LEAST: Duration = Duration::from_nanos(1000);

/// The stage: draws for each packet, in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    config: LossConfig,
    random: Random,
    zero: Time,
    offset: Duration,
    /// True if the chain is in the bad state, or the link in an interval of loss.
    bad: bool,
    /// When the spell ends.
    until: Time,
}

impl Configured<LossConfig> for Loss {
    fn new(config: &LossConfig, zero: Time) -> Self {
        let random = Random::new(config.seed());
        let mut loss = Self {
            config: config.clone(),
            random,
            zero,
            offset: Duration::ZERO,
            bad: false,
            until: zero,
        };
        loss.begin_spell(zero);
        loss
    }

    /// Change the loss of later packets; the generator keeps its state.
    fn change(&mut self, config: &LossConfig, zero: Time, _: Time, offset: Duration) {
        if *config != self.config {
            let random = self.random.clone();
            *self = Self {
                random,
                offset,
                ..Self::new(config, zero)
            };
        }
    }
}

impl<P> Behaviour<P> for Loss {
    fn restart(&mut self, zero: Time, _: Time, offset: Duration) {
        *self = Self {
            offset,
            ..Self::new(&self.config, zero)
        };
    }
}

impl Loss {
    /// Return whether the packet that arrives at `now` is lost.
    #[inline]
    pub(crate) fn strikes(&mut self, now: Time) -> bool {
        match &self.config {
            LossConfig::Independent { probability, .. } => self.random.hits(*probability),
            LossConfig::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
                ..
            } => {
                let (loss, step) = if self.bad {
                    (loss_bad, to_good)
                } else {
                    (loss_good, to_bad)
                };
                let lost = self.random.hits(*loss);
                self.bad ^= self.random.hits(*step);
                lost
            }
            LossConfig::Series { series, .. } => {
                let position = now.since(self.zero) + self.offset;
                self.random.hits(series.at(position))
            }
            LossConfig::OnOff { .. } => {
                self.follow_spells(now);
                self.bad
            }
        }
    }

    fn begin_spell(&mut self, now: Time) {
        if let LossConfig::OnOff {
            on,
            off,
            exponential,
            ..
        } = &self.config
        {
            let mean = if self.bad { *off } else { *on };
            let length = match exponential {
                true => {
                    let length = -(1.0 - self.random.unit()).ln() * mean.as_secs_f64();
                    Duration::from_secs_f64(length)
                }
                false => mean,
            };
            self.until = now + length.max(LEAST);
        }
    }

    fn follow_spells(&mut self, now: Time) {
        let LossConfig::OnOff {
            on,
            off,
            exponential,
            ..
        } = self.config
        else {
            return;
        };
        if !exponential {
            // position in the cycle, without stepping
            let (on, cycle) = (on.as_nanos(), (on + off).as_nanos());
            self.bad = now >= self.zero && now.since(self.zero).as_nanos() % cycle.max(1) >= on;
            return;
        }
        // After a pause longer than a hundred thousand spells the process is independent of its old state: the state is
        // drawn again by the shares of both states.
        let [on, off] = [on, off].map(|mean| mean.max(LEAST).as_secs_f64());
        if now.since(self.until).as_secs_f64() > 50_000.0 * (on + off) {
            self.bad = self.random.unit() * (on + off) >= on;
            self.until = now;
            self.begin_spell(now);
        }
        while self.until <= now {
            self.bad = !self.bad;
            self.begin_spell(self.until);
        }
    }
}

/// A loss probability that holds until the next step; the last one for ever.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "Vec<(Duration, Probability)>")]
pub struct LossSeries {
    /// (time since the start, probability), strictly increasing in time, never empty.
    steps: Vec<(Duration, Probability)>,
}

impl LossSeries {
    /// Return the series of `steps`, each (time since the start, probability from then on); no loss before the first
    /// step. `None` without steps, or if their times do not increase.
    pub fn new(steps: Vec<(Duration, Probability)>) -> Option<Self> {
        let increasing = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (increasing && !steps.is_empty()).then_some(Self { steps })
    }

    /// Return the probability at a position of the series.
    pub fn at(&self, position: Duration) -> Probability {
        let next = self.steps.partition_point(|&(time, _)| time <= position);
        next.checked_sub(1)
            .map_or(Probability::NEVER, |index| self.steps[index].1)
    }
}

impl TryFrom<Vec<(Duration, Probability)>> for LossSeries {
    type Error = &'static str;

    fn try_from(steps: Vec<(Duration, Probability)>) -> Result<Self, Self::Error> {
        Self::new(steps).ok_or("the times of a recorded loss must rise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(probability: f64, seed: u64, packets: usize) -> Vec<bool> {
        let probability = Probability::new(probability).unwrap();
        strikes(
            LossConfig::Independent {
                probability,
                seed: Seed(seed),
            },
            packets,
        )
    }

    #[test]
    fn never_and_always_are_exact() {
        assert!(!losses(0.0, 1, 10_000).contains(&true));
        assert!(!losses(1.0, 1, 10_000).contains(&false));
    }

    /// Return whether packets, a millisecond apart, are lost.
    fn strikes(config: LossConfig, packets: usize) -> Vec<bool> {
        let mut loss = Loss::new(&config, Time::ZERO);
        (0..packets as u64)
            .map(|packet| loss.strikes(Time::from_millis(packet)))
            .collect()
    }

    #[test]
    fn fixed_spells_alternate() {
        let ms = Duration::from_millis;
        let config = LossConfig::OnOff {
            on: ms(3),
            off: ms(2),
            exponential: false,
            seed: Seed(1),
        };
        let lost = strikes(config, 12);
        let signs: String = lost
            .iter()
            .map(|&lost| if lost { 'x' } else { '.' })
            .collect();
        assert_eq!(signs, "...xx...xx..");
    }
}
