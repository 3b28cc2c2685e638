//! Probabilities, and random numbers whose stream never changes.

use serde::{Deserialize, Serialize};

use rand_core::Rng;
use rand_pcg::Pcg64;

/// A probability: a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Default, Deserialize, Serialize)]
#[serde(try_from = "f64")]
pub struct Probability(f64);

impl Probability {
    /// Probability of an impossible event.
    pub const NEVER: Self = Self(0.0);
    /// Probability of a certain event.
    pub const ALWAYS: Self = Self(1.0);

    /// Return the probability, or `None` if `value` is not a number from 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The value, 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Probability {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, Self::Error> {
        Self::new(value).ok_or_else(|| format!("{value} is not a probability: outside 0 to 1"))
    }
}

/// The seed of one stage. The same seed gives the same numbers in every version of cellbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
pub struct Seed(pub u64);

/// A generator of uniform 64-bit numbers: PCG XSL RR 128/64 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient
/// Statistically Good Algorithms for Random Number Generation", HMC-CS-2014-0905, §6.3).
///
/// The seed sets the state directly, because a later release of the library might change its seeding routine. A test
/// pins the stream.
#[derive(Clone, Debug)]
pub struct Random(Pcg64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: Seed) -> Self {
        let mut generator = Pcg64::new(u128::from(seed.0), 0);
        generator.next_u64(); // first outputs of neighbouring seeds are similar, because the state was mixed only once
        Self(generator)
    }

    /// Return 64 random bits.
    #[inline]
    #[allow(clippy::should_implement_trait)] // an endless stream is no iterator to collect
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draw whether an event of the given probability happens.
    #[inline]
    pub fn hits(&mut self, probability: Probability) -> bool {
        // 2⁻⁶⁴ · draw < p, in whole numbers: exact for 0 and 1, and within 2⁻⁵³ between.
        let (draw, probability) = (self.next(), probability.get());
        probability >= 1.0 || draw < (probability * 2f64.powi(64)) as u64
    }

    /// Return a number in [0, 1), a multiple of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * 2f64.powi(-53)
    }

    /// Return a whole number below `bound`, which is not zero; uniform within 2⁻⁶⁴ · bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64 // less than bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut random = Random::new(Seed(1));
        let numbers: Vec<u64> = (0..4).map(|_| random.next()).collect();
        // as computed by a second implementation of the paper's algorithm
        assert_eq!(
            numbers,
            [
                501888437550476719,
                12635230940061297225,
                11804140549878406015,
                4116617630059424034
            ]
        );
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
