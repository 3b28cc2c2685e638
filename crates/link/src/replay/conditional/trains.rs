//! Arrivals of packets that waited together in the recording.

use crate::random::Random;
use crate::time::Duration;
use crate::units::Bytes;

/// Trains of one length with packets of one size, sent while the link was cold.
#[derive(Clone, PartialEq, Eq)]
pub struct TrainSet {
    packet: Bytes,
    /// When each was sent.
    times: Vec<Duration>,
    /// Packets of a train.
    length: usize,
    /// Arrivals of all trains, each train's in order.
    arrivals: Vec<Duration>,
}

impl TrainSet {
    /// Trains with packets of a size: when each was sent, in order, and the arrivals of its packets, counted from the
    /// instant at which a packet could have been there at the earliest. `None` if there are none, if they differ in
    /// length, if something is not in order, or if there are no bytes.
    pub fn new(packet: Bytes, trains: Vec<(Duration, Vec<Duration>)>) -> Option<Self> {
        let length = trains.first()?.1.len();
        let right = packet.0 > 0
            && length > 0
            && trains.is_sorted_by_key(|&(time, _)| time)
            && trains
                .iter()
                .all(|(_, arrivals)| arrivals.len() == length && arrivals.is_sorted());
        right.then(|| Self {
            packet,
            times: trains.iter().map(|&(time, _)| time).collect(),
            length,
            arrivals: trains
                .into_iter()
                .flat_map(|(_, arrivals)| arrivals)
                .collect(),
        })
    }

    /// Size of a packet.
    pub fn packet(&self) -> Bytes {
        self.packet
    }

    /// Bytes of a train.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.packet.0.saturating_mul(self.length as u64))
    }

    /// Packets of a train.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// One of the `neighbours` trains about a position.
    pub(super) fn draw(&self, position: Duration, neighbours: usize, random: &mut Random) -> usize {
        draw(&self.times, |&time| time, position, neighbours, random)
    }

    pub(super) fn train(&self, index: usize) -> &[Duration] {
        &self.arrivals[index * self.length..(index + 1) * self.length]
    }
}

impl std::fmt::Debug for TrainSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrainSet({} of {})", self.times.len(), self.bytes())
    }
}

/// The sets of a model by the size of their packets.
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

    /// The first and the last set of those whose packets are the nearest to a size, in proportion.
    pub(super) fn nearest(&self, size: f64) -> Option<(usize, usize)> {
        let off = |family: &&Family| (family.packet.0 as f64 / size).ln().abs();
        let nearest = match &self.0[..] {
            [only] => only,
            families => families.iter().min_by(|a, b| off(a).total_cmp(&off(b)))?,
        };
        Some(nearest.sets)
    }
}

/// Index of one of the `neighbours` entries about a position, all alike; the entries are in order of time and not
/// empty.
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
