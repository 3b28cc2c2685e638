//! Service of the packet at the head of a queue: when its last byte leaves.

use std::sync::Arc;

use super::{Head, Offer, Playback, RatePlayback, Schedule, Spliced, UNITS_PER_BYTE};
use crate::bottleneck::BottleneckConfig;
use crate::time::{Duration, Time};
use crate::units::{BitRate, Bytes, Share, saturate};

/// A server in front of a queue. The server holds one packet at a time, the head. It does not step through time: a gap
/// of any length costs one search.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    Opportunities(ByteWise),
    Stepped(Stepped),
    Constant(Fluid),
    Bucket(Bucket),
    /// Unlimited service since the change of the schedule at this time: waiting packets leave at once.
    Unlimited(Time),
}

impl Service {
    pub(crate) fn new(config: &BottleneckConfig, zero: Time) -> Self {
        match &config.schedule {
            Schedule::Trace {
                trace,
                repeat,
                offset,
            } => {
                let recording = Playback::new(Arc::clone(trace), *repeat, *offset, zero);
                let playback = Spliced::new(recording);
                Self::Opportunities(ByteWise {
                    next: playback.first_at(zero),
                    playback,
                    opportunity: config.opportunity.0,
                    overhead: config.overhead.0,
                    credit: 0,
                    instant: Time::ZERO,
                    owed: 0,
                })
            }
            Schedule::Series { series, offset } => {
                let playback = RatePlayback::new(Arc::clone(series), *offset, zero);
                Self::Stepped(Stepped {
                    playback,
                    base: 0,
                    owed: 0,
                    instant: Time::ZERO,
                })
            }
            Schedule::Constant(rate) => Self::Constant(Fluid {
                rate: *rate,
                busy_since: Time::ZERO,
                sent: 0,
                owed: 0,
            }),
            Schedule::TokenBucket { rate, burst } => Self::Bucket(Bucket::new(*rate, *burst)),
            Schedule::Unlimited => Self::Unlimited(Time::ZERO),
        }
    }

