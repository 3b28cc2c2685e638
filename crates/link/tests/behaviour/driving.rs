//! Driver of a direction, times, and stages.

use cellbed_link::*;

pub fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

pub fn span(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn probability(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

/// A bottleneck of a constant rate.
pub fn constant(megabits: u64) -> BottleneckConfig {
    BottleneckConfig::new(Schedule::Constant(BitRate(megabits * 1_000_000)))
}

pub fn delay(millis: u64) -> StageConfig {
    DelayConfig::Fixed(span(millis)).into()
}

/// Visits every event up to `until`, and takes the outcomes.
pub fn visit<P: Clone>(direction: &mut Direction<P>, until: Time, outcomes: &mut Vec<Outcome<P>>) {
    let mut before = None;
    while let Some(event) = direction.next_event().filter(|&event| event <= until) {
        assert!(before < Some(event), "every visit makes progress");
        before = Some(event);
        while let Some(outcome) = direction.poll(event) {
            assert!(
                outcome.fate != Fate::Delivered || outcome.departed == event,
                "the next event is never later than a delivery: {} is told at {event}",
                outcome.departed
            );
            outcomes.push(outcome);
        }
    }
}

/// Takes all remaining outcomes, also of packets that left long ago.
pub fn drain<P: Clone>(direction: &mut Direction<P>) -> Vec<Outcome<P>> {
    let mut outcomes = Vec::new();
    while let Some(event) = direction.next_event() {
        outcomes.extend(std::iter::from_fn(|| direction.poll(event)));
    }
    outcomes
}

/// Returns the departures of all remaining outcomes.
pub fn departures<P: Clone>(direction: &mut Direction<P>) -> Vec<Time> {
    let outcomes = drain(direction).into_iter();
    outcomes.map(|outcome| outcome.departed).collect()
}

/// Makes calls of all kinds with any values at any times (ns), in any order: none must panic.
pub fn call(direction: &mut Direction<usize>, calls: Vec<(u64, u64, u8)>) {
    for (at, value, call) in calls {
        let now = Time::from_nanos(at);
        match call {
            0 => direction.accept(now, 0, Bytes(value)),
            1 => drop(direction.poll(now)),
            2 => direction.restart(now, Duration::from_nanos(value)),
            _ => drop(direction.finished_bins(now).take(10).count()),
        }
        direction.next_event();
    }
}
