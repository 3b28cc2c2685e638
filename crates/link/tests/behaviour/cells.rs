//! Users that share a cell.

use std::sync::Arc;

use cellbed_link::random::Random;
use cellbed_link::*;
use proptest::prelude::*;

use crate::arrivals::{MS, in_order, timestamps};
use crate::conditional;
use crate::driving::{delay, drain};

/// A packet: arrival (ns), user, size.
type Packet = (u64, usize, u64);

/// Departure from the queue, departure and fate, by packet.
type Ends = Vec<(Time, Time, Fate)>;

const SLOT: Duration = Duration::from_millis(1);

fn all_schedulers() -> [Scheduler; 5] {
    let window = Duration::from_millis(200);
    [
        Scheduler::RoundRobin {},
        fair(window),
        Scheduler::MaxRate {},
        Scheduler::ShortestRemaining {},
        Scheduler::Priority {},
    ]
}

/// Returns links whose users share a cell.
fn links<P: Clone>(scheduler: Scheduler, slot: Duration, stages: &[Vec<StageConfig>]) -> Graph<P> {
    let users = (0..stages.len()).map(|user| (Visit::always(user as u32), user));
    graph(scheduler, slot, &[users.collect()], stages).unwrap()
}

/// Returns links in cells. cells: visits and link numbers of each cell.
fn graph<P: Clone>(
    scheduler: Scheduler,
    slot: Duration,
    cells: &[Vec<(Visit, usize)>],
    stages: &[Vec<StageConfig>],
) -> Result<Graph<P>, GraphError> {
    stages.iter().try_for_each(|it| cell::check_stages(it))?;
    let cell = |visits: &Vec<(Visit, usize)>| {
        let (users, links) = visits.iter().copied().unzip();
        let config = CellConfig {
            scheduler,
            slot,
            users,
        };
        (config, links)
    };
    let config = GraphConfig {
        vertices: 1,
        directions: stages.iter().cloned().map(Into::into).collect(),
        cells: cells.iter().map(cell).collect(),
    };
    Graph::new(config, Time::ZERO)
}

/// Sends packets, in order of arrival, through a cell.
fn through(mut cell: Graph<usize>, packets: &[Packet]) -> Ends {
    for (number, &(at, user, size)) in packets.iter().enumerate() {
        cell.accept(Time::from_nanos(at), user, number, Bytes(size));
    }
    let mut ends = vec![None; packets.len()];
    while let Some(event) = cell.next_event() {
        while let Some((user, outcome)) = cell.poll(event) {
            assert_eq!(user, packets[outcome.packet].1);
            let end = (outcome.released, outcome.departed, outcome.fate);
            assert_eq!(
                ends[outcome.packet].replace(end),
                None,
                "a packet ends once"
            );
        }
    }
    ends.into_iter()
        .map(|end| end.expect("every packet ends"))
        .collect()
}

/// Sends the packets of each user through a separate link.
fn alone(stages: &[Vec<StageConfig>], packets: &[Packet]) -> Ends {
    let mut ends = vec![(Time::ZERO, Time::ZERO, Fate::Doubled); packets.len()];
    for (user, stages) in stages.iter().enumerate() {
        let mut direction = Direction::new(stages.clone(), Time::ZERO);
        for (number, &(at, _, size)) in packets.iter().enumerate().filter(|(_, it)| it.1 == user) {
            direction.accept(Time::from_nanos(at), number, Bytes(size));
        }
        for outcome in drain(&mut direction) {
            ends[outcome.packet] = (outcome.released, outcome.departed, outcome.fate);
        }
    }
    ends
}

fn bottleneck(schedule: Schedule, queue: Discipline) -> Vec<StageConfig> {
    let bottleneck = BottleneckConfig::new(schedule).with_queue(queue);
    vec![bottleneck.into(), delay(7)]
}

fn constant(rate: u64) -> Vec<StageConfig> {
    bottleneck(Schedule::Constant(BitRate(rate)), Discipline::Infinite)
}

fn trace(millis: &[u64]) -> Vec<StageConfig> {
    let trace = Arc::new(Trace::from_millis(millis.iter().copied()).unwrap());
    bottleneck(Schedule::looped(trace), Discipline::Infinite)
}

