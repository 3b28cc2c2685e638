//! The sender's estimate of the round-trip time, and the retransmission timeout.

use cellbed_link::Duration;

/// Timeout before the first estimate (RFC 6298 §2.1).
pub(super) const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Linux's minimum wait beyond the smoothed round-trip time (its `tcp_rto_min`).
pub(super) const LEAST_VARIATION: Duration = Duration::from_millis(200);

/// The estimator of RFC 6298 as in Linux (`tcp_rtt_estimator` in `tcp_input.c`).
///
/// The timeout adds a margin to the smoothed round trip. The margin rises at once with the mean deviation: it is the
/// maximum during the current round of packets, at least the floor. It falls by a quarter of the difference per round.
/// A sample shorter than expected raises the deviation by an eighth of a longer sample's effect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<f64>,
    latest: Option<Duration>,
    deviation: f64,
    /// Maximum of four times the deviation since the beginning of the current round, at least the floor.
    greatest: f64,
    margin: f64,
    /// Sequence number before which all must be acknowledged for the round to end.
    round_end: u64,
    least: Option<Duration>,
    floor: f64,
}

impl RoundTrip {
    /// Return an estimator. floor: the minimum margin.
    pub fn new(floor: Duration) -> Self {
        Self {
            floor: floor.as_nanos() as f64,
            ..Self::default()
        }
    }

    /// Add a round-trip sample. missing: the first unacknowledged sequence number; next: the next one to send.
    pub fn on_sample(&mut self, span: Duration, missing: u64, next: u64) {
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
        self.latest = Some(span);
        let sample = span.as_nanos() as f64;
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.deviation = sample / 2.0;
            self.margin = (4.0 * self.deviation).max(self.floor);
            self.greatest = self.margin;
            self.round_end = next;
            return;
        };
        let change = (sample - smoothed).abs() - self.deviation;
        let share = if sample < smoothed && change > 0.0 {
            32.0
        } else {
            4.0
        };
        self.deviation += change / share;
        self.smoothed = Some(smoothed + (sample - smoothed) / 8.0);
        self.greatest = self.greatest.max(4.0 * self.deviation);
        self.margin = self.margin.max(self.greatest);
        if missing > self.round_end {
            self.margin -= (self.margin - self.greatest) / 4.0;
            self.greatest = self.floor;
            self.round_end = next;
        }
    }

    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
            .map(|nanos| Duration::from_nanos(nanos as u64))
    }

    pub fn latest(&self) -> Option<Duration> {
        self.latest
    }

    pub fn least(&self) -> Option<Duration> {
        self.least
    }

    /// Return the retransmission timeout, doubled `doubled` times.
    pub fn timeout(&self, doubled: u32) -> Duration {
        let base = match self.smoothed() {
            None => INITIAL_TIMEOUT,
            Some(smoothed) => smoothed + Duration::from_nanos(self.margin as u64),
        };
        Duration::from_nanos(base.as_nanos() << doubled.min(10)).min(LONGEST_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_falls_by_quarters_to_linux_s_floor() {
        let mut round_trip = RoundTrip::new(LEAST_VARIATION);
        assert_eq!(round_trip.timeout(0), Duration::from_secs(1));
        round_trip.on_sample(Duration::from_millis(200), 0, 0);
        assert_eq!(round_trip.timeout(0), Duration::from_millis(600));
        assert_eq!(round_trip.timeout(2), Duration::from_millis(2400));
        for round in 1..100 {
            round_trip.on_sample(Duration::from_millis(40), round, round);
        }
        let timeout = round_trip.timeout(0).as_secs_f64();
        assert!((timeout - 0.24).abs() < 1e-3, "{timeout}");
        assert_eq!(round_trip.least(), Some(Duration::from_millis(40)));
    }

    #[test]
    fn the_timeout_remembers_a_queue_for_rounds_not_samples() {
        let mut round_trip = RoundTrip::new(LEAST_VARIATION);
        let ms = Duration::from_millis;
        round_trip.on_sample(ms(40), 0, 0);
        // A queue of half a second, in one round of many samples.
        for number in 1..50 {
            round_trip.on_sample(ms(40 + 10 * number), number, 50);
        }
        let full = round_trip.timeout(0);
        // The queue is empty again: in one round of any number of samples, the timeout falls by at most the smoothed
        // round trip and a quarter of the margin.
        let smoothed = round_trip.smoothed().unwrap();
        for _ in 0..50 {
            round_trip.on_sample(ms(40), 51, 100);
        }
        let fallen = full.saturating_sub(round_trip.timeout(0));
        let margin = full.saturating_sub(smoothed);
        assert!(fallen < smoothed + Duration::from_nanos(margin.as_nanos() / 4));
        assert!(round_trip.timeout(0) > ms(40) + LEAST_VARIATION);
    }
}
