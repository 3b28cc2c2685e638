//! Pacing of the event loop's wake-ups; each costs some microseconds.

use cellbed_link::{Duration, Time};

/// Maximum time between looks at the devices in quick succession.
const QUICK: Duration = Duration::from_micros(200);

/// Pause between two looks at the devices, after more than [`HURRIED`] looks in quick succession.
const PAUSE: Duration = Duration::from_micros(50);

/// Maximum pause that ends with a departure: one wake-up serves both.
const LONGEST_PAUSE: Duration = Duration::from_micros(100);

/// Number of looks in quick succession until pauses begin.
const HURRIED: u32 = 32;

/// Maximum number of successive departures written on time; later ones wait.
const BURST: u64 = 8;

/// Minimum mean time between wake-ups for departures.
const SPAN: Duration = Duration::from_micros(100);

/// Maximum time of reading packets while due packets wait to be written.
pub const READING: Duration = Duration::from_micros(40);

/// Wake-up times for departures and for arrivals.
///
/// **Departures** wake the loop on time while they are few. The generic cell rate algorithm (ITU-T I.371, Annex A)
/// limits them to one wake-up per 100 µs on average, with bursts of eight: a fast link does not wake the loop for each
/// packet. A woken loop writes all due packets. So a departure is late by at most 100 µs, and on time if few preceded.
///
/// **Arrivals** in quick succession wait in the kernel until a departure within 100 µs, or else for 50 µs, so that one
/// wake-up reads several: a wake-up for each of some hundred thousand packets a second would occupy a processor, and
/// another one at the sender. A pause that brings only one packet ends this mode: the pause saves no wake-up.
pub struct Pace {
    /// Theoretical arrival time of the algorithm: the end of all wake-ups for departures so far, at one per 100 µs.
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

    /// Return the wake-up time for a departure.
    pub fn deadline(&self, departure: Time) -> Time {
        let ahead = (BURST - 1) * SPAN.as_nanos();
        let gate = self.used_until.as_nanos().saturating_sub(ahead);
        departure.max(Time::from_nanos(gate))
    }

    /// Return until when to leave the devices unread, if at all; `deadline`: time of the next event.
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

    /// Record that departures are written at `now`.
    pub fn on_departure(&mut self, now: Time) {
        let full = now + Duration::from_nanos(BURST * SPAN.as_nanos());
        self.used_until = (self.used_until.max(now) + SPAN).min(full);
    }

    /// Record that a look until `now` read this many packets.
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
    fn a_pause_with_one_packet_ends_pausing() {
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
                    // All packets due by then leave in this wake-up.
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
