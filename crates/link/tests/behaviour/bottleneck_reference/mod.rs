//! The bottleneck, which computes departures, compared with a model that steps through every opportunity.

mod model;

use std::sync::Arc;

use cellbed_link::*;
use model::{End, Reference};
use proptest::prelude::*;

use crate::arrivals::{MS, in_order, timestamps, waits};

fn packets() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let size = prop_oneof![3 => Just(1500u64), 2 => 1..200u64, 1 => 1..6000u64];
    prop::collection::vec((waits(), size), 1..60).prop_map(in_order)
}

fn reference() -> impl Strategy<Value = Reference> {
    let accounting =
        prop_oneof![3 => Just((1500, 0)), 2 => Just((1504, 4)), 1 => (1..3000u64, 0..50u64)];
    let offset = prop_oneof![
        Just(0),
        (0..200u64).prop_map(|millis| millis * MS),
        0..200 * MS
    ];
    let limits = (prop::option::of(1..6u64), prop::option::of(1000..9000u64));
    let times = (timestamps(), any::<bool>(), 0..20 * MS, offset);
    (times, accounting, limits).prop_map(
        |((millis, looped, zero, offset), (opportunity, overhead), (packets, bytes))| Reference {
            millis,
            looped,
            zero,
            offset,
            opportunity,
            overhead,
            limit: Limit {
                packets: packets.map(Packets),
                bytes: bytes.map(Bytes),
            },
        },
    )
}

fn direction(reference: &Reference) -> Direction<usize> {
    let trace = Arc::new(Trace::from_millis(reference.millis.iter().copied()).unwrap());
    let repeat = if reference.looped {
        Repeat::Looped
    } else {
        Repeat::Once
    };
    let config = BottleneckConfig {
        schedule: Schedule::Trace {
            trace,
            repeat,
            offset: Duration::from_nanos(reference.offset),
        },
        queue: Discipline::DropTail(reference.limit),
        opportunity: Bytes(reference.opportunity),
        overhead: Bytes(reference.overhead),
        clock: Clock::Exact,
    };
    Direction::new(vec![config.into()], Time::from_nanos(reference.zero))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn departures_and_drops_agree(reference in reference(), packets in packets()) {
        let horizon = packets.last().map_or(0, |packet| packet.0) + 2_000 * MS;
        let mut direction = direction(&reference);
        let mut ends = vec![End::Waits; packets.len()];
        for (index, &(arrival, size)) in packets.iter().enumerate() {
            direction.accept(Time::from_nanos(arrival), index, Bytes(size));
        }
        while let Some(outcome) = direction.poll(Time::from_nanos(horizon)) {
            ends[outcome.packet] = match outcome.fate {
                Fate::Delivered => End::Left(outcome.departed.as_nanos()),
                Fate::Dropped(_) => End::Dropped,
                Fate::Doubled => unreachable!("nothing doubles packets"),
            };
        }
        prop_assert_eq!(ends, reference.run(&packets, horizon));
    }

    #[test]
    fn a_constant_rate_is_a_fluid(rate in 1..20_000_000_000u64, packets in packets()) {
        let mut direction = Direction::new(
            vec![BottleneckConfig::new(Schedule::Constant(BitRate(rate))).into()],
            Time::ZERO,
        );
        let mut finished: u128 = 0; // in units of 1/rate ns, so that the reference is exact
        let mut expected = Vec::new();
        for (index, &(arrival, size)) in packets.iter().enumerate() {
            direction.accept(Time::from_nanos(arrival), index, Bytes(size));
            let begun = finished.max(u128::from(arrival) * u128::from(rate));
            finished = begun + u128::from(size) * 8_000_000_000;
            expected.push(finished.div_ceil(u128::from(rate)) as u64);
        }
        let left: Vec<u64> = std::iter::from_fn(|| direction.poll(Time::MAX)).map(|outcome| outcome.departed.as_nanos()).collect();
        prop_assert_eq!(left, expected);
    }
}
