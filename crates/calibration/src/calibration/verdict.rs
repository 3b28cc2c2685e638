//! A calibration as text.

use super::design::SHORT;
use super::filling::Filling;
use super::result::{Calibration, DirectionCalibration, PAUSE_SHARE};
use super::{BY_CHANCE, MOST_LOST, PACKET_BYTES, PRECISION};
use crate::plan::{Both, Way};

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
    }
    sentences.push(round_trips(calibration));
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

/// List what could not be established. singles: numbers of single packets sent and lost.
pub(super) fn unknown(
    calibration: &Calibration,
    singles: &Both<(usize, usize)>,
    filling: &Filling,
) -> Vec<String> {
    let mut sentences = Vec::new();
    for way in Way::BOTH {
        let found = calibration.directions.of(way);
        let (mean, error) = (found.saturated_bps as f64, found.saturated_error_bps as f64);
        let slowest = found.slowest_bps.unwrap_or(0) as f64;
        let seconds = found.watched_ns as f64 / 1e9;
        let shortest = found.gaps.last().map_or(0, |gap| gap.gap_ns);
        let uncertain = found
            .lengths
            .iter()
            .filter(|it| it.relative_error() > 2.0 * PRECISION);
        let (sent, lost) = *singles.of(way);
        let notes = [
            (error > PRECISION * mean, format!("its mean capacity is known to ± {:.0} % only", 100.0 * error / mean)),
            (!filling.knows(way), "its mean capacity rests on less than three seconds".into()),
            (slowest < PAUSE_SHARE * mean, "the link paused for a second or more: trains that are sent meanwhile wait or are lost".into()),
            (slowest >= PAUSE_SHARE * mean && slowest < 0.8 * mean, format!(
                "the slowest second in a search of {seconds:.0} s had {:.2} Mbit/s, and slower ones may follow: trains are planned for {:.2} Mbit/s",
                slowest / 1e6, found.expected_slowest_bps() / 1e6
            )),
            (uncertain.count() > 0, "trains of equal length differ by so much that their mean duration is uncertain".into()),
            (found.gaps.is_empty(), "no trains could be compared after several gaps: the idle time F is unknown".into()),
            (found.least_gap_ns == shortest && !found.gaps.is_empty(), format!(
                "no shorter pause than {} ms was tested: the idle time F may be shorter", millis(found.idle_ns)
            )),
            (found.queue_bytes.is_none(), "its queue did not overflow: the queue's length is unknown".into()),
            (lost > BY_CHANCE && lost as f64 > MOST_LOST * sent as f64, format!(
                "{lost} of {sent} single packets were lost without any load"
            )),
        ];
        let noted = notes.into_iter().filter(|(applies, _)| *applies);
        sentences.extend(noted.map(|(_, note)| format!("Calibration of the {way}: {note}.")));
    }
    sentences
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
