//! Service at a constant rate.

use super::{Offer, Server};
use crate::time::{Duration, Time};
use crate::units::{BitRate, saturate};

/// Service at a constant rate, as a fluid: within a busy period the n-th byte leaves 8 n / rate after its start.
/// Departures are rounded up to a nanosecond each, from the exact value, so that no error adds up.
#[derive(Clone, Debug)]
pub(crate) struct Fluid {
    rate: BitRate,
    /// Start of the busy period.
    busy_since: Time,
    /// Data sent in the busy period, in parts of a byte, so that a server that is stopped often loses nothing.
    sent: u128,
    /// Size of the head, in parts of a byte.
    owed: u128,
}

impl Fluid {
    pub(super) fn new(rate: BitRate) -> Self {
        Self {
            rate,
            busy_since: Time::ZERO,
            sent: 0,
            owed: 0,
        }
    }

    /// Return the part of the head sent before `now`.
    fn sent(&self, now: Time) -> u128 {
        let span = u128::from(now.since(self.busy_since).as_nanos());
        (u128::from(self.rate.0) * span).saturating_sub(self.sent)
    }

    /// When so many units have left since the busy period began.
    fn at(&self, units: u128) -> Option<Time> {
        let rate = u128::from(self.rate.0);
        (rate > 0).then(|| self.busy_since + Duration::from_nanos(saturate(units.div_ceil(rate))))
    }
}

impl Server for Fluid {
    fn wake(&mut self, now: Time) {
        self.busy_since = now;
        self.sent = 0;
    }

    /// When the packet before left.
    fn start(&mut self) -> Option<Time> {
        match self.sent {
            0 => Some(self.busy_since),
            sent => self.at(sent),
        }
    }

    fn departure(&mut self) -> Option<Time> {
        self.at(self.sent.saturating_add(self.owed))
    }

    fn finish(&mut self, _departure: Time) {
        self.sent = self.sent.saturating_add(self.owed);
    }

    fn offer(&self) -> Offer {
        Offer::Constant(self.rate)
    }

    fn owed(&self, now: Time) -> u128 {
        self.owed.saturating_sub(self.sent(now))
    }

    fn owe(&mut self, units: u128) {
        self.owed = units;
    }

    fn is_steady(&self) -> bool {
        true
    }
}
