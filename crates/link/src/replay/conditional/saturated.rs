//! Deliveries of a link while it was saturated.

use std::sync::Arc;

use super::{ConditionalConfig, ConditionalModel};
use crate::time::{Duration, Time};
use crate::trace::Repeat;
use crate::units::Bytes;

/// The arrivals of a saturated link: opportunities of equal size, as positions in the recording.
#[derive(Clone, PartialEq, Eq)]
pub struct Saturated {
    arrivals: Vec<u64>,
    period: u64,
    each: Bytes,
}

impl Saturated {
    /// Opportunities of `each` bytes in a recording of length `period`. `None` if there are none, their order is not that of time, one
    /// is not before the recording's end, or they carry nothing.
    pub fn new(
        arrivals: impl IntoIterator<Item = Duration>,
        period: Duration,
        each: Bytes,
    ) -> Option<Self> {
        let arrivals: Vec<u64> = arrivals.into_iter().map(Duration::as_nanos).collect();
        let last = *arrivals.last()?;
        let sorted = arrivals.windows(2).all(|pair| pair[0] <= pair[1]);
        let period = period.as_nanos();
        (sorted && last < period && each.0 > 0).then_some(Self {
            arrivals,
            period,
            each,
        })
    }

    /// Return the number of opportunities.
    pub fn count(&self) -> usize {
        self.arrivals.len()
    }

    /// Length of the recording.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// Return the capacity of an opportunity.
    pub fn each(&self) -> Bytes {
        self.each
    }

    /// Opportunities before a position, counted from the first start.
    fn before(&self, position: u64) -> u64 {
        let (cycle, within) = (position / self.period, position % self.period);
        let through = self.arrivals.partition_point(|&arrival| arrival < within);
        cycle * self.arrivals.len() as u64 + through as u64
    }

    /// Return the place of an opportunity, counted from the first start.
    fn place(&self, index: u64) -> Place {
        let count = self.arrivals.len() as u64;
        Place {
            begin: (index / count).saturating_mul(self.period),
            within: (index % count) as usize,
        }
    }
}

impl std::fmt::Debug for Saturated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, period) = (self.count(), self.period());
        write!(f, "Saturated({count} opportunities in {period})")
    }
}

/// An opportunity of a recording that is played again and again.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Start of the pass through the recording that holds it, ns.
    begin: u64,
    /// Its number in that pass.
    within: usize,
}

/// An opportunity on the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opportunity {
    place: Place,
    /// When it comes.
    pub(super) at: Time,
}

/// A recording on the clock.
#[derive(Clone, Debug)]
pub(crate) struct SaturatedPlayback {
    model: Arc<ConditionalModel>,
    repeat: Repeat,
    zero: Time,
    /// Position in the recording at `zero`, ns.
    start: u64,
    /// Start of the last pass through the recording, ns.
    pass: u64,
}

impl SaturatedPlayback {
    /// The recording of a link, `further` on, at the instant `zero`.
    pub(super) fn new(config: &ConditionalConfig, zero: Time, further: Duration) -> Self {
        let offset = (config.offset + further).as_nanos();
        Self {
            model: Arc::clone(&config.model),
            repeat: config.repeat,
            zero,
            start: match config.repeat {
                Repeat::Looped => offset % config.model.saturated.period,
                Repeat::Once => offset,
            },
            pass: 0,
        }
    }

    /// The position in the recording, below its length where it is looped.
    #[inline]
    pub(super) fn position(&mut self, now: Time) -> Duration {
        let position = self.unrolled(now);
        if self.repeat == Repeat::Once {
            return Duration::from_nanos(position);
        }
        let period = self.model.saturated.period;
        if position < self.pass || position - self.pass >= period {
            self.pass = position - position % period;
        }
        Duration::from_nanos(position - self.pass)
    }

    /// The first opportunity at or after an instant; `None` past the end.
    pub(super) fn first_at(&self, now: Time) -> Option<Opportunity> {
        let index = self.count_before(now);
        self.at(self.model.saturated.place(index))
    }

    /// The opportunity after another one; `None` past the end.
    #[inline]
    pub(super) fn after(&self, opportunity: Opportunity) -> Option<Opportunity> {
        let Place { begin, within } = opportunity.place;
        let saturated = &self.model.saturated;
        self.at(if within + 1 < saturated.arrivals.len() {
            Place {
                begin,
                within: within + 1,
            }
        } else {
            Place {
                begin: begin.saturating_add(saturated.period),
                within: 0,
            }
        })
    }

    #[inline]
    fn at(&self, place: Place) -> Option<Opportunity> {
        if self.repeat == Repeat::Once && place.begin > 0 {
            return None;
        }
        let position = place.begin + self.model.saturated.arrivals[place.within];
        let since = position.saturating_sub(self.start);
        let nanos = self.zero.as_nanos().checked_add(since)?;
        let at = Some(Time::from_nanos(nanos)).filter(|&at| at < Time::MAX)?;
        Some(Opportunity { place, at })
    }

    /// Bytes of the opportunities from `from` up to but excluding `to`.
    pub(crate) fn capacity(&self, from: Time, to: Time) -> Bytes {
        let most = match self.repeat {
            Repeat::Looped => u64::MAX,
            Repeat::Once => self.model.saturated.count() as u64,
        };
        let count = |at: Time| {
            if at < self.zero {
                return self.model.saturated.before(self.start);
            }
            self.count_before(at).min(most)
        };
        let opportunities = count(to).saturating_sub(count(from));
        Bytes(opportunities.saturating_mul(self.model.saturated.each.0))
    }

    /// Opportunities before an instant, from the recording's start on.
    fn count_before(&self, now: Time) -> u64 {
        self.model.saturated.before(self.unrolled(now))
    }

    fn unrolled(&self, now: Time) -> u64 {
        self.start.saturating_add(now.since(self.zero).as_nanos())
    }
}
