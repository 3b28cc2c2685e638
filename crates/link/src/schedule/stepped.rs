//! Service at a rate that changes in steps, as a fluid.

use super::{Offer, RatePlayback, Server};
use crate::time::{Duration, Time};

/// The head leaves once the area under the rate has grown by its bits since its service began. Areas are exact, so that
/// no rounding adds up.
#[derive(Clone, Debug)]
pub(crate) struct Stepped {
    playback: RatePlayback,
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
}

impl Server for Stepped {
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.owed = self.owed(now);
        self.playback.restart(zero, offset);
        self.wake(now);
    }

    fn wake(&mut self, now: Time) {
        self.base = self.playback.area(now);
        self.instant = now;
    }

    fn start(&mut self) -> Option<Time> {
        Some(self.instant)
    }

    fn departure(&mut self) -> Option<Time> {
        let end = self.playback.reaches(self.base.saturating_add(self.owed))?;
        Some(end.max(self.instant))
    }

    fn finish(&mut self, departure: Time) {
        self.base = self.base.saturating_add(self.owed);
        self.instant = departure;
    }

    fn offer(&self) -> Offer {
        Offer::Series(self.playback.clone())
    }

    fn owed(&self, now: Time) -> u128 {
        let end = self.base.saturating_add(self.owed);
        end.saturating_sub(self.playback.area(now).max(self.base))
    }

    fn owe(&mut self, area: u128) {
        self.owed = area;
    }

    fn is_steady(&self) -> bool {
        true
    }
}
