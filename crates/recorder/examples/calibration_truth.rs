//! Compares the result of a calibration of less than five minutes with the true parameters of each radio profile.
//!
//! True is what the profile was configured with, or where that has no such number, what measuring for 10 × 60 s with other seeds gives.
//!
//! `cargo run --release -p cellbed-recorder --example calibration_truth [PROFILE]`

#[path = "../tests/truth/mod.rs"]
mod truth;

use cellbed_link::{Profile, Seed};
use cellbed_recorder::calibration::{Calibrator, DirectionCalibration};
use cellbed_recorder::packet::Way;
use truth::Truth;

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let profiles = Profile::ALL
        .iter()
        .filter(|profile| profile.name().contains(&wanted));
    println!("found / true; the found rate with its standard error");
    println!(
        "| profile | way | Mbit/s | queue KB | 100 bytes sooner, ms | rate 10→100 | L | G_min ms | F ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut round_trips = Vec::new();
    for &profile in profiles {
        let mut network = truth::network(profile, 100);
        let calibrator = Calibrator::new(Seed(1));
        let calibration = match network.calibrate(calibrator) {
            Ok(calibration) => calibration,
            Err(error) => {
                println!("| {} | {error} |", profile.name());
                continue;
            }
        };
        let truth = Truth::of(profile, &calibration, 1..11);
        for way in Way::BOTH {
            let (found, truth) = (calibration.directions.of(way), truth.directions.of(way));
            let sooner = -calibration.compensation.of(way)[0].1 as f64 / 1e6;
            println!(
                "| {} | {way} | {:.1} ± {:.1} / {:.1} | {} / {} | {sooner:.1} / {:.1} | {:.2} / {:.2} | {} | {:.0} / {:.0} | {:.0} / {:.0} |",
                profile.name(),
                found.saturated_bps as f64 / 1e6,
                found.saturated_error_bps as f64 / 1e6,
                truth.rate_bps / 1e6,
                found
                    .queue_bytes
                    .map_or("?".into(), |bytes| (bytes / 1000).to_string()),
                truth.queue_bytes / 1000,
                truth.sooner_ns / 1e6,
                ratio(found),
                truth.ratio,
                found.train,
                found.least_gap_ns as f64 / 1e6,
                truth.least_gap_ns / 1e6,
                found.idle_ns as f64 / 1e6,
                truth.idle_ns / 1e6,
            );
        }
        let times = calibration.round_trip_ns;
        round_trips.push(format!(
            "| {} | {:.1} / {:.1} | {:.1} / {:.1} | {:.0} |",
            profile.name(),
            times.median as f64 / 1e6,
            truth.median_ns / 1e6,
            times.p95 as f64 / 1e6,
            truth.p95_ns / 1e6,
            network.now().as_nanos() as f64 / 1e9
        ));
    }
    println!(
        "\n| profile | round trip, median ms | p95 ms | calibration took s |\n|---|---|---|---|"
    );
    round_trips.iter().for_each(|row| println!("{row}"));
}

/// Of the longest trains up to 100 packets to that of trains of 10.
fn ratio(found: &DirectionCalibration) -> f64 {
    let rate = |most| {
        let profile = found.lengths.iter().rfind(|profile| profile.length <= most);
        profile
            .and_then(|profile| profile.rate_bps())
            .unwrap_or(f64::NAN)
    };
    rate(100) / rate(10)
}
