//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation-00).

use cellbed_link::{Duration, Time};

/// The deliveries of a connection when a segment was sent (§3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departure {
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    idle: bool,
}

/// The deliveries of a connection (§3.1.1), in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deliveries {
    delivered: u64,
    at: Time,
    /// Send time of the segment whose delivery begins the next sample.
    first_sent: Time,
    /// Number of deliveries up to which the sender was idle or held back; 0 for none.
    idle_until: u64,
}

/// A sample (§3.1.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateSample {
    /// Segments per second.
    pub rate: f64,
    /// Segments that were delivered before the interval.
    pub before: u64,
    /// True if the sender could have sent more: the path may be faster.
    pub idle: bool,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            delivered: 1, // the SYN, as in Linux
            at: Time::ZERO,
            first_sent: Time::ZERO,
            idle_until: 0,
        }
    }
}

impl Deliveries {
    /// Return the number of segments delivered so far.
    pub fn count(&self) -> u64 {
        self.delivered
    }

    /// Return when the last delivered segment was acknowledged.
    pub fn at(&self) -> Time {
        self.at
    }

    pub fn is_idle(&self) -> bool {
        self.idle_until > 0
    }

    /// Record that a segment leaves (§3.2). alone: no other is in flight.
    pub fn depart(&mut self, now: Time, alone: bool) -> Departure {
        if alone {
            (self.first_sent, self.at) = (now, now);
        }
        Departure {
            delivered: self.delivered,
            delivered_at: self.at,
            first_sent: self.first_sent,
            idle: self.is_idle(),
        }
    }

    /// Record that the sender has less to send than it may, with `in_flight` segments in flight (§3.4).
    pub fn idle(&mut self, in_flight: u64) {
        self.idle_until = self.delivered + in_flight;
    }

    /// Process the delivery of segments (§3.3). latest: of the segment sent last, the send time and the state
    /// then. least: the minimum round trip; shorter intervals give no sample.
    pub fn arrived(
        &mut self,
        now: Time,
        segments: u64,
        latest: Option<(Time, Departure)>,
        least: Option<Duration>,
    ) -> Option<RateSample> {
        self.delivered += segments;
        if self.delivered > self.idle_until {
            self.idle_until = 0;
        }
        if segments > 0 {
            self.at = now;
        }
        let (sent, departure) = latest?;
        self.first_sent = sent;
        let (sending, receiving) = (sent - departure.first_sent, now - departure.delivered_at);
        let interval = sending.max(receiving);
        if interval.is_zero() || least.is_some_and(|least| interval < least) {
            return None;
        }
        Some(RateSample {
            rate: (self.delivered - departure.delivered) as f64 / interval.as_secs_f64(),
            before: departure.delivered,
            idle: departure.idle,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_sample_is_what_was_delivered_over_the_longer_of_sending_and_receiving() {
        let mut deliveries = Deliveries::default();
        let one = deliveries.depart(ms(0), true);
        let two = deliveries.depart(ms(2), false);
        let least = Some(Duration::from_millis(40));
        let first = deliveries.arrived(ms(40), 1, Some((ms(0), one)), least);
        assert_eq!(first.unwrap().rate, 25.0); // one in 40 ms
        let second = deliveries.arrived(ms(42), 1, Some((ms(2), two)), least);
        assert!((second.unwrap().rate - 2.0 / 0.042).abs() < 1e-9);
        // A compressed acknowledgement: two segments sent 50 ms apart are acknowledged together.
        let third = deliveries.depart(ms(42), true);
        deliveries.depart(ms(92), false);
        let sample = deliveries.arrived(ms(100), 2, Some((ms(92), third)), least);
        assert!((sample.unwrap().rate - 2.0 / 0.058).abs() < 1e-9);
        assert_eq!(deliveries.arrived(ms(101), 0, None, least), None);
    }

    #[test]
    fn samples_of_segments_sent_after_a_pause_are_marked() {
        let mut deliveries = Deliveries::default();
        deliveries.idle(0);
        let early = deliveries.depart(ms(0), true);
        let sample = deliveries.arrived(ms(40), 1, Some((ms(0), early)), None);
        assert!(sample.unwrap().idle && !deliveries.is_idle());
        let late = deliveries.depart(ms(40), true);
        let sample = deliveries.arrived(ms(80), 1, Some((ms(40), late)), None);
        assert!(!sample.unwrap().idle);
    }
}
