//! Instants and spans in whole nanoseconds.
//!
//! All arithmetic saturates: no input can overflow, and 2⁶⁴ ns are 584 years.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
pub(crate) const NANOS_PER_SEC: u64 = 1_000_000_000;

/// An instant: nanoseconds since an origin that the caller chooses, such as the start of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize, Serialize)]
pub struct Duration(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The last representable instant; sums saturate there.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` ns after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `micros` µs after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(NANOS_PER_MICRO))
    }

    /// The instant `millis` ms after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span since `earlier`, or zero if `earlier` lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// A span of zero.
    pub const ZERO: Self = Self(0);
    /// The longest representable span.
    pub const MAX: Self = Self(u64::MAX);

    /// `nanos` ns.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `micros` µs.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(NANOS_PER_MICRO))
    }

    /// `millis` ms.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// `secs` s.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// `secs` s, rounded to the nearest nanosecond; negative values and NaN give zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * NANOS_PER_SEC as f64).round() as u64) // a float-to-integer cast saturates
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// Return whether the duration is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// This span less `other`, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Implements operators with saturating arithmetic: operator, its method and the number's method, then the types.
macro_rules! saturating {
    ($($operator:ident $method:ident $of_number:ident: $left:ident, $right:ident => $output:ident;)*) => {$(
        impl $operator<$right> for $left {
            type Output = $output;

            fn $method(self, other: $right) -> $output {
                $output(self.0.$of_number(other.0))
            }
        }
    )*};
}

saturating! {
    Add add saturating_add: Time, Duration => Time;
    Add add saturating_add: Duration, Duration => Duration;
    Sub sub saturating_sub: Time, Duration => Time;
    Sub sub saturating_sub: Time, Time => Duration;
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

/// Return the earlier of two instants, if there is one.
#[inline]
pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Write milliseconds with all decimals of the value, such as `12.000001 ms`.
fn write_millis(f: &mut fmt::Formatter<'_>, nanos: u64) -> fmt::Result {
    let (whole, fraction) = (nanos / NANOS_PER_MILLI, nanos % NANOS_PER_MILLI);
    if fraction == 0 {
        return write!(f, "{whole} ms");
    }
    let digits = format!("{fraction:06}");
    write!(f, "{whole}.{} ms", digits.trim_end_matches('0'))
}

macro_rules! display_in_millis {
    ($($of:ident)*) => {$(
        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_millis(f, self.0)
            }
        }

        impl fmt::Debug for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_millis(f, self.0)
            }
        }
    )*};
}

display_in_millis! { Time Duration }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::MAX + Duration::from_millis(1), Time::MAX);
        assert_eq!(Time::from_millis(1) - Duration::from_millis(2), Time::ZERO);
        assert_eq!(Time::from_millis(1) - Time::from_millis(2), Duration::ZERO);
        assert_eq!(Time::from_millis(u64::MAX), Time::MAX);
    }

    #[test]
    fn odd_seconds_become_spans() {
        assert_eq!(Duration::from_secs_f64(0.025), Duration::from_millis(25));
        assert_eq!(Duration::from_secs_f64(-1.0), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(f64::NAN), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(f64::INFINITY), Duration::MAX);
    }

    #[test]
    fn spans_read_in_milliseconds() {
        assert_eq!(Duration::from_micros(12_500).to_string(), "12.5 ms");
        assert_eq!(Time::from_nanos(1_000_001).to_string(), "1.000001 ms");
        assert_eq!(Duration::from_secs(78).to_string(), "78000 ms");
    }
}