    /// Restart the schedule at `zero`, as of `now`; bytes of the head sent before `now` stay sent.
    ///
    /// Departures before `now` must have been finished.
    pub(crate) fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        match self {
            Self::Opportunities(service) => service.restart(zero, now, offset),
            Self::Stepped(service) => service.restart(zero, now, offset),
            Self::Bucket(service) => service.refill(now),
            Self::Constant(_) | Self::Unlimited(_) => {} // the same at all times
        }
    }

    /// Change the schedule at `now`; sent bytes of the head stay sent.
    pub(crate) fn change(
        &mut self,
        config: &BottleneckConfig,
        zero: Time,
        now: Time,
        offset: Duration,
    ) {
        let owed = self.owed(now);
        *self = Self::new(config, zero);
        self.restart(zero, now, offset);
        self.wake(now);
        self.owe(owed);
    }

    /// Put other opportunities before the recorded ones, if a recording is played. Opportunities before `now` are
    /// lost; sent bytes of the head stay sent.
    pub(crate) fn splice(&mut self, now: Time, head: Head) {
        if let Self::Opportunities(service) = self {
            service.owed = service.owed.saturating_sub(service.sent(now));
            service.playback.splice(head);
            service.begin_at(now);
        }
    }

    /// Return the position in the played recording at `at`.
    pub(crate) fn position(&self, at: Time) -> Duration {
        match self {
            Self::Opportunities(service) => service.playback.position(at),
            _ => Duration::ZERO,
        }
    }

    /// A packet reaches the idle server: the capacity before `now` is lost.
    pub(crate) fn wake(&mut self, now: Time) {
        match self {
            Self::Opportunities(service) => service.wake(now),
            Self::Stepped(service) => service.wake(now),
            Self::Constant(service) => service.wake(now),
            Self::Bucket(service) => service.wake(now),
            Self::Unlimited(instant) => *instant = now,
        }
    }

    /// Return when the server can begin to serve the next packet, `None` if never.
    pub(crate) fn start(&mut self) -> Option<Time> {
        match self {
            Self::Opportunities(service) => service.start(),
            Self::Stepped(service) => Some(service.instant),
            Self::Constant(service) => service.start(),
            Self::Bucket(service) => Some(service.instant),
            Self::Unlimited(instant) => Some(*instant),
        }
    }

    /// A packet becomes the head.
    pub(crate) fn begin(&mut self, size: Bytes) {
        let charged = match self {
            Self::Opportunities(service) => size.0.saturating_add(service.overhead),
            _ => size.0,
        };
        self.owe(u128::from(charged).saturating_mul(UNITS_PER_BYTE));
    }

    /// When the last byte of the head leaves; `None` if it never does.
    pub(crate) fn departure(&mut self) -> Option<Time> {
        match self {
            Self::Opportunities(service) => service.departure(),
            Self::Stepped(service) => service.departure(),
            Self::Constant(service) => service.departure(),
            Self::Bucket(service) => service.departure(),
            Self::Unlimited(instant) => Some(*instant),
        }
    }

    /// The head has left.
    pub(crate) fn finish(&mut self, departure: Time) {
        match self {
            Self::Opportunities(service) => service.finish(departure),
            Self::Stepped(service) => service.finish(departure),
            Self::Constant(service) => service.sent = service.sent.saturating_add(service.owed),
            Self::Bucket(service) => service.finish(departure),
            Self::Unlimited(_) => {}
        }
    }

    /// Return the capacity of the schedule, used or not; of a token bucket, its rate.
    pub(crate) fn offer(&self) -> Offer {
        match self {
            Self::Opportunities(service) => Offer::Opportunities {
                playback: service.playback.clone(),
                each: Bytes(service.opportunity),
            },
            Self::Stepped(service) => Offer::Series(service.playback.clone()),
            Self::Constant(service) => Offer::Constant(service.rate),
            Self::Bucket(service) => Offer::Constant(service.rate),
            Self::Unlimited(_) => Offer::Unlimited,
        }
    }

    /// Return the part of the head that has not left by `now`, in parts of a byte: [`UNITS_PER_BYTE`].
    pub(crate) fn owed(&self, now: Time) -> u128 {
        match self {
            Self::Opportunities(service) => {
                let bytes = service.owed.saturating_sub(service.sent(now));
                u128::from(bytes) * UNITS_PER_BYTE
            }
            Self::Stepped(service) => service.owed(now),
            Self::Constant(service) => service.owed.saturating_sub(service.sent(now)),
            Self::Bucket(service) => service.owed as u128, // never negative
            Self::Unlimited(_) => 0,
        }
    }

    /// Set the unsent part of the head, in parts of a byte.
    pub(crate) fn owe(&mut self, units: u128) {
        match self {
            Self::Opportunities(service) => {
                service.owed = saturate(units.div_ceil(UNITS_PER_BYTE));
            }
            Self::Stepped(service) => service.owed = units,
            Self::Constant(service) => service.owed = units,
            Self::Bucket(service) => service.begin(units),
            Self::Unlimited(_) => {}
        }
    }

    /// Return whether bytes leave in a steady flow, not at instants.
    pub(crate) fn is_steady(&self) -> bool {
        matches!(self, Self::Constant(_) | Self::Stepped(_))
    }

    /// Return the unused share of the opportunities at `now`; the whole where there are none.
    pub(crate) fn left(&self, now: Time) -> Share {
        match self {
            Self::Opportunities(service) => service.left(now),
            _ => Share::WHOLE,
        }
    }

    /// Restricts the opportunities at `now`, when the server has just woken, to a share of them.
    pub(crate) fn restrict(&mut self, now: Time, share: Share) {
        if let Self::Opportunities(service) = self
            && share != Share::WHOLE
        {
            service.restrict(now, share);
        }
    }
}

/// Byte-wise service by opportunities.
#[derive(Clone, Debug)]
pub(crate) struct ByteWise {
    playback: Spliced,
    /// Bytes of one opportunity.
    opportunity: u64,
    /// Bytes charged per packet beyond its size.
    overhead: u64,
    /// Number of the first opportunity that no departed packet has touched.
    next: u64,
    /// Bytes left of the opportunity before `next`, usable only at `instant`.
    credit: u64,
    /// The last departure, or when the head reached the idle server.
    instant: Time,
    /// Bytes of the head to be sent by `credit` and the opportunities from `next` on.
    owed: u64,
}

