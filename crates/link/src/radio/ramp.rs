//! The scheduler's warmth towards a device.

use super::config::Ramp;
use crate::time::{Duration, Time};

/// Warmth of the scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warmth {
    /// From 0, cold, to 1.
    level: f64,
    /// The most bytes that have waited since it was cold.
    peak: f64,
    /// When it last had something to do.
    last: Time,
    busy: bool,
}

impl Warmth {
    pub(super) const COLD: Self = Self {
        level: 0.0,
        peak: 0.0,
        last: Time::ZERO,
        busy: false,
    };

    /// The share of its resources that the device gets in a slot that begins `now`, with `waiting` bytes before it.
    pub(super) fn share(&mut self, ramp: &Ramp, now: Time, waiting: u64) -> f64 {
        if ramp.cold >= 1.0 {
            return 1.0;
        }
        let since = now.since(self.last);
        if self.busy {
            let aim = ramp.aim(self.peak);
            if aim > self.level {
                self.level = aim - (aim - self.level) * decay(since, ramp.rise);
            }
        } else {
            let kept = decay(since, ramp.memory);
            self.level *= kept;
            self.peak *= kept;
        }
        self.peak = self.peak.max(waiting as f64);
        self.last = now;
        self.busy = true;
        ramp.cold + (1.0 - ramp.cold) * self.level
    }

    /// Nothing is left to be sent after a slot that begins `now`.
    pub(super) fn rest(&mut self, now: Time) {
        self.busy = false;
        self.last = now;
    }
}

impl Ramp {
    fn aim(&self, peak: f64) -> f64 {
        if self.full == 0 {
            return 1.0;
        }
        (peak / self.full as f64).min(1.0).powf(self.bend)
    }
}

fn decay(span: Duration, constant: Duration) -> f64 {
    if constant.is_zero() {
        return 0.0;
    }
    (-span.as_secs_f64() / constant.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    const RAMP: Ramp = Ramp {
        cold: 0.2,
        rise: Duration::from_millis(10),
        full: 100_000,
        bend: 1.0,
        memory: Duration::from_millis(10),
    };

    #[test]
    fn the_share_rises_with_time_to_what_the_load_calls_for() {
        let mut warmth = Warmth::COLD;
        assert_eq!(warmth.share(&RAMP, ms(1000), 50_000), 0.2);
        let after = warmth.share(&RAMP, ms(1010), 40_000);
        assert!((after - (0.2 + 0.8 * 0.5 * (1.0 - (-1f64).exp()))).abs() < 1e-9);
        let late = warmth.share(&RAMP, ms(2000), 1000);
        assert!((late - 0.6).abs() < 1e-9); // the most that waited counts
    }

    #[test]
    fn warmth_is_lost_while_nothing_is_to_be_sent() {
        let mut warmth = Warmth::COLD;
        warmth.share(&RAMP, ms(0), 200_000);
        warmth.share(&RAMP, ms(1000), 200_000);
        warmth.rest(ms(1000));
        let soon = warmth.share(&RAMP, ms(1001), 1500);
        assert!(soon > 0.9, "{soon}");
        warmth.rest(ms(1001));
        let late = warmth.share(&RAMP, ms(1200), 1500);
        assert!(late < 0.2001, "{late}");
    }

    #[test]
    fn without_a_ramp_the_share_is_everything() {
        let mut warmth = Warmth::COLD;
        assert_eq!(warmth.share(&Ramp::NONE, ms(0), 1), 1.0);
    }
}