/// Rates that change every 10 ms, from a seed; looped.
fn varying(seed: u64) -> Vec<StageConfig> {
    let mut random = Random::new(Seed(seed));
    let starts = (0..200).map(|index| Duration::from_millis(10 * index));
    let steps = starts.map(|start| (start, BitRate(random.below(20_000_000))));
    let series = RateSeries::new(steps.collect(), Some(Duration::from_secs(2))).unwrap();
    let (series, offset) = (Arc::new(series), Duration::ZERO);
    bottleneck(Schedule::Series { series, offset }, Discipline::Infinite)
}

fn any_stages() -> impl Strategy<Value = Vec<StageConfig>> {
    let trace = timestamps()
        .prop_map(|millis| Schedule::looped(Arc::new(Trace::from_millis(millis).unwrap())));
    let schedule = prop_oneof![
        3 => trace,
        2 => (100_000..50_000_000u64).prop_map(|rate| Schedule::Constant(BitRate(rate))),
        1 => (100_000..50_000_000u64, 3000..9000u64).prop_map(|(rate, burst)| {
            Schedule::TokenBucket { rate: BitRate(rate), burst: Bytes(burst) }
        }),
    ];
    let limit = |packets| Discipline::DropTail(Limit::packets(packets));
    let discipline = prop_oneof![
        2 => Just(Discipline::Infinite),
        1 => (2..6u64).prop_map(limit),
        1 => Just(Discipline::CoDel(CoDelConfig::default())),
        1 => Just(Discipline::FqCoDel(FqCoDelConfig::default())),
    ];
    let radio = (any::<u64>(), any::<bool>()).prop_map(|(seed, up)| {
        let way = if up { Way::Uplink } else { Way::Downlink };
        let mut config = Profile::LOWBAND_DRIVING.config(way);
        config.seed = Seed(seed);
        vec![config.into()]
    });
    prop_oneof![
        5 => (schedule, discipline).prop_map(|(schedule, queue)| bottleneck(schedule, queue)),
        1 => radio,
        2 => (any::<u64>(), any::<bool>()).prop_map(|(seed, aligned)| recording(seed, aligned, 1 + seed % 4)),
    ]
}

/// Returns a recorded link of 1400 bytes a millisecond, with some opportunities at one instant.
fn recording(seed: u64, aligned: bool, together: u64) -> Vec<StageConfig> {
    let at = |number| Duration::from_millis(number / together * together);
    let period = Duration::from_millis(10_000);
    let model = ConditionalModel {
        aligned,
        saturated: Saturated::new((0..10_000).map(at), period, Bytes(1400)).unwrap(),
        ..conditional::model()
    };
    let config = ConditionalConfig {
        seed: Seed(seed),
        ..ConditionalConfig::new(Arc::new(model))
    };
    vec![config.into()]
}

fn any_packets(users: usize) -> impl Strategy<Value = Vec<Packet>> {
    let packet = (0..8 * MS, (0..users, 40..3000u64));
    let ordered = prop::collection::vec(packet, 1..60).prop_map(in_order);
    ordered.prop_map(|packets| {
        packets
            .into_iter()
            .map(|(at, (user, size))| (at, user, size))
            .collect()
    })
}

fn any_scheduler() -> impl Strategy<Value = Scheduler> {
    (0..5usize).prop_map(|index| all_schedulers()[index])
}

