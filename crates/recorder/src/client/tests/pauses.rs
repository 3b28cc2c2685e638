//! A light run's traffic beside its trains keeps no device awake: after each pause, it measures the same as probes
//! without a recorder.

use std::collections::BTreeMap;

use cellbed_link::{Duration, Profile, StageConfig, Time, Way};

use super::virtual_world::VirtualWorld;
use crate::client::*;
use crate::recording::{Collector, Role, RunPlan, RunRecords};
use crate::server::Limits;
use cellbed_calibration::calibration::{Experiment, Purpose};
use cellbed_calibration::plan::{PacketRecord, Train, TrainPlan, Workload};
use cellbed_calibration::virtual_network::VirtualNetwork;

/// Minimum idle time after which a single downlink packet finds the device asleep, ns: the device sleeps after 200 ms.
const ASLEEP: i64 = 210_000_000;

const QUIET: Duration = Duration::from_millis(500);

fn train(down: u16, gap_ms: u64) -> Train {
    Train {
        gap_ns: Some(gap_ms * 1_000_000),
        ..Train::new((1, 100), (down, 1400))
    }
}

/// Trains in rotation, each pause varied by half of its length.
fn plan(rotation: Vec<Train>) -> TrainPlan {
    TrainPlan {
        rotation,
        gap_ns: 0,
        jitter: 0.5,
        count: None,
        seed: 3,
    }
}

fn links() -> [Vec<StageConfig>; 2] {
    [Way::Uplink, Way::Downlink].map(|way| vec![Profile::LOWBAND_GOOD.config(way).into()])
}

/// Trains as recorded.
struct Recorded {
    records: RunRecords,
    began: Time,
    /// Maximum time until the fate of an uplink packet was known.
    latest: Duration,
}

fn recorded(plan: &TrainPlan, span: Duration) -> Recorded {
    let [uplink, downlink] = links();
    let grain = Duration::from_nanos(1);
    let mut world = VirtualWorld::new(vec![(uplink, downlink)], Limits::default(), grain);
    let mut collector = Collector::new(Time::ZERO);
    let workload = Workload::Trains(plan.clone());
    collector.plan(RunPlan::new(1, Role::Light, &workload));
    world.devices[0].path.run(
        RunRequest {
            number: 1,
            workload,
            span: Some(span),
            quiet: QUIET,
        },
        Time::ZERO,
    );
    let (mut began, mut sent) = (Time::ZERO, BTreeMap::new());
    let mut latest = Duration::ZERO;
    loop {
        for event in world.step() {
            collector.take(&event);
            match event {
                Event::Run(_, RunEvent::Began(at)) => began = at,
                Event::Run(_, RunEvent::Sent(departure)) => {
                    sent.insert(departure.train, departure.at);
                }
                Event::Run(_, RunEvent::ArrivedUplink(arrival)) => {
                    latest = latest.max(world.now - sent[&arrival.train]);
                }
                Event::Run(_, RunEvent::Ended(end)) => {
                    assert!(end.complete);
                    let clock = collector.clock();
                    return Recorded {
                        records: collector.finish(1, clock.as_ref()).unwrap(),
                        began,
                        latest,
                    };
                }
                _ => {}
            }
        }
    }
}

/// Return records of the same trains and answers, sent at the same times in the same network without other traffic.
fn probed(plan: &TrainPlan, span: Duration, began: Time) -> (Vec<PacketRecord>, Vec<PacketRecord>) {
    let [uplink, downlink] = links();
    let mut network = VirtualNetwork::new(uplink, downlink);
    network.pass(began - Time::ZERO);
    network.run(&Experiment {
        purpose: Purpose::RoundTrips,
        workload: Workload::Trains(plan.clone()),
        span: Some(span),
        quiet: QUIET,
    })
}

/// Mean round-trip times, ms, of trains with a single-packet answer: after a sleep, and after a shorter pause; number
/// of sleeps. Both ends are times of the client's clock.
#[derive(Debug)]
struct Singles {
    asleep: f64,
    awake: f64,
    sleepers: usize,
}

fn singles(plan: &TrainPlan, up: &[PacketRecord], down: &[PacketRecord]) -> Singles {
    let (mut asleep, mut awake) = (Vec::new(), Vec::new());
    for pair in down.windows(2) {
        let (sent, before) = (pair[1].sent_ns.unwrap(), pair[0].arrived_ns.unwrap());
        let number = pair[1].train as usize;
        if plan.rotation[number % plan.rotation.len()].down == 1 {
            let (requested, answered) = (up[number].sent_ns.unwrap(), pair[1].arrived_ns.unwrap());
            let delay = (answered - requested) as f64 * 1e-6;
            match sent - before {
                idle if idle >= ASLEEP => asleep.push(delay),
                idle if idle >= 20_000_000 => awake.push(delay),
                _ => {}
            }
        }
    }
    let mean = |delays: &[f64]| delays.iter().sum::<f64>() / delays.len() as f64;
    Singles {
        asleep: mean(&asleep),
        awake: mean(&awake),
        sleepers: asleep.len(),
    }
}

/// Return the singles of a recording, which knows fates after at most `latest`, and singles without a recorder.
fn compare(rotation: Vec<Train>, seconds: u64, latest: Duration) -> (Singles, Singles) {
    let (plan, span) = (plan(rotation), Duration::from_secs(seconds));
    let recorded = recorded(&plan, span);
    let records = &recorded.records;
    let seen = singles(&plan, &records.uplink, &records.downlink);
    let (up, down) = probed(&plan, span, recorded.began);
    let real = singles(&plan, &up, &down);
    assert!(real.sleepers >= 60);
    assert!(
        (seen.asleep - real.asleep).abs() < 0.5,
        "{seen:?}, {real:?}"
    );
    assert!(recorded.latest < latest, "{}", recorded.latest);
    (seen, real)
}

#[test]
fn a_device_that_falls_asleep_among_short_pauses_is_recorded_so() {
    let rotation = vec![
        train(1, 45),
        train(10, 55),
        train(1, 300),
        train(1, 45),
        train(25, 55),
        train(60, 85),
        train(1, 300),
        train(1, 45),
        train(1, 8),
        train(25, 55),
        train(150, 130),
        train(1, 300),
        train(1, 45),
    ];
    let (seen, real) = compare(rotation, 90, Duration::from_millis(2_500));
    assert!(real.asleep - real.awake > 8.0, "{real:?}");
    assert!((seen.awake - real.awake).abs() < 0.5, "{seen:?}, {real:?}");
}

#[test]
fn a_device_that_always_sleeps_is_recorded_so() {
    compare(vec![train(1, 500)], 60, Duration::from_millis(3_500));
}
