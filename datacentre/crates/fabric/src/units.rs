//! Times, rates and identifiers of the fabric.

use std::ops::{Add, AddAssign, Mul, Sub};

/// A time since the start of the run, or a duration, in picoseconds; at most 213 days. 1500 bytes at 10 Gbit/s take
/// 1,200,000 ps.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Deserialize,
    serde::Serialize,
)]
#[serde(transparent)]
pub struct Picos(pub u64);

impl Picos {
    /// The time or duration zero.
    pub const ZERO: Self = Self(0);

    /// Return a time from whole nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos * 1_000)
    }

    /// Return a time from whole microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000_000)
    }

    /// Return a time from whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000_000)
    }

    /// Return the time in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// Return the difference, or 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Picos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Picos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

/// A multiple of a duration, rounded to the nearest picosecond.
impl Mul<f64> for Picos {
    type Output = Self;
    fn mul(self, count: f64) -> Self {
        Self((self.0 as f64 * count).round() as u64)
    }
}

/// A transmission rate, stored as the time per byte in units of 2⁻²⁰ ps: the time of a packet is then one
/// multiplication. Exact if a byte takes whole picoseconds (10, 40, 100 Gbit/s), else within 0.05 ps per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// Return a rate from bits per second, at least 1 Mbit/s.
    pub fn from_bps(bps: f64) -> Self {
        Self((8e12 * 2f64.powi(20) / bps).round() as u64)
    }

    /// Return the rate in bits per second.
    pub fn bps(self) -> f64 {
        8e12 * 2f64.powi(20) / self.0 as f64
    }

    /// Return the transmission time of a packet of `bytes`.
    #[inline]
    pub const fn time(self, bytes: u16) -> Picos {
        Picos((bytes as u64 * self.0 + (1 << 19)) >> 20)
    }
}

/// A host, by number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    /// Return the number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A flow, by number in order of arrival from 0; numbers are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_take_whole_picoseconds_at_the_usual_rates() {
        for (bps, picos) in [
            (1e9, 12_000_000),
            (10e9, 1_200_000),
            (25e9, 480_000),
            (40e9, 300_000),
            (100e9, 120_000),
        ] {
            assert_eq!(Rate::from_bps(bps).time(1500), Picos(picos));
        }
        assert_eq!(
            Rate::from_bps(1e6).time(u16::MAX),
            Picos(65_535 * 8_000_000)
        );
        assert_eq!(Rate::from_bps(3e9).time(1500), Picos(4_000_000));
    }
}
