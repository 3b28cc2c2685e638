//! True parameters of a radio profile: its configuration, and measurements far longer than a calibration.
#![allow(dead_code)] // each user needs a part

use std::ops::Range;

use cellbed_link::{Discipline, Duration, Limit, Profile, RadioConfig, Seed, StageConfig};
use cellbed_recorder::calibration::{
    Both, Calibration, Experiment, PACKET_BYTES, Purpose, TimedTrain, Workload,
};
use cellbed_recorder::packet::{PacketRecord, Way};
use cellbed_recorder::plan::{Saturation, Train};
use cellbed_recorder::virtual_network::VirtualNetwork;

/// A little more than the 50 and 100 ms of a calibration, so that all phases of the radio's frames are met.
const INTERVAL: Duration = Duration::from_micros(50_037);
const GAP: Duration = Duration::from_micros(150_037);

/// True parameters of a profile. Times in ns.
pub struct Truth {
    pub directions: Both<TrueDirection>,
    pub median_ns: f64,
    pub p95_ns: f64,
}

/// True parameters of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrueDirection {
    pub rate_bps: f64,
    pub queue_bytes: u64,
    /// Difference between the delays of 1400 and 100 bytes.
    pub sooner_ns: f64,
    /// Rate of the longest trains up to 100 packets to that of trains of 10.
    pub ratio: f64,
    /// Of trains as long as those that the calibration has chosen.
    pub least_gap_ns: f64,
    pub idle_ns: f64,
}

/// The profile with a seed.
pub fn network(profile: Profile, seed: u64) -> VirtualNetwork {
    let side = |way| -> Vec<StageConfig> { vec![config(profile, way, seed).into()] };
    VirtualNetwork::new(side(Way::Uplink), side(Way::Downlink))
}

fn config(profile: Profile, way: Way, seed: u64) -> RadioConfig {
    RadioConfig {
        seed: Seed(seed),
        ..profile.config(way)
    }
}

impl Truth {
    /// Measured with each seed for 60 s a figure.
    pub fn of(profile: Profile, calibration: &Calibration, seeds: Range<u64>) -> Self {
        let measure = |experiment: &Experiment| -> Vec<(Vec<PacketRecord>, Vec<PacketRecord>)> {
            let networks = seeds.clone().map(|seed| network(profile, seed));
            networks
                .map(|mut network| network.run(experiment))
                .collect()
        };
        let round_trip = Train {
            up: 1,
            down: 1,
            up_bytes: PACKET_BYTES,
            down_bytes: PACKET_BYTES,
            gap_ns: None,
        };
        let mut times: Vec<f64> = measure(&trains(&[round_trip], INTERVAL, 1200))
            .iter()
            .flat_map(|(up, down)| round_trips(up, down))
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        let mut directions = Both::<TrueDirection>::default();
        for way in Way::BOTH {
            let found = calibration.directions.of(way);
            let of_way = |records: &(Vec<PacketRecord>, Vec<PacketRecord>)| match way {
                Way::Uplink => records.0.clone(),
                Way::Downlink => records.1.clone(),
            };
            let measured = |experiment: &Experiment| -> Vec<Vec<PacketRecord>> {
                measure(experiment).iter().map(of_way).collect()
            };
            let last = |train: Train, gap: Duration| {
                let count = (60.0 / gap.as_secs_f64()) as usize;
                mean(
                    measured(&trains(&[train], gap, count.min(600)))
                        .iter()
                        .flat_map(|records| lasts(records)),
                )
            };
            let longest = found.lengths.iter().map(|profile| profile.length);
            let longest = longest.filter(|length| *length <= 100).max().unwrap_or(10);
            let rate =
                |length: u16| f64::from(length - 1) / last(train(way, length, PACKET_BYTES), GAP);
            let sizes = [100, PACKET_BYTES].map(|bytes| train(way, 1, bytes));
            let delays = measured(&trains(&sizes, INTERVAL, 1200));
            let delay = |bytes| {
                let records = delays
                    .iter()
                    .flatten()
                    .filter(move |record| record.bytes == bytes);
                mean(
                    records
                        .filter_map(|record| Some((record.arrived_ns? - record.sent_ns?) as f64)),
                )
            };
            let busy =
                f64::from(found.train) * 8.0 * f64::from(PACKET_BYTES) / found.saturated_bps as f64;
            let gaps: Vec<(f64, f64)> = found
                .gaps
                .iter()
                .map(|gap| {
                    let train = train(way, found.train, PACKET_BYTES);
                    let experiment = blocks(train, Duration::from_nanos(gap.gap_ns), 8.0 * busy);
                    let lasts = measured(&experiment);
                    (
                        gap.gap_ns as f64,
                        mean(lasts.iter().flat_map(|records| in_blocks(records))),
                    )
                })
                .collect();
            let cold = gaps[0].1;
            let like = |gap: &&(f64, f64)| (gap.1 / cold - 1.0).abs() <= 0.2;
            let least = *gaps.iter().take_while(like).last().unwrap_or(&gaps[0]);
            let Discipline::DropTail(Limit {
                bytes: Some(limit), ..
            }) = config(profile, way, 0).queue
            else {
                panic!("the profiles have drop-tail queues with a limit in bytes");
            };
            let saturated = measured(&saturation(way, 1.5 * found.saturated_bps as f64));
            *of_mut(&mut directions, way) = TrueDirection {
                rate_bps: mean(saturated.iter().map(|records| rate_of(records))),
                queue_bytes: limit.0,
                sooner_ns: delay(PACKET_BYTES) - delay(100),
                ratio: rate(longest) / rate(10),
                least_gap_ns: least.0,
                idle_ns: (least.0 - least.1).max(0.0),
            };
        }
        Self {
            directions,
            median_ns: times[times.len() / 2],
            p95_ns: times[times.len() * 95 / 100],
        }
    }
}

