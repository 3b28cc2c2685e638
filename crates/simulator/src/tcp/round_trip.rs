//! The sender's estimate of the round-trip time, and the retransmission timeout.

use cellbed_link::Duration;

/// The timeout before there is an estimate (RFC 6298 §2.1).
pub(super) const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Linux's minimum wait beyond the smoothed round-trip time (its `tcp_rto_min`).
pub(super) const LEAST_VARIATION: Duration = Duration::from_millis(200);

/// The estimator of RFC 6298, with Linux's lower bound: 200 ms for the variation part, not for the timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    smoothed: Option<f64>,
    variation: f64,
    least: Option<Duration>,
    floor: Duration,
}

impl RoundTrip {
    /// floor: the least variation part.
    pub fn new(floor: Duration) -> Self {
        Self {
            smoothed: None,
            variation: 0.0,
            least: None,
            floor,
        }
    }

    /// Takes a round-trip sample.
    pub fn measured(&mut self, span: Duration) {
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
        let sample = span.as_nanos() as f64;
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2.0;
            }
            Some(smoothed) => {
                self.variation += ((smoothed - sample).abs() - self.variation) / 4.0;
                self.smoothed = Some(smoothed + (sample - smoothed) / 8.0);
            }
        }
    }

    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
            .map(|nanos| Duration::from_nanos(nanos as u64))
    }

    pub fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The retransmission timeout, doubled so many times.
    pub fn timeout(&self, doubled: u32) -> Duration {
        let base = match self.smoothed() {
            None => INITIAL_TIMEOUT,
            Some(smoothed) => {
                smoothed + Duration::from_nanos((4.0 * self.variation) as u64).max(self.floor)
            }
        };
        Duration::from_nanos(base.as_nanos() << doubled.min(10)).min(LONGEST_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_rfc_6298_above_linux_s_floor() {
        let mut round_trip = RoundTrip::new(LEAST_VARIATION);
        assert_eq!(round_trip.timeout(0), Duration::from_secs(1));
        round_trip.measured(Duration::from_millis(200));
        assert_eq!(round_trip.timeout(0), Duration::from_millis(600));
        assert_eq!(round_trip.timeout(2), Duration::from_millis(2400));
        for _ in 0..100 {
            round_trip.measured(Duration::from_millis(40));
        }
        let timeout = round_trip.timeout(0).as_secs_f64();
        assert!((timeout - 0.24).abs() < 1e-3, "{timeout}");
        assert_eq!(round_trip.least(), Some(Duration::from_millis(40)));
    }
}
