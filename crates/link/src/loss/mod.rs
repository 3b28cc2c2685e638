//! Loss: packets that vanish on the way.

mod probability;
mod series;
mod spell;

use std::sync::Arc;

use crate::random::{Random, Seed};
use crate::time::{Duration, Time};
pub use probability::Probability;
pub use series::LossSeries;
pub use spell::Spell;

/// How packets are lost.
#[derive(Clone, Debug, PartialEq)]
pub enum LossConfig {
    /// Each packet is lost with the same probability, whatever happened to the others.
    Independent {
        /// Probability of a loss.
        probability: Probability,
        /// Seed of this stage's generator.
        seed: Seed,
    },
    /// Losses in bursts: a Markov chain of two states that makes a step after every packet, with a loss probability in
    /// each (Gilbert, "Capacity of a Burst-Noise Channel", Bell System Technical Journal 39(5), 1960, with no loss in
    /// the good state; Elliott, "Estimates of Error Rates for Codes on Burst-Noise Channels", BSTJ 42(5), 1963, with one in
    /// each). It begins in the good state. In the long run the share `to_bad` / (`to_bad` + `to_good`) of all packets
    /// meets the bad state, in stays of 1 / `to_good` packets on average.
    GilbertElliott {
        /// Probability of a step from the good to the bad state (p; Gilbert's P).
        to_bad: Probability,
        /// Probability of a step from the bad to the good state (r; Gilbert's p).
        to_good: Probability,
        /// Probability of a loss in the good state (1 − k).
        loss_good: Probability,
        /// Probability of a loss in the bad state (1 − h).
        loss_bad: Probability,
        /// Seed of this stage's generator.
        seed: Seed,
    },
    /// A probability that was recorded over time.
    Series {
        /// The recording.
        series: Arc<LossSeries>,
        /// Seed of this stage's generator.
        seed: Seed,
    },
    /// All packets pass for a spell, then none for another, and so on. It begins with passing.
    OnOff {
        /// How long packets pass.
        on: Spell,
        /// How long they are lost.
        off: Spell,
        /// Seed of this stage's generator.
        seed: Seed,
    },
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

/// The stage: draws for each packet, in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    config: LossConfig,
    random: Random,
    zero: Time,
    offset: Duration,
    /// Whether the chain is in the bad state, or the link in a spell of loss.
    bad: bool,
    /// When the spell ends.
    until: Time,
}

impl Loss {
    pub(crate) fn new(config: LossConfig, zero: Time) -> Self {
        let random = Random::new(config.seed());
        let mut loss = Self {
            config,
            random,
            zero,
            offset: Duration::ZERO,
            bad: false,
            until: zero,
        };
        loss.begin_spell(zero);
        loss
    }

    pub(crate) fn restart(&mut self, zero: Time, offset: Duration) {
        *self = Self {
            offset,
            ..Self::new(self.config.clone(), zero)
        };
    }

    /// Loses packets in another way from now on; the generator goes on.
    pub(crate) fn change(&mut self, config: LossConfig, zero: Time, offset: Duration) {
        if config != self.config {
            let random = self.random.clone();
            *self = Self {
                random,
                offset,
                ..Self::new(config, zero)
            };
        }
    }

