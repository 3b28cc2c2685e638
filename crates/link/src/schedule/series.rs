//! A rate that changes over time, in steps.

use std::sync::Arc;

use crate::time::{Duration, NANOS_PER_SEC, Time};
use crate::units::{BitRate, Bytes, saturate};

/// Size of a byte in the unit of areas below: bit/s · ns.
pub(crate) const UNITS_PER_BYTE: u128 = 8 * NANOS_PER_SEC as u128;

/// A rate that holds until the next step, looped or with the last step for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSeries {
    /// (start, rate, area before the start), the first at 0, strictly increasing in time.
    steps: Vec<(u64, u64, u128)>,
    /// Length and area of a cycle, if looped.
    cycle: Option<(u64, u128)>,
}

impl RateSeries {
    /// Return the series of `steps`, each (time since the start, rate from then on), repeated after the `period`, if
    /// any. `None` if there is no step, the first is not at zero, the times do not increase, or the period does not
    /// exceed the last time.
    pub fn new(steps: Vec<(Duration, BitRate)>, period: Option<Duration>) -> Option<Self> {
        let starts_at_zero = steps.first().is_some_and(|(start, _)| start.is_zero());
        let increasing = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let (last, _) = *steps.last()?;
        if !starts_at_zero || !increasing || period.is_some_and(|period| period <= last) {
            return None;
        }
        let mut series = Self {
            steps: Vec::with_capacity(steps.len()),
            cycle: None,
        };
        let mut area = 0u128;
        for (index, &(start, rate)) in steps.iter().enumerate() {
            series.steps.push((start.as_nanos(), rate.0, area));
            let end = steps.get(index + 1).map(|&(end, _)| end).or(period);
            if let Some(end) = end {
                let width = u128::from(end.saturating_sub(start).as_nanos());
                area = area.saturating_add(width.saturating_mul(u128::from(rate.0)));
            }
        }
        series.cycle = period.map(|period| (period.as_nanos(), area));
        Some(series)
    }

    /// Return the mean rate of a cycle; without a period, up to the last step.
    pub fn mean_rate(&self) -> BitRate {
        let (last, rate, before) = self.steps[self.steps.len() - 1];
        let (length, area) = self.cycle.unwrap_or((last, before));
        let mean = area.checked_div(u128::from(length));
        BitRate(mean.map_or(rate, saturate))
    }

    /// Return the area under the rate from the start up to `position` (ns).
    fn area(&self, position: u64) -> u128 {
        let (cycles, within) = match self.cycle {
            Some((period, area)) => (
                u128::from(position / period).saturating_mul(area),
                position % period,
            ),
            None => (0, position),
        };
        let next = self.steps.partition_point(|&(start, ..)| start <= within);
        let (start, rate, before) = self.steps[next - 1]; // the first step is at 0
        let part = u128::from(within - start).saturating_mul(u128::from(rate));
        cycles.saturating_add(before).saturating_add(part)
    }

    /// Return the first position (ns) where the area reaches `area`; `None` if never.
    fn position(&self, area: u128) -> Option<u64> {
        if area == 0 {
            return Some(0);
        }
        let (cycles, rest) = match self.cycle {
            Some((_, 0)) => return None,
            Some((_, each)) => ((area - 1) / each, (area - 1) % each + 1),
            None => (0, area),
        };
        // The last step that begins below the wanted area has a rate above zero, unless it is the last of all.
        let next = self.steps.partition_point(|&(.., before)| before < rest);
        let (start, rate, before) = self.steps[next - 1]; // the first step has no area before it
        if rate == 0 {
            return None;
        }
        let period = self.cycle.map_or(0, |(period, _)| period);
        let within = u128::from(start).saturating_add((rest - before).div_ceil(u128::from(rate)));
        Some(saturate(
            cycles
                .saturating_mul(u128::from(period))
                .saturating_add(within),
        ))
    }
}

/// Playback of a series.
#[derive(Clone, Debug)]
pub(crate) struct RatePlayback {
    series: Arc<RateSeries>,
    offset: Duration,
    zero: Time,
    /// Position in the series at `zero`, ns.
    start: u64,
}

impl RatePlayback {
    pub(crate) fn new(series: Arc<RateSeries>, offset: Duration, zero: Time) -> Self {
        let mut playback = Self {
            series,
            offset,
            zero,
            start: 0,
        };
        playback.restart(zero, Duration::ZERO);
        playback
    }

    pub(crate) fn restart(&mut self, zero: Time, further: Duration) {
        let start = (self.offset + further).as_nanos();
        self.zero = zero;
        self.start = match self.series.cycle {
            Some((period, _)) => start % period,
            None => start,
        };
    }

    /// Return the area up to `at`; it begins at `zero`.
    pub(crate) fn area(&self, at: Time) -> u128 {
        let position = self.start.saturating_add(at.since(self.zero).as_nanos());
        self.series.area(position)
    }

    /// Return the first instant at which the area reaches `area`.
    pub(crate) fn reaches(&self, area: u128) -> Option<Time> {
        let position = self.series.position(area)?;
        Some(self.zero + Duration::from_nanos(position.saturating_sub(self.start)))
    }

    /// Return whole bytes offered from `from` up to `to`, a difference of running totals.
    pub(crate) fn capacity(&self, from: Time, to: Time) -> Bytes {
        let until = |at: Time| self.area(at) / UNITS_PER_BYTE;
        Bytes(saturate(until(to).saturating_sub(until(from))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(steps: &[(u64, u64)], period: Option<u64>) -> Option<RateSeries> {
        let steps = steps
            .iter()
            .map(|&(millis, rate)| (Duration::from_millis(millis), BitRate(rate)))
            .collect();
        RateSeries::new(steps, period.map(Duration::from_millis))
    }

    #[test]
    fn the_last_step_holds_for_ever() {
        let open = series(&[(0, 0), (10, 8_000_000)], None).unwrap();
        assert_eq!(open.position(1000 * UNITS_PER_BYTE), Some(11_000_000));
        let dead = series(&[(0, 8_000_000), (10, 0)], None).unwrap();
        assert_eq!(dead.position(10_000 * UNITS_PER_BYTE), Some(10_000_000));
        assert_eq!(dead.position(10_001 * UNITS_PER_BYTE), None);
        let silent = series(&[(0, 0)], Some(10)).unwrap();
        assert_eq!(silent.position(1), None);
    }

    #[test]
    fn what_is_no_series_is_refused() {
        assert!(series(&[], None).is_none());
        assert!(series(&[(1, 5)], None).is_none());
        assert!(series(&[(0, 5), (2, 6), (2, 7)], None).is_none());
        assert!(series(&[(0, 5), (2, 6)], Some(2)).is_none());
    }
}
