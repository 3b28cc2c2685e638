//! Both cores connected in virtual time: no socket, no clock, every loss intended.

mod adaptive;
mod pauses;
mod virtual_world;

use cellbed_link::{
    Bytes, DelayConfig, Distribution, DuplicationConfig, Duration, GateConfig, LossConfig,
    Probability, RandomDelay, Seed, StageConfig, Time,
};

use super::*;
use crate::recording::{Collector, Role, RunPlan};
use crate::secure::Secret;
use crate::server::{Limits, Server};
use cellbed_calibration::plan::{Both, PacketRecord, Saturation, Train, TrainPlan, Workload};
use virtual_world::{Stages, VirtualWorld};

/// A device with these links.
fn world(uplink: Stages, downlink: Stages) -> VirtualWorld {
    let grain = Duration::from_micros(100);
    VirtualWorld::new(vec![(uplink, downlink)], Limits::default(), grain)
}

fn delay() -> StageConfig {
    DelayConfig::Fixed(Duration::from_millis(20)).into()
}

/// 20 ms each way.
fn plain_world() -> VirtualWorld {
    world(vec![delay()], vec![delay()])
}

fn loss(percent: u8, seed: u64) -> StageConfig {
    LossConfig::Independent {
        probability: probability(percent),
        seed: Seed(seed),
    }
    .into()
}

fn probability(percent: u8) -> Probability {
    Probability::new(f64::from(percent) / 100.0).unwrap()
}

/// Runs until the run has ended, at most until `end`.
fn records(
    world: &mut VirtualWorld,
    request: RunRequest,
    end: Time,
) -> (Vec<PacketRecord>, Vec<PacketRecord>, RunEnd) {
    let number = request.number;
    let mut collector = Collector::new(Time::ZERO);
    collector.plan(RunPlan::new(number, Role::Light, &request.workload));
    world.devices[0].path.run(request, world.now);
    while world.now < end && !world.devices[0].path.is_idle() {
        for event in world.step() {
            collector.take(&event);
        }
    }
    let clock = collector.clock();
    let records = collector.finish(number, clock.as_ref()).unwrap();
    let end = records.end.expect("the run has ended");
    (records.uplink, records.downlink, end)
}

/// Return the end of the only run that has ended.
fn ended(events: &[Event]) -> Option<&RunEnd> {
    events.iter().find_map(|event| match event {
        Event::Run(_, RunEvent::Ended(end)) => Some(end),
        _ => None,
    })
}

fn trains(count: u32) -> Workload {
    let train = |up, down| Train::new((up, 1400), (down, 1400));
    Workload::Trains(TrainPlan {
        rotation: vec![train(5, 8), train(1, 1)],
        gap_ns: 50_000_000,
        jitter: 0.2,
        count: Some(count),
        seed: 3,
    })
}

fn request(workload: Workload, span: Option<Duration>) -> RunRequest {
    RunRequest {
        number: 1,
        workload,
        span,
        quiet: Duration::from_millis(300),
    }
}

fn lost(packets: &[PacketRecord]) -> usize {
    packets.iter().filter(|packet| packet.copies == 0).count()
}

#[test]
fn trains_and_their_answers_come_with_the_delays_of_the_path() {
    let mut world = plain_world();
    let request = request(trains(40), None);
    let (up, down, end) = records(&mut world, request, Time::from_millis(20_000));
    assert!(end.complete);
    assert_eq!((up.len(), down.len()), (20 * 5 + 20, 20 * 8 + 20));
    assert_eq!((lost(&up), lost(&down)), (0, 0));
    for packet in up.iter().chain(&down) {
        let delay = packet.arrived_ns.unwrap() - packet.sent_ns.unwrap();
        assert!((delay - 20_000_000).abs() < 200_000, "{packet:?}");
        assert_eq!((packet.bytes, packet.copies), (1400, 1));
    }
}

#[test]
fn losses_and_copies_are_those_that_the_network_made() {
    let link = |seed| {
        let double = DuplicationConfig {
            probability: probability(5),
            seed: Seed(seed),
        };
        let jitter = DelayConfig::Random(RandomDelay {
            distribution: Distribution::Uniform {
                mean: Duration::from_millis(22),
                spread: Duration::from_millis(2),
            },
            correlation: Probability::NEVER,
            reorder: true,
            seed: Seed(seed),
        });
        vec![loss(5, seed), double.into(), jitter.into()]
    };
    let request = request(trains(400), None);
    let end = Time::from_millis(60_000);
    let (up, down, end) = records(&mut world(link(5), link(6)), request, end);
    assert!(end.complete);
    assert_eq!(up.len(), 200 * 5 + 200);
    assert!((30..100).contains(&lost(&up)), "{}", lost(&up));
    // A train with all packets lost has no answer.
    let unanswered = 400 - down.iter().filter(|packet| packet.index == 0).count();
    assert!((1..30).contains(&unanswered), "{unanswered}");
    assert!((40..160).contains(&lost(&down)), "{}", lost(&down));
    let twice =
        |packets: &[PacketRecord]| packets.iter().filter(|packet| packet.copies == 2).count();
    assert!((30..100).contains(&twice(&up)) && (40..160).contains(&twice(&down)));
}

