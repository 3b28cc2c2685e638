//! Outages: during an outage no packet leaves; no packet is late for another reason, and none is early.

use std::sync::Arc;

use cellbed_link::*;
use proptest::prelude::*;

use crate::arrivals::{MS, in_order, timestamps, waits};
use crate::driving::{constant, delay, departures, drain, ms, span};

fn gate(outages: &[(u64, u64)]) -> StageConfig {
    let outages = outages.iter().map(|&(at, of)| (span(at), span(of)));
    GateConfig::new(outages.collect()).unwrap().into()
}

fn down(down: bool) -> StageConfig {
    GateConfig::default().with_down(down).into()
}

/// Outages in ms, (begin, length).
fn outages() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((1..40u64, 1..40u64), 0..6).prop_map(|steps| {
        let mut free = 0;
        let place = |(wait, length)| {
            let begin = free + wait;
            free = begin + length;
            (begin, length)
        };
        steps.into_iter().map(place).collect()
    })
}

/// Arrivals of packets: (ns, bytes).
fn packets() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((waits(), 40..1501u64), 1..80).prop_map(in_order)
}

fn run(stages: Vec<StageConfig>, packets: &[(u64, u64)]) -> Vec<Outcome<usize>> {
    let mut link = Direction::new(stages, Time::ZERO);
    for (number, &(at, size)) in packets.iter().enumerate() {
        link.accept(Time::from_nanos(at), number, Bytes(size));
    }
    let mut outcomes = drain(&mut link);
    outcomes.sort_by_key(|outcome| outcome.packet);
    outcomes
}

fn is_inside(outages: &[(u64, u64)], at: Time) -> bool {
    outages
        .iter()
        .any(|&(begin, length)| ms(begin) <= at && at < ms(begin + length))
}

/// Returns the time less the outages before it.
fn without(outages: &[(u64, u64)], at: u64) -> u64 {
    let lost = |&(begin, length): &(u64, u64)| at.saturating_sub(begin * MS).min(length * MS);
    at - outages.iter().map(lost).sum::<u64>()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_constant_rate_continues_after_an_outage_where_it_stopped(outages in outages(), packets in packets()) {
        // A byte takes a whole µs: no outage splits a byte.
        let packets: Vec<_> = packets.into_iter().map(|(at, size)| (at / 1000 * 1000, size)).collect();
        let bottleneck = StageConfig::from(constant(8));
        let gated = run(vec![gate(&outages), bottleneck.clone()], &packets);
        let joined: Vec<_> = packets.iter().map(|&(at, size)| (without(&outages, at), size)).collect();
        for (with, plain) in gated.iter().zip(run(vec![bottleneck], &joined)) {
            prop_assert!(!is_inside(&outages, with.departed), "{with:?}");
            let at = without(&outages, with.departed.as_nanos());
            prop_assert_eq!(at, plain.departed.as_nanos());
        }
    }

    #[test]
    fn an_outage_takes_the_opportunities_in_it_and_no_others(
        millis in timestamps(), outages in outages(), packets in packets(),
    ) {
        let once = |millis: Vec<u64>| {
            let trace = Arc::new(Trace::from_millis(millis).unwrap());
            StageConfig::from(BottleneckConfig::new(Schedule::once(trace)))
        };
        let end = 10_000; // so that neither trace is empty
        let left: Vec<u64> = millis.iter().copied().filter(|&at| !is_inside(&outages, ms(at))).collect();
        let [all, left] = [millis, left].map(|millis| once(millis.into_iter().chain([end]).collect()));
        let gated = run(vec![gate(&outages), all.clone()], &packets);
        let filtered = run(vec![left], &packets);
        prop_assert_eq!(&gated, &filtered);
        for (with, free) in gated.iter().zip(run(vec![all], &packets)) {
            prop_assert!(with.departed >= free.departed);
        }
    }

    #[test]
    fn nothing_leaves_a_queue_of_any_kind_during_an_outage(
        outages in outages(), packets in packets(), schedule in 0..4usize, queue in 0..3usize, delay in 0..30u64,
    ) {
        let trace = Arc::new(Trace::from_millis([2, 5, 5, 9]).unwrap());
        let steps = vec![(span(0), BitRate(5_000_000)), (span(7), BitRate(0)), (span(9), BitRate(40_000_000))];
        let series = Arc::new(RateSeries::new(steps, Some(span(20))).unwrap());
        let schedule = [
            Schedule::looped(trace),
            Schedule::Series { series, offset: Duration::ZERO },
            Schedule::TokenBucket { rate: BitRate(4_000_000), burst: Bytes(3000) },
            Schedule::Unlimited,
        ][schedule].clone();
        let queue = [
            Discipline::DropTail(Limit::packets(5)),
            Discipline::CoDel(CoDelConfig::default()),
            Discipline::Infinite,
        ][queue].clone();
        let bottleneck = BottleneckConfig::new(schedule).with_queue(queue);
        let stages = vec![gate(&outages), bottleneck.into(), DelayConfig::Fixed(span(delay)).into()];
        let outcomes = run(stages, &packets);
        prop_assert_eq!(outcomes.len(), packets.len());
        for outcome in outcomes.iter().filter(|outcome| outcome.fate == Fate::Delivered) {
            prop_assert!(!is_inside(&outages, outcome.released), "{outcome:?}");
            prop_assert_eq!(outcome.departed, outcome.released + span(delay));
        }
    }

    #[test]
    fn what_is_offered_is_without_the_outages(outages in outages(), packets in packets()) {
        let mut link = Direction::new(vec![gate(&outages), constant(8).into()], Time::ZERO).with_meter();
        for &(at, size) in &packets {
            link.accept(Time::from_nanos(at), (), Bytes(size));
        }
        for bin in link.finished_bins(ms(1000)) {
            let open = without(&outages, bin.end.as_nanos()) - without(&outages, bin.start.as_nanos());
            prop_assert_eq!(bin.capacity, Some(Bytes(open / 1000)));
        }
    }
}

