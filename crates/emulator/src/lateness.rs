//! How late packets leave, as a histogram of fixed size.

use cellbed_link::Duration;

/// Bins per doubling: values are told to within 1/32.
const STEPS: u64 = 32;

/// A histogram with logarithmic bins, of which recording costs a few instructions and no memory.
pub struct Lateness {
    bins: Box<[u64]>,
    most: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            bins: vec![0; bin(u64::MAX) + 1].into(),
            most: 0,
        }
    }
}

/// The bin of a value: exact below [`STEPS`], then the leading six bits of it.
fn bin(nanos: u64) -> usize {
    let shift = (u64::BITS - (nanos | 1).leading_zeros()).saturating_sub(STEPS.ilog2() + 1);
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// The largest value in a bin.
fn upper(bin: usize) -> u64 {
    let shift = (bin as u64 / STEPS).saturating_sub(1);
    let leading = bin as u64 - shift * STEPS;
    (leading << shift) | ((1 << shift) - 1)
}

impl Lateness {
    /// Counts one packet.
    pub fn record(&mut self, late: Duration) {
        self.bins[bin(late.as_nanos())] += 1;
        self.most = self.most.max(late.as_nanos());
    }

    /// The value in ns that `share` (0 to 1) of the packets do not exceed; `None` if there were none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count: u64 = self.bins.iter().sum();
        let rank = ((share * count as f64).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.bins.iter().position(|packets| {
            below += packets;
            below >= rank
        })?;
        Some(upper(found).min(self.most))
    }

    /// The largest value in ns; `None` if there were no packets.
    pub fn max(&self) -> Option<u64> {
        self.quantile(1.0).map(|_| self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bins_hold_their_values_to_within_a_step(nanos in any::<u64>()) {
            let top = upper(bin(nanos));
            prop_assert!(top >= nanos);
            prop_assert!(top - nanos <= nanos / STEPS);
        }
    }

    #[test]
    fn quantiles_of_a_known_sample() {
        let mut lateness = Lateness::default();
        assert_eq!((lateness.quantile(0.5), lateness.max()), (None, None));
        for nanos in 1..=100 {
            lateness.record(Duration::from_nanos(nanos * 1000));
        }
        let median = lateness.quantile(0.5).unwrap();
        assert!((50_000..=52_000).contains(&median), "{median}");
        assert_eq!(lateness.max(), Some(100_000));
        assert_eq!(lateness.quantile(1.0), Some(100_000));
    }
}
