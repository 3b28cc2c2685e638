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
    /// Times and excess delays over the trend; in order of time, at least one.
    #[serde(rename = "samples_ns")]
    pub samples: Vec<(Duration, Shift)>,
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

    /// Draw how long a packet of `size` bytes waits on an idle link after an idle period, at least [`INSTANT`].
    pub(super) fn draw(
        &self,
        position: Duration,
        idle: Duration,
        size: Bytes,
        random: &mut Random,
        hint: &mut usize,
    ) -> Duration {
        let after = self.states.partition_point(|state| state.idle <= idle);
        let state = &self.states[after.saturating_sub(1)];
        let nearest = state.nearest(size);
        let drawn = draw(
            &nearest.samples,
            |&(time, _)| time,
            position,
            self.neighbours,
            random,
            hint,
        );
        let over = nearest.samples[drawn].1.as_nanos();
        let mut wait = over.saturating_sub(self.floor.of(size).as_nanos());
        if nearest.bytes != size {
            let general = |size| state.compensation.of(size).as_nanos();
            wait = wait.saturating_add(general(size).saturating_sub(general(nearest.bytes)));
        }
        Duration::from_nanos(wait.max(0) as u64).max(INSTANT)
    }

    /// Return the trend at a position, constant beyond its ends. hint: see [`seek`].
    #[inline]
    pub(super) fn trend(&self, position: Duration, hint: &mut usize) -> Duration {
        let after = seek(&self.trend, hint, |&(time, _)| time <= position);
        match (after.checked_sub(1), self.trend.get(after)) {
            (Some(before), Some(&after)) => interpolate(self.trend[before], after, position),
            (Some(last), None) => self.trend[last].1,
            (None, _) => self.trend[0].1,
        }
    }
}

/// Packets that arrive within this time wait together.
const INSTANT: Duration = Duration::from_nanos(1);

/// Trains of one length with packets of one size.
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
        let time = |&(time, _): &(Duration, Vec<Duration>)| time;
        draw(&self.trains, time, position, neighbours, random, &mut 0)
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

/// The trains of a link after an idle period of a certain length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainGroup {
    idle: Duration,
    anchored: bool,
    sets: Vec<TrainSet>,
    /// First and last set of each packet size.
    families: Vec<(usize, usize)>,
}

impl TrainGroup {
    /// Trains after an idle time of `idle` or more. anchored: true if a train is moved to the delay that was drawn for
    /// its first packet; otherwise it keeps its own delay. `None` if the sets are not in order of the size of their
    /// packets, and then of their length.
    pub fn new(idle: Duration, anchored: bool, sets: Vec<TrainSet>) -> Option<Self> {
        let mut families: Vec<(usize, usize)> = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            match families.last_mut() {
                Some((first, last)) if sets[*first].packet == set.packet => *last = number,
                _ => families.push((number, number)),
            }
        }
        let sorted = sets.is_sorted_by(|a, b| (a.packet, a.length()) < (b.packet, b.length()));
        sorted.then_some(Self {
            idle,
            anchored,
            sets,
            families,
        })
    }

    /// Minimum idle time.
    pub(super) fn idle(&self) -> Duration {
        self.idle
    }

    pub(super) fn is_anchored(&self) -> bool {
        self.anchored
    }

    pub(super) fn sets(&self) -> &[TrainSet] {
        &self.sets
    }

    /// Return the first and the last set of the packet size nearest to `size` in proportion.
    pub(super) fn nearest(&self, size: f64) -> Option<(usize, usize)> {
        let off =
            |&&(first, _): &&(usize, usize)| (self.sets[first].packet.0 as f64 / size).ln().abs();
        match &self.families[..] {
            [only] => Some(*only),
            families => families
                .iter()
                .min_by(|a, b| off(a).total_cmp(&off(b)))
                .copied(),
        }
    }
}

/// Return the number of entries that are `before` a position; entries are in order. hint: the previous result, where
/// the search begins, since successive positions are mostly close.
#[inline]
pub(super) fn seek<T>(entries: &[T], hint: &mut usize, before: impl Fn(&T) -> bool) -> usize {
    let last = hint.checked_sub(1).and_then(|last| entries.get(last));
    let (mut low, mut step) = (if last.is_some_and(&before) { *hint } else { 0 }, 1);
    while entries.get(low + step - 1).is_some_and(&before) {
        low += step;
        step *= 2;
    }
    let high = (low + step - 1).min(entries.len());
    *hint = low + entries[low..high].partition_point(before);
    *hint
}

/// Draw the index of one of the `neighbours` entries near a position, uniformly. Entries: sorted by time, not empty.
/// hint: see [`seek`].
fn draw<T>(
    entries: &[T],
    time: impl Fn(&T) -> Duration,
    position: Duration,
    neighbours: usize,
    random: &mut Random,
    hint: &mut usize,
) -> usize {
    let width = neighbours.clamp(1, entries.len());
    let next = seek(entries, hint, |entry| time(entry) <= position);
    let begin = next.saturating_sub(width / 2).min(entries.len() - width);
    begin + random.below(width as u64) as usize
}
