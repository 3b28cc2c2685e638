//! Invariants of every direction, for arbitrary stages and arrivals, also while stages change.

use std::sync::Arc;

use cellbed_link::*;
use proptest::prelude::*;

use crate::arrivals::{MS, in_order, timestamps};
use crate::driving::visit;

const HORIZON: u64 = 60_000 * MS;

fn span(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let repeat = prop_oneof![4 => Just(Repeat::Looped), 1 => Just(Repeat::Once)];
    let trace =
        (timestamps(), repeat, 0..100 * MS).prop_map(|(millis, repeat, offset)| Schedule::Trace {
            trace: Arc::new(Trace::from_millis(millis).unwrap()),
            repeat,
            offset: span(offset),
        });
    let rate = || prop_oneof![1 => Just(0), 9 => 100_000..50_000_000u64].prop_map(BitRate);
    let steps = prop::collection::vec((1..50 * MS, rate()), 1..8).prop_map(in_order);
    let series = (steps, prop::option::of(1..30 * MS), 0..300 * MS);
    let series = series.prop_map(|(steps, tail, offset)| {
        let (first, last) = (steps[0].0, steps[steps.len() - 1].0);
        let steps = steps.into_iter().map(|(at, rate)| (span(at - first), rate));
        let period = tail.map(|tail| span(last - first + tail));
        Schedule::Series {
            series: Arc::new(RateSeries::new(steps.collect(), period).unwrap()),
            offset: span(offset),
        }
    });
    prop_oneof![
        3 => trace,
        2 => series,
        2 => rate().prop_map(Schedule::Constant),
        2 => (rate(), 0..10_000u64).prop_map(|(rate, burst)| Schedule::TokenBucket { rate, burst: Bytes(burst) }),
        1 => Just(Schedule::Unlimited),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    (
        prop::option::of(1..20u64),
        prop::option::of(1000..30_000u64),
    )
        .prop_map(|(packets, bytes)| Limit {
            packets: packets.map(Packets),
            bytes: bytes.map(Bytes),
        })
}

/// Any discipline, with parameters that take effect within a test; disciplines not named here have their defaults.
fn discipline(overtaking: impl Fn(bool) -> bool) -> impl Strategy<Value = Discipline> {
    let all = Discipline::all().into_iter();
    let chosen: Vec<_> = all.filter(|it| overtaking(overtakes(it))).collect();
    let parameters = (limit(), any::<[bool; 3]>(), any::<u64>());
    (prop::sample::select(chosen), parameters)
        .prop_map(|(discipline, parameters)| quick(discipline, parameters))
}

/// Returns whether packets of one flow may overtake another flow.
fn overtakes(discipline: &Discipline) -> bool {
    matches!(
        discipline,
        Discipline::FqCoDel(_) | Discipline::DualPi2(_) | Discipline::Classes(_)
    )
}

fn quick(
    discipline: Discipline,
    (limit, [first, second, third], number): (Limit, [bool; 3], u64),
) -> Discipline {
    let parameters = serde_json::json!({
        "target_ns": MS, "interval_ns": 10 * MS, "update_ns": 2 * MS, "burst_ns": 5 * MS, "alpha": 16.0, "beta": 200.0,
        "qdelay_ref_ns": 2 * MS, "max_burst_ns": 5 * MS, "minimum_bytes": 3000, "maximum_bytes": 12_000, "weight": 0.2,
        "gentle": first, "adaptive": second, "ecn": third, "classic_share": number % 100, "flows": 1 + number % 5,
        "packets": limit.packets, "bytes": limit.bytes, "seed": number,
        "classes": [
            {"dscp": [46], "packets": limit.packets}, {"dscp": [8], "weight": 1 + number % 9}, {"weight": 2},
        ],
    });
    let mut table = serde_json::to_value(discipline).unwrap();
    for (key, value) in table.as_object_mut().unwrap() {
        if let Some(chosen) = parameters.get(key) {
            *value = chosen.clone();
        }
    }
    serde_json::from_value(table).unwrap()
}

/// Disciplines without overtaking.
fn fifo() -> impl Strategy<Value = Discipline> {
    discipline(|overtakes| !overtakes)
}

fn any_discipline() -> impl Strategy<Value = Discipline> {
    discipline(|_| true)
}

fn bottleneck(queue: impl Strategy<Value = Discipline>) -> impl Strategy<Value = StageConfig> {
    (schedule(), queue, any::<bool>()).prop_map(|(schedule, queue, mahimahi)| {
        let config = if mahimahi {
            BottleneckConfig::mahimahi(schedule)
        } else {
            BottleneckConfig::new(schedule)
        };
        config.with_queue(queue).into()
    })
}

fn probability(range: std::ops::Range<f64>) -> impl Strategy<Value = Probability> {
    range.prop_map(|value| Probability::new(value).unwrap())
}

fn loss() -> impl Strategy<Value = StageConfig> {
    let p = || probability(0.0..0.5);
    let spells = (0..30 * MS, 0..30 * MS, any::<bool>());
    let steps = prop::collection::btree_map(0..100 * MS, p(), 1..5);
    let parameters = ([p(), p(), p(), p()], spells, steps, any::<u64>());
    (0..4, parameters).prop_map(|(kind, (chances, (on, off, exponential), steps, seed))| {
        let ([to_bad, to_good, loss_good, loss_bad], seed) = (chances, Seed(seed));
        let (on, off, probability) = (span(on), span(off), to_bad);
        let steps = steps
            .into_iter()
            .map(|(at, probability)| (span(at), probability));
        let series = Arc::new(LossSeries::new(steps.collect()).unwrap());
        let config = match kind {
            0 => LossConfig::Independent { probability, seed },
            1 => LossConfig::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
                seed,
            },
            2 => LossConfig::OnOff {
                on,
                off,
                exponential,
                seed,
            },
            _ => LossConfig::Series { series, seed },
        };
        config.into()
    })
}

