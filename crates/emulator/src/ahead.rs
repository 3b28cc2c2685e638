//! Waking ahead of a departure: the time that the machine takes to wake up must not delay the packet.

use cellbed_link::{Duration, Time};

/// One part in this many of a processor's time is the budget of waiting without sleep.
const SHARE: u64 = 100;

/// Maximum unused budget.
const MOST_BUDGET: Duration = Duration::from_millis(2);

/// Maximum time between wake-up and departure.
const FARTHEST: Duration = Duration::from_micros(250);

/// Change of the estimate after a wake-up in time, ns.
const STEP: u64 = 500;

/// Weight of a late wake-up against one in time: one in five stays late.
const WEIGHT: u64 = 4;

/// When to end a sleep before a departure, and how long to wait then without sleep.
///
/// The time of waking up is estimated as its upper quintile, step by step: no sample is kept. A processor that sleeps
/// takes 3 to 100 µs to wake up. Waiting without sleep takes 1 % of a processor at most; without budget, sleeps end at
/// the departure.
pub struct Ahead {
    /// Estimate of the upper quintile of the lateness of wake-ups.
    lateness: Duration,
    budget: Duration,
    /// Time until which the budget has grown.
    grown: Time,
}

impl Ahead {
    /// An estimate at `now` for a fast machine.
    pub fn new(now: Time) -> Self {
        Self {
            lateness: Duration::from_micros(20),
            budget: MOST_BUDGET,
            grown: now,
        }
    }

    /// Return when to end a sleep before a departure, as of `now`.
    pub fn start(&mut self, now: Time, departure: Time) -> Time {
        let more = now.since(self.grown).as_nanos() / SHARE;
        if more > 0 {
            self.budget = Duration::from_nanos(self.budget.as_nanos() + more).min(MOST_BUDGET);
            self.grown = now;
        }
        if self.budget < self.lateness {
            return departure;
        }
        Time::from_nanos(
            departure
                .as_nanos()
                .saturating_sub(self.lateness.as_nanos()),
        )
    }

    /// Record a wake-up by time, and its lateness.
    pub fn on_wake_up(&mut self, late: Duration) {
        let lateness = self.lateness.as_nanos();
        self.lateness = Duration::from_nanos(match late > self.lateness {
            true => (lateness + WEIGHT * STEP).min(FARTHEST.as_nanos()),
            false => lateness.saturating_sub(STEP),
        });
    }

    /// Record a time of waiting without sleep.
    pub fn on_waited(&mut self, time: Duration) {
        self.budget = Duration::from_nanos(self.budget.as_nanos().saturating_sub(time.as_nanos()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn the_estimate_approaches_the_upper_quintile() {
        let mut ahead = Ahead::new(Time::ZERO);
        for step in 0..10_000u64 {
            ahead.on_wake_up(us(step * 7 % 100)); // evenly from 0 to 99 µs
        }
        assert!(
            (us(75)..=us(85)).contains(&ahead.lateness),
            "{:?}",
            ahead.lateness
        );
    }

    proptest! {
        #[test]
        fn waiting_takes_a_hundredth_of_the_time(gaps in proptest::collection::vec(1u64..5000, 1..500), late in 0u64..300) {
            let mut ahead = Ahead::new(Time::ZERO);
            let (mut now, mut waited) = (Time::ZERO, 0);
            for gap in gaps {
                let departure = now + us(gap);
                let until = ahead.start(now, departure);
                prop_assert!(until <= departure);
                let woken = until.max(now) + us(late);
                if until > now {
                    ahead.on_wake_up(us(late));
                }
                let wait = departure.since(woken);
                ahead.on_waited(wait);
                waited += wait.as_nanos();
                now = woken.max(departure);
            }
            prop_assert!(waited <= now.as_nanos() / SHARE + MOST_BUDGET.as_nanos());
        }
    }
}
