//! The recorded opportunities of a saturated link, and their playback.

use std::sync::Arc;

use super::states::seek;
use super::{ConditionalConfig, ConditionalModel};
use crate::time::{Duration, Time};
use crate::trace::Repeat;
use crate::units::Bytes;

/// Opportunities of a saturated link, all of the same size.
#[derive(Clone, PartialEq, Eq)]
pub struct Saturated {
    /// Positions in the recording, ns, not decreasing.
    positions: Vec<u64>,
    /// Length of the recording, ns.
    period: u64,
    size: Bytes,
}

impl Saturated {
    /// Return opportunities of `size` bytes at `positions` in a recording of length `period`.
    ///
    /// `None` if there are none, they are out of order or not before the end of the recording, or `size` is 0.
    pub fn new(
        positions: impl IntoIterator<Item = Duration>,
        period: Duration,
        size: Bytes,
    ) -> Option<Self> {
        let positions: Vec<u64> = positions.into_iter().map(Duration::as_nanos).collect();
        let last = *positions.last()?;
        let sorted = positions.windows(2).all(|pair| pair[0] <= pair[1]);
        let period = period.as_nanos();
        (sorted && last < period && size.0 > 0).then_some(Self {
            positions,
            period,
            size,
        })
    }

    /// Return the number of opportunities.
    pub fn count(&self) -> usize {
        self.positions.len()
    }

    /// Return the length of the recording.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// Return the capacity of an opportunity.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Return the number of opportunities before an unwrapped position.
    fn before(&self, position: u64) -> u64 {
        let (cycle, position) = (position / self.period, position % self.period);
        let before = self.positions.partition_point(|&other| other < position);
        cycle * self.positions.len() as u64 + before as u64
    }
}

impl std::fmt::Debug for Saturated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, period) = (self.count(), self.period());
        write!(f, "Saturated({count} opportunities in {period})")
    }
}

/// The index of an opportunity in a looped recording.
#[derive(Clone, Copy, Debug)]
struct Index {
    /// Unwrapped position at which its cycle begins, ns.
    cycle: u64,
    /// Index in the cycle.
    within: usize,
}

/// An opportunity of the playback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opportunity {
    index: Index,
    pub(super) at: Time,
}

/// The playback of a recording. Unwrapped positions continue to rise from one cycle of a looped recording to the next.
#[derive(Clone, Debug)]
pub(crate) struct SaturatedPlayback {
    model: Arc<ConditionalModel>,
    repeat: Repeat,
    zero: Time,
    /// Position in the recording at `zero`, ns.
    start: u64,
    /// Unwrapped position at which the cycle of the last call begins, ns.
    cycle: u64,
    /// Number of opportunities of a cycle before the last search.
    hint: usize,
}

impl SaturatedPlayback {
    /// Start at the instant `zero`, with `offset` added to the configured position.
    pub(super) fn new(config: &ConditionalConfig, zero: Time, offset: Duration) -> Self {
        let offset = (config.offset + offset).as_nanos();
        Self {
            model: Arc::clone(&config.model),
            repeat: config.repeat,
            zero,
            start: match config.repeat {
                Repeat::Looped => offset % config.model.saturated.period,
                Repeat::Once => offset,
            },
            cycle: 0,
            hint: 0,
        }
    }

    /// Return the position in the recording at `now`, wrapped if it is looped.
    #[inline]
    pub(super) fn position(&mut self, now: Time) -> Duration {
        let position = self.unwrapped(now);
        let period = self.model.saturated.period;
        if self.repeat == Repeat::Looped
            && (position < self.cycle || position - self.cycle >= period)
        {
            self.cycle = position - position % period;
        }
        Duration::from_nanos(position - self.cycle)
    }

    /// Return the first opportunity at or after `now`; `None` past the end.
    pub(super) fn first_at(&mut self, now: Time) -> Option<Opportunity> {
        let position = self.position(now).as_nanos();
        let positions = &self.model.saturated.positions;
        let within = seek(positions, &mut self.hint, |&other| other < position);
        let cycle = self.cycle;
        match within.checked_sub(1) {
            Some(last) if within == positions.len() => self.after_index(Index {
                cycle,
                within: last,
            }),
            _ => self.opportunity(Index { cycle, within }),
        }
    }

    /// Return the next opportunity after another one; `None` past the end.
    #[inline]
    pub(super) fn after(&self, opportunity: Opportunity) -> Option<Opportunity> {
        self.after_index(opportunity.index)
    }

    #[inline]
    fn after_index(&self, mut index: Index) -> Option<Opportunity> {
        let saturated = &self.model.saturated;
        index.within += 1;
        if index.within == saturated.positions.len() {
            index.cycle = index.cycle.saturating_add(saturated.period);
            index.within = 0;
        }
        self.opportunity(index)
    }

    #[inline]
    fn opportunity(&self, index: Index) -> Option<Opportunity> {
        if self.repeat == Repeat::Once && index.cycle > 0 {
            return None;
        }
        let position = index.cycle + self.model.saturated.positions[index.within];
        let since = position.saturating_sub(self.start);
        let nanos = self.zero.as_nanos().checked_add(since)?;
        let at = Some(Time::from_nanos(nanos)).filter(|&at| at < Time::MAX)?;
        Some(Opportunity { index, at })
    }

    /// Return the bytes of the opportunities from `from` up to but excluding `to`.
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
        Bytes(opportunities.saturating_mul(self.model.saturated.size.0))
    }

    /// Return the number of opportunities before an instant, from the start of the first cycle on.
    fn count_before(&self, now: Time) -> u64 {
        self.model.saturated.before(self.unwrapped(now))
    }

    /// Return what [`count_before`](Self::count_before) returns. hint: see [`seek`].
    #[inline]
    pub(super) fn passed(&mut self, now: Time, hint: &mut usize) -> u64 {
        let position = self.position(now).as_nanos();
        let saturated = &self.model.saturated;
        let within = seek(&saturated.positions, hint, |&other| other < position);
        self.cycle / saturated.period * saturated.positions.len() as u64 + within as u64
    }

    /// Return the time of the opportunity with a number, from the start of the first cycle on; `None` past the end.
    pub(super) fn time_of(&self, number: u64) -> Option<Time> {
        let saturated = &self.model.saturated;
        let count = saturated.positions.len() as u64;
        let index = Index {
            cycle: (number / count).saturating_mul(saturated.period),
            within: (number % count) as usize,
        };
        Some(self.opportunity(index)?.at)
    }

    /// Return the unwrapped position at an instant.
    fn unwrapped(&self, now: Time) -> u64 {
        self.start.saturating_add(now.since(self.zero).as_nanos())
    }
}
