//! The machine's clocks. Times are monotonic; the kernel stamps packets by the wall clock, which may step.

use cellbed_link::{Duration, Time};
use rustix::thread::{ClockId as SleepClock, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec};

/// Maximum age of a valid stamp. Older stamps were made before the wall clock was set.
const OLDEST: Duration = Duration::from_secs(10);

/// Read the monotonic clock.
pub fn now() -> Time {
    read(ClockId::Monotonic)
}

/// Read the wall clock: ns since 1970.
pub fn wall_clock() -> Time {
    read(ClockId::Realtime)
}

/// Sleep until `deadline` of the monotonic clock, or until a signal.
pub fn sleep_until(deadline: Time) {
    // After an interruption, the caller reads the clock again.
    let _ = clock_nanosleep_absolute(SleepClock::Monotonic, &timespec(deadline.as_nanos()));
}

pub(super) fn timespec(nanos: u64) -> Timespec {
    Timespec {
        tv_sec: (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as i64,
    }
}

/// Let the calling thread wake up as precisely as the kernel can. By default, wake-ups may be 50 µs late to save
/// wake-ups.
pub fn sharpen_timers() {
    // If not permitted, departures are some 50 µs late, as their stamps show.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Both clocks at one instant, to convert wall-clock stamps to monotonic times.
#[derive(Clone, Copy)]
pub(super) struct Instant {
    monotonic: Time,
    wall: Time,
}

impl Instant {
    pub(super) fn now() -> Self {
        Self {
            monotonic: now(),
            wall: wall_clock(),
        }
    }

    /// Return the arrival time of a packet with the kernel stamp `stamp`. An impossible stamp, made before the wall
    /// clock was set, counts as now.
    pub(super) fn of_stamp(&self, stamp: Time) -> Time {
        let age = self.wall.since(stamp);
        if stamp > self.wall || age > OLDEST {
            return self.monotonic;
        }
        self.monotonic - age
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the recorder's one look at clocks"
)]
fn read(clock: ClockId) -> Time {
    let time = rustix::time::clock_gettime(clock);
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_a_wall_clock_that_was_set_count_as_now() {
        let instant = Instant {
            monotonic: Time::from_millis(50_000),
            wall: Time::from_millis(1_000_000),
        };
        let of = |millis| instant.of_stamp(Time::from_millis(millis));
        assert_eq!(of(999_990), Time::from_millis(49_990));
        assert_eq!(of(1_000_001), Time::from_millis(50_000));
        assert_eq!(of(900_000), Time::from_millis(50_000));
    }
}
