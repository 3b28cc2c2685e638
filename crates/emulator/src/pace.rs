//! Pacing of the event loop's wake-ups; each costs some microseconds.

use cellbed_link::{Duration, Time};

/// Looks at the devices in quick succession are not further apart.
const QUICK: Duration = Duration::from_micros(200);

/// A pause between two looks at the devices, once packets have come in quick succession all the time.
const PAUSE: Duration = Duration::from_micros(50);

/// The longest pause, when it ends with a departure: one wake-up does for both.
const LONGEST_PAUSE: Duration = Duration::from_micros(100);

/// So many looks at the devices without a pause between are "all the time".
const HURRIED: u32 = 32;

/// So many departures in a row are written at their time before the others wait.
const BURST: u64 = 8;

/// In the long run departures wake the loop once in such a span at most.
const SPAN: Duration = Duration::from_micros(100);

/// Maximum time of reading packets while others that are due wait to be written.
pub const READING: Duration = Duration::from_micros(40);

/// When to wake up for departures and for arrivals.
///
/// **Departures** wake the loop at their time as long as there are few. In the long run they do so once in 100 µs
/// at most, the generic cell rate algorithm (ITU-T I.371, Annex A) with room for eight at once: a fast
/// link does not wake the loop for each packet. Whenever the loop is awake, what has departed leaves. So a departure is
/// late by that span at most, and not at all when few came before.
///
/// **Arrivals** that come one by one in quick succession are left in the kernel until a departure within 100 µs, or
/// else for 50 µs, so that more come at a time: to wake up for each of some hundred thousand packets a second would
/// cost a processor, and as much at the sender. A pause that brought only one packet ends this mode: it cost a wake-up
/// instead of saving one.
pub struct Pace {
    /// When all wake-ups for departures so far would have happened at one in 100 µs: the theoretical arrival time of
    /// the algorithm.
    used_until: Time,
    looked: Time,
    hurried: u32,
    /// True if the last pause only waited for packets.
    own_pause: bool,
}

impl Pace {
    /// The pace of a loop that begins at `now`.
    pub fn new(now: Time) -> Self {
        Self {
            used_until: now,
            looked: now,
            hurried: 0,
            own_pause: false,
        }
    }

    /// When to wake up for a departure.
    pub fn deadline(&self, departure: Time) -> Time {
        let ahead = (BURST - 1) * SPAN.as_nanos();
        let gate = self.used_until.as_nanos().saturating_sub(ahead);
        departure.max(Time::from_nanos(gate))
    }

    /// Until when to leave the devices alone, if so, when the next thing to do besides is at `deadline`.
    pub fn pause(&mut self, deadline: Time) -> Option<Time> {
        self.own_pause = false;
        if self.hurried <= HURRIED {
            return None;
        }
        if deadline <= self.looked + LONGEST_PAUSE {
            return Some(deadline);
        }
        self.own_pause = true;
        Some(self.looked + PAUSE)
    }

    /// Departures are written at `now`.
    pub fn on_departure(&mut self, now: Time) {
        let full = now + Duration::from_nanos(BURST * SPAN.as_nanos());
        self.used_until = (self.used_until.max(now) + SPAN).min(full);
    }

    /// Devices were looked at until `now`, and had so many packets.
    pub fn on_look(&mut self, now: Time, packets: usize) {
        let in_vain = self.own_pause && packets < 2;
        if now < self.looked + QUICK && !in_vain {
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
    use proptest::prelude::*;

    fn us(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    #[test]
    fn few_departures_do_not_wait_and_many_wait_for_the_span() {
        let mut pace = Pace::new(us(0));
        for step in 0..BURST {
            assert_eq!(pace.deadline(us(7 + step)), us(7 + step));
            pace.on_departure(us(7 + step));
        }
        assert_eq!(pace.deadline(us(15)), us(107));
        assert_eq!(pace.deadline(us(150)), us(150));
    }

    #[test]
    fn only_packets_in_quick_succession_bring_a_pause() {
        let mut pace = Pace::new(us(0));
        for step in 0..100 {
            pace.on_look(us(1000 * step), 9);
        }
        assert_eq!(pace.pause(us(200_000)), None);
        for step in 0..40 {
            pace.on_look(us(100_000 + step), 1);
        }
        assert_eq!(pace.pause(us(200_000)), Some(us(100_039) + PAUSE));
        assert_eq!(pace.pause(us(100_120)), Some(us(100_120)));
        pace.on_look(us(200_000), 9);
        assert_eq!(pace.pause(us(200_001)), None);
    }

    #[test]
    fn a_pause_that_brings_one_packet_is_the_last() {
        let mut pace = Pace::new(us(0));
        for step in 0..40 {
            pace.on_look(us(step), 1);
        }
        assert!(pace.pause(us(1000)).is_some());
        pace.on_look(us(90), 2);
        assert!(pace.pause(us(1000)).is_some());
        pace.on_look(us(150), 1);
        assert_eq!(pace.pause(us(1000)), None);
    }

    proptest! {
        #[test]
        fn a_departure_waits_for_the_span_at_most(steps in proptest::collection::vec((0u64..300, 0u64..300), 1..200)) {
            let mut pace = Pace::new(us(0));
            let mut now = 0;
            for (step, ahead) in steps {
                now += step;
                pace.on_departure(us(now));
                let deadline = pace.deadline(us(now + ahead));
                prop_assert!(deadline >= us(now + ahead));
                prop_assert!(deadline <= us(now + ahead).max(us(now) + SPAN));
            }
        }

        #[test]
        fn departures_wake_the_loop_once_in_a_span_in_the_long_run(gaps in proptest::collection::vec(1u64..250, 500)) {
            let mut pace = Pace::new(us(0));
            let (mut due, mut wakes, mut awake) = (0, 0, us(0));
            for gap in gaps {
                due += gap;
                if us(due) > awake {
                    // Everything that is due by then leaves with it.
                    awake = pace.deadline(us(due));
                    pace.on_departure(awake);
                    wakes += 1;
                }
            }
            prop_assert!(wakes <= BURST + 1 + awake.as_nanos() / SPAN.as_nanos());
        }

        #[test]
        fn a_pause_ends_before_anything_is_to_be_done(looks in proptest::collection::vec(0u64..250, 100), ahead in 0u64..500) {
            let mut pace = Pace::new(us(0));
            let mut now = 0;
            for gap in looks {
                now += gap;
                pace.on_look(us(now), 2);
                let until = pace.pause(us(now + ahead));
                prop_assert!(until.is_none_or(|until| until <= us(now + ahead) && until <= us(now) + LONGEST_PAUSE));
            }
        }
    }
}
