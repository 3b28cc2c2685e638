//! Invariants of every direction, for arbitrary stages and arrivals.

use std::sync::Arc;

use cellbed_link::*;
use proptest::prelude::*;

use crate::arrivals::{MS, in_order, timestamps, waits};
use crate::driving::{call, visit};

fn trace() -> impl Strategy<Value = Arc<Trace>> {
    timestamps().prop_map(|millis| Arc::new(Trace::from_millis(millis).unwrap()))
}

fn schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        6 => (trace(), prop_oneof![4 => Just(Repeat::Looped), 1 => Just(Repeat::Once)], 0..100 * MS).prop_map(
            |(trace, repeat, offset)| Schedule::Trace { trace, repeat, offset: Duration::from_nanos(offset) }),
        2 => (100_000..10_000_000_000u64).prop_map(|rate| Schedule::Constant(BitRate(rate))),
        1 => Just(Schedule::Unlimited),
    ]
}

fn discipline() -> impl Strategy<Value = Discipline> {
    let limits = (prop::option::of(1..8u64), prop::option::of(1000..20_000u64));
    prop_oneof![
        Just(Discipline::Infinite),
        limits.prop_map(|(packets, bytes)| Discipline::DropTail(Limit {
            packets: packets.map(Packets),
            bytes: bytes.map(Bytes),
        })),
    ]
}

fn bottleneck() -> impl Strategy<Value = BottleneckConfig> {
    (schedule(), discipline())
        .prop_map(|(schedule, queue)| BottleneckConfig::new(schedule).with_queue(queue))
}

fn delay() -> impl Strategy<Value = DelayConfig> {
    let points = prop::collection::btree_map(0..300 * MS, 0..50 * MS, 1..10);
    prop_oneof![
        (0..50 * MS).prop_map(|delay| DelayConfig::Fixed(Duration::from_nanos(delay))),
        points.prop_map(|points| {
            let span = Duration::from_nanos;
            let points = points
                .into_iter()
                .map(|(time, delay)| (span(time), span(delay)))
                .collect();
            DelayConfig::Series(Arc::new(DelaySeries::new(points).unwrap()))
        }),
    ]
}

fn stages() -> impl Strategy<Value = Vec<StageConfig>> {
    let loss =
        (0.0..0.5f64, any::<u64>()).prop_map(|(probability, seed)| LossConfig::Independent {
            probability: Probability::new(probability).unwrap(),
            seed: Seed(seed),
        });
    let gate = (0..30 * MS, 1..50 * MS, any::<bool>()).prop_map(|(begin, length, down)| {
        let outage = (Duration::from_nanos(begin), Duration::from_nanos(length));
        let gate = GateConfig::new(vec![outage]).unwrap();
        StageConfig::from(gate.with_down(down && begin == 0))
    });
    let stage = prop_oneof![
        1 => gate,
        1 => loss.prop_map(StageConfig::from),
        2 => bottleneck().prop_map(StageConfig::from),
        2 => delay().prop_map(StageConfig::from),
    ];
    prop::collection::vec(stage, 0..5)
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Accept(u64),
    Restart { ahead: u64, offset: u64 },
}

/// Calls at increasing times in ns.
fn calls() -> impl Strategy<Value = Vec<(u64, Call)>> {
    let size = prop_oneof![3 => Just(1500u64), 2 => 1..200u64, 1 => 0..6000u64];
    let call = prop_oneof![
        30 => size.prop_map(Call::Accept),
        1 => (1..30 * MS, 0..100 * MS).prop_map(|(ahead, offset)| Call::Restart { ahead, offset }),
    ];
    prop::collection::vec((waits(), call), 1..80).prop_map(in_order)
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, Call)>> {
    calls().prop_map(|calls| {
        calls
            .into_iter()
            .filter(|(_, call)| matches!(call, Call::Accept(_)))
            .collect()
    })
}

/// Makes a call, and returns the bytes that it put in.
fn make(direction: &mut Direction<usize>, index: usize, (now, call): (u64, Call)) -> u64 {
    let now = Time::from_nanos(now);
    match call {
        Call::Accept(size) => {
            direction.accept(now, index, Bytes(size));
            size
        }
        Call::Restart { ahead, offset } => {
            direction.restart(
                now + Duration::from_nanos(ahead),
                Duration::from_nanos(offset),
            );
            0
        }
    }
}

/// Makes the calls with a visit at every event between them, then visits every event up to `horizon`.
fn exactly(
    mut direction: Direction<usize>,
    calls: &[(u64, Call)],
    horizon: u64,
) -> Vec<Outcome<usize>> {
    let mut outcomes = Vec::new();
    for (index, &call) in calls.iter().enumerate() {
        visit(&mut direction, Time::from_nanos(call.0), &mut outcomes);
        make(&mut direction, index, call);
    }
    visit(&mut direction, Time::from_nanos(horizon), &mut outcomes);
    outcomes
}