fn delay(may_reorder: bool) -> impl Strategy<Value = StageConfig> {
    let random = (
        [0..30 * MS, 0..20 * MS],
        0..4,
        probability(0.0..1.0),
        any::<bool>(),
        any::<u64>(),
    );
    let random = random.prop_map(move |([mean, width], kind, correlation, reorder, seed)| {
        let (mean, deviation) = (span(mean), span(width));
        let distribution = match kind {
            0 => Distribution::Uniform {
                mean,
                spread: deviation,
            },
            1 => Distribution::Normal { mean, deviation },
            2 => Distribution::Pareto { mean, deviation },
            _ => Distribution::empirical(vec![mean, deviation]).unwrap(),
        };
        let reorder = reorder && may_reorder;
        DelayConfig::Random(RandomDelay {
            distribution,
            correlation,
            reorder,
            seed: Seed(seed),
        })
    });
    let series = prop::collection::btree_map(0..300 * MS, 0..50 * MS, 1..10).prop_map(|points| {
        let points = points
            .into_iter()
            .map(|(at, delay)| (span(at), span(delay)));
        DelayConfig::Series(Arc::new(DelaySeries::new(points.collect()).unwrap()))
    });
    prop_oneof![
        (0..30 * MS).prop_map(|delay| DelayConfig::Fixed(span(delay))),
        series,
        random
    ]
    .prop_map(StageConfig::from)
}

fn damage() -> impl Strategy<Value = StageConfig> {
    (probability(0.0..0.5), any::<u64>(), any::<bool>()).prop_map(|(probability, seed, doubles)| {
        let seed = Seed(seed);
        match doubles {
            true => DuplicationConfig { probability, seed }.into(),
            false => CorruptionConfig { probability, seed }.into(),
        }
    })
}

fn gate() -> impl Strategy<Value = StageConfig> {
    let flush = prop::option::of(any::<bool>());
    (0..30 * MS, 1..50 * MS, flush).prop_map(|(begin, length, flush)| {
        let gate = GateConfig::new(vec![(span(begin), span(length))]).unwrap();
        let flushes = flush.map(|_| span(begin)).into_iter().collect();
        let gate = gate.with_flushes(flushes).unwrap();
        gate.with_in_flight(flush == Some(true)).into()
    })
}

