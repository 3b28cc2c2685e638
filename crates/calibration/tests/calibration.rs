//! Calibration of networks with known parameters, in virtual time.

use std::sync::Arc;

use cellbed_calibration::calibration::{
    Calibration, Calibrator, DirectionCalibration, Experiment, LengthProfile, Purpose, add_regular,
    fit, regular,
};
use cellbed_calibration::plan::{PacketRecord, Train, TrainPlan, Way, Workload};
use cellbed_calibration::virtual_network::VirtualNetwork;
use cellbed_link::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn calibrated(uplink: Vec<StageConfig>, downlink: Vec<StageConfig>) -> Calibration {
    let mut network = VirtualNetwork::new(uplink, downlink);
    let calibrator = Calibrator::new(Seed(1));
    let calibration = network
        .calibrate(calibrator)
        .expect("the network is a good one");
    let taken = network.now() - Time::ZERO;
    assert!(taken < Duration::from_secs(300), "{taken}");
    calibration
}

fn droptail(bytes: u64) -> Discipline {
    Discipline::DropTail(Limit {
        packets: None,
        bytes: Some(Bytes(bytes)),
    })
}

fn constant(rate: u64, queue: Option<u64>, delay: Duration) -> Vec<StageConfig> {
    let bottleneck = BottleneckConfig {
        queue: queue.map_or(Discipline::Infinite, droptail),
        ..BottleneckConfig::new(Schedule::Constant(BitRate(rate)))
    };
    vec![bottleneck.into(), DelayConfig::Fixed(delay).into()]
}

#[track_caller]
fn near(found: f64, truth: f64, share: f64) {
    assert!(
        (found / truth - 1.0).abs() <= share,
        "{found} is not {truth}"
    );
}

fn profile(found: &DirectionCalibration, length: u16) -> &LengthProfile {
    let mut profiles = found.lengths.iter();
    profiles.find(|profile| profile.length == length).unwrap()
}

fn rate(found: &DirectionCalibration, length: u16) -> f64 {
    profile(found, length).rate_bps().unwrap()
}

#[test]
fn a_constant_link_is_told_as_it_is() {
    let calibration = calibrated(
        constant(10_000_000, Some(200_000), ms(15)),
        constant(60_000_000, Some(1_000_000), ms(25)),
    );
    let up = &calibration.directions.uplink;
    let down = &calibration.directions.downlink;
    near(up.saturated_bps as f64, 10e6, 0.005);
    near(down.saturated_bps as f64, 60e6, 0.005);
    near(up.queue_bytes.unwrap() as f64, 200e3, 0.02);
    near(down.queue_bytes.unwrap() as f64, 1e6, 0.02);
    // 40 ms, plus a packet of 1400 bytes at each rate
    near(calibration.round_trip_ns.median as f64, 41.307e6, 0.001);
    near(calibration.round_trip_ns.p95 as f64, 41.307e6, 0.001);
    // Delivery does not depend on the train length: the last of N packets arrives N - 1 packet times later.
    for profile in &down.lengths {
        near(profile.rate_bps().unwrap(), 60e6, 0.001);
    }
    assert!(down.errors.iter().all(|error| error.mean_error < 0.001));
    // 1300 bytes at each rate
    near(calibration.compensation.uplink[0].1 as f64, -1.04e6, 0.001);
    near(
        calibration.compensation.downlink[0].1 as f64,
        -0.1733e6,
        0.001,
    );
    let first = &calibration.verdict[0];
    assert!(first.contains("equally fast"), "{first}");
    let text = serde_json::to_string(&calibration).unwrap();
    let read: Calibration = serde_json::from_str(&text).unwrap();
    assert_eq!(read, calibration);
}

#[test]
fn a_corrupted_packet_is_lost() {
    let mut uplink = constant(10_000_000, None, ms(15));
    uplink.push(
        CorruptionConfig {
            probability: Probability::new(0.5).unwrap(),
            seed: Seed(1),
        }
        .into(),
    );
    let mut network = VirtualNetwork::new(uplink, constant(60_000_000, None, ms(25)));
    let calibrator = Calibrator::new(Seed(1));
    let (up, down) = network.run(calibrator.next().expect("an experiment"));
    let lost = up.iter().filter(|packet| packet.copies == 0).count();
    let share = lost as f64 / up.len() as f64;
    assert!((0.4..0.6).contains(&share), "{lost} of {}", up.len());
    assert!(down.iter().all(|packet| packet.copies == 1));
}

#[test]
fn a_slow_link_has_time_to_cool() {
    let calibration = calibrated(
        constant(300_000, None, ms(50)),
        constant(1_000_000, Some(60_000), ms(50)),
    );
    let directions = &calibration.directions;
    near(directions.uplink.saturated_bps as f64, 300e3, 0.01);
    near(directions.downlink.queue_bytes.unwrap() as f64, 60e3, 0.05);
    // Without a queue limit: two seconds at three times the rate.
    assert_eq!(directions.uplink.queue_bytes, None);
    let held = directions.uplink.queue_at_least_bytes.unwrap();
    near(held as f64, 2.0 * 2.0 * 300e3 / 8.0, 0.05);
}