#[test]
fn an_outage_of_ten_seconds_costs_what_was_sent_in_it_and_nothing_else() {
    let outage = |now: Time| (5_000..15_000).contains(&(now.as_nanos() / 1_000_000));
    let link = || {
        let seconds = Duration::from_secs;
        let gate = GateConfig::new(vec![(seconds(5), seconds(10))]).unwrap();
        vec![gate.into(), delay()]
    };
    let request = request(trains(500), None);
    let end = Time::from_millis(60_000);
    let (up, down, end) = records(&mut world(link(), link()), request, end);
    assert!(end.complete);
    let at = |packet: &PacketRecord| Time::from_nanos(packet.sent_ns.unwrap() as u64);
    for packet in &up {
        assert_eq!(packet.copies == 0, outage(at(packet)), "{packet:?}");
    }
    assert_eq!(up.len(), 250 * 5 + 250);
    assert!(
        down.iter()
            .all(|packet| packet.copies == 1 || packet.sent_ns.is_none())
    );
    // Only answers in flight when the outage began.
    assert!(lost(&down) <= 16, "{}", lost(&down));
}

#[test]
fn saturation_both_ways_is_numbered_to_its_last_packet() {
    let link = |seed| vec![loss(1, seed), delay()];
    let mut world = world(link(8), link(9));
    let fixed = |rate_bps| Some(Saturation::Fixed { rate_bps });
    let ways = Both {
        uplink: fixed(11_200_000),
        downlink: fixed(22_400_000),
    };
    let workload = Workload::Saturation { ways, bytes: 1400 };
    let request = request(workload, Some(Duration::from_secs(3)));
    let (up, down, end) = records(&mut world, request, Time::from_millis(30_000));
    assert!(end.complete && end.counts.withheld == 0);
    assert!((2_950..=3_001).contains(&up.len()), "{}", up.len());
    assert_eq!(down.len(), end.counts.saturation_sent as usize);
    assert!((5_900..=6_100).contains(&down.len()), "{}", down.len());
    for packets in [&up, &down] {
        assert!((10..100).contains(&lost(packets)), "{}", lost(packets));
        let mut pairs = packets.windows(2);
        assert!(pairs.all(|pair| pair[0].index + 1 == pair[1].index));
    }
}

#[test]
fn what_the_server_had_no_room_for_while_a_run_went_on_is_told() {
    let mut world = plain_world();
    world.run_until(Time::from_millis(500));
    world.server.overflowed(5); // before any run
    let now = world.now;
    world.devices[0].path.run(request(trains(40), None), now);
    for more in [2, 1] {
        world.run_until(world.now + Duration::from_millis(700));
        world.server.overflowed(more);
    }
    let events = world.run_until(Time::from_millis(8_000));
    assert_eq!(ended(&events).map(|end| end.counts.overflows), Some(3));
}

#[test]
fn a_client_that_gets_another_address_begins_another_session_in_seconds() {
    let mut world = plain_world();
    let plan = request(trains(2_000), None);
    let mut collector = Collector::new(Time::ZERO);
    collector.plan(RunPlan::new(1, Role::Light, &plan.workload));
    world.devices[0].path.run(plan, Time::ZERO);
    let mut events = world.run_until(Time::from_millis(5_000));
    world.devices[0].address = "203.0.113.9:1234".parse().unwrap();
    events.extend(world.run_until(Time::from_millis(13_000)));
    assert_eq!(ended(&events).map(|end| end.complete), Some(false));
    events.iter().for_each(|event| collector.take(event));
    let clock = collector.clock();
    let first = collector.finish(1, clock.as_ref()).unwrap();
    assert!(first.spans[0].1 > 3_000_000_000 && lost(&first.uplink) == 0);
    let next = request(trains(20), None);
    let end = Time::from_millis(20_000);
    let (up, down, end) = records(&mut world, next, end);
    assert!(end.complete);
    assert_eq!((lost(&up), lost(&down), down.len()), (0, 0, 90));
}

#[test]
fn a_server_that_was_started_again_ends_the_run_and_lets_another_begin() {
    let mut world = plain_world();
    let path = &mut world.devices[0].path;
    path.run(request(trains(2_000), None), Time::ZERO);
    world.run_until(Time::from_millis(3_000));
    world.server = Server::new(&Secret::new([7; 32]), Limits::default(), &[10; 32]);
    let events = world.run_until(Time::from_millis(12_000));
    assert_eq!(ended(&events).map(|end| end.complete), Some(false));
    let mut next = request(trains(20), None);
    next.number = 2;
    let now = world.now;
    world.devices[0].path.run(next, now);
    world.run_until(Time::from_millis(16_000));
    assert!(world.devices[0].path.is_idle());
    assert!(world.server.report_memory() == Bytes(0));
}