/// A packet of 1400 bytes each ms for 3 s.
fn flood(stage: StageConfig, outages: &[(u64, u64)]) -> Vec<Outcome<usize>> {
    let packets: Vec<_> = (0..3000).map(|at| (at * MS, 1400)).collect();
    run(vec![gate(outages), stage], &packets)
}

#[test]
fn a_radio_link_sends_nothing_during_an_outage() {
    for way in [Way::Uplink, Way::Downlink] {
        let radio = Profile::MIDBAND_GOOD.config(way);
        let outcomes = flood(radio.into(), &[(1000, 500)]);
        // Packets sent before may need retransmissions.
        let sent_again = span(60);
        let delivered = || outcomes.iter().filter(|it| it.fate == Fate::Delivered);
        let inside =
            |it: &&Outcome<usize>| ms(1000) + sent_again < it.released && it.released < ms(1500);
        assert_eq!(delivered().find(inside), None);
        let soon = delivered()
            .filter(|it| it.released >= ms(1500))
            .map(|it| it.released);
        assert!(soon.min() < Some(ms(1530)), "the queue is served again");
        assert!(delivered().any(|it| it.arrived > ms(1100) && it.arrived < ms(1400)));
    }
}

#[test]
fn a_recording_of_two_workloads_sends_nothing_during_an_outage() {
    let heavy = Arc::new(Trace::from_millis((1..=500).map(|step| 2 * step)).unwrap());
    let light = Arc::new(LightRows::parse(&b"0 20 0 1 3 6\n50 30 0 2 4\n"[..]).unwrap());
    let config = WorkloadDependentConfig {
        idle: span(10),
        ..WorkloadDependentConfig::new(light, heavy)
    };
    let is_outside = |it: &Outcome<usize>| !is_inside(&[(1000, 500)], it.departed);
    let outcomes = flood(config.clone().into(), &[(1000, 500)]);
    assert_eq!(outcomes.len(), 3000);
    assert!(outcomes.iter().all(is_outside));
    assert!(outcomes.iter().any(|it| it.departed == ms(1500)));
    // Single packets, some during the outage; each is an activation.
    let packets: Vec<_> = (0..60).map(|at| (at * 50 * MS, 1400)).collect();
    let outcomes = run(vec![gate(&[(1000, 500)]), config.into()], &packets);
    assert_eq!(outcomes.len(), 60);
    assert!(outcomes.iter().all(is_outside));
}

#[test]
fn a_change_while_the_link_is_down_is_in_force_when_it_is_up() {
    let mut link = Direction::new(vec![down(false), constant(12).into()], Time::ZERO);
    for packet in 0..3 {
        link.accept(ms(0), packet, MTU); // 1 ms each
    }
    link.change(Time::from_micros(1500), 0, down(true)).unwrap();
    link.change(ms(4), 1, constant(6).into()).unwrap();
    link.change(ms(10), 0, down(false)).unwrap();
    // Half of the second packet was sent before, at 12 Mbit/s.
    let expected = [1000, 11_000, 13_000].map(Time::from_micros);
    assert_eq!(departures(&mut link), expected);
    assert_eq!(link.in_force(), [InForce::Called; 2]);
}

