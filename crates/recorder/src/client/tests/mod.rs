//! Both cores, one against the other in virtual time: no socket, no clock, every loss on purpose.

mod adaptive;
mod pauses;
mod virtual_world;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cellbed_link::random::Random;
use cellbed_link::{Bytes, Duration, Seed, Time};

use super::*;
use crate::packet::PacketRecord;
use crate::plan::{Saturation, Train, TrainPlan};
use crate::recording::{Collector, RunPlan};
use crate::secure::Secret;
use crate::server::{Limits, Server};
use crate::socket::Outbox;

const SERVER: &str = "192.0.2.1:7700";
const CLIENT: &str = "198.51.100.7:40000";

/// Offset of the server's clock, and its drift.
const AHEAD: Duration = Duration::from_secs(1_000);
const DRIFT_PPM: f64 = 40.0;

/// A path between a client and a server.
struct World {
    path: Path,
    server: Server,
    client_address: SocketAddr,
    /// Datagrams under way, by arrival and a number: for the server or for the client.
    underway: BTreeMap<(Time, u64), (bool, Vec<u8>)>,
    count: u64,
    now: Time,
    /// Number of copies of a datagram sent at a time that arrive.
    copies: Box<dyn FnMut(Time) -> usize>,
    delay: Box<dyn FnMut(Time) -> Duration>,
    events: Vec<Event>,
}

impl World {
    fn new(
        copies: impl FnMut(Time) -> usize + 'static,
        delay: impl FnMut(Time) -> Duration + 'static,
    ) -> Self {
        let secret = Secret::new([7; 32]);
        Self {
            path: Path::new(
                SERVER.parse().unwrap(),
                secret.clone(),
                &[1; 32],
                Time::ZERO,
            ),
            server: Server::new(&secret, Limits::default(), &[9; 32]),
            client_address: CLIENT.parse().unwrap(),
            underway: BTreeMap::new(),
            count: 0,
            now: Time::ZERO,
            copies: Box::new(copies),
            delay: Box::new(delay),
            events: Vec::new(),
        }
    }

    fn on_server(now: Time) -> Time {
        let drift = (now.as_nanos() as f64 * DRIFT_PPM * 1e-6) as u64;
        now + AHEAD + Duration::from_nanos(drift)
    }

    fn post(&mut self, outbox: &mut Outbox, to_server: bool) {
        let packets: Vec<Vec<u8>> = outbox.packets().map(|(_, bytes)| bytes.to_vec()).collect();
        outbox.clear();
        for bytes in packets {
            for _ in 0..(self.copies)(self.now) {
                self.count += 1;
                let arrival = self.now + (self.delay)(self.now);
                self.underway
                    .insert((arrival, self.count), (to_server, bytes.clone()));
            }
        }
    }

    fn run_until(&mut self, end: Time) {
        let mut outbox = Outbox::new();
        while self.now < end {
            self.path.step(self.now, &mut outbox).unwrap();
            self.post(&mut outbox, true);
            self.path.departed(self.now);
            self.server.step(Self::on_server(self.now), &mut outbox);
            self.post(&mut outbox, false);
            while let Some(entry) = self.underway.first_entry()
                && entry.key().0 <= self.now
            {
                let ((at, _), (to_server, bytes)) = entry.remove_entry();
                if to_server {
                    let (now, arrived) = (Self::on_server(self.now), Self::on_server(at));
                    self.server
                        .receive(now, arrived, self.client_address, &bytes, &mut outbox);
                    self.post(&mut outbox, false);
                } else {
                    self.path.receive(at, self.now, &bytes);
                }
            }
            self.events.extend(self.path.events());
            self.now += Duration::from_micros(100);
        }
    }

    /// Lets a run go to its end, at most until `end`.
    fn records(
        &mut self,
        request: RunRequest,
        end: Time,
    ) -> (Vec<PacketRecord>, Vec<PacketRecord>, RunEnd) {
        let number = request.number;
        let mut collector = Collector::new(Time::ZERO);
        collector.plan(RunPlan::new(number, Role::Light, &request.workload));
        self.path.run(request, self.now);
        while self.now < end && !self.path.is_idle() {
            let next = self.now + Duration::from_millis(10);
            self.run_until(next);
        }
        for event in std::mem::take(&mut self.events) {
            collector.take(&event);
        }
        let clock = collector.clock();
        let records = collector.finish(number, clock.as_ref()).unwrap();
        (
            records.uplink,
            records.downlink,
            records.end.expect("the run has ended"),
        )
    }
}

fn trains(count: u32) -> Workload {
    let train = |up, down| Train {
        up,
        down,
        up_bytes: 1400,
        down_bytes: 1400,
        gap_ns: None,
    };
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
    let mut world = World::new(|_| 1, |_| Duration::from_millis(20));
    let (up, down, end) = world.records(request(trains(40), None), Time::from_millis(20_000));
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
    let mut random = Random::new(Seed(5));
    let fate = move |_| match random.below(100) {
        0..5 => 0,
        5..10 => 2,
        _ => 1,
    };
    let mut random = Random::new(Seed(6));
    let jitter = move |_| Duration::from_micros(20_000 + random.below(4_000));
    let mut world = World::new(fate, jitter);
    let (up, down, end) = world.records(request(trains(400), None), Time::from_millis(60_000));
    assert!(end.complete);
    assert_eq!(up.len(), 200 * 5 + 200);
    assert!(
        (30..100).contains(&lost(&up)),
        "{} of {}",
        lost(&up),
        up.len()
    );
    // A train whose packets were all lost has no answer.
    let unanswered = 400 - down.iter().filter(|packet| packet.index == 0).count();
    assert!((1..30).contains(&unanswered), "{unanswered}");
    assert!(
        (40..160).contains(&lost(&down)),
        "{} of {}",
        lost(&down),
        down.len()
    );
    let twice =
        |packets: &[PacketRecord]| packets.iter().filter(|packet| packet.copies == 2).count();
    assert!((30..100).contains(&twice(&up)) && (40..160).contains(&twice(&down)));
}

