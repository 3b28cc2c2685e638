//! How often the event loop wakes up: every wake-up costs some microseconds, whatever it brings.

use cellbed_link::{Duration, Time};

/// A pause between two looks at the devices, once packets have come at shorter intervals all the time.
const PAUSE: Duration = Duration::from_micros(50);

/// So many looks at the devices without a pause between are "all the time".
const HURRIED: u32 = 32;

/// When to wake up for departures and for arrivals.
///
/// **Departures** soon after others were written wait until a span (`release_batch_ns`) has passed since: a fast link
/// does not wake the loop for each packet. Whenever the loop is awake, what has departed leaves. So a departure is late by that
/// span at most, and not at all when none came shortly before.
///
/// **Arrivals** that come one by one in quick succession are left in the kernel for 50 µs, so that more come at a time: to
/// wake up for each of some hundred thousand packets a second would cost a processor, and as much at the sender.
pub struct Pace {
    batch: Duration,
    gate: Time,
    looked: Time,
    hurried: u32,
}

impl Pace {
    /// The pace of a loop that begins at `now`.
    pub fn new(batch: Duration, now: Time) -> Self {
        Self {
            batch,
            gate: now,
            looked: now,
            hurried: 0,
        }
    }

    /// How long at most packets that were read wait for others to be read.
    pub fn batch(&self) -> Duration {
        self.batch
    }

    /// When to wake up for a departure.
    pub fn deadline(&self, departure: Time) -> Time {
        departure.max(self.gate)
    }

    /// Until when to leave the devices alone, if so.
    pub fn pause(&self) -> Option<Time> {
        (self.hurried > HURRIED).then_some(self.looked + PAUSE)
    }

    /// Departures are written at `now`.
    pub fn departed(&mut self, now: Time) {
        self.gate = now + self.batch;
    }

    /// Devices were looked at until `now`.
    pub fn looked(&mut self, now: Time) {
        if now < self.looked + PAUSE + PAUSE {
            self.hurried = self.hurried.saturating_add(1);
        } else {
            self.hurried = 0;
        }
        self.looked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    #[test]
    fn a_departure_waits_for_the_span_and_no_longer() {
        let mut pace = Pace::new(Duration::from_micros(100), us(0));
        assert_eq!(pace.deadline(us(7)), us(7));
        pace.departed(us(8));
        assert_eq!(pace.deadline(us(9)), us(108));
        assert_eq!(pace.deadline(us(150)), us(150));
    }

    #[test]
    fn only_packets_in_quick_succession_bring_a_pause() {
        let mut pace = Pace::new(Duration::from_micros(100), us(0));
        for step in 0..100 {
            pace.looked(us(1000 * step));
        }
        assert_eq!(pace.pause(), None);
        for step in 0..40 {
            pace.looked(us(100_000 + step));
        }
        assert_eq!(pace.pause(), Some(us(100_039) + PAUSE));
        pace.looked(us(200_000));
        assert_eq!(pace.pause(), None);
    }
}
