//! The samples of a recording: delays of packets that find an idle link, and arrivals of packets that waited together.

use crate::delay::interpolate;
use crate::random::Random;
use crate::replay::{Compensation, Shift};
use crate::time::Duration;
use crate::units::Bytes;

/// Delays of packets after an idle period of a certain length.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayState {
    /// Minimum idle time: from the previous packet's arrival, less its minimum delay, to the packet.
    #[serde(rename = "idle_ns")]
    pub idle: Duration,
    /// Mean excess delay over the trend, by packet size.
    pub compensation: Compensation,
    /// Measured packets by size, in order of size; at least one.
    pub sizes: Vec<SizeSamples>,
}

/// Packets of one size.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeSamples {
    /// Their size.
    pub bytes: Bytes,
    /// Maximum usual excess delay over the trend. Slower packets were not sent later, but had to be sent again.
    #[serde(rename = "usual_ns")]
    pub usual: Shift,
    /// Times and excess delays over the trend; in order of time, at least one.
    #[serde(rename = "samples_ns")]
    pub samples: Vec<(Duration, Shift)>,
}

/// Delay of a packet that finds an idle link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    /// Wait until sent, at least [`INSTANT`].
    pub(super) wait: Duration,
    /// Excess over the usual delay.
    pub(super) hold: Duration,
}

impl DelayState {
    /// The samples of the nearest size.
    fn nearest(&self, size: Bytes) -> &SizeSamples {
        let after = self.sizes.partition_point(|samples| samples.bytes < size);
        let (before, after) = (after.saturating_sub(1), after.min(self.sizes.len() - 1));
        let [under, over] = [before, after].map(|index| &self.sizes[index]);
        if size.0.abs_diff(under.bytes.0) < size.0.abs_diff(over.bytes.0) {
            under
        } else {
            over
        }
    }
}

/// Delays by time and idle time: a slowly changing trend, and for each state the deviations of single packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    trend: Vec<(Duration, Duration)>,
    /// Minimum excess by size.
    floor: Compensation,
    states: Vec<DelayState>,
    neighbours: usize,
}

impl Delays {
    /// Delay around a `trend`, linear between its points. Packets behind others take the trend plus `floor`; the
    /// others take one of the `neighbours` samples nearest in time. `None` if a list is empty or unsorted, if the idle
    /// time of the first state is not zero, or if `neighbours` is zero.
    pub fn new(
        trend: Vec<(Duration, Duration)>,
        floor: Compensation,
        states: Vec<DelayState>,
        neighbours: usize,
    ) -> Option<Self> {
        let forward = |times: &mut dyn Iterator<Item = Duration>| times.is_sorted_by(|a, b| a < b);
        let sampled = states.iter().all(|state| {
            let samples = |size: &SizeSamples| {
                !size.samples.is_empty() && size.samples.is_sorted_by_key(|&(time, _)| time)
            };
            !state.sizes.is_empty()
                && state.sizes.is_sorted_by(|a, b| a.bytes < b.bytes)
                && state.sizes.iter().all(samples)
        });
        let right = !trend.is_empty()
            && forward(&mut trend.iter().map(|&(time, _)| time))
            && states.first().is_some_and(|state| state.idle.is_zero())
            && forward(&mut states.iter().map(|state| state.idle))
            && sampled
            && neighbours > 0;
        right.then_some(Self {
            trend,
            floor,
            states,
            neighbours,
        })
    }

    /// Return the minimum excess over the trend of the delay of a packet of `size` bytes.
    pub(super) fn floor(&self, size: Bytes) -> Shift {
        self.floor.of(size)
    }

    /// Draw the delay of a packet of `size` bytes after an idle period, on an idle link.
    pub(super) fn draw(
        &self,
        position: Duration,
        idle: Duration,
        size: Bytes,
        random: &mut Random,
    ) -> Drawn {
        let after = self.states.partition_point(|state| state.idle <= idle);
        let state = &self.states[after.saturating_sub(1)];
        let nearest = state.nearest(size);
        let drawn = draw(
            &nearest.samples,
            |&(time, _)| time,
            position,
            self.neighbours,
            random,
        );
        let compensation = state.compensation.of(size).as_nanos()
            - state.compensation.of(nearest.bytes).as_nanos();
        let more = nearest.samples[drawn].1.as_nanos() + compensation;
        let usual = nearest.usual.as_nanos() + compensation;
        let least = self.floor.of(size).as_nanos();
        let span = |nanos: i64| Duration::from_nanos(nanos.max(0) as u64);
        Drawn {
            wait: span(more.min(usual) - least).max(INSTANT),
            hold: span(more - usual),
        }
    }