proptest! {
    #[test]
    fn users_that_never_meet_have_their_links_without_a_cell(
        one in any_stages(), other in any_stages(), packets in any_packets(2), scheduler in any_scheduler()
    ) {
        let stages = [one, other];
        let apart: Vec<Packet> =
            packets.iter().enumerate().map(|(index, it)| (it.0 + index as u64 * 60_000 * MS, it.1, it.2)).collect();
        prop_assert_eq!(through(links(scheduler, SLOT, &stages), &apart), alone(&stages, &apart));
    }

    #[test]
    fn every_packet_ends_once_and_never_before_it_would_alone(
        stages in prop::collection::vec(any_stages(), 3), packets in any_packets(3), scheduler in any_scheduler(),
        slot in 10_000..5 * MS,
    ) {
        let ends = through(links(scheduler, Duration::from_nanos(slot), &stages), &packets);
        let infinite = stages.iter().all(|it| it[0].queue() == Some(&Discipline::Infinite));
        if infinite && stages.iter().all(|it| matches!(it[0], StageConfig::Bottleneck(_))) {
            for (shared, alone) in ends.iter().zip(alone(&stages, &packets)) {
                prop_assert!(shared.2 == Fate::Delivered && shared.0 >= alone.0);
            }
        }
    }

    #[test]
    fn with_equal_channels_the_cell_carries_what_one_link_does(
        millis in timestamps(), packets in any_packets(4), scheduler in any_scheduler(), slot in 1..6u64,
    ) {
        let packets: Vec<Packet> = packets.into_iter().map(|(at, user, _)| (at, user, 1500)).collect();
        let stages = vec![trace(&millis); 4];
        let shared = through(links(scheduler, Duration::from_millis(slot), &stages), &packets);
        let together: Vec<Packet> = packets.iter().map(|&(at, _, size)| (at, 0, size)).collect();
        let instants = |ends: Ends| {
            let mut instants: Vec<Time> = ends.into_iter().map(|end| end.0).collect();
            instants.sort();
            instants
        };
        // Opportunities pass unused only if nothing waits, and none is used twice.
        prop_assert_eq!(instants(shared), instants(alone(&stages[..1], &together)));
    }
}

#[test]
fn users_share_the_opportunities_of_one_recording() {
    let seconds = 4;
    for (users, together) in [(1, 1), (2, 1), (2, 4), (4, 4), (4, 20)] {
        let user = |user: usize| recording(user as u64, user.is_multiple_of(2), together);
        let stages: Vec<_> = (0..users).map(user).collect();
        // Each user alone would fill the link of 1000 packets a second.
        let packets: Vec<Packet> = (0..seconds * 1000)
            .flat_map(|number| (0..users).map(move |user| (number * MS, user, 1400)))
            .collect();
        let mut carried = vec![0u64; users];
        let ends = through(links(Scheduler::RoundRobin {}, SLOT, &stages), &packets);
        for (end, &(_, user, _)) in ends.iter().zip(&packets) {
            let at = end.0.since(Time::ZERO).as_nanos();
            carried[user] += u64::from(MS * 1000 <= at && at < MS * 1000 * seconds);
        }
        let (whole, each) = (1000 * (seconds - 1), 1000 * (seconds - 1) / users as u64);
        let sum = carried.iter().sum::<u64>();
        assert!(sum.abs_diff(whole) <= together, "{carried:?}");
        let even = carried.iter().all(|it| it.abs_diff(each) <= 2 * together);
        assert!(even, "{carried:?}");
    }
}

proptest! {
    /// A moving user that is alone in each cell has its link, with interruptions.
    #[test]
    fn one_moving_user_has_the_link_with_interruptions(
        stages in any_stages(), packets in any_packets(1), scheduler in any_scheduler(),
        first in 1..60u64, spans in prop::collection::vec((0..60u64, 1..60u64), 1..4), flush in any::<bool>(),
    ) {
        let (moves, gate) = handovers(first, &spans, flush);
        let stages = vec![std::iter::once(gate).chain(stages).collect::<Vec<_>>()];
        // The user alternates between two cells.
        let cell = |parity| moves.iter().copied().skip(parity).step_by(2).map(|visit| (visit, 0)).collect();
        let moving = graph(scheduler, SLOT, &[cell(0), cell(1)], &stages).unwrap();
        prop_assert_eq!(through(moving, &packets), alone(&stages, &packets));
    }

    /// Packets are conserved, and none leaves in an interruption.
    #[test]
    fn moving_users_lose_no_packet_unless_it_is_dropped(
        stages in prop::collection::vec(any_stages(), 3), packets in any_packets(3), scheduler in any_scheduler(),
        first in 1..60u64, spans in prop::collection::vec((0..60u64, 1..60u64), 1..4), flush in any::<bool>(),
    ) {
        let (moves, gate) = handovers(first, &spans, flush);
        let mut stages = stages;
        stages[0].insert(0, gate);
        let still = Visit::always(0);
        let cell = |parity: usize| {
            let visits = moves.iter().copied().skip(parity).step_by(2).map(|visit| (visit, 0));
            visits.chain([(still, parity + 1)]).collect()
        };
        let moving = graph(scheduler, SLOT, &[cell(0), cell(1)], &stages).unwrap();
        let ends = through(moving, &packets);
        for (end, &(_, user, _)) in ends.iter().zip(&packets) {
            let handed_over = end.2 == Fate::Dropped(DropReason::Handover);
            prop_assert!(!handed_over || flush && user == 0);
            let at = end.1.since(Time::ZERO);
            let pause = moves.windows(2).find_map(|pair| {
                let begin = pair[0].until.unwrap();
                (begin <= at && at < pair[1].from).then_some(begin)
            });
            if handed_over {
                prop_assert_eq!(pause, Some(at));
            }
            // A radio link decodes sent bytes later.
            let leaves = user == 0 && end.2 == Fate::Delivered && matches!(stages[0][1], StageConfig::Bottleneck(_));
            let released = end.0.since(Time::ZERO);
            let inside = moves.windows(2).any(|pair| pair[0].until.unwrap() < released && released < pair[1].from);
            prop_assert!(!(leaves && inside));
        }
    }
}

