//! Light workloads: plans that fit a calibrated network, and whether the workload of a recording was light.

use std::collections::{HashMap, HashSet};

use super::rate::{self, Estimate};
use super::result::{Calibration, LIGHT_SHARE};
use super::{BY_CHANCE, MOST_LOST, QUEUE_SHARE, trains};
use crate::plan::{Both, PacketRecord, Train, TrainPlan, Way};

/// Maximum time for which one train may use up the rate of a light workload, s.
const PATIENCE: f64 = 2.5;

/// Maximum part of the time for which trains of one octave of bytes may use up the rate of a light workload, and
/// minimum number of them: if fewer would be left, they are left out.
const PART: f64 = 0.25;
const FEWEST: f64 = 2.0;

/// Number of other trains between two regular ones, and minimum gap before a regular one, ns: the link cools.
const EVERY: usize = 3;
const COOLING_NS: u64 = 40_000_000;

/// Return the regular train of the calibrated lengths, for light rows (Sentosa et al., "CellReplay", NSDI 2025, §4.2).
/// Its gap is the calibrated one, or `gap_ns` if longer.
pub fn regular(calibration: &Calibration, bytes: u16, gap_ns: u64) -> Train {
    let [up, down] = Way::BOTH.map(|way| calibration.directions.of(way));
    Train {
        gap_ns: Some(gap_ns.max(up.least_gap_ns).max(down.least_gap_ns)),
        ..Train::new((up.light_train(), bytes), (down.light_train(), bytes))
    }
}

/// Add a regular train after every few trains that let the link cool, so that the recording also has light rows.
pub fn add_regular(plan: &TrainPlan, regular: Train) -> TrainPlan {
    let (mut rotation, mut others) = (Vec::new(), 0);
    for train in &plan.rotation {
        rotation.push(*train);
        others += 1;
        if others >= EVERY && train.gap_ns.unwrap_or(plan.gap_ns) >= COOLING_NS {
            rotation.push(regular);
            others = 0;
        }
    }
    TrainPlan {
        rotation,
        ..plan.clone()
    }
}

/// Fit trains to a network: at most `share` of the rate of a light workload in each direction, no train longer than
/// four fifths of the queue, and behind each train at least the time that it takes in the slowest second. Trains are
/// shortened, and trains that the rate cannot afford are left out. Gaps become longer only where trains in a row would
/// use up the rate of more than a few seconds.
pub fn fit(plan: &TrainPlan, calibration: &Calibration, share: f64) -> TrainPlan {
    let most_bps = Both::from_fn(|way| share * calibration.directions.of(way).light_bps());
    let length = |way: Way, (packets, bytes): (u16, u16)| {
        let queue = calibration.directions.of(way).queue_bytes;
        let queue = queue.map_or(f64::MAX, |queue| QUEUE_SHARE * queue as f64);
        let most = queue.min(PATIENCE * most_bps.of(way) / 8.0) / f64::from(bytes);
        packets.min((most as u16).max(1))
    };
    let gap = |train: &Train| train.gap_ns.unwrap_or(plan.gap_ns) as f64 / 1e9;
    let used = |way: Way, train: &Train| 8.0 * bytes(way, train) as f64 / most_bps.of(way);
    let mut rotation = plan.rotation.clone();
    for train in &mut rotation {
        train.up = length(Way::Uplink, train.packets(Way::Uplink));
        train.down = length(Way::Downlink, train.packets(Way::Downlink));
    }
    let span: f64 = rotation.iter().map(gap).sum();
    let octave = |way, train: &Train| (way as usize, bytes(way, train).max(1).ilog2());
    let mut octaves = HashMap::<_, (f64, f64)>::new();
    for (train, way) in rotation
        .iter()
        .flat_map(|it| Way::BOTH.map(|way| (it, way)))
    {
        let (count, sum) = octaves.entry(octave(way, train)).or_default();
        (*count, *sum) = (*count + 1.0, *sum + used(way, train));
    }
    let affordable = |way, train: &Train| {
        let (count, sum) = octaves[&octave(way, train)];
        let part = (PART * span / sum).min(1.0);
        match part * count < FEWEST && count >= FEWEST {
            true => 0.0,
            false => part,
        }
    };
    let mut due = HashMap::new();
    rotation.retain(|train| {
        let kind = (train.up, train.down, train.up_bytes, train.down_bytes);
        let is_first = due.is_empty();
        let due = due.entry(kind).or_insert(0.5);
        *due += affordable(Way::Uplink, train).min(affordable(Way::Downlink, train));
        let is_kept = *due >= 1.0 || is_first;
        *due -= f64::from(u8::from(is_kept));
        is_kept
    });
    let mut owed = Both::<f64>::default();
    let last = rotation.len().saturating_sub(1);
    for (place, train) in rotation.iter_mut().enumerate() {
        let mut needed = 0.0_f64;
        for way in Way::BOTH {
            let used = used(way, train);
            *owed.of_mut(way) += used;
            let credit = if place < last { PATIENCE } else { 0.0 };
            needed = needed
                .max(2.0 * LIGHT_SHARE * share * used)
                .max(owed.of(way) - credit);
        }
        if needed > gap(train) {
            train.gap_ns = Some((1e9 * needed).ceil() as u64);
        }
        for way in Way::BOTH {
            *owed.of_mut(way) = (owed.of(way) - gap(train)).max(0.0);
        }
    }
    TrainPlan {
        rotation,
        ..plan.clone()
    }
}