impl ByteWise {
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

    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.owed = self.owed.saturating_sub(self.sent(now));
        self.playback.restart(zero, offset);
        self.begin_at(now);
    }

    fn begin_at(&mut self, now: Time) {
        self.next = self.playback.first_at(now);
        self.credit = 0;
        self.instant = now;
    }

    fn left(&self, now: Time) -> Share {
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

    fn restrict(&mut self, now: Time, share: Share) {
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

/// Service at a constant rate, as a fluid: within a busy period the n-th byte leaves 8 n / rate after its start.
/// Departures are rounded up to a nanosecond each, from the exact value, so that no error adds up.
#[derive(Clone, Debug)]
pub(crate) struct Fluid {
    rate: BitRate,
    /// Start of the busy period.
    busy_since: Time,
    /// Data sent in the busy period, in parts of a byte, so that frequent stops lose nothing.
    sent: u128,
    /// Size of the head, in parts of a byte.
    owed: u128,
}

impl Fluid {
    fn wake(&mut self, now: Time) {
        self.busy_since = now;
        self.sent = 0;
    }

    /// When the last packet left.
    fn start(&self) -> Option<Time> {
        match self.sent {
            0 => Some(self.busy_since),
            sent => self.at(sent),
        }
    }

    /// Return the part of the head sent before `now`.
    fn sent(&self, now: Time) -> u128 {
        let span = u128::from(now.since(self.busy_since).as_nanos());
        (u128::from(self.rate.0) * span).saturating_sub(self.sent)
    }

    fn departure(&self) -> Option<Time> {
        self.at(self.sent.saturating_add(self.owed))
    }

    /// Return when this many units of the busy period have left.
    fn at(&self, units: u128) -> Option<Time> {
        let rate = u128::from(self.rate.0);
        (rate > 0).then(|| self.busy_since + Duration::from_nanos(saturate(units.div_ceil(rate))))
    }
}

/// A token bucket; exact level in bit/s · ns.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: BitRate,
    burst: i128,
    /// The level at `since`; negative after a packet larger than the bucket.
    tokens: i128,
    since: Time,
    /// The last departure, or when the head reached the idle server.
    instant: Time,
    owed: i128,
}

impl Bucket {
    fn new(rate: BitRate, burst: Bytes) -> Self {
        Self {
            rate,
            burst: units(burst.0),
            tokens: units(burst.0),
            since: Time::ZERO,
            instant: Time::ZERO,
            owed: 0,
        }
    }

    fn refill(&mut self, now: Time) {
        self.tokens = self.burst;
        self.since = now;
        self.instant = now;
    }

    fn wake(&mut self, now: Time) {
        self.instant = self.instant.max(now);
    }

    fn begin(&mut self, units: u128) {
        self.owed = i128::try_from(units).unwrap_or(i128::MAX / 2);
    }

    fn departure(&self) -> Option<Time> {
        let missing = self.owed.min(self.burst) - self.tokens;
        if missing <= 0 {
            return Some(self.instant);
        }
        let wait = (missing as u128).checked_next_multiple_of(u128::from(self.rate.0))?; // none at a rate of zero
        let wait = Duration::from_nanos(saturate(wait / u128::from(self.rate.0)));
        Some((self.since + wait).max(self.instant))
    }

    fn finish(&mut self, departure: Time) {
        let span = i128::from(departure.since(self.since).as_nanos());
        let filled = self
            .tokens
            .saturating_add(span.saturating_mul(i128::from(self.rate.0)));
        self.tokens = filled.min(self.burst).saturating_sub(self.owed);
        self.since = departure;
        self.instant = departure;
    }
}

fn units(bytes: u64) -> i128 {
    (u128::from(bytes) * UNITS_PER_BYTE) as i128 // below 2⁶⁴ · 2³³
}

/// The head leaves when the area under the rate since the start of its service equals its size. Areas are exact: no
/// error adds up.
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
    fn wake(&mut self, now: Time) {
        self.base = self.playback.area(now);
        self.instant = now;
    }

    fn departure(&self) -> Option<Time> {
        let end = self.playback.reaches(self.base.saturating_add(self.owed))?;
        Some(end.max(self.instant))
    }

    fn finish(&mut self, departure: Time) {
        self.base = self.base.saturating_add(self.owed);
        self.instant = departure;
    }

    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.owed = self.owed(now);
        self.playback.restart(zero, offset);
        self.wake(now);
    }

    /// Return the part of the head that has not left by `now`.
    fn owed(&self, now: Time) -> u128 {
        let end = self.base.saturating_add(self.owed);
        end.saturating_sub(self.playback.area(now).max(self.base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_rest_follows_at_the_rate() {
        let mut bucket = Bucket::new(BitRate(8_000_000), Bytes(3000)); // a byte a µs
        let mut departures = Vec::new();
        bucket.wake(Time::from_millis(1));
        for _ in 0..4 {
            bucket.begin(units(1500) as u128);
            let departure = bucket.departure().unwrap();
            bucket.finish(departure);
            departures.push(departure.as_nanos() / 1000);
        }
        assert_eq!(departures, [1000, 1000, 2500, 4000]);
        bucket.wake(Time::from_micros(5000)); // 1000 bytes since
        bucket.begin(units(1000) as u128);
        assert_eq!(bucket.departure(), Some(Time::from_micros(5000)));
        bucket.finish(Time::from_micros(5000));
        bucket.wake(Time::from_millis(100)); // full again
        bucket.begin(units(4000) as u128);
        assert_eq!(
            bucket.departure(),
            Some(Time::from_millis(100)),
            "larger than the bucket"
        );
        bucket.finish(Time::from_millis(100));
        bucket.begin(units(1500) as u128);
        assert_eq!(
            bucket.departure(),
            Some(Time::from_micros(102_500)),
            "1000 bytes of debt"
        );
    }

    #[test]
    fn a_bucket_without_a_rate_serves_only_its_burst() {
        let mut bucket = Bucket::new(BitRate(0), Bytes(1000));
        bucket.begin(units(1000) as u128);
        assert_eq!(bucket.departure(), Some(Time::ZERO));
        bucket.finish(Time::ZERO);
        bucket.begin(units(1) as u128);
        assert_eq!(bucket.departure(), None);
    }
}
