//! Outages: times without departures from the stage where packets queue.

use crate::schema::JsonSchema;
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, Time, earlier};

/// Closure of a direction: during its outages, and while it is `down`.
///
/// A gate closes the direction's first stage with a queue, of any kind. Arriving packets wait in the queue, within its
/// limits, as without coverage. Schedules and recordings continue meanwhile: their opportunities are lost, except that
/// a token bucket fills. Packets sent before arrive. In a direction without such a stage, packets that meet a closed
/// gate are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend(
    "idle" = "down outages_ns",
    "partial" = true,
    "text" = "{outages_ns:{down:down, }%|{down:down|up}}"
))]
pub struct GateConfig {
    #[serde(rename = "outages_ns")]
    #[schemars(extend("format" = "outages"))]
    outages: Vec<(Duration, Duration)>,
    /// Begin times of the outages that empty the queue.
    #[serde(rename = "flushes_ns")]
    flushes: Vec<Duration>,
    /// True if packets in flight are dropped with the queue.
    in_flight: bool,
    /// True if the direction is closed until the next change.
    down: bool,
}

impl GateConfig {
    /// Return a gate with outages: (begin after the start, length). `None` if a length is zero, or if an outage does
    /// not begin after the previous one's end.
    pub fn new(outages: Vec<(Duration, Duration)>) -> Option<Self> {
        let gate = Self {
            outages,
            ..Self::default()
        };
        gate.check().ok()
    }

    /// Return the gate; waiting and partly sent packets at these instants after the start are
    /// [dropped](crate::DropReason::Handover). `None` if an instant is not in an outage.
    pub fn with_flushes(self, flushes: Vec<Duration>) -> Option<Self> {
        Self { flushes, ..self }.check().ok()
    }

    /// Return the gate, or the error in its times.
    pub(crate) fn check(self) -> Result<Self, &'static str> {
        let outages = &self.outages;
        let in_order = |pair: &[(Duration, Duration)]| pair[0].0 + pair[0].1 < pair[1].0;
        if !outages.windows(2).all(in_order) || outages.iter().any(|(_, length)| length.is_zero()) {
            return Err(
                "outages must be longer than 0 and in order, each after the end of the last",
            );
        }
        let is_outage = |at: &Duration| {
            let mut outages = outages.iter();
            outages.any(|&(begin, length)| begin <= *at && *at < begin + length)
        };
        match self.flushes.iter().all(is_outage) {
            true => Ok(self),
            false => Err("the queue can be emptied during outages only"),
        }
    }

    /// Return the gate; with the queue, packets in flight are dropped, in the [delays](crate::DelayConfig) behind the
    /// queue, as when a radio is lost.
    pub fn with_in_flight(self, in_flight: bool) -> Self {
        Self { in_flight, ..self }
    }

    /// Return the gate, closed until the next change or not.
    pub fn with_down(self, down: bool) -> Self {
        Self { down, ..self }
    }

    /// Return the outages: (begin after the start, length).
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

    /// Return whether packets in flight are dropped at times.
    pub(crate) fn drops_in_flight(&self) -> bool {
        self.in_flight && self.has_flushes()
    }

    /// Return whether the queue is emptied at times.
    pub fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// Return the next instant after `now` at which an outage begins or ends, or the queue is emptied.
    pub(crate) fn next_edge(&self, zero: Time, now: Time) -> Option<Time> {
        let begun = self.begun(zero, now);
        let end = begun.checked_sub(1).map(|last| self.end(zero, last));
        let begin = self.outages.get(begun).map(|(begin, _)| zero + *begin);
        let flushes = self.flushes.iter().map(|&at| zero + at);
        let flush = flushes.filter(|&at| at > now).min();
        let edge = end.filter(|end| *end > now).or(begin);
        earlier(edge, flush)
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
