//! The experiments of a calibration: trains, their number and order. Each experiment is repeated until its results are
//! precise, within the calibration's limits.

use std::fmt;

use cellbed_link::Duration;
use cellbed_link::random::Random;

use super::{PACKET_BITS, PACKET_BYTES};
use crate::plan::{Both, Saturation, Train, TrainPlan, Way, Workload};

/// One experiment of a calibration: the packets to send, and the time to listen afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Purpose of the experiment.
    pub purpose: Purpose,
    /// Trains, or saturation with packets of [`PACKET_BYTES`].
    pub workload: Workload,
    /// Duration; `None` until all trains are sent.
    pub span: Option<Duration>,
    /// Time without arrivals after the last packet that ends the experiment.
    pub quiet: Duration,
}

/// The purpose of an experiment. Displayed as text for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Estimate the capacity of each direction.
    Search,
    /// Measure the capacity of each direction under saturation.
    Saturation,
    /// Fill each direction's queue until it overflows.
    Queue,
    /// Search for slow seconds.
    Watch,
    /// Measure round trips.
    RoundTrips,
    /// Measure trains of many lengths.
    Trains(Way),
    /// Measure trains of the chosen length after gaps of many lengths.
    Gaps(Way),
    /// Measure packets of many sizes.
    Sizes(Way),
}

impl Purpose {
    /// All purposes in order, each with the shares of the calibration's time and bytes that may be used up when its
    /// experiment is repeated.
    pub(super) const ORDER: [(Self, f64, f64); 11] = [
        (Self::Search, 0.1, 0.6),
        (Self::Saturation, 0.15, 0.5),
        (Self::Queue, 0.15, 0.6),
        (Self::Watch, 0.35, 0.65),
        (Self::RoundTrips, 0.4, 0.75),
        (Self::Trains(Way::Uplink), 0.5, 0.8),
        (Self::Trains(Way::Downlink), 0.65, 0.88),
        (Self::Gaps(Way::Uplink), 0.75, 0.92),
        (Self::Gaps(Way::Downlink), 0.88, 0.98),
        (Self::Sizes(Way::Uplink), 0.94, 0.99),
        (Self::Sizes(Way::Downlink), 1.0, 1.0),
    ];
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Search => f.write_str("what each direction carries, roughly"),
            Self::Saturation => f.write_str("saturated rates"),
            Self::Queue => f.write_str("bottleneck queues"),
            Self::Watch => f.write_str("slowest seconds"),
            Self::RoundTrips => f.write_str("round trips"),
            Self::Trains(way) => write!(f, "{way} trains by length"),
            Self::Gaps(way) => write!(f, "{way} trains by gap"),
            Self::Sizes(way) => write!(f, "{way} packets by size"),
        }
    }
}

/// Bytes of requests and acknowledgements (§4.4).
const SMALL_BYTES: u16 = 100;
/// Time to wait for late packets.
const QUIET: Duration = Duration::from_secs(1);
/// Duration of a batch of trains, of round trips and of sizes: whole rounds.
const BATCH: Duration = Duration::from_secs(8);

/// Return the number of trains of a length per round.
fn repeats(length: u16) -> usize {
    match length {
        ..50 => 3,
        50..=100 => 2,
        _ => 1,
    }
}

/// Maximum and minimum number of trains in a block of equal gaps. The first follows another gap and does not count.
const BLOCK: f64 = 8.0;
const SMALL_BLOCK: f64 = 3.0;
/// Pauses between trains under test: from the end of a train at the rate of its length to the next one, ms.
const PAUSES: [u64; 10] = [200, 150, 100, 75, 50, 35, 25, 15, 10, 5];
/// Extra measurements of the largest size per round: all sizes are compared with it.
const LARGEST_MORE: usize = 2;
/// Interval of round trips, and of packets of various sizes (§3.1, §4.4).
const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum relative extension of gaps, so that trains do not keep meeting the same phase of the radio's frames. Gaps
/// under test are not extended; the phase changes between their blocks.
const JITTER: f64 = 0.1;
/// Maximum number of lengths.
const MOST_LENGTHS: usize = 14;
/// A length outside the paper's set, measured for the verdict and never chosen.
pub(super) const SHORT: u16 = 10;
/// Minimum length measured.
pub(super) const SHORTEST: u16 = 5;

