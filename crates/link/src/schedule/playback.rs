//! The opportunities of a recording on the clock.

use std::sync::Arc;

use crate::time::{Duration, Time};
use crate::trace::{Repeat, Trace};

/// The opportunities of a recording on the clock. They are numbered from the start of the recording.
#[derive(Clone, Debug)]
pub struct Playback {
    trace: Arc<Trace>,
    repeat: Repeat,
    offset: Duration,
    zero: Time,
    /// Position in the recording at `zero`, ns.
    start: u64,
    /// Position of the last search, since the next one mostly ends beside it.
    cycle: u64,
    run: usize,
}

impl Playback {
    /// The recording from position `offset` on, at the instant `zero`. Nothing is offered before that.
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

    /// The position in the recording at an instant; in a looped one below its period.
    pub fn position(&self, at: Time) -> Duration {
        let position = self.start.saturating_add(at.since(self.zero).as_nanos());
        Duration::from_nanos(match self.repeat {
            Repeat::Looped => position % self.trace.period(),
            Repeat::Once => position,
        })
    }

    /// The recording from position `offset` plus `further` on, at the instant `zero`.
    pub fn restart(&mut self, zero: Time, further: Duration) {
        let start = (self.offset + further).as_nanos();
        self.zero = zero;
        self.start = match self.repeat {
            Repeat::Looped => start % self.trace.period(),
            Repeat::Once => start,
        };
    }

    /// Number of the first opportunity at or after `at`.
    pub fn first_at(&self, at: Time) -> u64 {
        let position = self.start.saturating_add(at.since(self.zero).as_nanos());
        self.trace.count_before(position, self.repeat)
    }

    /// The instant of an opportunity; `None` past the end of a recording that is played once.
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
}
