//! When bytes may leave the bottleneck.

mod bucket;
mod fluid;
mod light;
mod opportunities;
mod playback;
mod series;
mod spliced;
mod stepped;

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Error as Fault;

use crate::bottleneck::BottleneckConfig;
use crate::language::LanguageError;
use crate::share::Share;
use crate::time::{Duration, Time};
use crate::trace::{Repeat, Trace};
use crate::units::{BitRate, Bytes, MTU};
use bucket::Bucket;
use fluid::Fluid;
pub use light::{LightRow, LightRows};
use opportunities::ByteWise;
pub use playback::Playback;
pub use series::RateSeries;
pub(crate) use series::{RatePlayback, UNITS_PER_BYTE};
pub(crate) use spliced::{Head, Spliced};
use stepped::Stepped;

/// When bytes may leave.
///
/// ```
/// use std::sync::Arc;
/// use cellbed_link::{BitRate, Bytes, Schedule, Trace};
///
/// let recorded = Arc::new(Trace::parse(&b"2\n5\n"[..])?);
/// let schedules = [
///     Schedule::looped(recorded),
///     Schedule::Constant(BitRate(12_000_000)),
///     Schedule::TokenBucket { rate: BitRate(8_000_000), burst: Bytes(15_000) },
///     Schedule::Unlimited,
/// ];
/// # Ok::<(), cellbed_link::TraceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The packet delivery opportunities of a recording.
    Trace {
        /// The recording.
        trace: Arc<Trace>,
        /// Continuation after its end.
        repeat: Repeat,
        /// Start position in the recording. A looped recording takes it modulo its length.
        offset: Duration,
    },
    /// A steady flow of bytes without any opportunities: a packet of `s` bytes takes `8 s / rate` from the moment it
    /// reaches the head of the queue.
    Constant(BitRate),
    /// A rate that changes in steps, as a steady flow of bytes between them.
    Series {
        /// The steps.
        series: Arc<RateSeries>,
        /// Start position in the series. A looped one takes it modulo its length.
        offset: Duration,
    },
    /// A bucket that fills with `rate` up to `burst` bytes and is full at the start: a packet leaves whole as soon as
    /// the bucket holds its size, as with the token bucket filter of Linux. One larger than `burst` leaves when the
    /// bucket is full and leaves it that much below empty.
    TokenBucket {
        /// Fill rate of the bucket.
        rate: BitRate,
        /// Capacity of the bucket.
        burst: Bytes,
    },
    /// Packets pass at once.
    Unlimited,
}

impl Schedule {
    /// A recording in a loop, from its start.
    pub fn looped(trace: Arc<Trace>) -> Self {
        Self::Trace {
            trace,
            repeat: Repeat::Looped,
            offset: Duration::ZERO,
        }
    }

    /// Return the transmission time of one [`MTU`] at the mean rate; `None` without a limit, or at no rate.
    pub(crate) fn packet_time(&self, opportunity: Bytes, overhead: Bytes) -> Option<Duration> {
        match self {
            Self::Trace { trace, .. } => {
                let carried = trace.opportunities().carrying(opportunity);
                BitRate::of(carried, trace.duration()).time_for(MTU + overhead)
            }
            Self::Series { series, .. } => series.mean_rate().time_for(MTU),
            Self::Constant(rate) | Self::TokenBucket { rate, .. } => rate.time_for(MTU),
            Self::Unlimited => None,
        }
    }

    /// A recording played once, from its start.
    pub fn once(trace: Arc<Trace>) -> Self {
        Self::Trace {
            trace,
            repeat: Repeat::Once,
            offset: Duration::ZERO,
        }
    }
}

/// A schedule in its serialised form, which names the file of a trace.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum ScheduleTable {
    /// The opportunities of a trace.
    #[schemars(extend("table" = false, "text" = "{path}{offset_ns: from %}, {looped:looped|once}"))]
    Trace {
        path: PathBuf,
        looped: Repeat,
        #[serde(rename = "offset_ns", default)]
        offset: Duration,
    },
    /// A constant rate.
    #[schemars(extend("table" = false, "text" = "{bit_rate}"))]
    Constant {
        #[serde(rename = "bit_rate")]
        rate: BitRate,
    },
    /// A rate that holds until the next one.
    #[schemars(extend(
        "text" = "{steps.least} to {steps.most} in {steps.count} steps{offset_ns: from %}{period_ns:, again after %}"
    ))]
    Series {
        /// Pairs of a time and the rate from then on.
        #[schemars(example = "12 Mbit/s", extend("format" = "steps of rate", "least" = "0 bit/s", "most" = "1000 Gbit/s"))]
        steps: Vec<(Duration, BitRate)>,
        /// Period of the series; left out: its last rate stays.
        #[serde(rename = "period_ns")]
        #[schemars(extend("least" = "1 ms", "most" = "24 h"))]
        period: Option<Duration>,
        #[serde(rename = "offset_ns", default)]
        offset: Duration,
    },
    /// A rate with bursts: a bucket of tokens fills at the rate, and packets with tokens pass at once.
    #[schemars(extend("text" = "{bit_rate} with bursts of {burst_bytes}"))]
    TokenBucket {
        /// Rate at which the bucket fills.
        #[serde(rename = "bit_rate")]
        #[schemars(example = "12 Mbit/s", extend("least" = "1 kbit/s", "most" = "1000 Gbit/s"))]
        rate: BitRate,
        /// Size of the bucket, full at the start.
        #[serde(rename = "burst_bytes")]
        #[schemars(extend("default" = 65_536, "least" = "1500 B", "most" = "1 GB"))]
        burst: Bytes,
    },
    /// Packets pass at once.
    #[schemars(extend("table" = false, "text" = "unlimited"))]
    Unlimited,
}