/// The gap between starts of trains that certainly lets a link cool: 100 ms (§4.4). On slow links: twice the time
/// of 25 packets, at most a second.
pub(super) fn long_gap(rate_bps: f64) -> Duration {
    let needed = Duration::from_secs_f64(2.0 * 25.0 * PACKET_BITS / rate_bps);
    needed.clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// Lengths of trains: 5, 10, 25, 50, 75, … X. Trains of X packets at the [long gap](long_gap) use half of the rate
/// (§4.4). To limit their number, lengths above 100 may have larger steps. Maximum: `most`.
pub(super) fn lengths(rate_bps: f64, most: u16) -> Vec<u16> {
    let packets = 0.5 * rate_bps * long_gap(rate_bps).as_secs_f64() / PACKET_BITS;
    let longest = (packets.min(f64::from(most)) + 1e-6) as u16 / 25 * 25; // on a slow link exactly 25
    let mut lengths = vec![SHORTEST, SHORT];
    lengths.extend((25..=longest.min(100)).step_by(25));
    let room = MOST_LENGTHS - lengths.len();
    let steps = usize::from(longest.saturating_sub(100) / 25);
    let stride = steps.div_ceil(room).max(1);
    let mut longer: Vec<u16> = (0..steps)
        .step_by(stride)
        .map(|step| longest - 25 * step as u16)
        .collect();
    longer.reverse();
    lengths.extend(longer);
    lengths
}

/// A saturation of one or both directions, at rates in bit/s.
pub(super) fn saturation(
    purpose: Purpose,
    span: Duration,
    rate_bps: impl Fn(Way) -> Option<f64>,
) -> Experiment {
    let fixed = |rate| Saturation::Fixed {
        rate_bps: rate as u64,
    };
    Experiment {
        purpose,
        workload: Workload::Saturation {
            ways: Both::from_fn(|way| rate_bps(way).map(fixed)),
            bytes: PACKET_BYTES,
        },
        span: Some(span),
        quiet: QUIET,
    }
}

/// Number of packets per batch at the [interval](INTERVAL).
fn singles() -> usize {
    (BATCH.as_nanos() / INTERVAL.as_nanos()) as usize
}

pub(super) fn round_trips(random: &mut Random) -> Experiment {
    let train = Train::new((1, PACKET_BYTES), (1, PACKET_BYTES));
    let trains = (0..singles()).map(|_| (train, vary(INTERVAL, random)));
    timed(Purpose::RoundTrips, trains)
}

/// Every length in each round, in random order. Gaps after long trains exceed the [long gap](long_gap): half of it is
/// left for cooling even if the train is delivered at half of `slow_bps`, the rate of slow seconds.
pub(super) fn trains(way: Way, lengths: &[u16], slow_bps: f64, random: &mut Random) -> Experiment {
    let gap = |length: u16| {
        let busy = 2.0 * f64::from(length) * PACKET_BITS / slow_bps;
        let cooling = 0.5 * long_gap(slow_bps).as_secs_f64();
        long_gap(slow_bps).max(Duration::from_secs_f64(busy + cooling))
    };
    let mut round: Vec<u16> = lengths
        .iter()
        .flat_map(|&length| std::iter::repeat_n(length, repeats(length)))
        .collect();
    let span: f64 = round.iter().map(|&length| gap(length).as_secs_f64()).sum();
    let rounds = (BATCH.as_secs_f64() / span) as usize;
    let mut order = Vec::new();
    for _ in 0..rounds.max(1) {
        shuffle(&mut round, random);
        for &length in &round {
            order.push((
                train(way, (length, PACKET_BYTES)),
                vary(gap(length), random),
            ));
        }
    }
    timed(Purpose::Trains(way), order)
}

/// The gaps under test, in descending order: a train, which takes `busy_ns`, and a pause. A gap without a pause would
/// measure the queue of the previous train.
pub(super) fn gaps(busy_ns: i64) -> Vec<Duration> {
    let busy = Duration::from_nanos(busy_ns.max(0) as u64);
    PAUSES
        .map(|pause| busy + Duration::from_millis(pause))
        .into()
}

/// Trains of one length in blocks of equal gaps, in random order, the gap of each block, and the trains per block.
/// Before a block the link cools.
pub(super) fn gap_blocks(
    way: Way,
    length: u16,
    mut gaps: Vec<Duration>,
    random: &mut Random,
) -> (Experiment, Vec<Duration>, usize) {
    let rest = gaps[0];
    let once: f64 = gaps.iter().map(|gap| gap.as_secs_f64()).sum();
    let block = (2.0 * BATCH.as_secs_f64() / once).clamp(SMALL_BLOCK, BLOCK) as usize;
    shuffle(&mut gaps, random);
    let train = train(way, (length, PACKET_BYTES));
    let mut order = Vec::new();
    for &gap in &gaps {
        order.extend(std::iter::repeat_n((train, gap), block - 1));
        order.push((train, vary(rest, random)));
    }
    (timed(Purpose::Gaps(way), order), gaps, block)
}

/// Number of packet sizes under test (§4.4): the multiples of 100 bytes up to [`PACKET_BYTES`].
pub(super) const SIZES: usize = PACKET_BYTES as usize / 100;
/// Number of packets in a round of sizes.
pub(super) const SIZE_ROUND: usize = SIZES + LARGEST_MORE;

/// Every size in each round, in random order.
pub(super) fn size_rounds(way: Way, random: &mut Random) -> Experiment {
    let mut sizes: Vec<u16> = (1..=SIZES as u16).map(|size| 100 * size).collect();
    sizes.extend([PACKET_BYTES; LARGEST_MORE]);
    let mut order = Vec::new();
    for _ in 0..singles() / SIZE_ROUND {
        shuffle(&mut sizes, random);
        let trains = sizes.iter().map(|&size| train(way, (1, size)));
        order.extend(trains.map(|train| (train, vary(INTERVAL, random))));
    }
    timed(Purpose::Sizes(way), order)
}

/// A train in one direction, with minimum traffic in the other.
fn train(way: Way, packets: (u16, u16)) -> Train {
    match way {
        Way::Uplink => Train::new(packets, (1, SMALL_BYTES)),
        Way::Downlink => Train::new((1, SMALL_BYTES), packets),
    }
}

/// Trains, each with the following gap.
fn timed(purpose: Purpose, trains: impl IntoIterator<Item = (Train, Duration)>) -> Experiment {
    let rotation: Vec<Train> = trains
        .into_iter()
        .map(|(train, gap)| Train {
            gap_ns: Some(gap.as_nanos()),
            ..train
        })
        .collect();
    Experiment {
        purpose,
        workload: Workload::Trains(TrainPlan {
            count: Some(rotation.len() as u32),
            rotation,
            gap_ns: 0,
            jitter: 0.0,
            seed: 0,
        }),
        span: None,
        quiet: QUIET,
    }
}

fn vary(gap: Duration, random: &mut Random) -> Duration {
    let factor = 1.0 + JITTER * random.unit();
    Duration::from_secs_f64(gap.as_secs_f64() * factor)
}

/// Shuffles by the method of Fisher and Yates.
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellbed_link::Seed;

    #[test]
    fn the_longest_train_takes_half_of_the_rate() {
        assert_eq!(lengths(17e6, 1000), [5, 10, 25, 50, 75]);
        assert_eq!(lengths(60e6, 1000).last(), Some(&250)); // 267 would be half
        let many = lengths(500e6, 1000);
        assert_eq!((many.len(), many.last()), (14, Some(&1000)));
        assert!(many.is_sorted());
    }

    #[test]
    fn a_slow_link_gets_longer_gaps() {
        assert_eq!(long_gap(60e6), Duration::from_millis(100));
        assert_eq!(long_gap(1e6), Duration::from_millis(560));
        assert_eq!(lengths(1e6, 1000), [5, 10, 25]);
        assert_eq!(gaps(49_000_000)[9], Duration::from_millis(54));
    }

    #[test]
    fn every_length_comes_in_every_round_at_another_place() {
        let (all, random) = (lengths(30e6, 1000), &mut Random::new(Seed(1)));
        let Workload::Trains(plan) = trains(Way::Downlink, &all, 30e6, random).workload else {
            panic!("these are trains");
        };
        let lengths: Vec<u16> = plan.rotation.iter().map(|train| train.down).collect();
        let count = |wanted| lengths.iter().filter(|length| **length == wanted).count();
        assert_eq!(
            all.iter().map(|&length| count(length)).collect::<Vec<_>>(),
            [12, 12, 12, 8, 8, 8, 4]
        );
        let rounds: Vec<&[u16]> = lengths.chunks(lengths.len() / 4).collect();
        assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
