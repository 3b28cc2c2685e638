//! Sizes, counts and rates.

use std::fmt;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use crate::time::{Duration, NANOS_PER_SEC};

/// Maximum IP packet of a link and, in cellbed's own accounting, size of one packet delivery opportunity.
pub const MTU: Bytes = Bytes(1500);

/// A size in bytes. Packets are measured by their IP length.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize, Serialize,
)]
pub struct Bytes(pub u64);

/// A number of packets.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize, Serialize,
)]
pub struct Packets(pub u64);

/// A number of packet delivery opportunities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Opportunities(pub u64);

/// A rate in bit/s.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize, Serialize,
)]
pub struct BitRate(pub u64);

impl Add for Bytes {
    type Output = Bytes;

    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(sizes: I) -> Bytes {
        sizes.fold(Bytes(0), Add::add)
    }
}

impl Opportunities {
    /// Return the bytes that this many opportunities of `each` carry.
    pub const fn carrying(self, each: Bytes) -> Bytes {
        Bytes(self.0.saturating_mul(each.0))
    }
}

impl BitRate {
    /// Return the mean rate of `size` in `span`, rounded down; zero for an empty span.
    pub fn of(size: Bytes, span: Duration) -> Self {
        let bits = u128::from(size.0) * 8 * u128::from(NANOS_PER_SEC);
        Self(
            bits.checked_div(u128::from(span.as_nanos()))
                .map_or(0, saturate),
        )
    }

    /// Return the transmission time of `size` at this rate, rounded up to a nanosecond; `None` at a rate of zero.
    pub fn time_for(self, size: Bytes) -> Option<Duration> {
        let bits = u128::from(size.0) * 8 * u128::from(NANOS_PER_SEC);
        let rate = u128::from(self.0);
        (rate > 0).then(|| Duration::from_nanos(saturate(bits.div_ceil(rate))))
    }

    /// Return the bytes that this rate carries in `span`, rounded down.
    pub fn bytes_in(self, span: Duration) -> Bytes {
        Bytes(saturate(
            u128::from(self.0) * u128::from(span.as_nanos()) / (8 * u128::from(NANOS_PER_SEC)),
        ))
    }
}

/// Return the value, or the largest `u64`.
pub(crate) fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.0 as f64 / 1e6)
    }
}

/// A part of the capacity at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    part: u64,
    whole: u64,
}

impl Share {
    pub(crate) const WHOLE: Self = Self { part: 1, whole: 1 };

    /// Return `part` of `whole`; the whole if `whole` is zero.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_converts_sizes_and_spans() {
        let rate = BitRate(12_000_000);
        assert_eq!(rate.time_for(MTU), Some(Duration::from_millis(1)));
        assert_eq!(rate.bytes_in(Duration::from_micros(1500)), Bytes(2250));
        assert_eq!(BitRate::of(MTU, Duration::from_millis(1)), rate);
        assert_eq!(BitRate::of(MTU, Duration::ZERO), BitRate(0));
        assert_eq!(BitRate(0).time_for(MTU), None);
    }

    #[test]
    fn the_time_for_a_size_is_never_too_short() {
        assert_eq!(
            BitRate(3_000_000_000).time_for(Bytes(1)),
            Some(Duration::from_nanos(3))
        ); // 2.67 ns
    }
}