impl ScheduleTable {
    /// The schedule; `read` reads the file of a trace.
    pub(crate) fn build(
        self,
        read: impl FnOnce(PathBuf) -> Result<Arc<Trace>, LanguageError>,
    ) -> Result<Schedule, LanguageError> {
        Ok(match self {
            Self::Trace {
                path,
                looped,
                offset,
            } => Schedule::Trace {
                trace: read(path)?,
                repeat: looped,
                offset,
            },
            Self::Constant { rate } => Schedule::Constant(rate),
            Self::Series {
                steps,
                period,
                offset,
            } => {
                let series = RateSeries::new(steps, period).ok_or_else(|| {
                    Fault::custom(
                        "the times of a rate series must begin at 0 and rise up to its period",
                    )
                })?;
                Schedule::Series {
                    series: Arc::new(series),
                    offset,
                }
            }
            Self::TokenBucket { rate, burst } => Schedule::TokenBucket { rate, burst },
            Self::Unlimited => Schedule::Unlimited,
        })
    }
}

/// Service of the packet at the head of a queue: when its last byte leaves.
///
/// A server holds one packet at a time, the head; without stepping through time, so that a gap of any length costs one
/// search.
pub(crate) trait Server {
    /// Plays the schedule from `zero` on, as of `now`; what it sent of the head before `now` stays sent.
    ///
    /// Departures before `now` must have been finished.
    fn restart(&mut self, _zero: Time, _now: Time, _offset: Duration) {} // the same at all times

    /// A packet reaches the idle server: what was offered before `now` is lost.
    fn wake(&mut self, now: Time);

    /// When the server turns to the next packet, if there is one: when it has something to serve it with.
    fn start(&mut self) -> Option<Time>;

    /// When the last byte of the head leaves; `None` if it never does.
    fn departure(&mut self) -> Option<Time>;

    /// The head has left.
    fn finish(&mut self, departure: Time);

    /// Return the capacity of the schedule, used or not. Of a token bucket that is what flows in.
    fn offer(&self) -> Offer;

    /// Return the part of the head that has not left by `now`, in parts of a byte: [`UNITS_PER_BYTE`].
    fn owed(&self, now: Time) -> u128;

    /// Sets what of the head has not been sent, in parts of a byte.
    fn owe(&mut self, units: u128);

    /// Bytes charged for a packet beyond its size.
    fn overhead(&self) -> u64 {
        0
    }

    /// Return whether bytes leave in a steady flow, not at instants.
    fn is_steady(&self) -> bool {
        false
    }
}

/// Service without limit from this time on, at which the schedule changed: packets that wait leave at once.
#[derive(Clone, Debug)]
pub(crate) struct Unlimited(Time);

impl Server for Unlimited {
    fn wake(&mut self, now: Time) {
        self.0 = now;
    }

    fn start(&mut self) -> Option<Time> {
        Some(self.0)
    }

    fn departure(&mut self) -> Option<Time> {
        Some(self.0)
    }

    fn finish(&mut self, _departure: Time) {}

    fn offer(&self) -> Offer {
        Offer::Unlimited
    }

    fn owed(&self, _now: Time) -> u128 {
        0
    }

    fn owe(&mut self, _units: u128) {}
}

/// The server of a schedule.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    Opportunities(ByteWise),
    Stepped(Stepped),
    Constant(Fluid),
    Bucket(Bucket),
    Unlimited(Unlimited),
}

/// Calls a method of the server that it is.
macro_rules! dispatch {
    ($on:expr, $it:ident => $call:expr) => {
        match $on {
            Service::Opportunities($it) => $call,
            Service::Stepped($it) => $call,
            Service::Constant($it) => $call,
            Service::Bucket($it) => $call,
            Service::Unlimited($it) => $call,
        }
    };
}

