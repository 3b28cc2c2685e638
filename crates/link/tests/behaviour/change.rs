//! Stages that change, and directions that start anew, while packets are in them.

use std::sync::Arc;

use cellbed_link::*;

use crate::driving::{self, constant, delay, departures, ms, span};

/// Takes the outcomes: packet, time and fate.
fn drain<P: Clone>(direction: &mut Direction<P>) -> Vec<(P, Time, Fate)> {
    let outcomes = driving::drain(direction).into_iter();
    outcomes
        .map(|outcome| (outcome.packet, outcome.departed, outcome.fate))
        .collect()
}

#[test]
fn what_was_sent_of_a_packet_stays_sent() {
    // 1500 bytes take 1 ms at 12 Mbit/s; from 2.5 ms on twice that time
    let mut direction = Direction::new(vec![constant(12).into()], Time::ZERO);
    direction
        .change(Time::from_micros(2500), 0, constant(6).into())
        .unwrap();
    for packet in 0..4 {
        direction.accept(ms(0), packet, MTU);
    }
    assert_eq!(
        departures(&mut direction),
        [1000, 2000, 3500, 5500].map(Time::from_micros)
    );
}

#[test]
fn schedules_of_all_kinds_take_over_from_each_other() {
    let trace = Schedule::looped(Arc::new(Trace::from_millis([10]).unwrap()));
    let series = RateSeries::new(vec![(Duration::ZERO, BitRate(12_000_000))], None).unwrap();
    let series = Schedule::Series {
        series: Arc::new(series),
        offset: Duration::ZERO,
    };
    let bucket = Schedule::TokenBucket {
        rate: BitRate(12_000_000),
        burst: Bytes(0),
    };
    let mut direction = Direction::new(vec![constant(12).into()], Time::ZERO);
    let changes = [
        (1, trace),
        (25, series),
        (27, bucket),
        (29, Schedule::Unlimited),
    ];
    for (at, schedule) in changes {
        let half = Time::from_micros(at * 1000 + 500);
        direction
            .change(half, 0, BottleneckConfig::new(schedule).into())
            .unwrap();
    }
    for packet in 0..9 {
        direction.accept(ms(0), packet, MTU);
    }
    // At 1.5 ms a packet is half sent. Each opportunity of the trace takes the rest of a packet and half of the next;
    // the series takes the remaining half at 25.5 ms. The bucket is empty and smaller than a packet: each packet leaves
    // at once and leaves a debt.
    let expected = [
        1000, 10_000, 20_000, 26_000, 27_000, 27_500, 28_000, 29_000, 29_500,
    ];
    assert_eq!(departures(&mut direction), expected.map(Time::from_micros));
}

#[test]
fn a_smaller_limit_drops_what_has_no_room() {
    let with = |queue| StageConfig::from(constant(12).with_queue(queue));
    let tail = with(Discipline::DropTail(Limit::packets(3)));
    let head = with(Discipline::DropHead(Limit::packets(3)));
    for (config, dropped) in [(tail, [3, 4, 5]), (head, [1, 2, 3])] {
        let mut direction = Direction::new(vec![with(Discipline::Infinite)], Time::ZERO);
        for packet in 0..6 {
            direction.accept(ms(0), packet, MTU);
        }
        direction.change(Time::from_micros(500), 0, config).unwrap();
        let outcomes = drain(&mut direction);
        let lost: Vec<_> = outcomes
            .iter()
            .filter(|outcome| outcome.2 == Fate::Dropped(DropReason::QueueFull))
            .map(|outcome| (outcome.0, outcome.1))
            .collect();
        assert_eq!(lost, dropped.map(|packet| (packet, Time::from_micros(500))));
        assert_eq!(outcomes.len(), 6);
        assert_eq!(outcomes.last().map(|outcome| outcome.1), Some(ms(3)));
    }
}

#[test]
fn a_shorter_delay_does_not_let_packets_overtake() {
    let mut direction = Direction::new(vec![delay(100)], Time::ZERO);
    direction.change(ms(50), 0, delay(1)).unwrap();
    direction.accept(ms(49), 'a', MTU);
    assert_eq!(direction.next_event(), Some(ms(149)));
    direction.accept(ms(50), 'b', MTU);
    direction.accept(ms(200), 'c', MTU);
    assert_eq!(departures(&mut direction), [149, 149, 201].map(ms));
}

#[test]
fn changes_known_beforehand_follow_every_start() {
    let faster = Change {
        at: span(2),
        stage: 0,
        config: constant(24).into(),
    };
    let mut direction = Direction::new(vec![constant(12).into()], Time::ZERO)
        .with_changes(vec![faster])
        .unwrap();
    for zero in [0, 100, 1000] {
        direction.restart(ms(zero), Duration::ZERO);
        for packet in 0..4 {
            direction.accept(ms(zero), packet, MTU);
        }
        let expected =
            [1000, 2000, 2500, 3000].map(|micros| ms(zero) + Duration::from_micros(micros));
        assert_eq!(departures(&mut direction), expected);
    }
}

