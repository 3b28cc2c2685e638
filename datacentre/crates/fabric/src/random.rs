//! Random numbers by counter: number n of a stream depends only on the seed, the purpose, the index and n.
//!
//! Two transports that draw for the same purpose and index therefore have the same arrivals, sizes and radio errors
//! (common random numbers), regardless of the numbers drawn for other purposes.

/// Purpose of random numbers. The numbers are part of every result: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Purpose {
    /// Times between the arrivals of flows.
    Arrivals = 1,
    /// Sizes of flows.
    Sizes = 2,
    /// Sources and destinations of flows.
    Pairs = 3,
    /// First ports of packet spraying.
    Spraying = 4,
    /// Qualities of radio channels; the index is the user.
    Channel = 6,
    /// Errors of radio blocks; the index is the user.
    BlockErrors = 7,
    /// Mobile users of flows.
    Users = 8,
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

/// 2^64 divided by the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Return the output of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
/// 2014, figure 16; Stafford's variant 13).
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Return the seed of a part of a network, by number. The first part has the seed of the network.
pub(crate) const fn nth_seed(seed: u64, number: u64) -> u64 {
    match number {
        0 => seed,
        _ => mix(seed ^ (number << 40)),
    }
}

/// Return the stream of a seed, a purpose and an index.
pub const fn stream(seed: u64, purpose: Purpose, index: u64) -> Stream {
    let key = mix(seed.wrapping_add(STEP)) ^ (purpose as u64).wrapping_mul(STEP);
    Stream {
        state: mix(mix(key).wrapping_add(index.wrapping_mul(STEP))),
    }
}

impl Stream {
    /// Return the next 64 bits.
    #[inline]
    #[allow(clippy::should_implement_trait)] // an endless stream is no iterator to collect
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Return a number from 0 up to but excluding 1, a multiple of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * 2f64.powi(-53)
    }

    /// Return an integer below `bound`, which is not zero; uniform up to 2⁻⁶⁴ · bound.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64 // less than bound
    }

    /// Return an exponentially distributed number of mean 1. The logarithm is software: all machines get the same.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_never_change() {
        // SplitMix64 from state 1234567, as published with its reference implementation.
        let mut published = Stream { state: 1_234_567 };
        assert_eq!(published.next(), 6_457_827_717_110_365_317);
        assert_eq!(published.next(), 3_203_168_211_198_807_973);
        let mut pinned = stream(1, Purpose::Sizes, 2);
        assert_eq!(pinned.next(), 7_333_442_201_367_173_525);
    }

    #[test]
    fn seeds_purposes_and_indices_give_unlike_streams() {
        let mut firsts: Vec<u64> = Vec::new();
        for seed in 0..20 {
            for index in 0..20 {
                firsts.push(stream(seed, Purpose::Sizes, index).next());
                firsts.push(stream(seed, Purpose::Pairs, index).next());
            }
        }
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 800);
    }

    #[test]
    fn the_exponential_has_mean_and_deviation_one() {
        let mut stream = stream(7, Purpose::Arrivals, 0);
        let draws: Vec<f64> = (0..100_000).map(|_| stream.exponential()).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let square = draws.iter().map(|it| it * it).sum::<f64>() / 1e5;
        assert!(
            (mean - 1.0).abs() < 0.02 && (square - 2.0).abs() < 0.1,
            "{mean} {square}"
        );
    }
}
