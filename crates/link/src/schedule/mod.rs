//! Times at which bytes may leave the bottleneck.

mod light;
mod series;
mod service;

use std::path::PathBuf;
use std::sync::Arc;

use crate::schema::JsonSchema;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Error as Fault;

use crate::language::LanguageError;
use crate::radio::Potential;
use crate::replay::SaturatedPlayback;
use crate::time::{Duration, Time};
use crate::trace::{Repeat, Trace};
use crate::units::{BitRate, Bytes, MTU};
pub(crate) use light::{Head, Spliced};
pub use light::{LightRow, LightRows};
pub use series::RateSeries;
pub(crate) use series::{RatePlayback, UNITS_PER_BYTE};
pub(crate) use service::Service;

/// Times at which bytes may leave.
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
        /// Start position in the series. A looped series takes it modulo its length.
        offset: Duration,
    },
    /// A bucket that fills with `rate` up to `burst` bytes and is full at the start: a packet leaves whole as soon as
    /// the bucket holds its size, as with the token bucket filter of Linux. A packet larger than `burst` leaves when
    /// the bucket is full, and makes its level negative.
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
        #[schemars(extend("format" = "trace"))]
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
    #[schemars(extend("table" = false, "idle" = "", "text" = "unlimited"))]
    Unlimited,
}

impl ScheduleTable {
    /// Return the schedule; `read` reads the file of a trace.
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

/// Playback of a recording's opportunities, numbered from the start of the recording.
#[derive(Clone, Debug)]
pub struct Playback {
    trace: Arc<Trace>,
    repeat: Repeat,
    offset: Duration,
    zero: Time,
    /// Position in the recording at `zero`, ns.
    start: u64,
    /// Position of the last search; the next one mostly ends close to it.
    cycle: u64,
    run: usize,
}

impl Playback {
    /// Play the recording from position `offset` on at `zero`. Nothing is offered before `zero`.
    pub fn new(trace: Arc<Trace>, repeat: Repeat, offset: Duration, zero: Time) -> Self {
        let mut playback = Self {
            trace,
            repeat,
            offset,
            zero,
            start: 0,
            cycle: 0,
            run: 0,
        };
        playback.restart(zero, Duration::ZERO);
        playback
    }

    /// Return the position in the recording at an instant, below the period if looped.
    pub fn position(&self, at: Time) -> Duration {
        let position = self.start.saturating_add(at.since(self.zero).as_nanos());
        Duration::from_nanos(match self.repeat {
            Repeat::Looped => position % self.trace.period(),
            Repeat::Once => position,
        })
    }

    /// Restart the recording at `zero`, from position `offset` plus `further`.
    pub fn restart(&mut self, zero: Time, further: Duration) {
        let start = (self.offset + further).as_nanos();
        self.zero = zero;
        self.start = match self.repeat {
            Repeat::Looped => start % self.trace.period(),
            Repeat::Once => start,
        };
    }

    /// Return the number of the first opportunity at or after `at`.
    pub fn first_at(&self, at: Time) -> u64 {
        let position = self.start.saturating_add(at.since(self.zero).as_nanos());
        self.trace.count_before(position, self.repeat)
    }

    /// Return the instant of an opportunity; `None` past the end of a recording played once.
    pub fn time_of(&mut self, index: u64) -> Option<Time> {
        let total = self.trace.total();
        let cycle_start = self.cycle.saturating_mul(total);
        let within = if index >= cycle_start && index - cycle_start < total {
            index - cycle_start
        } else {
            self.cycle = index / total;
            index % total
        };
        if self.repeat == Repeat::Once && self.cycle > 0 {
            self.cycle = 0;
            return None;
        }
        if !self.trace.run_holds(self.run, within) {
            self.run = if self.trace.run_holds(self.run + 1, within) {
                self.run + 1
            } else {
                self.trace.run_of(within)
            };
        }
        let position = self.trace.looped_position(self.cycle, self.run);
        Some(self.zero + Duration::from_nanos(position.saturating_sub(self.start)))
    }
}

/// Capacity of a stage with a queue over time, used or not.
#[derive(Clone, Debug)]
pub(crate) enum Offer {
    Opportunities { playback: Spliced, each: Bytes },
    Series(RatePlayback),
    Constant(BitRate),
    Unlimited,
    Radio(Box<Potential>),
    Saturated(Box<SaturatedPlayback>),
}

impl Offer {
    /// Capacity during an outage.
    pub(crate) const NOTHING: Self = Self::Constant(BitRate(0));

    /// Return the bytes offered from `from` up to but excluding `to`; `None` without limit.
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
            Self::Radio(potential) => Some(potential.capacity(from, to)),
            Self::Saturated(playback) => Some(playback.capacity(from, to)),
        }
    }

    /// Return the capacity with fractions of bytes; a large number without limit.
    pub(crate) fn potential(&self, from: Time, to: Time) -> f64 {
        const PER_BYTE: f64 = UNITS_PER_BYTE as f64;
        match self {
            Self::Series(playback) => {
                playback.area(to).saturating_sub(playback.area(from)) as f64 / PER_BYTE
            }
            Self::Constant(rate) => rate.0 as f64 * to.since(from).as_nanos() as f64 / PER_BYTE,
            Self::Unlimited => to.since(from).as_nanos() as f64 * 1e9,
            _ => self.capacity(from, to).map_or(0.0, |it| it.0 as f64),
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
    fn searching_forwards_backwards_and_far_ahead_agrees() {
        let millis = (1..=50).map(|step| step * step % 97 + step * 97);
        let trace = Arc::new(Trace::from_millis(millis).unwrap());
        let looped = || Playback::new(trace.clone(), Repeat::Looped, Duration::ZERO, ms(0));
        let mut warm = looped();
        for index in [0, 1, 2, 49, 50, 51, 7, 1000, 999, 1049, 3, 2_000_000] {
            assert_eq!(
                warm.time_of(index),
                looped().time_of(index),
                "opportunity {index}"
            );
        }
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