#[test]
fn an_outage_of_ten_seconds_costs_what_was_sent_in_it_and_nothing_else() {
    let outage = |now: Time| (5_000..15_000).contains(&(now.as_nanos() / 1_000_000));
    let mut world = World::new(
        move |now| usize::from(!outage(now)),
        |_| Duration::from_millis(20),
    );
    let (up, down, end) = world.records(request(trains(500), None), Time::from_millis(60_000));
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
    // Only answers that were under way when the outage began.
    assert!(lost(&down) <= 16, "{}", lost(&down));
}

#[test]
fn saturation_both_ways_is_numbered_to_its_last_packet() {
    let mut random = Random::new(Seed(8));
    let mut world = World::new(
        move |_| usize::from(random.below(100) > 0),
        |_| Duration::from_millis(20),
    );
    let fixed = |rate_bps| Some(Saturation::Fixed { rate_bps });
    let workload = Workload::Saturation {
        uplink: fixed(11_200_000),
        downlink: fixed(22_400_000),
        bytes: 1400,
    };
    let (up, down, end) = world.records(
        request(workload, Some(Duration::from_secs(3))),
        Time::from_millis(30_000),
    );
    assert!(end.complete && end.withheld == 0);
    assert!((2_950..=3_001).contains(&up.len()), "{}", up.len());
    assert_eq!(down.len(), end.saturation_sent as usize);
    assert!((5_900..=6_100).contains(&down.len()), "{}", down.len());
    for packets in [&up, &down] {
        assert!(
            (10..100).contains(&lost(packets)),
            "{} of {}",
            lost(packets),
            packets.len()
        );
        assert!(
            packets
                .windows(2)
                .all(|pair| pair[0].index + 1 == pair[1].index)
        );
    }
}

#[test]
fn what_the_server_had_no_room_for_while_a_run_went_on_is_told() {
    let mut world = World::new(|_| 1, |_| Duration::from_millis(20));
    world.run_until(Time::from_millis(500));
    world.server.overflowed(5); // nobody's run
    world.path.run(request(trains(40), None), world.now);
    for more in [2, 1] {
        let next = world.now + Duration::from_millis(700);
        world.run_until(next);
        world.server.overflowed(more);
    }
    world.run_until(Time::from_millis(8_000));
    let overflows = world.events.iter().find_map(|event| match event {
        Event::Run(_, RunEvent::Ended(end)) => Some(end.overflows),
        _ => None,
    });
    assert_eq!(overflows, Some(3));
}

#[test]
fn a_client_that_gets_another_address_goes_on() {
    let mut world = World::new(|_| 1, |_| Duration::from_millis(20));
    let plan = request(trains(400), None);
    let mut collector = Collector::new(Time::ZERO);
    collector.plan(RunPlan::new(1, Role::Light, &plan.workload));
    world.path.run(plan, Time::ZERO);
    world.run_until(Time::from_millis(5_000));
    world.client_address = "203.0.113.9:1234".parse().unwrap();
    world.run_until(Time::from_millis(40_000));
    assert!(world.path.is_idle());
    for event in &world.events {
        collector.take(event);
    }
    let clock = collector.clock();
    let records = collector.finish(1, clock.as_ref()).unwrap();
    assert!(records.end.unwrap().complete);
    // The uplink was never cut; answers came to the new address as soon as it was proved.
    assert_eq!(lost(&records.uplink), 0);
    let answered = |from: i64, to: i64| {
        let trains = records.downlink.iter();
        trains
            .filter(|packet| (from..to).contains(&i64::from(packet.train)))
            .filter(|packet| packet.copies > 0)
            .count()
    };
    assert!(answered(300, 400) == 450, "{}", answered(300, 400));
}

#[test]
fn a_server_that_was_started_again_ends_the_run_and_lets_another_begin() {
    let mut world = World::new(|_| 1, |_| Duration::from_millis(20));
    world.path.run(request(trains(2_000), None), Time::ZERO);
    world.run_until(Time::from_millis(3_000));
    world.server = Server::new(&Secret::new([7; 32]), Limits::default(), &[10; 32]);
    world.run_until(Time::from_millis(12_000));
    let ended = world.events.iter().find_map(|event| match event {
        Event::Run(_, RunEvent::Ended(end)) => Some(end.complete),
        _ => None,
    });
    assert_eq!(ended, Some(false));
    world.events.clear();
    let mut next = request(trains(20), None);
    next.number = 2;
    let mut collector = Collector::new(Time::ZERO);
    collector.plan(RunPlan::new(2, Role::Light, &next.workload));
    world.path.run(next, world.now);
    world.run_until(Time::from_millis(16_000));
    assert!(world.path.is_idle());
    assert!(world.server.report_memory() == Bytes(0));
}