impl Service {
    pub(crate) fn new(config: &BottleneckConfig, zero: Time) -> Self {
        match &config.schedule {
            Schedule::Trace {
                trace,
                repeat,
                offset,
            } => Self::Opportunities(ByteWise::new(trace, *repeat, *offset, config, zero)),
            Schedule::Series { series, offset } => {
                let playback = RatePlayback::new(Arc::clone(series), *offset, zero);
                Self::Stepped(Stepped::new(playback))
            }
            Schedule::Constant(rate) => Self::Constant(Fluid::new(*rate)),
            Schedule::TokenBucket { rate, burst } => Self::Bucket(Bucket::new(*rate, *burst)),
            Schedule::Unlimited => Self::Unlimited(Unlimited(Time::ZERO)),
        }
    }

    /// Serves by another schedule from `now` on; what was sent of the head stays sent.
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

    /// Lays other opportunities in front of the recorded ones, where one is played. What was offered before `now`
    /// is lost; what was sent of the head stays sent.
    pub(crate) fn splice(&mut self, now: Time, head: Head) {
        if let Self::Opportunities(service) = self {
            service.splice(now, head);
        }
    }

    /// The position at an instant in the recording that is played.
    pub(crate) fn position(&self, at: Time) -> Duration {
        match self {
            Self::Opportunities(service) => service.playback.position(at),
            _ => Duration::ZERO,
        }
    }

    /// A packet becomes the head.
    pub(crate) fn begin(&mut self, size: Bytes) {
        let charged = size.0.saturating_add(self.overhead());
        self.owe(u128::from(charged).saturating_mul(UNITS_PER_BYTE));
    }

    /// The share of the opportunities at `now` that were not used. A steady flow offers nothing at an instant.
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

impl Server for Service {
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        dispatch!(self, service => service.restart(zero, now, offset));
    }

    fn wake(&mut self, now: Time) {
        dispatch!(self, service => service.wake(now));
    }

    fn start(&mut self) -> Option<Time> {
        dispatch!(self, service => service.start())
    }

    fn departure(&mut self) -> Option<Time> {
        dispatch!(self, service => service.departure())
    }

    fn finish(&mut self, departure: Time) {
        dispatch!(self, service => service.finish(departure));
    }

    fn offer(&self) -> Offer {
        dispatch!(self, service => service.offer())
    }

    fn owed(&self, now: Time) -> u128 {
        dispatch!(self, service => service.owed(now))
    }

    fn owe(&mut self, units: u128) {
        dispatch!(self, service => service.owe(units));
    }

    fn overhead(&self) -> u64 {
        dispatch!(self, service => service.overhead())
    }

    fn is_steady(&self) -> bool {
        dispatch!(self, service => service.is_steady())
    }
}

/// A schedule on the clock, with the bytes that it offers.
#[derive(Clone, Debug)]
pub(crate) enum Offer {
    Opportunities { playback: Spliced, each: Bytes },
    Series(RatePlayback),
    Constant(BitRate),
    Unlimited,
}

impl Offer {
    /// Bytes offered from `from` up to but excluding `to`; `None` without limit.
    pub(crate) fn capacity(&self, from: Time, to: Time) -> Option<Bytes> {
        match self {
            Self::Opportunities { playback, each } => {
                Some(playback.opportunities(from, to).carrying(*each))
            }
            Self::Series(playback) => Some(playback.capacity(from, to)),
            Self::Constant(rate) => {
                // As a difference of running totals, so that rounding does not add up over the bins.
                let until = |at: Time| rate.bytes_in(at.since(Time::ZERO)).0;
                Some(Bytes(until(to).saturating_sub(until(from))))
            }
            Self::Unlimited => None,
        }
    }

    /// The same with fractions of bytes; a large number without limit.
    pub(crate) fn potential(&self, from: Time, to: Time) -> f64 {
        const PER_BYTE: f64 = UNITS_PER_BYTE as f64;
        match self {
            Self::Opportunities { .. } => self.capacity(from, to).map_or(0.0, |it| it.0 as f64),
            Self::Series(playback) => {
                playback.area(to).saturating_sub(playback.area(from)) as f64 / PER_BYTE
            }
            Self::Constant(rate) => rate.0 as f64 * to.since(from).as_nanos() as f64 / PER_BYTE,
            Self::Unlimited => to.since(from).as_nanos() as f64 * 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_constant_rate_offers_the_same_in_every_cut() {
        let offer = Offer::Constant(BitRate(1_000_001));
        let whole = offer.capacity(ms(3), ms(1003)).unwrap().0;
        let cut: u64 = (3..1003)
            .map(|at| offer.capacity(ms(at), ms(at + 1)).unwrap().0)
            .sum();
        assert_eq!(whole, cut);
    }
}