    /// Whether the packet that comes `now` is lost.
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
        if let LossConfig::OnOff { on, off, .. } = &self.config {
            let spell = if self.bad { off } else { on };
            self.until = now + spell.draw(&mut self.random);
        }
    }

    fn follow_spells(&mut self, now: Time) {
        let LossConfig::OnOff { on, off, .. } = &self.config else {
            return;
        };
        let (on, off) = (*on, *off);
        if let (Spell::Fixed(on), Spell::Fixed(off)) = (on, off) {
            // where in the cycle: no need to walk there
            let (on, cycle) = (on.as_nanos(), (on + off).as_nanos());
            self.bad = now >= self.zero && now.since(self.zero).as_nanos() % cycle.max(1) >= on;
            return;
        }
        // After a time without packets that is longer than a hundred thousand spells the process has forgotten where it was:
        // it goes on from a state drawn by the shares of the two.
        let (on, off) = (on.mean().as_secs_f64(), off.mean().as_secs_f64());
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

    #[test]
    fn the_share_of_lost_packets_is_the_probability() {
        let lost = losses(0.1, 7, 100_000).iter().filter(|&&lost| lost).count();
        assert!((9_700..=10_300).contains(&lost), "{lost} of 100000 packets"); // ± 3.2 standard deviations
    }

    #[test]
    fn a_seed_decides_which_packets_are_lost() {
        assert_eq!(losses(0.5, 1, 64), losses(0.5, 1, 64));
        assert_ne!(losses(0.5, 1, 64), losses(0.5, 2, 64));
    }

    #[test]
    fn a_restart_repeats_the_losses() {
        let probability = Probability::new(0.5).unwrap();
        let config = LossConfig::Independent {
            probability,
            seed: Seed(3),
        };
        let mut loss = Loss::new(config, Time::ZERO);
        let first: Vec<bool> = (0..64).map(|_| loss.strikes(Time::ZERO)).collect();
        loss.restart(Time::ZERO, Duration::ZERO);
        assert_eq!(
            first,
            (0..64)
                .map(|_| loss.strikes(Time::ZERO))
                .collect::<Vec<_>>()
        );
    }

    /// The fate of packets that come a millisecond apart.
    fn strikes(config: LossConfig, packets: usize) -> Vec<bool> {
        let mut loss = Loss::new(config, Time::ZERO);
        (0..packets as u64)
            .map(|packet| loss.strikes(Time::from_millis(packet)))
            .collect()
    }

    /// Lengths of the runs of losses.
    fn bursts(lost: &[bool]) -> Vec<usize> {
        lost.split(|&lost| !lost)
            .map(<[bool]>::len)
            .filter(|&length| length > 0)
            .collect()
    }

    fn gilbert_elliott(parameters: [f64; 4], packets: usize) -> Vec<bool> {
        let [to_bad, to_good, loss_good, loss_bad] =
            parameters.map(|value| Probability::new(value).unwrap());
        let config = LossConfig::GilbertElliott {
            to_bad,
            to_good,
            loss_good,
            loss_bad,
            seed: Seed(1),
        };
        strikes(config, packets)
    }

    #[test]
    fn gilbert_s_bursts_are_geometric() {
        let lost = gilbert_elliott([0.01, 0.25, 0.0, 1.0], 1_000_000);
        let share = lost.iter().filter(|&&lost| lost).count() as f64 / 1e6;
        assert!((share - 0.01 / 0.26).abs() < 0.002, "{share}"); // p / (p + r) = 3.85 %
        let bursts = bursts(&lost);
        let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        assert!((mean - 4.0).abs() < 0.2, "{mean}"); // 1 / r
        let single = bursts.iter().filter(|&&length| length == 1).count() as f64;
        assert!((single / bursts.len() as f64 - 0.25).abs() < 0.02); // r of the bursts end at once
    }

    #[test]
    fn elliott_s_states_both_lose() {
        let lost = gilbert_elliott([0.02, 0.08, 0.05, 0.6], 1_000_000);
        let share = lost.iter().filter(|&&lost| lost).count() as f64 / 1e6;
        // (r · 0.05 + p · 0.6) / (p + r) = 16 %
        assert!((share - 0.16).abs() < 0.004, "{share}");
    }

    #[test]
    fn fixed_spells_alternate() {
        let ms = |millis| Spell::Fixed(Duration::from_millis(millis));
        let config = LossConfig::OnOff {
            on: ms(3),
            off: ms(2),
            seed: Seed(1),
        };
        let lost = strikes(config, 12);
        let signs: String = lost
            .iter()
            .map(|&lost| if lost { 'x' } else { '.' })
            .collect();
        assert_eq!(signs, "...xx...xx..");
    }

    #[test]
    fn exponential_spells_have_their_means() {
        let config = LossConfig::OnOff {
            on: Spell::Exponential(Duration::from_millis(300)),
            off: Spell::Exponential(Duration::from_millis(100)),
            seed: Seed(1),
        };
        let lost = strikes(config, 4_000_000); // 10 000 cycles
        assert!(!lost[0]);
        let share = lost.iter().filter(|&&lost| lost).count() as f64 / 4e6;
        assert!((share - 0.25).abs() < 0.01, "{share}");
        let bursts = bursts(&lost);
        let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        // seen at whole milliseconds only: 1 / (1 − e^(−1/100)) = 100.5
        assert!((mean - 100.5).abs() < 5.0, "{mean}");
    }

    #[test]
    fn a_series_sets_the_probability_over_time() {
        let probability = |value| Probability::new(value).unwrap();
        let steps = vec![
            (Duration::ZERO, probability(0.0)),
            (Duration::from_millis(100), probability(1.0)),
            (Duration::from_millis(200), probability(0.5)),
        ];
        let config = LossConfig::Series {
            series: Arc::new(LossSeries::new(steps).unwrap()),
            seed: Seed(1),
        };
        let lost = strikes(config, 2200);
        let count =
            |range: std::ops::Range<usize>| lost[range].iter().filter(|&&lost| lost).count();
        assert_eq!((count(0..100), count(100..200)), (0, 100));
        assert!((900..1100).contains(&count(200..2200)));
    }
}
