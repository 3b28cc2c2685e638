//! A saturated device and a server in virtual time, with control over a link of its own.

use std::sync::Arc;

use cellbed_link::{BitRate, BottleneckConfig, DelayConfig, Duration, RateSeries, Schedule, Time};

use super::virtual_world::{Stages, VirtualWorld};
use crate::client::*;
use crate::recording::{Collector, Role, RunPlan, RunRecords};
use crate::server::Limits;
use cellbed_calibration::plan::{Both, PacketRecord, Saturation, Workload};

const PACKET: u16 = 1400;

/// A queue before a schedule, then 25 ms of delay.
fn wired(schedule: Schedule) -> Stages {
    let delay = DelayConfig::Fixed(Duration::from_millis(25));
    vec![BottleneckConfig::new(schedule).into(), delay.into()]
}

struct World {
    world: VirtualWorld,
    collector: Collector,
    ended: Option<RunEnd>,
}

impl World {
    /// The device has the given stages; its control goes over another link.
    fn new(uplink: Stages, downlink: Stages, limits: Limits) -> Self {
        let mut world =
            VirtualWorld::new(vec![(uplink, downlink)], limits, Duration::from_millis(1));
        world.devices[0].control_apart = true;
        Self {
            world,
            collector: Collector::new(Time::ZERO),
            ended: None,
        }
    }

    fn step(&mut self) {
        for event in self.world.step() {
            self.collector.take(&event);
            if let Event::Run(_, RunEvent::Ended(end)) = event {
                self.ended = Some(end);
            }
        }
    }

    /// Saturates the device for `seconds`.
    fn saturate(mut self, workload: &Workload, seconds: u64) -> RunRecords {
        self.collector.plan(RunPlan::new(1, Role::Heavy, workload));
        self.world.devices[0].path.run(
            RunRequest {
                number: 1,
                workload: workload.clone(),
                span: Some(Duration::from_secs(seconds)),
                quiet: Duration::from_secs(1),
            },
            self.world.now,
        );
        while self.ended.is_none() {
            self.step();
            assert!(self.world.now < Time::from_millis((seconds + 30) * 1_000));
        }
        let end = self.ended.take().unwrap();
        assert!(end.complete && end.refusal.is_none(), "{end:?}");
        let clock = self.collector.clock();
        self.collector.finish(1, clock.as_ref()).unwrap()
    }
}

fn adaptive() -> Workload {
    let saturation = Some(Saturation::Adaptive {
        least_delay_ns: 750_000_000,
        most_delay_ns: 3_000_000_000,
    });
    Workload::Saturation {
        ways: Both::from_fn(|_| saturation),
        bytes: PACKET,
    }
}

/// Observations of a direction between two times, in s.
#[derive(Debug)]
struct Seen {
    /// Share of tenths of a second with a packet delayed by 0.75 to 3 s in the queue.
    within: f64,
    /// Maximum time without an arrival, s.
    longest_gap: f64,
    /// Rate of arrivals, bit/s.
    rate: f64,
}

fn seen(packets: &[PacketRecord], from: f64, to: f64) -> Seen {
    let mut arrived: Vec<(f64, f64)> = packets
        .iter()
        .filter_map(|packet| {
            let (at, sent) = (packet.arrived_ns? as f64, packet.sent_ns? as f64);
            Some((at * 1e-9, (at - sent) * 1e-9))
        })
        .collect();
    arrived.sort_by(|a, b| a.0.total_cmp(&b.0));
    let least = arrived.iter().map(|(_, delay)| *delay).fold(9.0, f64::min);
    arrived.retain(|(at, _)| (from..to).contains(at));
    let mut tenths: Vec<(u64, bool)> = arrived
        .iter()
        .map(|(at, delay)| ((at * 10.0) as u64, (0.75..=3.0).contains(&(delay - least))))
        .collect();
    tenths.dedup_by_key(|(tenth, _)| *tenth);
    let inside = tenths.iter().filter(|(_, inside)| *inside).count();
    let gaps = arrived.windows(2).map(|pair| pair[1].0 - pair[0].0);
    Seen {
        within: inside as f64 / ((to - from) * 10.0),
        longest_gap: gaps.fold(0.0, f64::max),
        rate: arrived.len() as f64 * f64::from(PACKET) * 8.0 / (to - from),
    }
}

fn assert_saturated(packets: &[PacketRecord], from: f64, to: f64, rate: f64, within: f64) {
    let seen = seen(packets, from, to);
    assert!((seen.rate / rate - 1.0).abs() < 0.02, "{seen:?}");
    // Short messages and the millisecond steps of this world lengthen the gaps.
    let packet = f64::from(PACKET) * 8.0 / rate;
    assert!(seen.longest_gap < 1.5 * packet + 0.002, "{seen:?}");
    assert!(seen.within >= within, "{seen:?}");
}

#[test]
fn both_ways_keep_their_queue_between_the_bounds_whatever_the_rate() {
    let constant = |rate| wired(Schedule::Constant(BitRate(rate)));
    for (uplink, downlink) in [(2_000_000, 20_000_000), (20_000_000, 2_000_000)] {
        let world = World::new(constant(uplink), constant(downlink), Limits::default());
        let records = world.saturate(&adaptive(), 12);
        let [(start, _)] = records.spans[..] else {
            panic!("{:?}", records.spans);
        };
        let settled = start as f64 * 1e-9;
        assert!(
            !records.unsettled && (1.0..8.0).contains(&settled),
            "{settled}"
        );
        let whole = settled.ceil();
        for (packets, rate) in [(&records.uplink, uplink), (&records.downlink, downlink)] {
            assert_saturated(packets, whole, 12.0, rate as f64, 0.9);
            assert_saturated(packets, 8.0, 12.0, rate as f64, 1.0);
        }
    }
}

/// 12 Mbit/s for 15 s, then 4, then 12 again.
fn stepped() -> Schedule {
    let steps = [(0, 12_000_000), (15_000, 4_000_000), (35_000, 12_000_000)]
        .map(|(start, rate)| (Duration::from_millis(start), BitRate(rate)));
    Schedule::Series {
        series: Arc::new(RateSeries::new(steps.to_vec(), None).unwrap()),
        offset: Duration::ZERO,
    }
}

#[test]
fn a_step_of_the_rate_leaves_the_queue_neither_empty_nor_endless() {
    let stepped = || wired(stepped());
    let records = World::new(stepped(), stepped(), Limits::default()).saturate(&adaptive(), 50);
    for packets in [&records.uplink, &records.downlink] {
        assert_saturated(packets, 8.0, 15.0, 12e6, 1.0);
        // When the rate falls to a third, two seconds of packets in flight take six, for any sender.
        assert_saturated(packets, 16.0, 35.0, 4e6, 0.5);
        assert_saturated(packets, 24.0, 35.0, 4e6, 1.0);
        assert_saturated(packets, 36.0, 50.0, 12e6, 0.8);
        assert!(seen(packets, 8.0, 50.0).within > 0.8);
    }
}

#[test]
fn the_server_is_asked_for_no_more_than_it_offers() {
    let limits = Limits {
        rate: BitRate(3_000_000),
        ..Limits::default()
    };
    let constant = || wired(Schedule::Constant(BitRate(20_000_000)));
    let records = World::new(constant(), constant(), limits).saturate(&adaptive(), 10);
    let rate = seen(&records.downlink, 6.0, 10.0).rate;
    assert!((2.8e6..=3.05e6).contains(&rate), "{rate}");
}