/// Returns visits to successive cells and the gate that closes the link between them. In half ms: the `first` stay; for
/// the following visits, stay and interruption.
fn handovers(first: u64, spans: &[(u64, u64)], flush: bool) -> (Vec<Visit>, StageConfig) {
    let (mut visits, mut outages, mut from, mut stay) = (Vec::new(), Vec::new(), 0, first);
    for &(next, pause) in spans {
        let until = from + stay;
        visits.push(visit(from, Some(until)));
        outages.push((half(until), half(pause)));
        (from, stay) = (until + pause, next + 1);
    }
    visits.push(visit(from, None));
    let flushes = outages
        .iter()
        .map(|outage| outage.0)
        .filter(|_| flush)
        .collect();
    let gate = GateConfig::new(outages).unwrap();
    (visits, gate.with_flushes(flushes).unwrap().into())
}

/// `from` and `until` are in half ms.
fn visit(from: u64, until: Option<u64>) -> Visit {
    Visit {
        priority: 0,
        from: half(from),
        until: until.map(half),
    }
}

fn half(millis: u64) -> Duration {
    Duration::from_micros(500 * millis)
}

/// Return the number of packets of each of three users that leave their queues after `from` ms and by `to`.
fn left_between(ends: &Ends, packets: &[Packet], from: u64, to: u64) -> Vec<usize> {
    let left = |user| {
        let mine = ends.iter().zip(packets).filter(|(_, it)| it.1 == user);
        let millis = mine.map(|(end, _)| end.0.as_nanos().div_ceil(MS));
        millis.filter(|at| (from + 1..=to).contains(at)).count()
    };
    (0..3).map(left).collect()
}

/// Returns a user in each of two cells. A third one leaves the first cell in the middle of its slot, at 19.5 ms, and is
/// in the second cell from 29.5 ms on.
fn two_cells(flush: bool) -> Graph<usize> {
    let (visits, gate) = handovers(39, &[(1000, 20)], flush);
    let mut stages = vec![constant(12_000_000); 3];
    stages[2].insert(0, gate);
    let still = visit(0, None);
    let cells = [0, 1].map(|cell| vec![(still, cell), (visits[cell], 2)]);
    graph(Scheduler::RoundRobin {}, SLOT, &cells, &stages).unwrap()
}

#[test]
fn a_handover_frees_slots_here_and_takes_them_there() {
    // Three saturated users send a packet per slot.
    for flush in [false, true] {
        let mut packets = saturated(3, 60);
        // Two packets arrive during the interruption.
        packets.extend([(25 * MS, 2, 1500), (25 * MS, 2, 1500)]);
        let ends = through(two_cells(flush), &packets);
        assert_eq!(left_between(&ends, &packets, 0, 20), [10, 20, 9]);
        // The first user is alone in its cell at once.
        assert_eq!(left_between(&ends, &packets, 20, 30), [10, 10, 0]);
        let dropped: Vec<Time> = ends
            .iter()
            .filter(|end| end.2 == Fate::Dropped(DropReason::Handover))
            .map(|end| end.1)
            .collect();
        if flush {
            assert_eq!(dropped, [Time::from_micros(19_500); 51]);
            // The new cell first serves the later packets of this user.
            assert_eq!(left_between(&ends, &packets, 30, 40), [10, 8, 2]);
        } else {
            assert_eq!(dropped, []);
            assert_eq!(left_between(&ends, &packets, 30, 40), [10, 5, 5]);
        }
    }
}

