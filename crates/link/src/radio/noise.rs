//! Randomness by position instead of by turn: the surroundings at an instant depend on the seed and the instant alone,
//! not on the previous traffic.

use crate::delay::normal_quantile;
use crate::random::Seed;
use crate::time::Duration;

/// Random numbers, one for every index: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014, figure 14): any output can be computed directly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Noise {
    /// Return the numbers for one purpose, independent of other purposes.
    pub(super) fn new(seed: Seed, purpose: u64) -> Self {
        Self(mixed(seed.0 ^ mixed(purpose.wrapping_add(GOLDEN))))
    }

    fn bits(self, index: u64) -> u64 {
        mixed(
            self.0
                .wrapping_add(GOLDEN.wrapping_mul(index.wrapping_add(1))),
        )
    }

    /// Return a uniform number in [0, 1).
    pub(super) fn unit(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 * 2f64.powi(-53)
    }

    /// Return a standard normal number.
    pub(super) fn normal(self, index: u64) -> f64 {
        normal_quantile(self.unit(index))
    }
}

/// A stationary first-order autoregression of mean 0 and variance 1, in steps that can be computed directly.
///
/// Every 2ⁿth step is drawn independently, with n such that these steps are eight time constants apart (correlation
/// e⁻⁸). The steps between are drawn by repeated halving, from the conditional distribution halfway between two known
/// steps, as Lévy constructed Brownian motion. So a step costs n draws, however long ago the last one was.
#[derive(Clone, Debug)]
pub(super) struct Wander {
    noise: Noise,
    step: Duration,
    /// By the binary logarithm of the distance to either neighbour: the weight of the neighbours, and the remaining
    /// deviation.
    halves: Vec<(f64, f64)>,
}

/// Number of time constants between independent draws.
const APART: f64 = 8.0;

impl Wander {
    /// Return a process that changes every `step`, with the time constant `memory`.
    pub(super) fn new(noise: Noise, step: Duration, memory: Duration) -> Self {
        let step = step.max(Duration::from_nanos(1));
        let ratio = step.as_secs_f64() / memory.as_secs_f64().max(1e-9);
        let count = (APART / ratio).log2().ceil().clamp(0.0, 32.0) as u32;
        let half = |level| {
            let correlation = (-ratio * 2f64.powi(level as i32)).exp();
            let square = correlation * correlation;
            (
                correlation / (1.0 + square),
                ((1.0 - square) / (1.0 + square)).sqrt(),
            )
        };
        Self {
            noise,
            step,
            halves: (0..count).map(half).collect(),
        }
    }

    /// Return the number of the step that contains a position.
    pub(super) fn step_at(&self, position: Duration) -> u64 {
        position.as_nanos() / self.step.as_nanos()
    }

    /// Return the value in a step.
    pub(super) fn at(&self, step: u64) -> f64 {
        let levels = self.halves.len() as u32;
        let low = (step >> levels) << levels;
        if step == low {
            return self.noise.normal(step);
        }
        let mut low = (low, self.noise.normal(low));
        let high = low.0.wrapping_add(1 << levels);
        let mut high = self.noise.normal(high);
        for level in (0..levels).rev() {
            let (weight, deviation) = self.halves[level as usize];
            let middle = low.0 + (1 << level);
            let value = weight * (low.1 + high) + deviation * self.noise.normal(middle);
            match step.cmp(&middle) {
                std::cmp::Ordering::Equal => return value,
                std::cmp::Ordering::Less => high = value,
                std::cmp::Ordering::Greater => low = (middle, value),
            }
        }
        low.1 // every step is the middle of some interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        // the first outputs of SplitMix64 from the state 1234567, as published with its reference implementation
        let noise = Noise(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|index| noise.bits(index)).collect();
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn a_wander_is_an_autoregression_of_variance_one() {
        let (step, memory) = (Duration::from_millis(10), Duration::from_millis(100));
        let wander = Wander::new(Noise::new(Seed(3), 0), step, memory);
        let values: Vec<f64> = (0..200_000).map(|step| wander.at(step)).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| value * value).sum::<f64>() / count;
        assert!(mean.abs() < 0.05, "{mean}");
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
        for lag in [1usize, 5, 20] {
            let pairs = values.iter().zip(&values[lag..]);
            let joint = pairs.map(|(a, b)| a * b).sum::<f64>() / count;
            let expected = (-(lag as f64) / 10.0).exp();
            assert!((joint - expected).abs() < 0.05, "lag {lag}: {joint}");
        }
    }

    #[test]
    fn without_memory_every_step_is_drawn_by_itself() {
        let wander = Wander::new(
            Noise::new(Seed(3), 0),
            Duration::from_millis(1),
            Duration::ZERO,
        );
        let values: Vec<f64> = (0..50_000).map(|step| wander.at(step)).collect();
        let joint = values.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / 5e4;
        assert!(joint.abs() < 0.02, "{joint}");
        assert!(wander.at(u64::MAX).is_finite());
    }
}