/// Light rows with a cold start, then a heavy trace: every delivery is known.
#[test]
fn a_link_that_depends_on_its_load_gives_its_light_and_heavy_opportunities() {
    let light: String = (0..400)
        .map(|row| {
            let offsets: Vec<String> = (0..20).map(|packet| (packet * 3).to_string()).collect(); // 3.7 Mbit/s
            format!("{} 20 {}\n", row * 50, offsets.join(" "))
        })
        .collect();
    let heavy: String = (1..=20_000).map(|at| format!("{at}\n")).collect(); // 11.2 Mbit/s
    let side = || {
        let light = LightRows::parse(light.as_bytes()).unwrap();
        let heavy = Trace::parse(heavy.as_bytes()).unwrap();
        let config = WorkloadDependentConfig {
            idle: ms(5),
            idle_at: IdleAt::Queue,
            queue: droptail(300_000),
            ..WorkloadDependentConfig::new(Arc::new(light), Arc::new(heavy))
        };
        vec![StageConfig::from(config)]
    };
    let calibration = calibrated(side(), side());
    let down = &calibration.directions.downlink;
    near(down.saturated_bps as f64, 11.2e6, 0.01);
    near(down.queue_bytes.unwrap() as f64, 300e3, 0.03);
    near(calibration.round_trip_ns.median as f64, 40e6, 0.001);
    near(profile(down, 10).last_ns() as f64, 27e6, 0.001);
    near(profile(down, 25).last_ns() as f64, 57e6 + 1e6 + 4.5e6, 0.02);
    near(
        profile(down, 50).last_ns() as f64,
        57e6 + 1e6 + 29.5e6,
        0.02,
    );
    assert!(down.train >= 25);
    // The gaps have steps of 10 ms.
    let idle = down.idle_ns as f64 / 1e6;
    assert!((5.0..=15.5).contains(&idle), "{idle}");
    let ratio = rate(down, 50) / rate(down, 10);
    let first = &calibration.verdict[0];
    assert!(
        first.contains(&format!("{ratio:.1} (± 0.0) × as fast")),
        "{first}"
    );
}

