//! The workload-dependent link, which computes departures, compared with a model that steps through every instant.

mod model;

use std::sync::Arc;

use cellbed_link::*;
use model::{End, Model};
use proptest::prelude::*;

use crate::arrivals::{MS, in_order, timestamps};
use crate::driving::visit;

/// Arrivals on a grid that often meets the opportunities, in bursts and with gaps.
fn packets() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let wait = prop_oneof![
        5 => Just(0), 4 => (0..6u64).prop_map(|half| half * MS / 2), 2 => (0..80u64).prop_map(|millis| millis * MS), 1 => 0..80 * MS
    ];
    let size = prop_oneof![3 => Just(1400u64), 1 => Just(1500), 2 => 1..200u64, 1 => 1..6000u64];
    prop::collection::vec((wait, size), 1..60).prop_map(in_order)
}

fn rows() -> impl Strategy<Value = Vec<(u64, u64, Vec<u64>)>> {
    let span = || prop_oneof![3 => (0..30u64).prop_map(|millis| millis * MS), 1 => 0..30 * MS];
    let offsets = prop::collection::vec(
        prop_oneof![3 => (0..12u64).prop_map(|half| half * MS / 2), 1 => 0..6 * MS],
        0..8,
    );
    prop::collection::vec((span(), (span(), offsets)), 1..6).prop_map(|rows| {
        let row = |(time, (delay, mut offsets)): (u64, (u64, Vec<u64>))| {
            offsets.sort_unstable();
            (time, delay, offsets)
        };
        in_order(rows).into_iter().map(row).collect()
    })
}

fn compensation() -> impl Strategy<Value = Vec<(u64, i64)>> {
    let shift = -8 * MS as i64..4 * MS as i64;
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(shift, 1..15).prop_map(|shifts| {
            let size = (1..).map(|index| index * 100);
            size.zip(shifts).collect()
        })
    ]
}

fn model() -> impl Strategy<Value = Model> {
    let accounting =
        prop_oneof![4 => Just((1400, 0)), 1 => Just((1404, 4)), 1 => (1..3000u64, 0..50u64)];
    let offset = prop_oneof![Just(0), (0..200u64).prop_map(|millis| millis * MS)];
    let idle = prop_oneof![1 => Just(0), 3 => (0..40u64).prop_map(|millis| millis * MS)];
    let ways = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (
        (rows(), timestamps(), compensation()),
        (0..20 * MS, offset, idle),
        (accounting, 1400..12_000u64),
        ways,
    )
        .prop_map(
            |((rows, heavy, compensation), (zero, offset, idle), (accounting, limit), ways)| {
                let (looped, idle_at_queue, from_first, limited) = ways;
                Model {
                    rows,
                    heavy,
                    looped,
                    zero,
                    offset,
                    compensation,
                    idle,
                    idle_at_queue,
                    from_first,
                    // The link does not foresee the queue's drops.
                    limit: (limited && !idle_at_queue).then_some(limit),
                    opportunity: accounting.0,
                    overhead: accounting.1,
                }
            },
        )
}

fn direction(model: &Model) -> Direction<usize> {
    let rows = model.rows.iter().map(|(time, delay, offsets)| LightRow {
        time: Duration::from_nanos(*time),
        base_delay: Duration::from_nanos(*delay),
        opportunities: offsets.iter().copied().map(Duration::from_nanos).collect(),
    });
    let light = Arc::new(LightRows::new(rows).unwrap());
    let heavy = Arc::new(Trace::from_millis(model.heavy.iter().copied()).unwrap());
    let point = |&(size, nanos): &(u64, i64)| (Bytes(size), Shift::from_nanos(nanos));
    let config = WorkloadDependentConfig {
        repeat: if model.looped {
            Repeat::Looped
        } else {
            Repeat::Once
        },
        offset: Duration::from_nanos(model.offset),
        compensation: Compensation::new(model.compensation.iter().map(point)).unwrap(),
        idle: Duration::from_nanos(model.idle),
        idle_at: if model.idle_at_queue {
            IdleAt::Queue
        } else {
            IdleAt::Link
        },
        anchor: if model.from_first {
            Anchor::FirstPacket
        } else {
            Anchor::BaseDelay
        },
        queue: Discipline::DropTail(Limit {
            packets: None,
            bytes: model.limit.map(Bytes),
        }),
        opportunity: Bytes(model.opportunity),
        overhead: Bytes(model.overhead),
        ..WorkloadDependentConfig::new(light, heavy)
    };
    Direction::new(vec![config.into()], Time::from_nanos(model.zero)).with_meter()
}

fn end(outcome: &Outcome<usize>) -> End {
    match outcome.fate {
        Fate::Delivered => End::Left(outcome.departed.as_nanos()),
        Fate::Dropped(reason) => {
            assert_eq!(reason, DropReason::QueueFull);
            End::Dropped
        }
        Fate::Doubled => unreachable!("nothing doubles packets"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn departures_and_drops_agree(model in model(), packets in packets()) {
        let horizon = packets.last().map_or(0, |packet| packet.0) + 400 * MS;
        let mut direction = direction(&model);
        let (mut ends, mut outcomes) = (vec![End::Waits; packets.len()], Vec::new());
        for (index, &(arrival, size)) in packets.iter().enumerate() {
            visit(&mut direction, Time::from_nanos(arrival), &mut outcomes);
            direction.accept(Time::from_nanos(arrival), index, Bytes(size));
        }
        visit(&mut direction, Time::from_nanos(horizon), &mut outcomes);
        prop_assert!(outcomes.is_sorted_by_key(|outcome| outcome.departed));
        for outcome in &outcomes {
            ends[outcome.packet] = end(outcome);
        }
        prop_assert_eq!(ends, model.run(&packets, horizon));
        // The bins of the meter have all arrived bytes, and the bytes that left by their end.
        let bins: Vec<Bin> = direction.finished_bins(Time::from_nanos(horizon)).collect();
        let arrived: u64 = packets.iter().map(|packet| packet.1).sum();
        prop_assert_eq!(bins.iter().map(|bin| bin.arrived.0).sum::<u64>(), arrived);
        let last = bins.last().map_or(Time::ZERO, |bin| bin.end);
        let left = outcomes.iter().filter(|it| it.fate == Fate::Delivered && it.departed < last);
        let left: u64 = left.map(|outcome| outcome.size.0).sum();
        prop_assert_eq!(bins.iter().map(|bin| bin.used.0).sum::<u64>(), left);
        let offered: u64 = bins.iter().filter_map(|bin| bin.capacity).map(|it| it.0).sum();
        if !model.from_first && !model.idle_at_queue {
            prop_assert!(left <= offered, "{} of {} bytes", left, offered);
        }
    }
}
