//! Outages: times without departures from the stage where packets queue.

use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time};

/// When a direction is closed: during its outages, and as long as it is `down`.
///
/// A gate closes the first stage of the direction with a queue, of any kind. Packets that arrive wait in its
/// queue, within the queue's limits, as they do without coverage. Schedules and recordings continue meanwhile: what
/// they offer is lost, except that a token bucket fills. Packets that were sent before arrive. Where a direction has no
/// such stage, packets that meet a closed gate are lost.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, Bytes, Direction, Duration, GateConfig, Schedule, Time};
///
/// let outage = (Duration::from_millis(1), Duration::from_millis(30));
/// let gate = GateConfig::new(vec![outage]).unwrap();
/// let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000)));
/// let mut link = Direction::new(vec![gate.into(), bottleneck.into()], Time::ZERO);
/// link.accept(Time::ZERO, "before", Bytes(1500)); // takes 1 ms
/// link.accept(Time::ZERO, "behind", Bytes(1500));
/// let end = Time::from_millis(50);
/// assert_eq!(link.poll(end).unwrap().departed, Time::from_millis(31));
/// assert_eq!(link.poll(end).unwrap().departed, Time::from_millis(32));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "Table")]
pub struct GateConfig {
    outages: Vec<(Duration, Duration)>,
    /// Begins of the outages that empty the queue.
    flushes: Vec<Duration>,
    /// True if packets on their way are dropped with the queue.
    in_flight: bool,
    /// True if the direction is closed until the next change.
    down: bool,
}

impl GateConfig {
    /// A gate with outages: (begin after the start, length). `None` if a length is zero, or if one does not begin after
    /// the end of the one before.
    pub fn new(outages: Vec<(Duration, Duration)>) -> Option<Self> {
        let in_order = outages
            .windows(2)
            .all(|pair| pair[0].0 + pair[0].1 < pair[1].0);
        let sound = in_order && outages.iter().all(|(_, length)| !length.is_zero());
        sound.then_some(Self {
            outages,
            flushes: Vec::new(),
            in_flight: false,
            down: false,
        })
    }

    /// The same gate; what waits at these instants after the start, or is sent in part, is
    /// [dropped](crate::DropReason::Handover). `None` if one of them is not in an outage.
    pub fn with_flushes(self, flushes: Vec<Duration>) -> Option<Self> {
        let within = |at: &Duration| {
            let mut outages = self.outages.iter();
            outages.any(|&(begin, length)| begin <= *at && *at < begin + length)
        };
        let sound = flushes.iter().all(within);
        sound.then_some(Self { flushes, ..self })
    }

    /// The same gate; with the queue, packets on their way are dropped: those in the [delays](crate::DelayConfig)
    /// behind it, as when a radio is lost.
    pub fn with_in_flight(self, in_flight: bool) -> Self {
        Self { in_flight, ..self }
    }

    /// The same gate, closed until the next change or not.
    pub fn with_down(self, down: bool) -> Self {
        Self { down, ..self }
    }

    /// Outages: (begin after the start, length).
    pub fn outages(&self) -> &[(Duration, Duration)] {
        &self.outages
    }

    /// Return whether the direction, which started at `zero`, is closed at an instant.
    pub(crate) fn is_closed(&self, zero: Time, now: Time) -> bool {
        let last = self.begun(zero, now).checked_sub(1);
        self.down || last.is_some_and(|last| now < self.end(zero, last))
    }

    /// Return whether the queue is emptied at an instant.
    pub(crate) fn flushes(&self, zero: Time, now: Time) -> bool {
        self.flushes.iter().any(|&at| zero + at == now)
    }

    /// Return whether packets on their way are dropped at times.
    pub(crate) fn drops_in_flight(&self) -> bool {
        self.in_flight && self.has_flushes()
    }

    /// Return whether the queue is emptied at times.
    pub fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// The next instant after `now` at which an outage begins or ends, or the queue is emptied.
    pub(crate) fn next_edge(&self, zero: Time, now: Time) -> Option<Time> {
        let begun = self.begun(zero, now);
        let end = begun.checked_sub(1).map(|last| self.end(zero, last));
        let begin = self.outages.get(begun).map(|(begin, _)| zero + *begin);
        let flushes = self.flushes.iter().map(|&at| zero + at);
        let flush = flushes.filter(|&at| at > now).min();
        let edge = end.filter(|end| *end > now).or(begin);
        [edge, flush].into_iter().flatten().min()
    }

    /// Return the number of outages that begin by `now`.
    fn begun(&self, zero: Time, now: Time) -> usize {
        self.outages
            .partition_point(|(begin, _)| zero + *begin <= now)
    }

    fn end(&self, zero: Time, outage: usize) -> Time {
        let (begin, length) = self.outages[outage];
        zero + begin + length
    }
}

impl Configured<Self> for GateConfig {
    fn new(config: &Self, _: Time) -> Self {
        config.clone()
    }

    fn change(&mut self, config: &Self, _: Time, _: Time, _: Duration) {
        self.clone_from(config);
    }
}

/// The direction plans the instants of its gates.
impl<P> Behaviour<P> for GateConfig {}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    outages_ns: Vec<(Duration, Duration)>,
    #[serde(default)]
    flushes_ns: Vec<Duration>,
    #[serde(default)]
    in_flight: bool,
    #[serde(default)]
    down: bool,
}

impl TryFrom<Table> for GateConfig {
    type Error = &'static str;

    fn try_from(table: Table) -> Result<Self, Self::Error> {
        let gate = Self::new(table.outages_ns)
            .ok_or("outages must be longer than 0 and in order, each after the end of the last")?;
        let gate = gate
            .with_flushes(table.flushes_ns)
            .ok_or("the queue can be emptied during outages only")?;
        Ok(gate.with_in_flight(table.in_flight).with_down(table.down))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(outages: &[(u64, u64)]) -> Option<GateConfig> {
        let span = Duration::from_millis;
        GateConfig::new(
            outages
                .iter()
                .map(|&(at, of)| (span(at), span(of)))
                .collect(),
        )
    }

    #[test]
    fn outages_begin_and_end_on_their_instant() {
        let gate = gate(&[(0, 5), (20, 10)]).unwrap();
        let zero = Time::from_millis(100);
        let at = |millis| Time::from_millis(100 + millis);
        let closed: Vec<u64> = (0..40)
            .filter(|&now| gate.is_closed(zero, at(now)))
            .collect();
        assert_eq!(closed, (0..5).chain(20..30).collect::<Vec<_>>());
        let edges = [0, 5, 19, 20, 30].map(|now| gate.next_edge(zero, at(now)));
        let expected = [Some(5), Some(20), Some(20), Some(30), None];
        assert_eq!(edges, expected.map(|edge| edge.map(at)));
        assert_eq!(gate.next_edge(zero, Time::ZERO), Some(zero));
        assert!(!gate.is_closed(zero, Time::ZERO));
    }

    #[test]
    fn malformed_outages_are_refused() {
        for outages in [&[(0, 0)][..], &[(0, 5), (5, 5)], &[(10, 5), (0, 5)]] {
            assert_eq!(gate(outages), None, "{outages:?}");
        }
        let outside = [Duration::from_millis(10)];
        let gate = gate(&[(0, 5), (5 + 1, 4)]).unwrap();
        assert_eq!(gate.with_flushes(outside.to_vec()), None);
    }
}