fn flow_limit() -> impl Strategy<Value = StageConfig> {
    (100_000..50_000_000u64, 0..10_000u64, 0..30_000u64).prop_map(|(rate, burst, queue)| {
        FlowLimitConfig {
            rate: BitRate(rate),
            burst: Bytes(burst),
            queue: Bytes(queue),
        }
        .into()
    })
}

/// Stages that keep the order.
fn ordered() -> impl Strategy<Value = Vec<StageConfig>> {
    prop::collection::vec(
        prop_oneof![3 => bottleneck(fifo()), 1 => gate(), 1 => loss(), 1 => delay(false), 1 => damage()],
        1..5,
    )
}

/// Any stages.
fn any_stages() -> impl Strategy<Value = Vec<StageConfig>> {
    prop::collection::vec(
        prop_oneof![4 => bottleneck(any_discipline()), 1 => gate(), 1 => flow_limit(), 1 => loss(), 1 => delay(true), 1 => damage()],
        1..5,
    )
}

#[derive(Clone, Debug)]
enum Call {
    Accept(u64, Tag),
    /// After ns: the stage (modulo their number) gets the configuration of its kind.
    Change(u64, usize, Vec<StageConfig>),
    Restart(u64),
}

fn calls(changes: bool) -> impl Strategy<Value = Vec<(u64, Call)>> {
    let wait = prop_oneof![6 => Just(0), 4 => 0..MS, 1 => 0..60 * MS];
    let dscp = prop_oneof![Just(46u8), Just(8), 0..64u8];
    let tag = (0..4u64, 0..4u8, dscp).prop_map(|(flow, octet, dscp)| Tag {
        flow,
        ecn: Ecn::of_traffic_class(octet),
        dscp,
    });
    let accept = (prop_oneof![Just(1500u64), 1..200u64, 1..3000u64], tag)
        .prop_map(|(size, tag)| Call::Accept(size, tag));
    let one_of_each = (
        bottleneck(any_discipline()),
        flow_limit(),
        loss(),
        delay(true),
        damage(),
    )
        .prop_map(|(bottleneck, limit, loss, delay, damage)| {
            vec![bottleneck, limit, loss, delay, damage]
        });
    let change = (0..40 * MS, 0..5usize, one_of_each)
        .prop_map(|(after, stage, configs)| Call::Change(after, stage, configs));
    let often = if changes { 1 } else { 0 };
    let call = prop_oneof![40 => accept, often * 2 => change, often => (0..40 * MS).prop_map(Call::Restart)];
    prop::collection::vec((wait, call), 1..120).prop_map(in_order)
}

/// Makes a call; returns the bytes that entered.
fn make(direction: &mut Direction<usize>, stages: usize, index: usize, call: &(u64, Call)) -> u64 {
    let now = Time::from_nanos(call.0);
    match &call.1 {
        Call::Accept(size, tag) => {
            direction.accept_tagged(now, index, Bytes(*size), *tag);
            return *size;
        }
        Call::Change(after, stage, configs) => {
            let changed = |config: &StageConfig| {
                direction.change(now + span(*after), stage % stages, config.clone())
            };
            let kinds = configs.iter().map(changed).filter(Result::is_ok).count();
            assert!(kinds <= 1, "only its own kind");
        }
        Call::Restart(after) => direction.restart(now + span(*after), Duration::ZERO),
    }
    0
}