#[test]
fn a_restart_brings_users_back_to_their_first_cells() {
    let packets = saturated(3, 30);
    let expected = through(two_cells(false), &packets);
    // With the user in either cell, between both, and with a queue.
    for (now, zero) in [(5, 5), (25, 40), (50, 50), (200, 170)] {
        let mut links = two_cells(false);
        let (now, zero) = (Time::from_millis(now), Time::from_millis(zero));
        assert!(links.poll(now).is_none());
        links.restart(now, zero, Duration::ZERO);
        if zero < now {
            continue; // no packet can arrive at the start
        }
        for (number, &(at, user, size)) in packets.iter().enumerate() {
            links.accept(zero + Duration::from_nanos(at), user, number, Bytes(size));
        }
        let mut count = 0;
        while let Some(event) = links.next_event() {
            while let Some((_, outcome)) = links.poll(event) {
                assert_eq!(
                    outcome.departed.since(zero),
                    expected[outcome.packet].1.since(Time::ZERO)
                );
                count += 1;
            }
        }
        assert_eq!(count, packets.len());
    }
}

/// Returns `count` packets at once for each of `users` users.
fn saturated(users: usize, count: usize) -> Vec<Packet> {
    (0..users * count)
        .map(|index| (0, index % users, 1500))
        .collect()
}

/// Returns the bytes of each user that left the queue before `until`.
fn carried(ends: &Ends, packets: &[Packet], users: usize, until: Time) -> Vec<u64> {
    let mut bytes = vec![0; users];
    for (end, packet) in ends.iter().zip(packets) {
        if end.0 < until && end.2 == Fate::Delivered {
            bytes[packet.1] += packet.2;
        }
    }
    bytes
}

fn fair(window: Duration) -> Scheduler {
    let begin = Begin::Zero;
    Scheduler::ProportionalFair { window, begin }
}

#[test]
fn one_slot_serves_one_user_until_its_queue_is_empty() {
    let packets = saturated(3, 100);
    let stages = vec![constant(60_000_000); 3]; // five packets in a slot
    let cell = links(Scheduler::RoundRobin {}, SLOT, &stages);
    let ends = through(cell, &packets);
    for (end, packet) in ends.iter().zip(&packets) {
        let slot = (end.0.as_nanos() - 1) / MS;
        assert_eq!(slot % 3, packet.1 as u64);
    }
}

#[test]
fn more_opportunism_carries_more() {
    let users = 8;
    let stages: Vec<_> = (0..users as u64).map(varying).collect();
    let packets = saturated(users, 6000);
    let until = Time::from_millis(8000);
    let total = |scheduler| {
        let ends = through(links(scheduler, SLOT, &stages), &packets);
        carried(&ends, &packets, users, until)
    };
    let window = Duration::from_millis(200);
    let kinds = [
        Scheduler::RoundRobin {},
        fair(window),
        Scheduler::MaxRate {},
    ];
    let found @ [fair, proportional, greedy] = &kinds.map(total);
    let sum = |bytes: &[u64]| bytes.iter().sum::<u64>();
    assert!(sum(greedy) > sum(proportional), "{found:?}");
    assert!(sum(proportional) * 10 > sum(fair) * 13, "{found:?}");
    let mut pairs = proportional.iter().zip(fair);
    assert!(pairs.all(|(one, other)| one > other), "{found:?}");
}

#[test]
fn a_high_class_waits_for_a_low_one_at_most_a_slot() {
    let mut random = Random::new(Seed(3));
    let (mut now, mut packets) = (0, Vec::new());
    for index in 0..2000 {
        now += random.below(3 * MS);
        packets.push((now, usize::from(index % 4 != 0), 200 + random.below(1300)));
    }
    let stages = [constant(12_000_000), constant(6_000_000)];
    let shared = through(links(Scheduler::Priority {}, SLOT, &stages), &packets);
    let alone = alone(&stages, &packets);
    let mut delayed = 0;
    for index in (0..packets.len()).filter(|&index| packets[index].1 == 0) {
        assert!(shared[index].0 <= alone[index].0 + SLOT, "packet {index}");
        delayed += usize::from(shared[index].0 > alone[index].0);
    }
    assert!(delayed > 50);
}