const HORIZON: u64 = 20_000 * MS;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn when_the_caller_looks_changes_nothing(stages in stages(), calls in calls(), looks in prop::collection::vec(0..HORIZON / 50, 0..20)) {
        let exact = exactly(Direction::new(stages.clone(), Time::ZERO), &calls, HORIZON);

        let mut direction = Direction::new(stages, Time::ZERO);
        let mut looks = looks;
        looks.sort_unstable();
        let mut looks = looks.into_iter().peekable();
        let mut outcomes = Vec::new();
        for (index, &call) in calls.iter().enumerate() {
            while let Some(look) = looks.next_if(|&look| look <= call.0) {
                outcomes.extend(direction.poll(Time::from_nanos(look))); // at most one: the rest waits
            }
            make(&mut direction, index, call);
        }
        outcomes.extend(std::iter::from_fn(|| direction.poll(Time::from_nanos(HORIZON))));
        prop_assert_eq!(outcomes, exact);
    }

    #[test]
    fn bytes_are_conserved(stages in stages(), calls in calls()) {
        let mut direction = Direction::new(stages, Time::ZERO);
        let (mut entered, mut ended) = (0, 0);
        for (index, &call) in calls.iter().enumerate() {
            entered += make(&mut direction, index, call);
            ended += std::iter::from_fn(|| direction.poll(Time::from_nanos(call.0))).map(|outcome| outcome.size.0).sum::<u64>();
            prop_assert_eq!(entered, ended + direction.held().bytes.0);
        }
        let rest: Vec<_> = std::iter::from_fn(|| direction.poll(Time::from_nanos(HORIZON))).collect();
        ended += rest.iter().map(|outcome| outcome.size.0).sum::<u64>();
        prop_assert_eq!(entered, ended + direction.held().bytes.0);
    }

    #[test]
    fn packets_leave_in_the_order_in_which_they_came(stages in stages(), calls in calls()) {
        let outcomes = exactly(Direction::new(stages, Time::ZERO), &calls, HORIZON);
        let delivered: Vec<_> = outcomes.iter().filter(|outcome| outcome.fate == Fate::Delivered).collect();
        prop_assert!(delivered.is_sorted_by_key(|outcome| outcome.packet));
        prop_assert!(outcomes.is_sorted_by_key(|outcome| outcome.departed));
        prop_assert!(outcomes.iter().all(|outcome| outcome.arrived <= outcome.released && outcome.released <= outcome.departed));
    }

    #[test]
    fn a_schedule_releases_no_more_than_it_allows(trace in trace(), offset in 0..100 * MS, calls in arrivals()) {
        let offset = Duration::from_nanos(offset);
        let schedule = Schedule::Trace { trace: trace.clone(), repeat: Repeat::Looped, offset };
        let outcomes = exactly(Direction::new(vec![BottleneckConfig::new(schedule).into()], Time::ZERO), &calls, HORIZON);
        // All bytes of the packets after the i-th leave from its departure on.
        for (index, first) in outcomes.iter().enumerate() {
            let mut sent = 0;
            for last in &outcomes[index + 1..] {
                sent += last.size.0;
                let from = Duration::from_nanos(first.released.as_nanos()) + offset;
                let to = Duration::from_nanos(last.released.as_nanos() + 1) + offset;
                prop_assert!(sent <= trace.capacity(from, to).0, "{sent} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn a_loop_is_continuous_at_the_seam(trace in trace(), from in 1..500 * MS, width in 0..500 * MS, cut in 0..500 * MS) {
        let (span, period) = (Duration::from_nanos, trace.duration());
        let (from, to) = (span(from), span(from + width));
        let middle = span(from.as_nanos() + cut.min(width));
        prop_assert_eq!(trace.capacity(from, to), trace.capacity(from + period, to + period));
        prop_assert_eq!(trace.capacity(from, to), trace.capacity(from, middle) + trace.capacity(middle, to));
        prop_assert_eq!(trace.next_opportunity(from) + period, trace.next_opportunity(from + period));
        prop_assert_eq!(trace.capacity(from, trace.next_opportunity(from)), Bytes(0));
        prop_assert!(trace.next_opportunity(from).saturating_sub(from) <= trace.longest_gap());
        prop_assert_eq!(trace.capacity(from, from + period), trace.bins(period).sum::<Bytes>());
    }

    #[test]
    fn no_call_panics(
        stages in stages(),
        calls in prop::collection::vec((any::<u64>(), any::<u64>(), 0..4u8), 0..40),
        opportunity in any::<u64>(),
        overhead in any::<u64>(),
        rate in any::<u64>(),
    ) {
        let extreme = |schedule| BottleneckConfig { opportunity: Bytes(opportunity), overhead: Bytes(overhead), ..BottleneckConfig::new(schedule) };
        let trace = Arc::new(Trace::from_millis([0, 1, u64::from(u32::MAX)]).unwrap());
        let mut all = stages;
        all.push(extreme(Schedule::Trace { trace, repeat: Repeat::Looped, offset: Duration::from_nanos(rate) }).into());
        all.push(extreme(Schedule::Constant(BitRate(rate))).into());
        let mut direction = Direction::new(all, Time::from_nanos(overhead)).with_meter();
        call(&mut direction, calls);
    }
}
