//! Behaviour of a direction by its public interface.

use std::sync::Arc;

use super::*;
use crate::bottleneck::BottleneckConfig;
use crate::delay::DelayConfig;
use crate::schedule::Schedule;
use crate::trace::Trace;

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// Returns a direction with an opportunity every `millis` ms.
fn looped(millis: u64) -> Direction<char> {
    let trace = Arc::new(Trace::from_millis([millis]).unwrap());
    let bottleneck = BottleneckConfig::new(Schedule::looped(trace));
    Direction::new(vec![bottleneck.into()], Time::ZERO)
}

/// Returns all departures, event by event.
fn departures(direction: &mut Direction<char>) -> Vec<Time> {
    let mut departures = Vec::new();
    while let Some(next) = direction.next_event() {
        while let Some(outcome) = direction.poll(next) {
            departures.push(outcome.departed);
        }
    }
    departures
}

#[test]
fn time_does_not_run_backwards() {
    let delay = DelayConfig::Fixed(Duration::from_millis(1));
    let mut direction = Direction::new(vec![delay.into()], Time::ZERO);
    direction.accept(ms(5), 'a', Bytes(40));
    direction.accept(ms(3), 'b', Bytes(40));
    assert_eq!(departures(&mut direction), [ms(6), ms(6)]);
}

#[test]
fn a_restart_in_the_future_leaves_the_present_as_it_is() {
    let mut direction = looped(10); // 10, 20, …
    direction.restart(ms(25), Duration::ZERO); // then 35, 45, …
    for (arrival, packet) in [(0, 'a'), (11, 'b'), (21, 'c'), (22, 'd')] {
        direction.accept(ms(arrival), packet, Bytes(1500));
    }
    assert_eq!(departures(&mut direction), [10, 20, 35, 45].map(ms));
}

#[test]
fn a_restart_in_the_past_is_where_it_would_be() {
    let mut direction = looped(10);
    direction.accept(ms(21), 'a', Bytes(1500));
    direction.restart(ms(5), Duration::from_millis(4)); // from 4 ms on at 5: 11, 21, 31, …
    direction.accept(ms(22), 'b', Bytes(1500));
    assert_eq!(
        departures(&mut direction),
        [21, 31].map(ms),
        "the opportunity at 21 ms has not passed when `a` is there"
    );
}

#[test]
fn a_restart_wakes_a_queue_that_the_old_schedule_never_served() {
    let trace = Arc::new(Trace::from_millis([5]).unwrap());
    let once = BottleneckConfig::new(Schedule::once(trace));
    let mut direction = Direction::new(vec![once.into()], Time::ZERO);
    direction.accept(ms(6), 'a', Bytes(1500));
    assert_eq!(direction.next_event(), None);
    direction.restart(ms(50), Duration::ZERO);
    assert_eq!(departures(&mut direction), [ms(55)]);
}