/// Sends packets of 1500 bytes at the start, 30 of each user with its DSCPs in turn. Returns when the last packet of
/// each DSCP left.
fn last_of_each_class(
    priorities: [u32; 2],
    dscps: [&[u8]; 2],
) -> std::collections::BTreeMap<u8, Time> {
    let classes = r#"{"kind": "classes", "classes": [{"dscp": [46]}, {"dscp": [34]}, {}]}"#;
    let queue: Discipline = serde_json::from_str(classes).unwrap();
    let stages = vec![bottleneck(Schedule::Constant(BitRate(12_000_000)), queue); 2];
    let users = priorities
        .iter()
        .zip(0..)
        .map(|(&priority, user)| (Visit::always(priority), user));
    let mut cell = graph(Scheduler::Priority {}, SLOT, &[users.collect()], &stages).unwrap();
    for index in 0..60 {
        let dscps = dscps[index % 2];
        let dscp = dscps[index / 2 % dscps.len()];
        let tag = Tag {
            dscp,
            ..Tag::default()
        };
        cell.accept_tagged(Time::ZERO, index % 2, dscp, Bytes(1500), tag, None);
    }
    let mut last = std::collections::BTreeMap::new();
    while let Some(event) = cell.next_event() {
        while let Some((_, outcome)) = cell.poll(event) {
            last.insert(outcome.packet, outcome.released);
        }
    }
    last
}

#[test]
fn packets_of_an_urgent_class_come_before_others_of_all_users() {
    let last = last_of_each_class([0, 0], [&[46, 0], &[34, 0]]);
    // One packet a slot: 15 of class 46, then 15 of class 34; a slot that has begun ends.
    assert!(last[&46] <= Time::from_millis(16), "{last:?}");
    assert!(
        last[&34] > Time::from_millis(29) && last[&34] <= Time::from_millis(32),
        "{last:?}"
    );
    assert_eq!(last[&0], Time::from_millis(60));
}

#[test]
fn priority_of_a_user_comes_before_classes() {
    let last = last_of_each_class([1, 0], [&[46], &[0]]);
    assert!(
        last[&0] <= Time::from_millis(31) && last[&46] == Time::from_millis(60),
        "{last:?}"
    );
}

#[test]
fn radio_links_share_a_cell() {
    let user = |device| {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        (config.device, config.queue) = (device, Discipline::Infinite);
        vec![StageConfig::from(config)]
    };
    let stages: Vec<_> = (1..4).map(user).collect();
    let packets = saturated(3, 20_000);
    let until = Time::from_millis(500);
    let alone = carried(&alone(&stages, &packets), &packets, 3, until);
    for scheduler in all_schedulers().into_iter().take(2) {
        let ends = through(links(scheduler, SLOT, &stages), &packets);
        let shared = carried(&ends, &packets, 3, until);
        let total: u64 = shared.iter().sum();
        let mean = alone.iter().sum::<u64>() / 3;
        assert!(total.abs_diff(mean) * 10 < mean, "{total} in {mean}");
        assert!(shared.iter().all(|it| it * 3 > total * 4 / 5), "{shared:?}");
    }
}

#[test]
fn what_cannot_share_a_cell_is_refused() {
    let late = constant(1).into_iter().rev().collect();
    let robin = Scheduler::RoundRobin {};
    let short = Duration::from_micros(9);
    let always = visit(0, None);
    for (scheduler, slot, visit, stages, words) in [
        (robin, SLOT, None, vec![], "at least one user"),
        (
            robin,
            SLOT,
            Some(always),
            vec![vec![]],
            "needs a bottleneck",
        ),
        (robin, SLOT, Some(always), vec![late], "before delays"),
        (robin, short, Some(always), vec![constant(1)], "too short"),
        (
            fair(Duration::ZERO),
            SLOT,
            Some(always),
            vec![constant(1)],
            "longer than 0",
        ),
        (
            robin,
            SLOT,
            Some(visit(5, Some(5))),
            vec![constant(1)],
            "after it enters",
        ),
    ] {
        let users = visit.into_iter().map(|visit| (visit, 0)).collect();
        let refused = graph::<()>(scheduler, slot, &[users], &stages).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
}
