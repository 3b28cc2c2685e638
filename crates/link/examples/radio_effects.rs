//! Effects of the radio profiles, with the published effects.
//!
//! `cargo run --release -p cellbed-link --example radio_effects`

#[path = "../tests/behaviour/radio/probe.rs"]
mod probe;

use cellbed_link::Profile;
use probe::{Effects, TRAINS, median, quantile};

/// Return the values published by Sentosa et al. ("CellReplay", NSDI 2025, §1, §3.1 and §3.2), in the columns of the
/// table.
fn published(profile: Profile) -> Option<String> {
    let [rate, bias, ratio, excess, compensation] = match profile {
        Profile::MIDBAND_GOOD => ["–", "16.88%", "–", "11.5%", "–"],
        Profile::LOWBAND_GOOD => ["60", "13.25%", "2.6x", "35.8%", "6.8"],
        _ => return None,
    };
    let (none, name) = ("", "  published");
    Some(format!(
        "{name:16} {rate:>6} {none:6} {none:16} {none:8} {bias:>8} {ratio:>8} {excess:>9} {compensation:>7}"
    ))
}

fn main() {
    println!(
        "{:16} {:>13} {:>16} {:>8} {:>8} {:>8} {:>9} {:>7}",
        "profile",
        "Mbit/s dn/up",
        "RTT p5/50/95",
        "replay",
        "RTT low",
        "10→100",
        "TCT over",
        "comp"
    );
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut trains = Vec::new();
    for profile in Profile::all() {
        if !profile.name().contains(&wanted) {
            continue;
        }
        let effects = Effects::of(profile, 0..10, 60);
        println!(
            "{:16} {:6.1} {:6.1} {:5.1} {:4.1} {:5.1} {:8.1} {:7.1}% {:7.2}x {:8.1}% {:7.1}",
            profile.name(),
            effects.downlink,
            effects.uplink,
            quantile(&effects.live, 0.05),
            median(&effects.live),
            quantile(&effects.live, 0.95),
            median(&effects.replayed),
            100.0 * effects.bias(),
            effects.ratio(),
            100.0 * effects.most_excess(),
            effects.compensation
        );
        if let Some(published) = published(profile) {
            println!("{published}");
        }
        trains.push((profile, effects));
    }
    println!(
        "\ntrains: completion ms (over the saturator's line, delivery rate in Mbit/s, and in the second half as a share of the saturator's)"
    );
    print!("{:16}", "packets");
    TRAINS.iter().for_each(|length| print!("{length:>19}"));
    for (profile, effects) in &trains {
        print!(
            "\n{:16}{:6.1}{:13}",
            profile.name(),
            effects.completion[0],
            ""
        );
        for (index, excess) in effects.excess().iter().enumerate().skip(1) {
            let (completion, rate) = (effects.completion[index], effects.rate[index]);
            let late = 100.0 * effects.late[index];
            print!(
                "{completion:6.1}{:+4.0}%{rate:4.0}{late:4.0}%",
                100.0 * excess
            );
        }
    }
    println!();
}