fn of_mut(both: &mut Both<TrueDirection>, way: Way) -> &mut TrueDirection {
    match way {
        Way::Uplink => &mut both.uplink,
        Way::Downlink => &mut both.downlink,
    }
}

/// A train in one direction with a small packet in the other.
fn train(way: Way, length: u16, bytes: u16) -> Train {
    let (up, down) = match way {
        Way::Uplink => ((length, bytes), (1, 100)),
        Way::Downlink => ((1, 100), (length, bytes)),
    };
    Train {
        up: up.0,
        down: down.0,
        up_bytes: up.1,
        down_bytes: down.1,
        gap_ns: None,
    }
}

fn trains(rotation: &[Train], gap: Duration, count: usize) -> Experiment {
    let timed = rotation.iter().cycle().take(count).zip(0u64..);
    let timed = timed.map(|(&train, number)| TimedTrain {
        at: Duration::from_nanos(number * gap.as_nanos()),
        train,
    });
    Experiment {
        purpose: Purpose::RoundTrips,
        workload: Workload::Trains(timed.collect()),
        quiet: Duration::from_secs(1),
    }
}

/// Trains with one gap in blocks of eight, each at another phase; between blocks the link cools after being busy for `busy` s.
fn blocks(train: Train, gap: Duration, busy: f64) -> Experiment {
    let rest = GAP + Duration::from_secs_f64(busy);
    let count = (60.0 / (8.0 * gap.as_secs_f64() + rest.as_secs_f64())).ceil() as u64;
    let block = |number: u64| number * (8 * gap.as_nanos() + rest.as_nanos() + 37_037);
    let times = (0..count).flat_map(|number| (0..8).map(move |place| (number, place)));
    let timed = times.map(|(number, place)| TimedTrain {
        at: Duration::from_nanos(block(number) + place * gap.as_nanos()),
        train,
    });
    Experiment {
        purpose: Purpose::RoundTrips,
        workload: Workload::Trains(timed.collect()),
        quiet: Duration::from_secs(1),
    }
}

/// Those of each block but the first.
fn in_blocks(records: &[PacketRecord]) -> impl Iterator<Item = f64> {
    let of_trains = records.chunk_by(|one, other| one.train == other.train);
    of_trains
        .filter(|train| train[0].train % 8 > 0)
        .filter_map(arrival_of_last)
}

fn arrival_of_last(train: &[PacketRecord]) -> Option<f64> {
    let (first, last) = (train.first()?, train.last()?);
    Some((last.arrived_ns? - first.arrived_ns?) as f64)
}

fn saturation(way: Way, rate: f64) -> Experiment {
    let fixed = Some(Saturation::Fixed {
        rate_bps: rate as u64,
    });
    let (uplink, downlink) = match way {
        Way::Uplink => (fixed, None),
        Way::Downlink => (None, fixed),
    };
    Experiment {
        purpose: Purpose::Saturation,
        workload: Workload::Saturation {
            uplink,
            downlink,
            span: Duration::from_secs(60),
        },
        quiet: Duration::from_secs(1),
    }
}

fn round_trips(up: &[PacketRecord], down: &[PacketRecord]) -> Vec<f64> {
    let sent = |train: u32| up.get(train as usize)?.sent_ns;
    let times = down
        .iter()
        .filter_map(|answer| Some((answer.arrived_ns? - sent(answer.train)?) as f64));
    times.collect()
}

/// Arrival of the last packet of each train after the first one's.
fn lasts(records: &[PacketRecord]) -> impl Iterator<Item = f64> {
    let of_trains = records.chunk_by(|one, other| one.train == other.train);
    of_trains.skip(1).filter_map(arrival_of_last)
}

fn rate_of(records: &[PacketRecord]) -> f64 {
    let arrivals: Vec<i64> = records
        .iter()
        .filter_map(|record| record.arrived_ns)
        .collect();
    let span = (arrivals[arrivals.len() - 1] - arrivals[0]) as f64 / 1e9;
    8.0 * f64::from(PACKET_BYTES) * (arrivals.len() - 1) as f64 / span
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}
