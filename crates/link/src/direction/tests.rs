//! Behaviour of a direction by its public interface.

use std::sync::Arc;

use super::*;
use crate::bottleneck::BottleneckConfig;
use crate::delay::DelayConfig;
use crate::loss::LossConfig;
use crate::queue::{Discipline, Limit};
use crate::random::Probability;
use crate::random::Seed;
use crate::schedule::Schedule;
use crate::trace::Trace;

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn looped(millis: &[u64]) -> BottleneckConfig {
    BottleneckConfig::new(Schedule::looped(Arc::new(
        Trace::from_millis(millis.iter().copied()).unwrap(),
    )))
}

fn delay(millis: u64) -> StageConfig {
    DelayConfig::Fixed(Duration::from_millis(millis)).into()
}

fn loss(probability: f64) -> StageConfig {
    LossConfig::Independent {
        probability: Probability::new(probability).unwrap(),
        seed: Seed(1),
    }
    .into()
}

/// All outcomes by waiting for one event after the other: (packet, released, departed, fate).
fn drain(direction: &mut Direction<char>) -> Vec<(char, Time, Time, Fate)> {
    let mut outcomes = Vec::new();
    while let Some(next) = direction.next_event() {
        while let Some(outcome) = direction.poll(next) {
            outcomes.push((
                outcome.packet,
                outcome.released,
                outcome.departed,
                outcome.fate,
            ));
        }
    }
    outcomes
}

#[test]
fn stages_add_up() {
    let mut direction = Direction::new(
        vec![delay(3), looped(&[2, 5]).into(), delay(10)],
        Time::ZERO,
    );
    direction.accept(ms(0), 'a', Bytes(1500)); // at the bottleneck at 3, released at 5
    direction.accept(ms(0), 'b', Bytes(1500));
    assert_eq!(
        drain(&mut direction),
        [
            ('a', ms(5), ms(15), Fate::Delivered),
            ('b', ms(7), ms(17), Fate::Delivered)
        ]
    );
    assert_eq!(direction.held(), QueueLevel::default());
}

#[test]
fn without_stages_a_packet_passes_at_once() {
    let mut direction = Direction::new(vec![], Time::ZERO);
    direction.accept(ms(4), 'a', Bytes(40));
    assert_eq!(direction.next_event(), Some(ms(4)));
    assert_eq!(
        drain(&mut direction),
        [('a', ms(4), ms(4), Fate::Delivered)]
    );
    assert_eq!(direction.next_event(), None);
}

#[test]
fn a_lost_packet_takes_no_room_in_the_queue() {
    let tight = looped(&[2]).with_queue(Discipline::DropTail(Limit {
        packets: Some(Packets(1)),
        bytes: None,
    }));
    let mut direction = Direction::new(vec![loss(1.0), tight.clone().into()], Time::ZERO);
    direction.accept(ms(0), 'a', Bytes(40));
    assert_eq!(
        drain(&mut direction),
        [('a', ms(0), ms(0), Fate::Dropped(DropReason::Loss))]
    );
    let mut direction = Direction::new(vec![loss(0.0), tight.into()], Time::ZERO);
    direction.accept(ms(0), 'a', Bytes(40));
    direction.accept(ms(0), 'b', Bytes(40));
    assert_eq!(
        drain(&mut direction),
        [
            ('b', ms(0), ms(0), Fate::Dropped(DropReason::QueueFull)),
            ('a', ms(2), ms(2), Fate::Delivered)
        ]
    );
}

#[test]
fn the_next_event_is_the_delivery_not_the_release() {
    let mut direction = Direction::new(vec![looped(&[5]).into(), delay(10)], Time::ZERO);
    direction.accept(ms(0), 'a', Bytes(1500));
    assert_eq!(direction.next_event(), Some(ms(15)));
    assert_eq!(direction.poll(ms(14)), None);
    assert_eq!(
        direction.poll(ms(15)).map(|outcome| outcome.departed),
        Some(ms(15))
    );
}

#[test]
fn time_does_not_run_backwards() {
    let mut direction = Direction::new(vec![delay(1)], Time::ZERO);
    direction.accept(ms(5), 'a', Bytes(40));
    direction.accept(ms(3), 'b', Bytes(40));
    assert_eq!(
        drain(&mut direction)
            .iter()
            .map(|outcome| outcome.2)
            .collect::<Vec<_>>(),
        [ms(6), ms(6)]
    );
}

#[test]
fn nothing_is_offered_before_zero() {
    let mut direction = Direction::new(vec![looped(&[2]).into()], ms(100));
    direction.accept(ms(50), 'a', Bytes(1500));
    assert_eq!(direction.next_event(), Some(ms(102)));
}

#[test]
fn a_restart_in_the_future_leaves_the_present_as_it_is() {
    let mut direction = Direction::new(vec![looped(&[10]).into()], Time::ZERO); // 10, 20, …
    direction.restart(ms(25), Duration::ZERO); // then 35, 45, …
    for (arrival, packet) in [(0, 'a'), (11, 'b'), (21, 'c'), (22, 'd')] {
        direction.accept(ms(arrival), packet, Bytes(1500));
    }
    let departures: Vec<_> = drain(&mut direction)
        .iter()
        .map(|outcome| outcome.2)
        .collect();
    assert_eq!(departures, [10, 20, 35, 45].map(ms));
}

#[test]
fn a_restart_in_the_past_is_where_it_would_be() {
    let mut direction = Direction::new(vec![looped(&[10]).into()], Time::ZERO);
    direction.accept(ms(21), 'a', Bytes(1500));
    direction.restart(ms(5), Duration::from_millis(4)); // from 4 ms on at 5: 11, 21, 31, …
    direction.accept(ms(22), 'b', Bytes(1500));
    let departures: Vec<_> = drain(&mut direction)
        .iter()
        .map(|outcome| outcome.2)
        .collect();
    assert_eq!(
        departures,
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
    assert_eq!(
        drain(&mut direction),
        [('a', ms(55), ms(55), Fate::Delivered)]
    );
}
