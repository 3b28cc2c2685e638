//! Duplication and corruption of packets.

use crate::schema::JsonSchema;
use serde::Deserialize;

use crate::random::{Probability, Random, Seed};
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// Each packet is doubled with the same probability. Both continue through the stages behind, the second one after the
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("text" = "duplication {probability}", "idle" = "probability"))]
pub struct DuplicationConfig {
    /// Probability that a packet is duplicated.
    pub probability: Probability,
    /// Seed of this stage's generator.
    pub seed: Seed,
}

/// In each packet one bit is turned round with the same probability, any of its bits alike.
///
/// The stage reports [which](crate::Outcome::corrupt_bit); the caller flips it. Of several such stages in a direction
/// the last one to strike counts.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("text" = "corruption {probability}", "idle" = "probability"))]
pub struct CorruptionConfig {
    /// Probability that a packet is damaged.
    pub probability: Probability,
    /// Seed of this stage's generator.
    pub seed: Seed,
}

/// Either stage.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    probability: Probability,
    seed: Seed,
    random: Random,
}

impl Damage {
    pub(crate) fn new(probability: Probability, seed: Seed) -> Self {
        Self {
            probability,
            seed,
            random: Random::new(seed),
        }
    }

    /// Draw whether the next packet is corrupted.
    pub(crate) fn strikes(&mut self) -> bool {
        self.random.hits(self.probability)
    }

    /// Return the bit of a packet of `size` to flip, if any.
    pub(crate) fn bit(&mut self, size: Bytes) -> Option<u32> {
        let bits = size.0.saturating_mul(8).min(u64::from(u32::MAX));
        let struck = self.strikes() && bits > 0;
        struck.then(|| self.random.below(bits) as u32) // the number of bits fits
    }
}

macro_rules! configured {
    ($($config:ty)*) => {$(
        impl Configured<$config> for Damage {
            fn new(config: &$config, _: Time) -> Self {
                Self::new(config.probability, config.seed)
            }

            /// The generator keeps its state, but the next restart begins with the new seed.
            fn change(&mut self, config: &$config, _: Time, _: Time, _: Duration) {
                self.probability = config.probability;
                self.seed = config.seed;
            }
        }
    )*};
}

configured! { DuplicationConfig CorruptionConfig }

impl<P> Behaviour<P> for Damage {
    fn restart(&mut self, _: Time, _: Time, _: Duration) {
        *self = Self::new(self.probability, self.seed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(probability: f64) -> Damage {
        Damage::new(Probability::new(probability).unwrap(), Seed(5))
    }

    #[test]
    fn a_packet_without_bits_is_not_damaged() {
        let mut damage = damage(1.0);
        assert_eq!(damage.bit(Bytes(0)), None);
        assert!(damage.bit(Bytes(1)).is_some_and(|bit| bit < 8));
    }
}
