//! A calibration as text.

use super::design::SHORT;
use super::result::{Calibration, DirectionCalibration};
use super::{PACKET_BITS, PACKET_BYTES};
use crate::plan::Way;

/// The transfer in the verdict: the one with the largest error in the paper's evaluation (§5.6).
const TRANSFER_BYTES: u32 = 250_000;
/// Length of the trains that the verdict compares with short ones.
const LONG: u16 = 100;
/// Maximum relative difference of rates reported as equal.
const ALIKE: f64 = 0.15;

/// Interpret the figures, one sentence each.
pub(super) fn verdict(calibration: &Calibration) -> Vec<String> {
    let mut sentences = Vec::new();
    for way in [Way::Downlink, Way::Uplink] {
        let direction = calibration.directions.of(way);
        sentences.extend(dependence(way, direction));
        if way == Way::Downlink {
            sentences.push(transfer(direction));
        }
        sentences.push(idleness(way, direction));
        sentences.push(queue(way, direction));
    }
    sentences.push(round_trips(calibration));
    sentences.push(sizes(calibration));
    sentences
}

/// "100-packet downlink trains are delivered 2.4 × as fast as 10-packet ones."
fn dependence(way: Way, direction: &DirectionCalibration) -> Option<String> {
    let short = direction
        .lengths
        .iter()
        .find(|profile| profile.length == SHORT)?;
    let long = direction
        .lengths
        .iter()
        .rfind(|profile| profile.length <= LONG)?;
    let (slow, fast) = (short.rate_bps()?, long.rate_bps()?);
    let ratio = fast / slow;
    let uncertain = ratio * long.relative_error().hypot(short.relative_error());
    let saturated = direction.saturated_bps as f64 / 1e6;
    let rates = format!(
        "({:.1} and {:.1} Mbit/s; {saturated:.1} Mbit/s under saturation)",
        fast / 1e6,
        slow / 1e6
    );
    Some(if (ratio - 1.0).abs() < ALIKE {
        capitalise(format!(
            "{way} trains of {} and {SHORT} packets are delivered about equally fast {rates}.",
            long.length
        ))
    } else {
        format!(
            "{}-packet {way} trains are delivered {ratio:.1} (± {uncertain:.1}) × as fast as {SHORT}-packet ones {rates}.",
            long.length
        )
    })
}

/// "Replaying saturation alone would end a 250 KB download 21 % too soon."
fn transfer(direction: &DirectionCalibration) -> String {
    let packets = TRANSFER_BYTES.div_ceil(PACKET_BYTES.into()) as u16;
    let live = direction.completion_ns(packets);
    let heavy = direction.heavy_ns(f64::from(packets - 1));
    let early = 100.0 * (1.0 - heavy / live);
    let kilobytes = TRANSFER_BYTES / 1000;
    let when = if early >= 1.0 {
        format!("{early:.0} % too soon")
    } else if early <= -1.0 {
        format!("{:.0} % too late", -early)
    } else {
        "at the right time".into()
    };
    format!(
        "Replaying saturation alone would deliver a {kilobytes} KB download that comes at once {when} ({:.0} instead of {:.0} ms from first to last packet).",
        heavy / 1e6,
        live / 1e6
    )
}

fn idleness(way: Way, direction: &DirectionCalibration) -> String {
    let (gap, idle) = (millis(direction.least_gap_ns), millis(direction.idle_ns));
    let shortest = direction.gaps.last().map_or(0, |gap| gap.gap_ns);
    let cooling = if direction.least_gap_ns == shortest {
        "no tested gap makes their delivery faster".into()
    } else if direction.idle_ns == 0 {
        "with shorter gaps, which leave no pause, the delivery rate changes".into()
    } else {
        format!("after {idle} ms without packets the link is fully inactive")
    };
    format!(
        "Trains of {} packets {way} must start at least {gap} ms apart: {cooling}.",
        direction.train
    )
}

fn queue(way: Way, direction: &DirectionCalibration) -> String {
    let rate = direction.saturated_bps as f64;
    let wait = |bytes: u64| 8e3 * bytes as f64 / rate;
    match (direction.queue_bytes, direction.queue_at_least_bytes) {
        (Some(bytes), _) => format!(
            "The {way} queue holds {} KB, {:.0} ms at the saturated rate.",
            bytes / 1000,
            wait(bytes)
        ),
        (None, Some(bytes)) => format!(
            "The {way} queue did not overflow: it holds {} KB, {:.0} ms, or more.",
            bytes / 1000,
            wait(bytes)
        ),
        (None, None) => format!("The size of the {way} queue is unknown."),
    }
}

fn round_trips(calibration: &Calibration) -> String {
    let times = calibration.round_trip_ns;
    format!(
        "Round trips vary between {} and {} ms (nine in ten), with a median of {} ms.",
        millis(times.p5 as u64),
        millis(times.p95 as u64),
        millis(times.median as u64)
    )
}

fn sizes(calibration: &Calibration) -> String {
    let sooner = |way| {
        let first = calibration.compensation.of(way).first();
        first.map_or(0.0, |&(_, offset)| -offset as f64 / 1e6)
    };
    let serialised = |way| PACKET_BITS / calibration.directions.of(way).saturated_bps as f64 * 1e3;
    format!(
        "Packets of 100 bytes arrive {:.1} ms sooner than packets of {PACKET_BYTES} downlink and {:.1} ms uplink; the rate alone would explain {:.1} and {:.1} ms.",
        sooner(Way::Downlink),
        sooner(Way::Uplink),
        serialised(Way::Downlink),
        serialised(Way::Uplink)
    )
}

fn millis(nanos: u64) -> String {
    format!("{:.0}", nanos as f64 / 1e6)
}

/// Capitalise the first letter.
fn capitalise(mut text: String) -> String {
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}
