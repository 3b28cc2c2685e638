//! Shares of a bottleneck's capacity at an instant.

use crate::units::saturate;

/// A part of the capacity at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    part: u64,
    whole: u64,
}

impl Share {
    pub(crate) const WHOLE: Self = Self { part: 1, whole: 1 };

    /// `part` of `whole`; all of nothing.
    pub(crate) fn new(part: u64, whole: u64) -> Self {
        if part >= whole {
            Self::WHOLE
        } else {
            Self { part, whole }
        }
    }

    /// This share of an amount, rounded down.
    pub(crate) fn of(self, amount: u64) -> u64 {
        saturate(u128::from(amount) * u128::from(self.part) / u128::from(self.whole))
    }

    pub(crate) fn as_fraction(self) -> f64 {
        self.part as f64 / self.whole as f64
    }
}
