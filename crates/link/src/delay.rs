//! Delay: time that every packet spends on the way.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::time::{Duration, Time};

/// How long packets are on the way. The order of arrival is kept: no packet leaves before the one that came before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelayConfig {
    /// The same for all.
    Fixed(Duration),
    /// As recorded.
    Series(Arc<DelaySeries>),
}

/// A one-way delay recorded over time, linear between its points and constant before the first and after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelaySeries {
    /// (time since the start, delay), strictly increasing in time, never empty.
    points: Vec<(Duration, Duration)>,
}

impl DelaySeries {
    /// The series through `points`, each (time since the start, delay); `None` if there are none or their times do not
    /// increase.
    pub fn new(points: Vec<(Duration, Duration)>) -> Option<Self> {
        let increasing = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (increasing && !points.is_empty()).then_some(Self { points })
    }

    /// The delay of a packet that arrives at a position of the series, rounded to the nanosecond below.
    pub fn at(&self, position: Duration) -> Duration {
        let later = self.points.partition_point(|&(time, _)| time <= position);
        match (
            later.checked_sub(1).map(|index| self.points[index]),
            self.points.get(later),
        ) {
            (Some(before), Some(&after)) => interpolate(before, after, position),
            (Some((_, delay)), None) => delay,
            (None, Some(&(_, delay))) => delay,
            (None, None) => Duration::ZERO,
        }
    }

    fn least(&self) -> Duration {
        self.points
            .iter()
            .map(|&(_, delay)| delay)
            .min()
            .unwrap_or_default()
    }
}

fn interpolate(
    before: (Duration, Duration),
    after: (Duration, Duration),
    position: Duration,
) -> Duration {
    let nanos = |span: Duration| i128::from(span.as_nanos());
    let width = nanos(after.0) - nanos(before.0);
    let rise = nanos(after.1) - nanos(before.1);
    let delay = nanos(before.1) + (rise * (nanos(position) - nanos(before.0))).div_euclid(width);
    Duration::from_nanos(u64::try_from(delay).unwrap_or(0))
}

/// The stage.
#[derive(Clone, Debug)]
pub(crate) struct Delay<T> {
    config: DelayConfig,
    zero: Time,
    offset: Duration,
    least: Duration,
    in_flight: VecDeque<(Time, T)>,
    last: Time,
}

impl<T> Delay<T> {
    pub(crate) fn new(config: DelayConfig, zero: Time) -> Self {
        let least = match &config {
            DelayConfig::Fixed(delay) => *delay,
            DelayConfig::Series(series) => series.least(),
        };
        Self {
            config,
            zero,
            offset: Duration::ZERO,
            least,
            in_flight: VecDeque::new(),
            last: Time::ZERO,
        }
    }

    /// Plays the recording from position `offset` on at the instant `zero`; packets on the way keep their departure.
    pub(crate) fn restart(&mut self, zero: Time, offset: Duration) {
        self.zero = zero;
        self.offset = offset;
    }

    pub(crate) fn accept(&mut self, now: Time, packet: T) {
        let delay = match &self.config {
            DelayConfig::Fixed(delay) => *delay,
            DelayConfig::Series(series) => series.at(now.since(self.zero) + self.offset),
        };
        self.last = self.last.max(now + delay);
        self.in_flight.push_back((self.last, packet));
    }

    pub(crate) fn next_departure(&self) -> Option<Time> {
        self.in_flight.front().map(|(departure, _)| *departure)
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        self.in_flight.pop_front().map(|(_, packet)| packet)
    }

    /// The shortest time that a packet can spend here.
    pub(crate) fn least(&self) -> Duration {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn departures(config: DelayConfig, arrivals: &[u64]) -> Vec<Time> {
        let mut delay = Delay::new(config, Time::ZERO);
        for &arrival in arrivals {
            delay.accept(Time::from_millis(arrival), ());
        }
        std::iter::from_fn(|| delay.next_departure().inspect(|_| delay.take().unwrap())).collect()
    }

    #[test]
    fn a_series_is_linear_between_its_points() {
        let series =
            DelaySeries::new(vec![(ms(10), ms(20)), (ms(20), ms(40)), (ms(40), ms(0))]).unwrap();
        let delays = [0, 10, 15, 20, 30, 40, 1000].map(|at| series.at(ms(at)));
        assert_eq!(delays, [20, 20, 30, 40, 20, 0, 0].map(ms));
    }

    #[test]
    fn a_falling_delay_does_not_reorder() {
        // 30 ms at 0, falling to 0 at 10 ms: the packets would arrive at 30, 22.5 and 20 ms
        let series = DelaySeries::new(vec![(ms(0), ms(30)), (ms(10), ms(0))]).unwrap();
        let departures = departures(DelayConfig::Series(Arc::new(series)), &[0, 5, 10, 40]);
        assert_eq!(departures, [30, 30, 30, 40].map(Time::from_millis));
    }

    #[test]
    fn a_fixed_delay_is_exact() {
        let departures = departures(DelayConfig::Fixed(Duration::from_nanos(1)), &[0, 1]);
        assert_eq!(departures, [1, 1_000_001].map(Time::from_nanos));
    }

    #[test]
    fn points_must_go_forwards() {
        assert!(DelaySeries::new(vec![]).is_none());
        assert!(DelaySeries::new(vec![(ms(1), ms(1)), (ms(1), ms(2))]).is_none());
        let extreme =
            DelaySeries::new(vec![(ms(0), Duration::MAX), (Duration::MAX, ms(0))]).unwrap();
        assert_eq!(extreme.at(ms(0)), Duration::MAX);
        assert_eq!(extreme.at(Duration::MAX), ms(0));
    }
}