#[test]
fn outages_continue_behind_what_was_down_and_begin_anew_with_a_start() {
    let unlimited = StageConfig::from(BottleneckConfig::new(Schedule::Unlimited));
    let outages = GateConfig::new(vec![(span(10), span(10))]).unwrap();
    let closed = outages.clone().with_down(true);
    let mut link = Direction::new(vec![outages.clone().into(), unlimited], Time::ZERO);
    link.change(ms(5), 0, closed.into()).unwrap();
    link.change(ms(15), 0, outages.into()).unwrap();
    for at in [4, 5, 16, 20] {
        link.accept(ms(at), at, MTU);
    }
    link.restart(ms(100), Duration::ZERO);
    for at in [109, 111] {
        link.accept(ms(at), at, MTU);
    }
    let left = drain(&mut link)
        .into_iter()
        .map(|it| (it.packet, it.departed));
    let expected = [(4, 4), (5, 20), (16, 20), (20, 20), (109, 109), (111, 120)];
    assert_eq!(
        left.collect::<Vec<_>>(),
        expected.map(|(packet, at)| (packet, ms(at)))
    );
}

#[test]
fn without_a_queue_packets_are_lost() {
    let stages = vec![gate(&[(10, 10)]), delay(5)];
    let outcomes = run(stages, &[9, 10, 20].map(|at| (at * MS, 100)));
    let fates: Vec<_> = outcomes.iter().map(|outcome| outcome.fate).collect();
    let lost = Fate::Dropped(DropReason::Loss);
    assert_eq!(fates, [Fate::Delivered, lost, Fate::Delivered]);
}

/// Returns the gate of a link that is lost from 5 ms on, for `length` ms.
fn lost_at_5_ms(length: u64, in_flight: bool) -> StageConfig {
    let gate = GateConfig::new(vec![(span(5), span(length))]).unwrap();
    let gate = gate.with_flushes(vec![span(5)]).unwrap();
    gate.with_in_flight(in_flight).into()
}

/// Returns fates and departures, ms, of packets of 1 ms each on a link with 10 ms delay that is lost from 5 to 25 ms.
fn lost_radio(in_flight: bool) -> Vec<(Fate, u64)> {
    let stages = vec![lost_at_5_ms(20, in_flight), constant(12).into(), delay(10)];
    let outcomes = run(stages, &[0, 0, 0, 0, 0, 0, 0, 6].map(|at| (at * MS, 1500)));
    let departed = |it: &Outcome<usize>| it.departed.as_nanos() / MS;
    outcomes.iter().map(|it| (it.fate, departed(it))).collect()
}

#[test]
fn a_radio_that_is_lost_drops_its_queue_and_what_is_in_flight() {
    let dropped = (Fate::Dropped(DropReason::Handover), 5);
    let waited = (Fate::Delivered, 36); // arrived at 6 ms, sent at 25 ms
    let mut kept: Vec<_> = (11..15).map(|at| (Fate::Delivered, at)).collect();
    kept.extend([dropped, dropped, dropped, waited]);
    assert_eq!(lost_radio(false), kept);
    let mut lost = vec![dropped; 7];
    lost.push(waited);
    assert_eq!(lost_radio(true), lost);
}

#[test]
fn a_shorter_delay_need_not_wait_for_packets_that_were_lost() {
    let stages = vec![lost_at_5_ms(1, true), constant(12).into(), delay(50)];
    let other = Change {
        at: span(6),
        stage: 2,
        config: delay(10),
    };
    let mut link = Direction::new(stages, Time::ZERO).with_changes(vec![other]);
    let link = link.as_mut().unwrap();
    link.accept(ms(0), "lost", MTU);
    link.accept(ms(7), "arrives", MTU);
    let outcomes = drain(link);
    let found: Vec<_> = outcomes.iter().map(|it| (it.packet, it.departed)).collect();
    assert_eq!(found, [("lost", ms(5)), ("arrives", ms(18))]);
    // A loss is reported when it happens, not when the packet would have arrived.
    assert_eq!(outcomes[0].fate, Fate::Dropped(DropReason::Handover));
}