fn bytes(way: Way, train: &Train) -> u64 {
    let (packets, bytes) = train.packets(way);
    u64::from(packets) * u64::from(bytes)
}

/// Minimum number of trains without a note; replays by the method `conditional` need them.
const FEW_TRAINS: usize = 120;

/// Maximum share of trains that meet an earlier one without a note.
const MOST_MET: f64 = 0.1;

/// Minimum time without packets between two turns of a light workload, ns.
const MOST_GAP_NS: i64 = 4_000_000_000;

/// Minimum time without packets between two turns of a saturation, ns.
const TURN_NS: i64 = 500_000_000;

/// Return why the workload of a recording was not light, or too short, in sentences: too few trains arrived, packets
/// were lost, trains met earlier ones, or their rate was above a tenth of the slowest second under saturation.
pub fn doubts(light: Both<&[PacketRecord]>, heavy: Both<&[PacketRecord]>) -> Vec<String> {
    let mut sentences = Vec::new();
    for way in Way::BOTH {
        let packets = *light.of(way);
        let count = packets.iter().filter(|it| it.arrived_ns.is_none()).count();
        let lost = count as f64 / packets.len().max(1) as f64;
        let met = trains::met_share(packets);
        let rate = active_rate(packets);
        let turns = turns(heavy.of(way));
        let slowest = turns.iter().filter_map(|turn| rate::slowest_second(turn));
        let slowest = slowest.min_by(f64::total_cmp).unwrap_or(f64::MAX);
        let arrived = packets.iter().filter(|it| it.arrived_ns.is_some());
        let trains = arrived.map(|it| it.train).collect::<HashSet<_>>().len();
        let notes = [
            (
                trains < FEW_TRAINS && !packets.is_empty(),
                format!("only {trains} of its trains arrived {way}: record for longer"),
            ),
            (
                count > BY_CHANCE && lost > MOST_LOST,
                format!("{:.1} % of its packets were lost {way}", 100.0 * lost),
            ),
            (
                met > MOST_MET,
                format!(
                    "{:.0} % of its trains met an earlier one {way}",
                    100.0 * met
                ),
            ),
            (
                slowest > 0.0 && rate > LIGHT_SHARE * slowest,
                format!(
                    "its {:.2} Mbit/s {way} are more than a tenth of the slowest second, {:.2} Mbit/s",
                    rate / 1e6,
                    slowest / 1e6
                ),
            ),
            (
                slowest == 0.0,
                format!("the saturated link paused for a second or more {way}, and so did trains"),
            ),
        ];
        let noted = notes.into_iter().filter(|(applies, _)| *applies);
        sentences.extend(noted.map(|(_, note)| format!("Light workload: {note}.")));
    }
    sentences
}

/// Return the rate of trains during the turns of their workload, bit/s.
fn active_rate(packets: &[PacketRecord]) -> f64 {
    let mut sent: Vec<i64> = packets.iter().filter_map(|it| it.sent_ns).collect();
    sent.sort_unstable();
    let pauses = sent
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .filter(|gap| *gap > MOST_GAP_NS);
    let span = sent.last().unwrap_or(&0) - sent.first().unwrap_or(&0) - pauses.sum::<i64>();
    let bits: f64 = packets.iter().map(|it| 8.0 * f64::from(it.bytes)).sum();
    bits / (span as f64 / 1e9).max(1.0)
}

/// Split the packets of a saturation, in the order of sending, into turns.
fn turns(packets: &[PacketRecord]) -> Vec<&[PacketRecord]> {
    let time = |it: &PacketRecord| it.sent_ns.or(it.arrived_ns);
    let mut last = None;
    let mut starts = vec![0];
    for (place, at) in packets
        .iter()
        .enumerate()
        .filter_map(|(place, it)| Some((place, time(it)?)))
    {
        if last.is_some_and(|last| at - last > TURN_NS) {
            starts.push(place);
        }
        last = last.max(Some(at));
    }
    starts.push(packets.len());
    starts
        .windows(2)
        .map(|pair| &packets[pair[0]..pair[1]])
        .collect()
}

/// Describe what a recording in turns over one device cannot contain, and how much the capacity changed from one turn
/// of the saturation to the next.
pub fn describe_turns(heavy: Both<&[PacketRecord]>) -> String {
    let changes = Way::BOTH.map(|way| {
        let turns = turns(heavy.of(way));
        let rates: Vec<f64> = turns
            .iter()
            .filter_map(|it| Some(rate::saturated(it)?.0))
            .collect();
        let pairs = rates.windows(2).map(|pair| (pair[1] / pair[0]).ln().abs());
        let change = Estimate::of(&pairs.collect::<Vec<_>>())?;
        Some(format!("{:.0} % {way}", 100.0 * change.mean.exp_m1()))
    });
    let known: Vec<String> = changes.into_iter().flatten().collect();
    let changed = match known.is_empty() {
        true => {
            "There is only one turn of the saturation, so that the change between turns is unknown."
                .into()
        }
        false => format!(
            "From one turn of the saturation to the next, the capacity changed by {} on average.",
            known.join(" and ")
        ),
    };
    format!(
        "Light and heavy workload took turns over one device: what the saturation would have shown during the trains is \
         unknown, and is filled by repetition. {changed}"
    )
}
