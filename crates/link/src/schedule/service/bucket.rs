//! Service by a token bucket.

use crate::schedule::UNITS_PER_BYTE;
use crate::time::{Duration, Time};
use crate::units::{BitRate, Bytes, saturate};

/// The bucket's level is in bit/s · ns, exactly.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(super) rate: BitRate,
    burst: i128,
    /// The filling at `since`; below zero after a packet larger than the bucket.
    tokens: i128,
    since: Time,
    /// The last departure, or when the head reached the idle server.
    instant: Time,
    owed: i128,
}

impl Bucket {
    pub(super) fn new(rate: BitRate, burst: Bytes) -> Self {
        Self {
            rate,
            burst: units(burst.0),
            tokens: units(burst.0),
            since: Time::ZERO,
            instant: Time::ZERO,
            owed: 0,
        }
    }

    pub(super) fn refill(&mut self, now: Time) {
        self.tokens = self.burst;
        self.since = now;
        self.instant = now;
    }

    pub(super) fn wake(&mut self, now: Time) {
        self.instant = self.instant.max(now);
    }

    pub(super) fn begin(&mut self, units: u128) {
        self.owed = i128::try_from(units).unwrap_or(i128::MAX / 2);
    }

    pub(super) fn owed(&self) -> u128 {
        self.owed as u128 // never negative
    }

    pub(super) fn start(&self) -> Option<Time> {
        Some(self.instant)
    }

    pub(super) fn departure(&self) -> Option<Time> {
        let missing = self.owed.min(self.burst) - self.tokens;
        if missing <= 0 {
            return Some(self.instant);
        }
        let wait = (missing as u128).checked_next_multiple_of(u128::from(self.rate.0))?; // none at a rate of zero
        let wait = Duration::from_nanos(saturate(wait / u128::from(self.rate.0)));
        Some((self.since + wait).max(self.instant))
    }

    pub(super) fn finish(&mut self, departure: Time) {
        let span = i128::from(departure.since(self.since).as_nanos());
        let filled = self
            .tokens
            .saturating_add(span.saturating_mul(i128::from(self.rate.0)));
        self.tokens = filled.min(self.burst).saturating_sub(self.owed);
        self.since = departure;
        self.instant = departure;
    }
}

fn units(bytes: u64) -> i128 {
    (u128::from(bytes) * UNITS_PER_BYTE) as i128 // below 2⁶⁴ · 2³³
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_rest_follows_at_the_rate() {
        let mut bucket = Bucket::new(BitRate(8_000_000), Bytes(3000)); // a byte a µs
        let mut departures = Vec::new();
        bucket.wake(Time::from_millis(1));
        for _ in 0..4 {
            bucket.begin(units(1500) as u128);
            let departure = bucket.departure().unwrap();
            bucket.finish(departure);
            departures.push(departure.as_nanos() / 1000);
        }
        assert_eq!(departures, [1000, 1000, 2500, 4000]);
        bucket.wake(Time::from_micros(5000)); // 1000 bytes since
        bucket.begin(units(1000) as u128);
        assert_eq!(bucket.departure(), Some(Time::from_micros(5000)));
        bucket.finish(Time::from_micros(5000));
        bucket.wake(Time::from_millis(100)); // full again, no fuller
        bucket.begin(units(4000) as u128);
        assert_eq!(
            bucket.departure(),
            Some(Time::from_millis(100)),
            "larger than the bucket"
        );
        bucket.finish(Time::from_millis(100));
        bucket.begin(units(1500) as u128);
        assert_eq!(
            bucket.departure(),
            Some(Time::from_micros(102_500)),
            "1000 bytes of debt"
        );
    }

    #[test]
    fn a_bucket_that_does_not_fill_holds_what_is_missing() {
        let mut bucket = Bucket::new(BitRate(0), Bytes(1000));
        bucket.begin(units(1000) as u128);
        assert_eq!(bucket.departure(), Some(Time::ZERO));
        bucket.finish(Time::ZERO);
        bucket.begin(units(1) as u128);
        assert_eq!(bucket.departure(), None);
    }
}
