//! The conditional replay, compared with its specification.

use std::sync::Arc;

use cellbed_link::*;
use proptest::prelude::*;

use crate::driving::{drain, ms as at, span as ms};

fn shift(millis: f64) -> Shift {
    Shift::from_nanos((millis * 1e6) as i64)
}

/// Packets take 20 ms, at least 10; after 100 ms of idle time 40. Half of them take 8 ms more.
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
pub(crate) fn model() -> ConditionalModel {
    let saturated = (0..10_000).map(ms);
    let set = |bytes, arrivals: Vec<Duration>| {
        let trains = (0..100).map(|number| (ms(100 * number), arrivals.clone()));
        TrainSet::new(Bytes(bytes), trains.collect()).unwrap()
    };
    let group = |idle, anchored| {
        let sets = vec![
            set(100, (10..18).map(ms).collect()),
            set(1400, vec![ms(10), ms(12), ms(14), ms(16)]),
            set(1400, (10..20).map(ms).collect()),
        ];
        TrainGroup::new(ms(idle), anchored, sets).unwrap()
    };
    ConditionalModel {
        delays: delays(),
        aligned: false,
        trains: vec![group(0, false), group(190, true)],
        train_neighbours: 2,
        reach: 1.5,
        saturated: Saturated::new(saturated, ms(10_000), Bytes(1400)).unwrap(),
        ahead: Bytes(14_000),
        loss: None,
    }
}

/// The model of a link with `every` µs between opportunities, on which single packets and trains are faster.
fn quick_model(every: u64, aligned: bool, trained: bool) -> ConditionalModel {
    let sample = |number: u64| (ms(100 * number), shift(0.2 * (number % 2) as f64));
    let state = DelayState {
        idle: ms(0),
        compensation: Compensation::new([(Bytes(1400), shift(0.0))]).unwrap(),
        sizes: vec![SizeSamples {
            bytes: Bytes(1400),
            samples: (0..100).map(sample).collect(),
        }],
    };
    let floor = Compensation::new([(Bytes(1400), shift(0.0))]).unwrap();
    let set = |length: u64| {
        let arrivals: Vec<Duration> = (0..length)
            .map(|it| Duration::from_micros(50 * it))
            .collect();
        TrainSet::new(Bytes(1400), vec![(ms(0), arrivals)]).unwrap()
    };
    let trains = TrainGroup::new(ms(0), false, vec![set(4), set(20)]).unwrap();
    let opportunities = (0..10_000_000 / every).map(|number| Duration::from_micros(number * every));
    ConditionalModel {
        delays: Delays::new(vec![(ms(0), ms(10))], floor, vec![state], 8).unwrap(),
        aligned,
        trains: if trained { vec![trains] } else { Vec::new() },
        saturated: Saturated::new(opportunities, ms(10_000), Bytes(1400)).unwrap(),
        ahead: Bytes(6_000),
        ..model()
    }
}

fn link(queue: Discipline, seed: u64) -> Direction<usize> {
    link_of(model(), queue, seed)
}

fn link_of(model: ConditionalModel, queue: Discipline, seed: u64) -> Direction<usize> {
    let config = ConditionalConfig {
        queue,
        seed: Seed(seed),
        ..ConditionalConfig::new(Arc::new(model))
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
    // The saturated link sends a packet each ms.
    let soon = sent
        .iter()
        .filter(|sent| **sent >= at(1500) && **sent < at(1600));
    assert!((99..=101).contains(&soon.count()));
}

#[test]
fn an_aligned_packet_waits_for_an_opportunity_of_the_saturated_link() {
    let model = ConditionalModel {
        aligned: true,
        trains: Vec::new(),
        saturated: Saturated::new([0, 0, 300, 300].map(ms), ms(1_000), Bytes(1400)).unwrap(),
        ..model()
    };
    let mut link = link_of(model, Discipline::Infinite, 1);
    (0..3).for_each(|number| link.accept(at(2_050), number, Bytes(1400)));
    let sent: Vec<_> = drain(&mut link).iter().map(|it| it.released).collect();
    assert_eq!(sent, [at(2_300), at(2_300), at(3_000)]);
}

#[test]
fn losses_come_in_bursts_that_an_idle_time_ends() {
    let chance = |value| Probability::new(value).unwrap();
    let model = ConditionalModel {
        loss: Some(LossChain {
            good: chance(0.0),
            bad: chance(1.0),
            enter: chance(0.05),
            leave: chance(0.2),
            forget: ms(50),
        }),
        ..model()
    };
    // Shares of packets that are lost, and that are lost behind a lost packet.
    let shares = |gap: u64| {
        let mut link = link_of(model.clone(), Discipline::Infinite, 3);
        (0..20_000).for_each(|number| link.accept(at(gap * number as u64), number, Bytes(1400)));
        let mut lost = vec![false; 20_000];
        drain(&mut link)
            .iter()
            .for_each(|it| lost[it.packet] = it.fate == Fate::Dropped(DropReason::Loss));
        let all = lost.iter().filter(|&&it| it).count() as f64;
        let behind = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
        (all / 20_000.0, behind / all)
    };
    let (all, behind) = shares(40);
    assert!((all - 0.2).abs() < 0.02 && (behind - 0.8).abs() < 0.03);
    let (all, behind) = shares(60);
    assert!((all - 0.2).abs() < 0.02 && (behind - 0.2).abs() < 0.03);
}

/// The departures of bursts, each of `burst` packets of `size` bytes, that arrive every `gap`.
fn flow(
    model: ConditionalModel,
    count: usize,
    burst: usize,
    size: u64,
    gap: Duration,
) -> Vec<Time> {
    let mut link = link_of(model, Discipline::DropTail(Limit::bytes(60_000)), 1);
    let mut now = at(20);
    for number in 0..count {
        (0..burst).for_each(|_| link.accept(now, number, Bytes(size)));
        now += gap;
    }
    let all = drain(&mut link);
    let delivered = all.iter().filter(|it| it.fate == Fate::Delivered);
    delivered.map(|it| it.released).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_paced_flow_gets_no_more_than_the_saturated_link(
        size in 200u64..=1500,
        burst in 1usize..=4,
        load in 0.1f64..3.0,
        every in prop_oneof![Just(250u64), Just(1000)],
        aligned: bool,
        trained: bool,
    ) {
        let model = quick_model(every, aligned, trained);
        let (bytes, capacity) = ((size * burst as u64) as f64, 1400.0 / (every as f64 * 1e3));
        let gap = Duration::from_nanos((bytes / (load * capacity)) as u64);
        let count = (4e9 / gap.as_nanos() as f64) as usize;
        let sent = flow(model.clone(), count, burst, size, gap);
        let span = Duration::from_nanos(gap.as_nanos() * count as u64);
        let meanwhile = sent.iter().filter(|&&sent| sent < at(20) + span).count() as u64;
        let passed = (meanwhile * size) as f64 / span.as_nanos() as f64;
        prop_assert!(passed <= 1.01 * capacity, "{passed} of {capacity}");
        if load > 1.1 && !aligned {
            prop_assert!(passed >= 0.97 * capacity, "{passed} of {capacity}");
        }
        if load < 0.3 {
            let free = ConditionalModel { ahead: Bytes(1 << 40), ..model };
            prop_assert_eq!(sent, flow(free, count, burst, size, gap));
        }
    }
}
