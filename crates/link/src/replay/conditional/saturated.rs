//! What a link delivered while it was saturated.

use std::sync::Arc;

use super::{ConditionalConfig, ConditionalModel};
use crate::schedule::Repeat;
use crate::time::{Duration, Time};
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

    /// How many opportunities there are.
    pub fn count(&self) -> usize {
        self.arrivals.len()
    }

    /// Length of the recording.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// What an opportunity carries.
    pub fn each(&self) -> Bytes {
        self.each
    }

    /// Opportunities before a position, counted from the first start.
    fn before(&self, position: u64) -> u64 {
        let (cycle, within) = (position / self.period, position % self.period);
        let through = self.arrivals.partition_point(|&arrival| arrival < within);
        cycle * self.arrivals.len() as u64 + through as u64
    }

    /// Position of an opportunity, counted from the first start.
    fn position(&self, index: u64) -> u64 {
        let count = self.arrivals.len() as u64;
        (index / count).saturating_mul(self.period) + self.arrivals[(index % count) as usize]
    }
}

impl std::fmt::Debug for Saturated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, period) = (self.count(), self.period());
        write!(f, "Saturated({count} opportunities in {period})")
    }
}

/// A recording set against the clock.
#[derive(Clone, Debug)]
pub(crate) struct SaturatedPlayback {
    model: Arc<ConditionalModel>,
    repeat: Repeat,
    zero: Time,
    /// Position in the recording at `zero`, ns.
    start: u64,
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
        }
    }

    /// The position in the recording, below its length where it is looped.
    pub(super) fn position(&self, now: Time) -> Duration {
        let position = self.unrolled(now);
        Duration::from_nanos(match self.repeat {
            Repeat::Looped => position % self.model.saturated.period,
            Repeat::Once => position,
        })
    }

    /// Number of the first opportunity at or after an instant.
    pub(super) fn first_at(&self, now: Time) -> u64 {
        self.model.saturated.before(self.unrolled(now))
    }

    /// The instant of an opportunity; `None` past the end.
    pub(super) fn time_of(&self, index: u64) -> Option<Time> {
        if self.repeat == Repeat::Once && index >= self.model.saturated.count() as u64 {
            return None;
        }
        let since = self
            .model
            .saturated
            .position(index)
            .saturating_sub(self.start);
        let nanos = self.zero.as_nanos().checked_add(since)?;
        Some(Time::from_nanos(nanos)).filter(|&instant| instant < Time::MAX)
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
            self.first_at(at).min(most)
        };
        let opportunities = count(to).saturating_sub(count(from));
        Bytes(opportunities.saturating_mul(self.model.saturated.each.0))
    }

    fn unrolled(&self, now: Time) -> u64 {
        self.start.saturating_add(now.since(self.zero).as_nanos())
    }
}
