//! The experiments of a calibration: trains, their number and order. All together take less than five minutes.

use std::fmt;

use cellbed_link::Duration;
use cellbed_link::random::Random;

use super::{PACKET_BITS, PACKET_BYTES};
use crate::plan::{Both, Saturation, TimedTrain, Train, Way, Workload};

/// One experiment of a calibration: the packets to send, and the time to listen afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Purpose of the experiment.
    pub purpose: Purpose,
    /// Trains, each at its time, or saturation with packets of [`PACKET_BYTES`].
    pub workload: Workload,
    /// Duration of a saturation; `None` for trains.
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
    /// All purposes, in order. The first two may be repeated.
    pub const ORDER: [Self; 10] = [
        Self::Search,
        Self::Saturation,
        Self::Queue,
        Self::RoundTrips,
        Self::Trains(Way::Uplink),
        Self::Trains(Way::Downlink),
        Self::Gaps(Way::Uplink),
        Self::Gaps(Way::Downlink),
        Self::Sizes(Way::Uplink),
        Self::Sizes(Way::Downlink),
    ];
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Search => f.write_str("what each direction carries, roughly"),
            Self::Saturation => f.write_str("saturated rates"),
            Self::Queue => f.write_str("bottleneck queues"),
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
/// Maximum rounds of trains of all lengths, and maximum total time. Ten trials (§4.4) of two trains, more of short
/// trains: their completion time varies more.
const MOST_ROUNDS: usize = 20;
const ROUNDS_SPAN: Duration = Duration::from_secs(45);

/// Return the number of trains of a length per round.
fn repeats(length: u16) -> usize {
    match length {
        ..50 => 3,
        50..=100 => 2,
        _ => 1,
    }
}

/// Number of trains in a block of equal gaps. The first follows another gap and does not count.
pub(super) const BLOCK: usize = 8;
/// Maximum blocks of each gap, and maximum total time; longer gaps have fewer blocks.
const MOST_BLOCKS: usize = 8;
const BLOCKS_SPAN: Duration = Duration::from_secs(42);
/// Number of measurements per packet size, and extra measurements of the largest size, with which all are compared.
const SIZE_ROUNDS: usize = 40;
const LARGEST_MORE: usize = 2;
const ROUND_TRIPS: usize = 200;
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

pub(super) fn round_trips(random: &mut Random) -> Experiment {
    let train = Train::new((1, PACKET_BYTES), (1, PACKET_BYTES));
    let trains = (0..ROUND_TRIPS).map(|_| (train, vary(INTERVAL, random)));
    timed(Purpose::RoundTrips, trains)
}

/// Every length in each round, in random order. Gaps after long trains exceed the [long gap](long_gap): half of it is
/// left for cooling even if the train is delivered at half of the saturated rate.
pub(super) fn trains(way: Way, rate_bps: f64, most: u16, random: &mut Random) -> Experiment {
    let gap = |length: u16| {
        let busy = 2.0 * f64::from(length) * PACKET_BITS / rate_bps;
        let cooling = 0.5 * long_gap(rate_bps).as_secs_f64();
        long_gap(rate_bps).max(Duration::from_secs_f64(busy + cooling))
    };
    let mut round: Vec<u16> = lengths(rate_bps, most)
        .into_iter()
        .flat_map(|length| std::iter::repeat_n(length, repeats(length)))
        .collect();
    let span: f64 = round.iter().map(|&length| gap(length).as_secs_f64()).sum();
    let rounds = (ROUNDS_SPAN.as_secs_f64() / span) as usize;
    let mut order = Vec::new();
    for _ in 0..rounds.clamp(1, MOST_ROUNDS) {
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

/// The gaps under test: tenths of the [long gap](long_gap), in descending order (§4.4: 100, 90, … 10 ms).
pub(super) fn gaps(rate_bps: f64) -> Vec<Duration> {
    let tenth = long_gap(rate_bps).as_nanos() / 10;
    (1..=10)
        .rev()
        .map(|tenths| Duration::from_nanos(tenths * tenth))
        .collect()
}

/// Trains of one length in blocks of equal gaps, in random order, and the gap of each block. Between blocks the link
/// cools and the queue empties.
pub(super) fn gap_blocks(
    way: Way,
    length: u16,
    rate_bps: f64,
    random: &mut Random,
) -> (Experiment, Vec<Duration>) {
    let (mut gaps, train) = (gaps(rate_bps), train(way, (length, PACKET_BYTES)));
    let busy = f64::from(length) * PACKET_BITS / rate_bps * BLOCK as f64;
    let rest = |gap: Duration| {
        let behind = busy - gap.as_secs_f64() * BLOCK as f64;
        gap.max(long_gap(rate_bps) + Duration::from_secs_f64(behind.max(0.0)))
    };
    let round: f64 = gaps
        .iter()
        .map(|&gap| gap.as_secs_f64() * (BLOCK - 1) as f64 + rest(gap).as_secs_f64())
        .sum();
    let rounds = (BLOCKS_SPAN.as_secs_f64() / round) as usize;
    let (mut order, mut blocks) = (Vec::new(), Vec::new());
    for _ in 0..rounds.clamp(1, MOST_BLOCKS) {
        shuffle(&mut gaps, random);
        blocks.extend(&gaps);
        for &gap in &gaps {
            order.extend(std::iter::repeat_n((train, gap), BLOCK - 1));
            order.push((train, vary(rest(gap), random)));
        }
    }
    (timed(Purpose::Gaps(way), order), blocks)
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
    for _ in 0..SIZE_ROUNDS {
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
    let mut at = Duration::ZERO;
    let trains = trains
        .into_iter()
        .map(|(train, gap)| {
            let timed = TimedTrain { at, train };
            at += gap;
            timed
        })
        .collect();
    Experiment {
        purpose,
        workload: Workload::Timed(trains),
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
        assert_eq!(gaps(60e6)[9], Duration::from_millis(10));
    }

    #[test]
    fn every_length_comes_in_every_round_at_another_place() {
        let Workload::Timed(trains) =
            trains(Way::Downlink, 30e6, 1000, &mut Random::new(Seed(1))).workload
        else {
            panic!("these are trains");
        };
        let lengths: Vec<u16> = trains.iter().map(|timed| timed.train.down).collect();
        let count = |wanted| lengths.iter().filter(|length| **length == wanted).count();
        assert_eq!(
            [5, 10, 25, 50, 75, 100, 125].map(count),
            [60, 60, 60, 40, 40, 40, 20]
        );
        assert!(trains.is_sorted_by_key(|timed| timed.at));
        let rounds: Vec<&[u16]> = lengths.chunks(lengths.len() / 20).collect();
        assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
