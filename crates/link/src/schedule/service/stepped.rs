//! Service at a rate that changes in steps, as a fluid.

use crate::schedule::RatePlayback;
use crate::time::{Duration, Time};

/// The head leaves once the area under the rate has grown by its bits since its service began. Areas are exact, so that
/// no rounding adds up.
#[derive(Clone, Debug)]
pub(crate) struct Stepped {
    pub(super) playback: RatePlayback,
    /// Area at which the service of the head begins, or began.
    base: u128,
    /// Area that the head takes.
    owed: u128,
    /// The last departure, or when the head reached the idle server.
    instant: Time,
}

impl Stepped {
    pub(super) fn new(playback: RatePlayback) -> Self {
        Self {
            playback,
            base: 0,
            owed: 0,
            instant: Time::ZERO,
        }
    }

    pub(super) fn wake(&mut self, now: Time) {
        self.base = self.playback.area(now);
        self.instant = now;
    }

    pub(super) fn begin(&mut self, area: u128) {
        self.owed = area;
    }

    pub(super) fn start(&self) -> Option<Time> {
        Some(self.instant)
    }

    pub(super) fn departure(&self) -> Option<Time> {
        let end = self.playback.reaches(self.base.saturating_add(self.owed))?;
        Some(end.max(self.instant))
    }

    pub(super) fn finish(&mut self, departure: Time) {
        self.base = self.base.saturating_add(self.owed);
        self.instant = departure;
    }

    pub(super) fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.owed = self.owed(now);
        self.playback.restart(zero, offset);
        self.wake(now);
    }

    /// Return the part of the head that has not left by `now`.
    pub(super) fn owed(&self, now: Time) -> u128 {
        let end = self.base.saturating_add(self.owed);
        end.saturating_sub(self.playback.area(now).max(self.base))
    }
}
