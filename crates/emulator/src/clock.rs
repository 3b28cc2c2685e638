//! The only clock of the emulator: `CLOCK_MONOTONIC`, and a timer on it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cellbed_link::time::Time;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::error::{Result, Trying};

/// Return ns of `CLOCK_MONOTONIC`, the clock of all stamps.
#[expect(clippy::disallowed_methods)]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Convert an instant to ms since 1970 by the current difference of the clocks: for people to read. No timer uses the
/// result, since that clock may be set at any time.
#[expect(clippy::disallowed_methods)]
pub fn epoch_millis(at: Time) -> u64 {
    let wall = clock_gettime(ClockId::Realtime);
    let wall = i128::from(wall.tv_sec) * 1_000_000_000 + i128::from(wall.tv_nsec);
    let ahead = i128::from(at.as_nanos()) - i128::from(now().as_nanos());
    u64::try_from((wall + ahead) / 1_000_000).unwrap_or(0)
}

/// Convert ns to the kernel's format.
pub fn timespec(nanos: u64) -> Timespec {
    Timespec {
        tv_sec: (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as i64,
    }
}

/// Conversion of stamps of `CLOCK_REALTIME`, which may be set at any time.
#[derive(Default)]
pub struct RealTime {
    /// Difference to the clock of [`now`], ns.
    ahead: u64,
    /// Number of settings of the clock.
    settings: u64,
}

impl RealTime {
    /// Maximum change of the difference between two looks if nobody has set the clock, ns.
    const CHANGE: u64 = 5_000;

    /// Compare both clocks. Return the number of settings of the clock so far.
    ///
    /// Stamps taken since a setting may be converted, older ones may not.
    #[expect(clippy::disallowed_methods)]
    pub fn look(&mut self) -> u64 {
        // In this order: an interruption in between moves stamps into the future, never into the past.
        let real = clock_gettime(ClockId::Realtime);
        let real = real.tv_sec as u64 * 1_000_000_000 + real.tv_nsec as u64;
        let ahead = real.saturating_sub(now().as_nanos());
        self.settings += u64::from(ahead.abs_diff(self.ahead) > Self::CHANGE);
        self.ahead = ahead;
        self.settings
    }

    /// Return the instant of a stamp, ns.
    pub fn to_monotonic(&self, stamp: u64) -> Time {
        Time::from_nanos(stamp.saturating_sub(self.ahead))
    }
}

/// Sleep until `deadline` or until a signal.
pub fn sleep_until(deadline: Time) {
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(deadline.as_nanos()));
}

/// A descriptor that becomes readable at an absolute time.
///
/// Absolute deadlines do not drift. A past deadline fires at once, so no deadline is missed between reading the clock
/// and sleeping.
pub struct Alarm {
    descriptor: OwnedFd,
    /// Time of the alarm; `None` after it has fired.
    armed: Option<Time>,
}

impl Alarm {
    /// An alarm that is not set.
    pub fn new() -> Result<Self> {
        let descriptor = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .trying(|| "create a timer".into())?;
        let armed = None;
        Ok(Self { descriptor, armed })
    }

    /// Set the alarm for `deadline`. Setting the same deadline again costs nothing.
    pub fn set(&mut self, deadline: Time) -> Result<()> {
        if self.armed == Some(deadline) {
            return Ok(());
        }
        // A zero value would disable the timer, so an alarm at time 0 fires one nanosecond late.
        let nanos = deadline.as_nanos().max(1);
        let value = Itimerspec {
            it_interval: timespec(0),
            it_value: timespec(nanos),
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &value)
            .trying(|| format!("set a timer for {nanos} ns"))?;
        self.armed = Some(deadline);
        Ok(())
    }

    /// Call this when the descriptor is readable: it stays so until the alarm is set again, even to the same time.
    pub fn acknowledge(&mut self) {
        self.armed = None;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn alarm_is_never_early() {
        let mut alarm = Alarm::new().unwrap();
        for wait in [0, 1_000, 2_000_000] {
            let deadline = Time::from_nanos(now().as_nanos() + wait);
            alarm.set(deadline).unwrap();
            poll(&mut [PollFd::new(&alarm, PollFlags::IN)], None).unwrap();
            assert!(now() >= deadline);
            alarm.acknowledge();
        }
    }
}