    pub(super) fn neighbours(&self) -> usize {
        self.neighbours
    }

    /// Return the trend at a position, constant beyond its ends. `after` is the number of points up to the previous
    /// position; successive positions are mostly close.
    #[inline]
    pub(super) fn trend(&self, position: Duration, after: &mut usize) -> Duration {
        let before = |&(time, _): &(Duration, Duration)| time <= position;
        let holds = after
            .checked_sub(1)
            .is_none_or(|last| before(&self.trend[last]))
            && !self.trend.get(*after).is_some_and(before);
        if !holds {
            *after = self.trend.partition_point(before);
        }
        match (after.checked_sub(1), self.trend.get(*after)) {
            (Some(before), Some(&after)) => interpolate(self.trend[before], after, position),
            (Some(last), None) => self.trend[last].1,
            (None, _) => self.trend[0].1,
        }
    }
}

/// Packets that arrive within this time wait together.
const INSTANT: Duration = Duration::from_nanos(1);

/// Trains of one length with packets of one size, sent while the link was cold.
#[derive(Clone, PartialEq, Eq)]
pub struct TrainSet {
    packet: Bytes,
    /// Send time of each, and the arrivals of its packets in order.
    trains: Vec<(Duration, Vec<Duration>)>,
}

impl TrainSet {
    /// Trains of packets of one size: send times in order, and the arrivals of each train's packets, counted from the
    /// earliest possible arrival. `None` without trains or bytes, if the trains differ in length, or if a list is not
    /// in order.
    pub fn new(packet: Bytes, trains: Vec<(Duration, Vec<Duration>)>) -> Option<Self> {
        let length = trains.first()?.1.len();
        let sound =
            |(_, arrivals): &(_, Vec<Duration>)| arrivals.len() == length && arrivals.is_sorted();
        let right = packet.0 > 0
            && length > 0
            && trains.is_sorted_by_key(|&(time, _)| time)
            && trains.iter().all(sound);
        right.then_some(Self { packet, trains })
    }

    /// Size of a packet.
    pub fn packet(&self) -> Bytes {
        self.packet
    }

    /// Bytes of a train.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.packet.0.saturating_mul(self.length() as u64))
    }

    /// Packets of a train.
    pub(super) fn length(&self) -> usize {
        self.trains[0].1.len()
    }

    /// Draw one of `neighbours` trains near a position.
    pub(super) fn draw(&self, position: Duration, neighbours: usize, random: &mut Random) -> usize {
        draw(
            &self.trains,
            |&(time, _)| time,
            position,
            neighbours,
            random,
        )
    }

    pub(super) fn train(&self, index: usize) -> &[Duration] {
        &self.trains[index].1
    }
}

impl std::fmt::Debug for TrainSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrainSet({} of {})", self.trains.len(), self.bytes())
    }
}

/// The train sets of a model by packet size.
#[derive(Clone, Debug)]
pub(super) struct Families(Vec<Family>);

#[derive(Clone, Copy, Debug)]
struct Family {
    packet: Bytes,
    /// Numbers of the first and the last set.
    sets: (usize, usize),
}

impl Families {
    pub(super) fn of(trains: &[TrainSet]) -> Self {
        let mut families: Vec<Family> = Vec::new();
        for (number, set) in trains.iter().enumerate() {
            let packet = set.packet;
            match families.iter_mut().find(|family| family.packet == packet) {
                Some(family) => family.sets.1 = number,
                None => families.push(Family {
                    packet,
                    sets: (number, number),
                }),
            }
        }
        Self(families)
    }

    /// Return the first and the last set of the packet size nearest to `size` in proportion.
    pub(super) fn nearest(&self, size: f64) -> Option<(usize, usize)> {
        let off = |family: &&Family| (family.packet.0 as f64 / size).ln().abs();
        let nearest = match &self.0[..] {
            [only] => only,
            families => families.iter().min_by(|a, b| off(a).total_cmp(&off(b)))?,
        };
        Some(nearest.sets)
    }
}

/// Draw the index of one of the `neighbours` entries near a position, uniformly. Entries: sorted by time, not empty.
pub(super) fn draw<T>(
    entries: &[T],
    time: impl Fn(&T) -> Duration,
    position: Duration,
    neighbours: usize,
    random: &mut Random,
) -> usize {
    let width = neighbours.clamp(1, entries.len());
    let next = entries.partition_point(|entry| time(entry) <= position);
    let begin = next.saturating_sub(width / 2).min(entries.len() - width);
    begin + random.below(width as u64) as usize
}