fn exactly(stages: &[StageConfig], calls: &[(u64, Call)]) -> Vec<Outcome<usize>> {
    let mut direction = Direction::new(stages.to_vec(), Time::ZERO);
    let mut outcomes = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        visit(&mut direction, Time::from_nanos(call.0), &mut outcomes);
        make(&mut direction, stages.len(), index, call);
    }
    let horizon = Time::from_nanos(HORIZON);
    visit(&mut direction, horizon, &mut outcomes);
    outcomes.extend(std::iter::from_fn(|| direction.poll(horizon)));
    outcomes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nothing_made_up(stages in any_stages(), calls in calls(true)) {
        let mut direction = Direction::new(stages.clone(), Time::ZERO);
        let (mut entered, mut ended) = (0, 0);
        let mut lives = vec![0i32; calls.len()];
        let mut count = |outcome: Outcome<usize>, entered: &mut u64, ended: &mut u64| match outcome.fate {
            Fate::Doubled => { *entered += outcome.size.0; lives[outcome.packet] += 1; }
            Fate::Delivered | Fate::Dropped(_) => { *ended += outcome.size.0; lives[outcome.packet] -= 1; }
        };
        for (index, call) in calls.iter().enumerate() {
            entered += make(&mut direction, stages.len(), index, call);
            while let Some(outcome) = direction.poll(Time::from_nanos(call.0)) {
                count(outcome, &mut entered, &mut ended);
            }
            prop_assert_eq!(entered, ended + direction.held().bytes.0);
        }
        while let Some(outcome) = direction.poll(Time::from_nanos(HORIZON)) {
            count(outcome, &mut entered, &mut ended);
        }
        prop_assert_eq!(entered, ended + direction.held().bytes.0);
        prop_assert!(lives.iter().all(|&lives| lives >= -1), "no packet ends more often than it began");
    }

    #[test]
    fn when_the_caller_looks_changes_nothing(stages in any_stages(), calls in calls(true), looks in prop::collection::vec(0..2_000 * MS, 0..20)) {
        let exact = exactly(&stages, &calls);
        let mut direction = Direction::new(stages.clone(), Time::ZERO);
        let mut looks = looks;
        looks.sort_unstable();
        let mut looks = looks.into_iter().peekable();
        let mut outcomes = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            while let Some(look) = looks.next_if(|&look| look <= call.0) {
                outcomes.extend(direction.poll(Time::from_nanos(look)));
            }
            make(&mut direction, stages.len(), index, call);
        }
        outcomes.extend(std::iter::from_fn(|| direction.poll(Time::from_nanos(HORIZON))));
        prop_assert_eq!(outcomes, exact);
    }

    #[test]
    fn the_order_is_kept_where_it_is_promised(stages in ordered(), calls in calls(false)) {
        let outcomes = exactly(&stages, &calls);
        let delivered: Vec<_> = outcomes.iter().filter(|outcome| outcome.fate == Fate::Delivered).collect();
        prop_assert!(delivered.is_sorted_by_key(|outcome| outcome.packet));
    }

    #[test]
    fn outcomes_come_in_order_of_time_and_flows_keep_theirs(schedule in schedule(), queue in discipline(|overtakes| overtakes), calls in calls(false)) {
        let stages = [BottleneckConfig::new(schedule).with_queue(queue).into()];
        let outcomes = exactly(&stages, &calls);
        prop_assert!(outcomes.is_sorted_by_key(|outcome| outcome.departed));
        // per flow, and per queue or class if there are several
        for flow in 0..4 {
            for (is_low_latency, dscp) in (0..128).map(|it| (it % 2 == 0, it / 2)) {
                let of_flow = |packet: usize| matches!(calls[packet].1, Call::Accept(_, tag) if tag.flow == flow && tag.ecn.is_low_latency() == is_low_latency && tag.dscp == dscp);
                let order = outcomes.iter().filter(|outcome| outcome.fate == Fate::Delivered && of_flow(outcome.packet));
                prop_assert!(order.map(|outcome| outcome.packet).is_sorted());
            }
        }
    }

    #[test]
    fn only_capable_packets_are_marked_and_bits_lie_within(stages in any_stages(), calls in calls(true)) {
        for outcome in exactly(&stages, &calls) {
            let Call::Accept(size, tag) = calls[outcome.packet].1 else { unreachable!() };
            prop_assert!(!outcome.marked || tag.ecn.is_capable());
            prop_assert!(outcome.corrupt_bit.is_none_or(|bit| u64::from(bit) < 8 * size));
            prop_assert!(outcome.arrived <= outcome.released && outcome.released <= outcome.departed);
        }
    }

    #[test]
    fn no_schedule_releases_more_than_it_allows(schedule in schedule(), queue in any_discipline(), calls in calls(false)) {
        let stages = [BottleneckConfig::new(schedule.clone()).with_queue(queue).into()];
        let outcomes: Vec<_> = exactly(&stages, &calls).into_iter().filter(|outcome| outcome.fate == Fate::Delivered).collect();
        let allowed = |from: Time, to: Time| -> f64 {
            let seconds = (to - from).as_secs_f64();
            match &schedule {
                Schedule::Trace { trace, offset, .. } => trace.capacity(from - Time::ZERO + *offset, to - Time::ZERO + *offset + span(1)).0 as f64,
                Schedule::Constant(rate) => rate.0 as f64 * seconds / 8.0 + 1.0,
                // a packet larger than the bucket leaves a debt
                Schedule::TokenBucket { rate, burst } => burst.0.max(3000) as f64 + rate.0 as f64 * seconds / 8.0 + 1.0,
                Schedule::Series { .. } | Schedule::Unlimited => f64::INFINITY,
            }
        };
        for (index, first) in outcomes.iter().enumerate() {
            let mut sent = 0;
            for last in &outcomes[index + 1..] {
                sent += last.size.0;
                prop_assert!(sent as f64 <= allowed(first.released, last.released), "{sent} bytes from {} to {}", first.released, last.released);
            }
        }
    }

    #[test]
    fn a_loop_is_continuous_at_the_seam(millis in timestamps(), from in 1..500 * MS, width in 0..500 * MS, cut in 0..500 * MS) {
        let trace = Trace::from_millis(millis).unwrap();
        let period = trace.duration();
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
    fn a_restart_repeats_everything(stages in any_stages(), calls in calls(false)) {
        let mut direction = Direction::new(stages.clone(), Time::ZERO);
        let mut pass = |zero: u64| {
            direction.restart(Time::from_nanos(zero), Duration::ZERO);
            for (index, (at, call)) in calls.iter().enumerate() {
                make(&mut direction, stages.len(), index, &(zero + at, call.clone()));
            }
            let outcomes = std::iter::from_fn(|| direction.poll(Time::from_nanos(zero + HORIZON)));
            let outcomes: Vec<_> = outcomes.map(|outcome| (outcome.packet, outcome.departed - Time::from_nanos(zero), outcome.fate, outcome.marked, outcome.corrupt_bit)).collect();
            (outcomes, direction.held().packets)
        };
        let first = pass(0);
        prop_assume!(first.1 == Packets(0)); // no packet is stuck at a rate of zero
        prop_assert_eq!(first, pass(HORIZON + 7 * MS));
    }

    #[test]
    fn no_call_panics(
        stages in any_stages(),
        with in prop::collection::vec((any::<u64>(), any::<u64>(), 0..5u8), 0..40),
        change in calls(true),
        extreme in any::<(u64, u64)>(),
        zero in any::<u64>(),
    ) {
        let extreme = |schedule| BottleneckConfig { opportunity: Bytes(extreme.0), overhead: Bytes(extreme.1), ..BottleneckConfig::new(schedule) };
        let trace = Arc::new(Trace::from_millis([0, 1, u64::from(u32::MAX)]).unwrap());
        let schedule = Schedule::Trace { trace, repeat: Repeat::Looped, offset: span(zero) };
        let mut stages = stages;
        stages.extend([schedule, Schedule::Constant(BitRate(zero))].map(|it| extreme(it).into()));
        let mut direction = Direction::new(stages.clone(), Time::from_nanos(zero)).with_meter();
        for (index, (at, value, call)) in with.into_iter().enumerate() {
            let now = Time::from_nanos(at);
            match call {
                0 | 1 => direction.accept_tagged(now, index, Bytes(value), Tag { flow: value, ecn: Ecn::of_traffic_class(value as u8), dscp: value as u8 % 64 }),
                2 => drop(direction.poll(now)),
                3 => direction.restart(now, span(value)),
                _ => {
                    make(&mut direction, stages.len(), index, &change[index % change.len()]);
                    direction.finished_bins(now).take(10).count();
                }
            }
            direction.next_event();
        }
    }
}
