//! Service by opportunities.

use std::sync::Arc;

use super::{Head, Offer, Playback, Server, Spliced, UNITS_PER_BYTE};
use crate::bottleneck::BottleneckConfig;
use crate::share::Share;
use crate::time::{Duration, Time};
use crate::trace::{Repeat, Trace};
use crate::units::{Bytes, saturate};

/// Byte-wise service by opportunities.
#[derive(Clone, Debug)]
pub(crate) struct ByteWise {
    pub(super) playback: Spliced,
    /// Bytes of one opportunity.
    opportunity: u64,
    /// Bytes charged per packet beyond its size.
    overhead: u64,
    /// Number of the first opportunity that no departed packet has touched.
    next: u64,
    /// Bytes left of the opportunity before that one. They can be used at `instant` only.
    credit: u64,
    /// The last departure, or when the head reached the idle server.
    instant: Time,
    /// Bytes of the head to be sent by `credit` and the opportunities from `next` on.
    owed: u64,
}

impl ByteWise {
    pub(super) fn new(
        trace: &Arc<Trace>,
        repeat: Repeat,
        offset: Duration,
        config: &BottleneckConfig,
        zero: Time,
    ) -> Self {
        let playback = Spliced::new(Playback::new(Arc::clone(trace), repeat, offset, zero));
        Self {
            next: playback.first_at(zero),
            playback,
            opportunity: config.opportunity.0,
            overhead: config.overhead.0,
            credit: 0,
            instant: Time::ZERO,
            owed: 0,
        }
    }

    /// Lays other opportunities in front of the recorded ones.
    pub(super) fn splice(&mut self, now: Time, head: Head) {
        self.owed = self.owed.saturating_sub(self.sent(now));
        self.playback.splice(head);
        self.begin_at(now);
    }

    fn begin_at(&mut self, now: Time) {
        self.next = self.playback.first_at(now);
        self.credit = 0;
        self.instant = now;
    }

    pub(super) fn left(&self, now: Time) -> Share {
        if now != self.instant {
            return Share::WHOLE;
        }
        let after = self.playback.first_at(now + Duration::from_nanos(1));
        let all = after.saturating_sub(self.playback.first_at(now));
        let rest = after
            .saturating_sub(self.next)
            .saturating_mul(self.opportunity)
            .saturating_add(self.credit);
        Share::new(rest, all.saturating_mul(self.opportunity))
    }

    pub(super) fn restrict(&mut self, now: Time, share: Share) {
        let after = self.playback.first_at(now + Duration::from_nanos(1));
        let all = after.saturating_sub(self.playback.first_at(now));
        self.credit = share.of(all.saturating_mul(self.opportunity));
        self.next = after;
        self.instant = now;
    }

    /// Return the bytes available to the head before `now`.
    fn sent(&self, now: Time) -> u64 {
        let begun = self.playback.first_at(now).saturating_sub(self.next);
        self.credit
            .saturating_add(begun.saturating_mul(self.opportunity))
    }

    /// Opportunities that the head needs beyond the credit; `None` if they carry nothing.
    fn opportunities_owed(&self) -> Option<u64> {
        match self.owed.saturating_sub(self.credit) {
            0 => Some(0),
            missing if self.opportunity > 0 => Some(missing.div_ceil(self.opportunity)),
            _ => None,
        }
    }
}

impl Server for ByteWise {
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.owed = self.owed.saturating_sub(self.sent(now));
        self.playback.restart(zero, offset);
        self.begin_at(now);
    }

    fn wake(&mut self, now: Time) {
        if now > self.instant {
            self.instant = now;
            self.credit = 0;
            self.next = self.next.max(self.playback.first_at(now));
        }
    }

    fn start(&mut self) -> Option<Time> {
        match self.credit {
            0 => self.playback.time_of(self.next),
            _ => Some(self.instant),
        }
    }

    fn departure(&mut self) -> Option<Time> {
        match self.opportunities_owed()? {
            0 => Some(self.instant),
            owed => self.playback.time_of(self.next.saturating_add(owed - 1)),
        }
    }

    fn finish(&mut self, departure: Time) {
        let spent = self.opportunities_owed().unwrap_or(0);
        self.next = self.next.saturating_add(spent);
        self.credit = self
            .credit
            .saturating_add(spent.saturating_mul(self.opportunity))
            .saturating_sub(self.owed);
        self.instant = departure;
    }

    fn offer(&self) -> Offer {
        Offer::Opportunities {
            playback: self.playback.clone(),
            each: Bytes(self.opportunity),
        }
    }

    fn owed(&self, now: Time) -> u128 {
        u128::from(self.owed.saturating_sub(self.sent(now))) * UNITS_PER_BYTE
    }

    fn owe(&mut self, units: u128) {
        self.owed = saturate(units.div_ceil(UNITS_PER_BYTE));
    }

    fn overhead(&self) -> u64 {
        self.overhead
    }
}
