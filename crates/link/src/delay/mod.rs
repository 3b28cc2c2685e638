//! Delay: time that every packet spends on the way.

mod random;

pub use random::{Distribution, Observed, RandomDelay};
pub(crate) use random::{Draw, normal_quantile};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::schema::JsonSchema;
use serde::Deserialize;

use crate::packet::{Item, Step};
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time};

/// Model of the delay of packets. The order of arrival is kept, but where [reordering](RandomDelay::reorder) is asked
/// for: no packet leaves before the one that came before it.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(tag = "kind")]
pub enum DelayConfig {
    /// The same for all.
    #[schemars(rename = "delay", with = "FixedDelay", extend("table" = false, "text" = "{fixed_ns} one way", "idle" = "fixed_ns"))]
    Fixed(Duration),
    /// A recorded delay: linear between its points.
    #[schemars(
        rename = "delay",
        with = "RecordedDelay",
        extend("table" = "series", "text" = "{series.span} one way, changing over time ({series.count} points)")
    )]
    Series(Arc<DelaySeries>),
    /// Drawn for each packet.
    #[schemars(rename = "jitter", extend("text" = "{distribution}{correlation:, correlation %}{reorder:, reordering}"))]
    Random(RandomDelay),
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct FixedDelay {
    fixed_ns: Duration,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RecordedDelay {
    /// Pairs of time and delay.
    #[schemars(example = "10 ms", extend("key" = "points", "least" = "0 s", "most" = "60 s"))]
    series: DelaySeries,
}

impl DelayConfig {
    fn least(&self) -> Duration {
        match self {
            Self::Fixed(delay) => *delay,
            Self::Series(series) => series.least(),
            Self::Random(random) => random.distribution.quantile(0.0),
        }
    }

    fn reorders(&self) -> bool {
        matches!(self, Self::Random(random) if random.reorder)
    }
}

/// A one-way delay recorded over time, linear between its points and constant before the first and after the last.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<(Duration, Duration)>")]
pub struct DelaySeries {
    /// (time since the start, delay), strictly increasing in time, never empty.
    points: Vec<(Duration, Duration)>,
}

impl DelaySeries {
    /// The series through `points`, each (time since the start, delay); `None` if there are none or their times do not
    /// increase.
    pub fn new(points: Vec<(Duration, Duration)>) -> Option<Self> {
        points.try_into().ok()
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

impl TryFrom<Vec<(Duration, Duration)>> for DelaySeries {
    type Error = String;

    fn try_from(points: Vec<(Duration, Duration)>) -> Result<Self, Self::Error> {
        if points.is_empty() {
            return Err("a recorded delay needs at least one pair [time, delay]".to_owned());
        }
        match points.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            Some(at) => Err(format!(
                "the times of a recorded delay must rise; entry {} does not",
                at + 1
            )),
            None => Ok(Self { points }),
        }
    }
}

/// The value at `position` on the line through two points, rounded down.
#[inline]
pub(crate) fn interpolate(
    before: (Duration, Duration),
    after: (Duration, Duration),
    position: Duration,
) -> Duration {
    let point = |(at, value): (Duration, Duration)| (at.as_nanos(), i128::from(value.as_nanos()));
    let value = on_line(point(before), point(after), position.as_nanos());
    Duration::from_nanos(u64::try_from(value).unwrap_or(0))
}

/// Interpolate between any numbers.
#[inline]
pub(crate) fn on_line(before: (u64, i128), after: (u64, i128), position: u64) -> i128 {
    let width = i128::from(after.0) - i128::from(before.0);
    let rise = after.1 - before.1;
    let product = rise * (i128::from(position) - i128::from(before.0));
    // The narrower division is several times as fast.
    before.1
        + match (i64::try_from(product), i64::try_from(width)) {
            (Ok(product), Ok(width)) => product.div_euclid(width).into(),
            _ => product.div_euclid(width),
        }
}

/// Source of the delays.
#[derive(Clone, Debug)]
enum Source {
    Fixed(Duration),
    Series(Arc<DelaySeries>),
    Random(Box<Draw>),
}

impl Source {
    fn new(config: DelayConfig) -> Self {
        match config {
            DelayConfig::Fixed(delay) => Self::Fixed(delay),
            DelayConfig::Series(series) => Self::Series(series),
            DelayConfig::Random(random) => Self::Random(Box::new(Draw::new(random))),
        }
    }
}

/// The stage.
#[derive(Clone, Debug)]
pub(crate) struct Delay<T> {
    source: Source,
    zero: Time,
    offset: Duration,
    least: Duration,
    line: DelayLine<T>,
}

impl<T> Configured<DelayConfig> for Delay<T> {
    fn new(config: &DelayConfig, zero: Time) -> Self {
        Self {
            zero,
            offset: Duration::ZERO,
            least: config.least(),
            line: DelayLine::new(config.reorders()),
            source: Source::new(config.clone()),
        }
    }

    /// Change the delay of later packets; packets in transit keep their departure, and the generator its state.
    fn change(&mut self, config: &DelayConfig, _: Time, _: Time, _: Duration) {
        self.least = config.least();
        self.line.set_reordering(config.reorders());
        match (&mut self.source, config.clone()) {
            (Source::Random(draw), DelayConfig::Random(config)) => draw.change(config),
            (source, config) => *source = Source::new(config),
        }
    }
}

impl<P> Behaviour<P> for Delay<Item<P>> {
    /// Play the recording from position `offset` on at `zero`; packets in transit keep their departure.
    fn restart(&mut self, zero: Time, _: Time, offset: Duration) {
        self.zero = zero;
        self.offset = offset;
        if let Source::Random(draw) = &mut self.source {
            draw.restart();
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.line.next()
    }

    #[inline]
    fn step(&mut self, _: Time) -> Option<Step<P>> {
        self.line.pop().map(Step::Left)
    }
}

impl<T> Delay<T> {
    #[inline]
    pub(crate) fn accept(&mut self, now: Time, packet: T) {
        let delay = match &mut self.source {
            Source::Fixed(delay) => *delay,
            Source::Series(series) => series.at(now.since(self.zero) + self.offset),
            Source::Random(draw) => draw.next(),
        };
        self.line.push(now + delay, packet);
    }

    /// Remove all packets in transit.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.line.drain()
    }

    /// Return the minimum delay of a packet.
    pub(crate) fn least(&self) -> Duration {
        self.least
    }
}

/// Packets in transit with their departures; optionally, they keep the order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct DelayLine<T> {
    /// Packets that keep the order of arrival.
    fifo: VecDeque<(Time, T)>,
    /// The latest departure from `fifo` so far.
    last: Time,
    /// Packets that others may overtake, by departure and number.
    unordered: BTreeMap<(Time, u64), T>,
    /// Number of the next packet in `unordered`.
    number: u64,
    reordering: bool,
}

impl<T> DelayLine<T> {
    pub(crate) fn new(reordering: bool) -> Self {
        Self {
            fifo: VecDeque::new(),
            last: Time::ZERO,
            unordered: BTreeMap::new(),
            number: 0,
            reordering,
        }
    }

    /// Set whether packets that arrive from now on may overtake others.
    pub(crate) fn set_reordering(&mut self, reordering: bool) {
        if self.reordering && !reordering {
            // Later packets must not overtake those in transit.
            let latest = self.unordered.last_key_value();
            let latest = latest.map(|(&(departure, _), _)| departure);
            self.last = self.last.max(latest.unwrap_or_default());
        }
        self.reordering = reordering;
    }

    /// Add a packet. Without reordering it departs no earlier than the packets before it.
    #[inline]
    pub(crate) fn push(&mut self, departure: Time, packet: T) {
        if self.reordering {
            self.unordered.insert((departure, self.number), packet);
            self.number += 1;
        } else {
            self.last = self.last.max(departure);
            self.fifo.push_back((self.last, packet));
        }
    }

    /// Return the next departure.
    pub(crate) fn next(&self) -> Option<Time> {
        let fifo = self.fifo.front().map(|&(departure, _)| departure);
        match self.unordered.first_key_value() {
            None => fifo,
            Some((&(unordered, _), _)) => Some(fifo.map_or(unordered, |fifo| fifo.min(unordered))),
        }
    }

    /// Return the packets that keep their order, with their departures.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (Time, &T)> {
        self.fifo
            .iter()
            .map(|(departure, packet)| (*departure, packet))
    }

    /// Return the latest departure so far of the packets that keep their order.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// Remove the packet that departs next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let fifo = self.fifo.front().map(|&(departure, _)| departure);
        match self.unordered.first_entry() {
            Some(entry) if fifo.is_none_or(|fifo| entry.key().0 < fifo) => Some(entry.remove()),
            _ => self.fifo.pop_front().map(|(_, packet)| packet),
        }
    }

    /// Remove all packets, in order of departure. Later packets need not wait for them.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.last = Time::ZERO;
        std::iter::from_fn(|| self.pop()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn departures(config: DelayConfig, arrivals: &[u64]) -> Vec<Time> {
        let mut delay = Delay::new(&config, Time::ZERO);
        for arrival in arrivals.iter().map(|&at| Time::from_millis(at)) {
            delay.accept(arrival, Item::new((), Bytes(100), arrival));
        }
        let next = || {
            delay
                .next_event()
                .inspect(|&now| assert!(delay.step(now).is_some()))
        };
        std::iter::from_fn(next).collect()
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
    fn points_must_go_forwards() {
        assert!(DelaySeries::new(vec![]).is_none());
        assert!(DelaySeries::new(vec![(ms(1), ms(1)), (ms(1), ms(2))]).is_none());
        let extreme =
            DelaySeries::new(vec![(ms(0), Duration::MAX), (Duration::MAX, ms(0))]).unwrap();
        assert_eq!(extreme.at(ms(0)), Duration::MAX);
        assert_eq!(extreme.at(Duration::MAX), ms(0));
    }
}

#[cfg(test)]
mod line_tests {
    use super::*;

    fn drain(line: &mut DelayLine<char>) -> String {
        std::iter::from_fn(|| line.pop()).collect()
    }

    fn filled(reordering: bool) -> DelayLine<char> {
        let mut line = DelayLine::new(reordering);
        for (at, packet) in [(30, 'a'), (10, 'b'), (20, 'c'), (10, 'd')] {
            line.push(Time::from_millis(at), packet);
        }
        line
    }

    #[test]
    fn packets_overtake_only_with_reordering() {
        assert_eq!(drain(&mut filled(false)), "abcd");
        assert_eq!(drain(&mut filled(true)), "bdca");
    }

    #[test]
    fn a_change_of_reordering_applies_to_later_packets_only() {
        let mut line = filled(false);
        line.set_reordering(true);
        line.push(Time::from_millis(5), 'e');
        assert_eq!(line.next(), Some(Time::from_millis(5)));
        line.set_reordering(false);
        line.push(Time::from_millis(7), 'f');
        assert_eq!(drain(&mut line), "eabcdf");
    }
}