#[test]
fn the_meter_s_capacity_follows() {
    let mut direction = Direction::new(vec![constant(12).into()], Time::ZERO).with_meter();
    direction.accept(ms(0), (), MTU);
    direction.change(ms(20), 0, constant(24).into()).unwrap();
    let capacity: Vec<_> = direction
        .finished_bins(ms(40))
        .map(|bin| bin.capacity.unwrap().0)
        .collect();
    assert_eq!(capacity, [15_000, 15_000, 30_000, 30_000]);
}

#[test]
fn a_change_to_what_is_not_there_is_refused() {
    let mut direction: Direction<()> = Direction::new(vec![constant(12).into()], Time::ZERO);
    let mut refusal = |stage| {
        let refused = direction.change(ms(0), stage, delay(1));
        refused.unwrap_err().to_string()
    };
    assert!(refusal(0).starts_with("stage 0 is of another kind"));
    assert_eq!(refusal(1), "there is no stage 1: the direction has 1");
}

#[test]
fn a_doubled_packet_is_told_of_before_it_comes_twice() {
    let double = DuplicationConfig {
        probability: driving::probability(1.0),
        seed: Seed(1),
    };
    let stages = vec![constant(12).into(), double.into(), delay(5)];
    let mut direction = Direction::new(stages, Time::ZERO);
    direction.accept(ms(0), 'a', MTU);
    assert_eq!(
        drain(&mut direction),
        [
            ('a', ms(1), Fate::Doubled),
            ('a', ms(6), Fate::Delivered),
            ('a', ms(6), Fate::Delivered)
        ]
    );
    assert_eq!(direction.held(), QueueLevel::default());
}

/// Returns a direction with an opportunity every `millis` ms.
fn looped(millis: u64) -> Direction<char> {
    let trace = Arc::new(Trace::from_millis([millis]).unwrap());
    let bottleneck = BottleneckConfig::new(Schedule::looped(trace));
    Direction::new(vec![bottleneck.into()], Time::ZERO)
}

#[test]
fn time_does_not_run_backwards() {
    let mut direction = Direction::new(vec![delay(1)], Time::ZERO);
    direction.accept(ms(5), 'a', Bytes(40));
    direction.accept(ms(3), 'b', Bytes(40));
    assert_eq!(departures(&mut direction), [ms(6), ms(6)]);
}

#[test]
fn a_restart_in_the_future_leaves_the_present_as_it_is() {
    let mut direction = looped(10); // 10, 20, …
    direction.restart(ms(25), Duration::ZERO); // then 35, 45, …
    for (arrival, packet) in [(0, 'a'), (11, 'b'), (21, 'c'), (22, 'd')] {
        direction.accept(ms(arrival), packet, MTU);
    }
    assert_eq!(departures(&mut direction), [10, 20, 35, 45].map(ms));
}

#[test]
fn a_restart_in_the_past_is_where_it_would_be() {
    let mut direction = looped(10);
    direction.accept(ms(21), 'a', MTU);
    direction.restart(ms(5), Duration::from_millis(4)); // from 4 ms on at 5: 11, 21, 31, …
    direction.accept(ms(22), 'b', MTU);
    // The opportunity at 21 ms has not passed when `a` is there.
    assert_eq!(departures(&mut direction), [21, 31].map(ms));
}

#[test]
fn a_restart_wakes_a_queue_that_the_old_schedule_never_served() {
    let trace = Arc::new(Trace::from_millis([5]).unwrap());
    let once = BottleneckConfig::new(Schedule::once(trace));
    let mut direction = Direction::new(vec![once.into()], Time::ZERO);
    direction.accept(ms(6), 'a', MTU);
    assert_eq!(direction.next_event(), None);
    direction.restart(ms(50), Duration::ZERO);
    assert_eq!(departures(&mut direction), [ms(55)]);
}

#[test]
fn what_was_sent_before_a_restart_stays_sent() {
    let mut direction = looped(10);
    direction.accept(ms(0), 'a', Bytes(4000));
    direction.restart(ms(15), Duration::ZERO); // 1500 bytes have left, the rest takes 25 and 35 ms
    direction.poll(ms(16));
    assert_eq!(direction.next_event(), Some(ms(35)));
    direction.restart(ms(16), Duration::from_millis(9)); // from 9 ms on: 17, 27, …
    assert_eq!(departures(&mut direction), [ms(27)]);
}
