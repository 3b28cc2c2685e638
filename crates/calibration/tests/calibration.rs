//! Calibration of networks with known parameters, in virtual time.

use std::sync::Arc;

use cellbed_calibration::calibration::{
    Calibration, Calibrator, DirectionCalibration, LengthProfile,
};
use cellbed_calibration::plan::Way;
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

    let failed = |uplink, downlink| {
        let mut network = VirtualNetwork::new(uplink, downlink);
        network.calibrate(Calibrator::new(Seed(1))).unwrap_err()
    };
    for ((up, down), parts) in [
        ((0.9, 0.9), ["too many packets were lost", "better signal"]),
        (
            (0.0, 0.03),
            ["single packets were lost downlink", "--light-train"],
        ),
        (
            (1.0, 0.0),
            ["nothing arrived uplink", "Is the server running"],
        ),
    ] {
        let error = failed(lossy(up, 10_000_000), lossy(down, 40_000_000)).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

/// One second of 40 Mbit/s, then one of 8 Mbit/s, repeated.
fn varying() -> Vec<StageConfig> {
    let fast = (1..3333_u64).map(|packet| packet * 3 / 10);
    let slow = (0..666_u64).map(|packet| 1000 + packet * 3 / 2);
    let text: String = fast.chain(slow).map(|at| format!("{at}\n")).collect();
    let trace = Trace::parse(text.as_bytes()).unwrap();
    let bottleneck = BottleneckConfig {
        queue: droptail(200_000),
        ..BottleneckConfig::new(Schedule::looped(Arc::new(trace)))
    };
    vec![bottleneck.into(), DelayConfig::Fixed(ms(10)).into()]
}

#[test]
fn a_light_workload_takes_a_tenth_of_the_slowest_second() {
    let calibration = calibrated(varying(), varying());
    for way in Way::BOTH {
        let side = calibration.directions.of(way);
        let slowest = side.slowest_bps.unwrap() as f64;
        assert!((7e6..12e6).contains(&slowest), "{slowest}"); // seconds of the saturation begin at another phase
        let (train, gap) = (side.light_train(), side.light_gap_ns(side.light_train()));
        let load = f64::from(train) * 8.0 * 1400.0 * 1e9 / gap as f64;
        assert!(load <= 0.1001 * slowest, "{load} of {slowest}");
        assert!(train >= 5 && gap <= 260_000_000, "{train} in {gap}");
        // After an outage of a second: a fiftieth of the mean.
        let paused = DirectionCalibration {
            slowest_bps: Some(0),
            ..side.clone()
        };
        let gap = paused.light_gap_ns(paused.light_train());
        let load = f64::from(paused.light_train()) * 8.0 * 1400.0 * 1e9 / gap as f64;
        near(load, 0.02 * paused.saturated_bps as f64, 0.3);
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
