//! Calibration of generated radio links, whose parameters are known. Figures that are not configured were measured for ten times
//! longer with other seeds: `cargo run --release -p cellbed-recorder --example calibration_truth`.

mod truth;

use cellbed_link::{Profile, Seed, Time};
use cellbed_recorder::calibration::{Calibration, Calibrator, DirectionCalibration};

fn calibrated(profile: Profile) -> Calibration {
    let mut network = truth::network(profile, 100);
    let calibration = network.calibrate(Calibrator::new(Seed(1))).unwrap();
    let taken = network.now() - Time::ZERO;
    assert!(taken.as_secs_f64() < 300.0, "{taken}");
    calibration
}

#[track_caller]
fn near(found: f64, truth: f64, share: f64) {
    assert!(
        (found / truth - 1.0).abs() <= share,
        "{found} is not {truth}"
    );
}

fn rate(found: &DirectionCalibration, length: u16) -> f64 {
    let mut profiles = found.lengths.iter();
    let profile = profiles
        .find(|profile| profile.length == length)
        .expect("it was measured");
    profile.rate_bps().expect("it has more than one packet")
}

#[test]
fn the_low_band_operator_is_told_as_it_is() {
    let calibration = calibrated(Profile::LOWBAND_GOOD);
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
    // 1300 · 1.83 µs of the path, a second slot of the cold scheduler, and uplink a second grant
    near(calibration.compensation.uplink[0].1 as f64, -6.8e6, 0.25);
    near(calibration.compensation.downlink[0].1 as f64, -3.7e6, 0.25);
    // 2.6 in the paper and over many weathers
    near(rate(down, 100) / rate(down, 10), 2.6, 0.25);
    // The scheduler forgets within 10 ms, so trains must leave some of that.
    assert!((10_000_000..=40_000_000).contains(&down.least_gap_ns));
    assert!((25..=100).contains(&down.train));
}

#[test]
fn the_mid_band_operator_is_told_as_it_is() {
    let calibration = calibrated(Profile::MIDBAND_GOOD);
    let (up, down) = (
        &calibration.directions.uplink,
        &calibration.directions.downlink,
    );
    near(up.saturated_bps as f64, 25e6, 0.1);
    near(down.saturated_bps as f64, 178e6, 0.1);
    near(up.queue_bytes.unwrap() as f64, 1e6, 0.05);
    near(down.queue_bytes.unwrap() as f64, 4e6, 0.05);
    near(calibration.round_trip_ns.median as f64, 28e6, 0.1);
    // Long trains are all alike.
    for profile in down.lengths.iter().filter(|profile| profile.length >= 250) {
        near(profile.rate_bps().unwrap(), 167e6, 0.15);
    }
}

#[test]
fn a_car_is_borne() {
    let calibration = calibrated(Profile::LOWBAND_DRIVING);
    let down = &calibration.directions.downlink;
    near(down.queue_bytes.unwrap() as f64, 2e6, 0.1);
    assert!(rate(down, 100) > 1.5 * rate(down, 10));
}
