//! The conditional replay, compared with its specification.

use std::sync::Arc;

use cellbed_link::*;
use proptest::prelude::*;

use crate::driving::{drain, ms as at, span as ms};

fn shift(millis: f64) -> Shift {
    Shift::from_nanos((millis * 1e6) as i64)
}

/// Packets take 20 ms, at least 10; after 100 ms of idle time 40. Half of them are retransmitted, 8 ms later.
fn delays() -> Delays {
    let state = |idle, more: f64| DelayState {
        idle: ms(idle),
        compensation: Compensation::new([
            (Bytes(100), shift(more - 5.0)),
            (Bytes(1400), shift(more)),
        ])
        .unwrap(),
        sizes: vec![SizeSamples {
            bytes: Bytes(1400),
            usual: shift(more),
            samples: (0..100)
                .map(|number| (ms(100 * number), shift(more + 8.0 * (number % 2) as f64)))
                .collect(),
        }],
    };
    let floor = Compensation::new([(Bytes(1400), shift(-10.0))]).unwrap();
    Delays::new(
        vec![(ms(0), ms(20))],
        floor,
        vec![state(0, 0.0), state(100, 20.0)],
        2,
    )
    .unwrap()
}

/// 1400 bytes per millisecond when saturated, trains of 4 packets at half this rate.
fn model() -> ConditionalModel {
    let saturated = (0..10_000).map(ms);
    let trains = (0..100).map(|number| (ms(100 * number), vec![ms(10), ms(12), ms(14), ms(16)]));
    let small = (0..100).map(|number| (ms(100 * number), (10..18).map(ms).collect()));
    let longer = (0..100).map(|number| (ms(100 * number), (10..20).map(ms).collect()));
    let curve = WarmUpCurve {
        waiting: Bytes(4 * 1400),
        shares: vec![0.5, 1.0],
    };
    ConditionalModel {
        delays: delays(),
        trains: vec![
            TrainSet::new(Bytes(100), small.collect()).unwrap(),
            TrainSet::new(Bytes(1400), trains.collect()).unwrap(),
            TrainSet::new(Bytes(1400), longer.collect()).unwrap(),
        ],
        reach: 1.5,
        saturated: Saturated::new(saturated, ms(10_000), Bytes(1400)).unwrap(),
        warm_up: WarmUp::new(vec![ms(0), ms(50)], vec![curve], ms(10)).unwrap(),
    }
}

fn link(queue: Discipline, seed: u64) -> Direction<usize> {
    let config = ConditionalConfig {
        queue,
        seed: Seed(seed),
        ..ConditionalConfig::new(Arc::new(model()))
    };
    Direction::new(vec![config.into()], Time::ZERO)
}

/// Returns the delays of packets that arrive at `times`, ms.
fn taken(times: &[Time], size: u64) -> Vec<u64> {
    let mut link = link(Discipline::Infinite, 1);
    for (number, &time) in times.iter().enumerate() {
        link.accept(time, number, Bytes(size));
    }
    drain(&mut link)
        .iter()
        .map(|outcome| (outcome.departed - outcome.arrived).as_nanos() / 1_000_000)
        .collect()
}

#[test]
fn a_packet_alone_takes_one_of_the_delays_of_its_idleness_and_size() {
    let seldom: Vec<Time> = (1..50).map(|number| at(200 * number)).collect();
    let often: Vec<Time> = (1..50).map(|number| at(50 * number)).collect();
    let of = |times: &[Time], size| {
        let mut found = taken(&times[1..], size);
        found.remove(0); // after a long idle time
        found.sort_unstable();
        found.dedup();
        found
    };
    assert_eq!(of(&seldom, 1400), [40, 48]);
    assert_eq!(of(&often, 1400), [20, 28]);
    assert_eq!(of(&often, 100), [15, 23]);
}

#[test]
fn who_waits_together_arrives_as_a_train_did() {
    let delays = taken(&[at(1000); 4], 1400);
    // The link was idle for long: the train is as late as its first packet.
    assert_eq!(delays.len(), 4);
    let gaps: Vec<u64> = delays.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [2, 2, 2]);
}

#[test]
fn a_long_train_comes_to_the_rate_of_the_saturated_link() {
    let delays = taken(&[at(1000); 400], 1400);
    assert!((95..=105).contains(&(delays[399] - delays[299])));
    // Slower at first: 22 packets at half the rate in the first 50 ms.
    assert!((60..=76).contains(&(delays[49] - delays[0])));
}

proptest! {
    #[test]
    fn every_packet_leaves_once_in_order_and_no_sooner_than_any_was_seen_to(
        packets in proptest::collection::vec((prop_oneof![Just(0u64), 0u64..30_000_000], prop_oneof![40u64..300, 40u64..1500]), 1..300),
        limit in 2_000u64..50_000,
        seed in 0u64..8,
    ) {
        let queue = Discipline::DropTail(Limit::bytes(limit));
        let mut link = link(queue, seed);
        let mut now = Time::ZERO;
        for (number, &(gap, size)) in packets.iter().enumerate() {
            now += Duration::from_nanos(gap);
            link.accept(now, number, Bytes(size));
        }
        let outcomes = drain(&mut link);
        prop_assert_eq!(outcomes.len(), packets.len());
        prop_assert_eq!(link.held(), QueueLevel::default());
        let delivered: Vec<_> = outcomes.iter().filter(|it| it.fate == Fate::Delivered).collect();
        for pair in delivered.windows(2) {
            prop_assert!(pair[0].packet < pair[1].packet && pair[0].departed <= pair[1].departed);
        }
        for outcome in delivered {
            prop_assert!(outcome.departed >= outcome.arrived + ms(10));
        }
    }

    #[test]
    fn the_queue_is_bounded(count in 1usize..200) {
        let queue = Discipline::DropTail(Limit::bytes(14_000));
        let mut link = link(queue, 1);
        (0..count).for_each(|number| link.accept(at(5), number, Bytes(1400)));
        let full = drain(&mut link).iter().filter(|it| it.fate != Fate::Delivered).count();
        prop_assert_eq!(full, count.saturating_sub(10));
    }
}

#[test]
fn nothing_is_sent_during_an_outage() {
    let gate = GateConfig::new(vec![(ms(1000), ms(500))]).unwrap();
    let config = ConditionalConfig::new(Arc::new(model()));
    let mut link = Direction::new(vec![gate.into(), config.into()], Time::ZERO);
    for number in 0..3000 {
        link.accept(at(number), number, Bytes(1400));
    }
    let sent: Vec<_> = drain(&mut link).iter().map(|it| it.released).collect();
    assert_eq!(sent.len(), 3000);
    assert!(
        sent.iter()
            .all(|sent| *sent < at(1000) || *sent >= at(1500))
    );
    // The saturated link sends a packet each ms once warm.
    let soon = sent
        .iter()
        .filter(|sent| **sent >= at(1500) && **sent < at(1600));
    assert!((60..=101).contains(&soon.count()));
}
