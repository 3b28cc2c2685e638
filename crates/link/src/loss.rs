//! Loss: packets that vanish on the way.

use crate::random::{Random, Seed};

/// How packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossConfig {
    /// Each packet is lost with the same probability, whatever happened to the others.
    Independent {
        /// Probability of a loss.
        probability: Probability,
        /// Seed of this stage's generator.
        seed: Seed,
    },
}

/// A probability: a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// The probability, or `None` if `value` is not a number from 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The value, 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// The stage: draws one number per packet, in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    config: LossConfig,
    random: Random,
}

impl Loss {
    pub(crate) fn new(config: LossConfig) -> Self {
        let LossConfig::Independent { seed, .. } = config;
        Self {
            config,
            random: Random::new(seed),
        }
    }

    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.config);
    }

    /// Whether the next packet is lost.
    pub(crate) fn strikes(&mut self) -> bool {
        let LossConfig::Independent { probability, .. } = self.config;
        // 2⁻⁶⁴ · draw < p, in whole numbers: exact for 0 and 1, and within 2⁻⁵³ between.
        u128::from(self.random.next()) < (probability.0 * 2f64.powi(64)) as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(probability: f64, seed: u64, packets: usize) -> Vec<bool> {
        let probability = Probability::new(probability).unwrap();
        let mut loss = Loss::new(LossConfig::Independent {
            probability,
            seed: Seed(seed),
        });
        (0..packets).map(|_| loss.strikes()).collect()
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
        let mut loss = Loss::new(LossConfig::Independent {
            probability,
            seed: Seed(3),
        });
        let first: Vec<bool> = (0..64).map(|_| loss.strikes()).collect();
        loss.restart();
        assert_eq!(first, (0..64).map(|_| loss.strikes()).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        assert!(
            [-0.1, 1.1, f64::NAN, f64::INFINITY]
                .iter()
                .all(|&value| Probability::new(value).is_none())
        );
    }
}