#[test]
fn losses_are_borne_until_there_are_too_many() {
    let lossy = |probability, rate| {
        let loss = LossConfig::Independent {
            probability: Probability::new(probability).unwrap(),
            seed: Seed(3),
        };
        let mut stages = vec![loss.into()];
        stages.extend(constant(rate, Some(500_000), ms(20)));
        stages
    };
    let calibration = calibrated(lossy(0.003, 10_000_000), lossy(0.003, 40_000_000));
    let down = &calibration.directions.downlink;
    near(down.saturated_bps as f64, 40e6, 0.01);
    near(down.queue_bytes.unwrap() as f64, 500e3, 0.05);
    near(calibration.round_trip_ns.median as f64, 41.4e6, 0.01);

    let noted = calibrated(lossy(0.0, 10_000_000), lossy(0.03, 40_000_000)).unknown;
    assert!(
        noted
            .iter()
            .any(|it| it.contains("single packets were lost without any load"))
    );

    let failed = |uplink, downlink| {
        let mut network = VirtualNetwork::new(uplink, downlink);
        network.calibrate(Calibrator::new(Seed(1))).unwrap_err()
    };
    for ((up, down), parts) in [
        ((0.7, 0.7), ["too many packets were lost", "better signal"]),
        (
            (1.0, 0.0),
            ["nothing arrived uplink", "Is the server running"],
        ),
    ] {
        let error = failed(lossy(up, 10_000_000), lossy(down, 40_000_000)).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

/// A link whose rate changes every quarter second between a tenth of `most` and `most` bit/s, in neighbouring values,
/// with a pause; repeated every minute. Returns also the bits of its slowest second.
fn generated(seed: u64, most: f64, pause_ms: u64) -> (Vec<StageConfig>, f64) {
    let mut random = random::Random::new(Seed(seed));
    let (mut times, mut level, mut due) = (Vec::new(), 0.0, 0.0);
    let pause = 10_000..10_000 + pause_ms;
    for at in 1..=60_000_u64 {
        if at % 250 == 1 {
            level = (level + random.unit() - 0.5).clamp(-1.0, 0.0);
        }
        due += f64::powf(10.0, level) * most / 12e6; // packets of 1500 bytes per ms
        while due >= 1.0 {
            due -= 1.0;
            times.extend((!pause.contains(&at)).then_some(at));
        }
    }
    let within = |from: u64| {
        times
            .iter()
            .filter(|at| (from..from + 1000).contains(at))
            .count()
    };
    let slowest = (0..590).map(|tenth| within(100 * tenth)).min().unwrap_or(0);
    let text: String = times.iter().map(|at| format!("{at}\n")).collect();
    let bottleneck = BottleneckConfig {
        queue: droptail(if seed < 7 { 100_000 } else { 600_000 }),
        ..BottleneckConfig::new(Schedule::looped(Arc::new(
            Trace::parse(text.as_bytes()).unwrap(),
        )))
    };
    let stages = vec![bottleneck.into(), DelayConfig::Fixed(ms(20)).into()];
    (stages, 12_000.0 * slowest as f64)
}

#[test]
fn trains_behind_varying_links_are_light_and_lose_nothing() {
    for seed in 1..=12 {
        let (uplink, _) = generated(100 + seed, 5e6, 0);
        let most = [4e6, 20e6, 80e6][seed as usize % 3];
        let (downlink, slowest) = generated(seed, most, 2_000 * (seed % 2));
        let calibration = calibrated(uplink.clone(), downlink.clone());
        assert!(calibration.bytes < 260_000_000, "{}", calibration.bytes);
        let long = Train::new((1, 1400), (400, 1400));
        let plan = TrainPlan {
            rotation: vec![
                Train::new((60, 1400), (1, 100)),
                long,
                Train::new((1, 100), (1, 1400)),
            ],
            gap_ns: 50_000_000,
            jitter: 0.0,
            count: None,
            seed: 1,
        };
        let plan = fit(
            &add_regular(&plan, regular(&calibration, 1400, 50_000_000)),
            &calibration,
            1.0,
        );
        let experiment = Experiment {
            purpose: Purpose::RoundTrips,
            workload: Workload::Trains(plan),
            span: Some(Duration::from_secs(60)),
            quiet: Duration::from_secs(3),
        };
        let (up, down) = VirtualNetwork::new(uplink, downlink).run(&experiment);
        let lost = |packets: &[PacketRecord]| packets.iter().filter(|it| it.copies == 0).count();
        assert_eq!((lost(&up), lost(&down)), (0, 0), "seed {seed}");
        let load = down.iter().map(|it| 8.0 * f64::from(it.bytes)).sum::<f64>() / 60.0;
        let unknown = calibration.unknown.join(" ");
        match slowest {
            0.0 => assert!(
                unknown.contains("downlink: the link paused"),
                "{seed} {unknown}"
            ),
            _ => assert!(
                load <= 0.1 * slowest,
                "seed {seed}: {load} of {slowest}: {unknown}"
            ),
        }
    }
}

#[test]
fn no_more_is_asked_for_than_is_allowed() {
    let mut network = VirtualNetwork::new(
        constant(1_000_000_000, None, ms(5)),
        constant(1_000_000_000, None, ms(5)),
    );
    let mut calibrator = Calibrator::new(Seed(1));
    calibrator.limit(BitRate(50_000_000), 200);
    let calibration = network.calibrate(calibrator).unwrap();
    let down = &calibration.directions.downlink;
    near(down.saturated_bps as f64, 50e6, 0.01);
    assert!(down.lengths.iter().all(|profile| profile.length <= 200));
    assert_eq!(down.queue_bytes, None);
}

/// A generated link. The queue limits are configured; other parameters are means over ten links with other seeds,
/// measured for a minute each.
fn radio(profile: Profile) -> Calibration {
    let side = |way| {
        let seed = Seed(100);
        let config = profile.config(way);
        vec![RadioConfig { seed, ..config }.into()]
    };
    calibrated(side(Way::Uplink), side(Way::Downlink))
}

#[test]
fn the_low_band_operator_is_found_as_it_is() {
    let calibration = radio(Profile::LOWBAND_GOOD);
    let (up, down) = (
        &calibration.directions.uplink,
        &calibration.directions.downlink,
    );
    near(up.saturated_bps as f64, 17.1e6, 0.1);
    near(down.saturated_bps as f64, 60.7e6, 0.1);
    near(up.queue_bytes.unwrap() as f64, 500e3, 0.05);
    near(down.queue_bytes.unwrap() as f64, 2e6, 0.05);
    near(calibration.round_trip_ns.median as f64, 39.2e6, 0.05);
    near(calibration.round_trip_ns.p95 as f64, 49.5e6, 0.05);
    // 1300 · 1.83 µs of the path, a second slot of the cold scheduler, and on the uplink a second grant
    near(calibration.compensation.uplink[0].1 as f64, -6.8e6, 0.25);
    near(calibration.compensation.downlink[0].1 as f64, -3.7e6, 0.25);
    // 2.6 in the paper and in many weather traces
    near(rate(down, 100) / rate(down, 10), 2.6, 0.25);
    // The scheduler forgets within 10 ms, and trains must leave part of that.
    assert!((10_000_000..=40_000_000).contains(&down.least_gap_ns));
    assert!((25..=100).contains(&down.train));
}

#[test]
fn the_mid_band_operator_is_found_as_it_is() {
    let calibration = radio(Profile::MIDBAND_GOOD);
    let (up, down) = (
        &calibration.directions.uplink,
        &calibration.directions.downlink,
    );
    near(up.saturated_bps as f64, 25e6, 0.1);
    near(down.saturated_bps as f64, 178e6, 0.1);
    near(up.queue_bytes.unwrap() as f64, 1e6, 0.05);
    near(down.queue_bytes.unwrap() as f64, 4e6, 0.05);
    near(calibration.round_trip_ns.median as f64, 28e6, 0.1);
    // All long trains are alike.
    for profile in down.lengths.iter().filter(|profile| profile.length >= 250) {
        near(profile.rate_bps().unwrap(), 167e6, 0.15);
    }
}
