//! The experiments of a calibration: the trains, their number and order. All of it fits into less than five
//! minutes.

use cellbed_link::Duration;
use cellbed_link::random::Random;

use super::experiment::{Experiment, Purpose, TimedTrain, Workload};
use super::{PACKET_BITS, PACKET_BYTES};
use crate::packet::Way;
use crate::plan::{Saturation, Train};

/// Bytes of requests and acknowledgements (§4.4).
const SMALL_BYTES: u16 = 100;
/// Time to wait for stragglers.
const QUIET: Duration = Duration::from_secs(1);
/// Rounds of trains of all lengths at most, and what they may take together. Ten trials (§4.4) of two, and more of
/// those that are short: their completion varies more.
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

/// Trains in a block of one gap. The first comes after another gap and does not count.
pub(super) const BLOCK: usize = 8;
/// Blocks of each gap at most, and what they may take together; where the gaps are longer there are fewer.
const MOST_BLOCKS: usize = 8;
const BLOCKS_SPAN: Duration = Duration::from_secs(42);
/// Measurements of each packet size but the largest, and how often more that one comes; all others are
/// compared.
const SIZE_ROUNDS: usize = 40;
const LARGEST_MORE: usize = 2;
const ROUND_TRIPS: usize = 200;
/// Between round trips, and between packets of various sizes (§3.1, §4.4).
const INTERVAL: Duration = Duration::from_millis(50);
/// Gaps are longer by up to so much, so that trains do not keep meeting the same phase of the radio's frames. Those
/// under test do not; between blocks of them the phase changes.
const JITTER: f64 = 0.1;
/// Lengths measured at most.
const MOST_LENGTHS: usize = 14;
/// A length beside the paper's set, which is measured for the verdict and never chosen.
pub(super) const SHORT: u16 = 10;
/// The shortest length measured.
pub(super) const SHORTEST: u16 = 5;

/// The gap between the starts of trains that certainly lets a link cool: 100 ms (§4.4). On a link so slow that 25
/// packets take more than half of it, twice what they take, up to a second.
pub(super) fn long_gap(rate_bps: f64) -> Duration {
    let needed = Duration::from_secs_f64(2.0 * 25.0 * PACKET_BITS / rate_bps);
    needed.clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// Lengths of trains: 5, 25, 50, 75, … X, X being such that trains at the [long gap](long_gap) take half of the rate
/// (§4.4), and 10. Above 100 there are larger steps where there would be too many. None is longer than `most`.
pub(super) fn lengths(rate_bps: f64, most: u16) -> Vec<u16> {
    let packets = 0.5 * rate_bps * long_gap(rate_bps).as_secs_f64() / PACKET_BITS;
    let longest = (packets.min(f64::from(most)) + 1e-6) as u16 / 25 * 25; // on a slow link it is 25 exactly
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

/// A saturation of either direction or both.
pub(super) fn saturation(
    purpose: Purpose,
    uplink: Option<f64>,
    downlink: Option<f64>,
    span: Duration,
) -> Experiment {
    let fixed = |rate: Option<f64>| {
        rate.map(|rate| Saturation::Fixed {
            rate_bps: rate as u64,
        })
    };
    Experiment {
        purpose,
        workload: Workload::Saturation {
            uplink: fixed(uplink),
            downlink: fixed(downlink),
            span,
        },
        quiet: QUIET,
    }
}

pub(super) fn round_trips(random: &mut Random) -> Experiment {
    let train = Train {
        up: 1,
        down: 1,
        up_bytes: PACKET_BYTES,
        down_bytes: PACKET_BYTES,
        gap_ns: None,
    };
    let trains = (0..ROUND_TRIPS).map(|_| (train, vary(INTERVAL, random)));
    timed(Purpose::RoundTrips, trains)
}

/// Every length in each round, in a random order. Behind a long train the gap is longer than the [long gap](long_gap):
/// half of that is left for cooling even if the train is delivered at half of the saturated rate.
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
            order.push((train(way, length), vary(gap(length), random)));
        }
    }
    timed(Purpose::Trains(way), order)
}

/// The gaps under test: tenths of the [long gap](long_gap), from the longest to the shortest (§4.4: 100, 90, … 10 ms).
pub(super) fn gaps(rate_bps: f64) -> Vec<Duration> {
    let tenth = long_gap(rate_bps).as_nanos() / 10;
    (1..=10)
        .rev()
        .map(|tenths| Duration::from_nanos(tenths * tenth))
        .collect()
}

/// Trains of one length in blocks, each of one gap, in random order, and the gap of each block; between blocks the link
/// cools and its queue empties.
pub(super) fn gap_blocks(
    way: Way,
    length: u16,
    rate_bps: f64,
    random: &mut Random,
) -> (Experiment, Vec<Duration>) {
    let mut gaps = gaps(rate_bps);
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
            order.extend(std::iter::repeat_n((train(way, length), gap), BLOCK - 1));
            order.push((train(way, length), vary(rest(gap), random)));
        }
    }
    (timed(Purpose::Gaps(way), order), blocks)
}

/// Packet sizes under test (§4.4).
pub(super) const SIZES: [u16; 14] = [
    100,
    200,
    300,
    400,
    500,
    600,
    700,
    800,
    900,
    1000,
    1100,
    1200,
    1300,
    PACKET_BYTES,
];
/// Packets of a round of sizes.
pub(super) const SIZE_ROUND: usize = SIZES.len() + LARGEST_MORE;

/// Every size in each round, in a random order.
pub(super) fn size_rounds(way: Way, random: &mut Random) -> Experiment {
    let mut sizes = SIZES.to_vec();
    sizes.extend([PACKET_BYTES; LARGEST_MORE]);
    let mut order = Vec::new();
    for _ in 0..SIZE_ROUNDS {
        shuffle(&mut sizes, random);
        order.extend(sizes.iter().map(|&size| {
            let (up_bytes, down_bytes) = match way {
                Way::Uplink => (size, SMALL_BYTES),
                Way::Downlink => (SMALL_BYTES, size),
            };
            let train = Train {
                up: 1,
                down: 1,
                up_bytes,
                down_bytes,
                gap_ns: None,
            };
            (train, vary(INTERVAL, random))
        }));
    }
    timed(Purpose::Sizes(way), order)
}

/// A train of `length` packets in one direction with as little as possible in the other.
fn train(way: Way, length: u16) -> Train {
    match way {
        Way::Uplink => Train {
            up: length,
            down: 1,
            up_bytes: PACKET_BYTES,
            down_bytes: SMALL_BYTES,
            gap_ns: None,
        },
        Way::Downlink => Train {
            up: 1,
            down: length,
            up_bytes: SMALL_BYTES,
            down_bytes: PACKET_BYTES,
            gap_ns: None,
        },
    }
}

/// Trains, each with the gap behind it.
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
        workload: Workload::Trains(trains),
        quiet: QUIET,
    }
}

fn vary(gap: Duration, random: &mut Random) -> Duration {
    let factor = 1.0 + JITTER * random.unit();
    Duration::from_secs_f64(gap.as_secs_f64() * factor)
}

/// Fisher and Yates.
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
        let Workload::Trains(trains) =
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
