//! Analysis of trains of various lengths, gaps and packet sizes (§4.4): R_N; the length that predicts the others best;
//! G_min; F; comp(s), the extra delay of packets of size s compared with packets of 1400 bytes.

use cellbed_link::Duration;

use super::design::{Purpose, SHORT, SHORTEST, SIZE_ROUND, SIZES};
use super::rate::{self, Estimate, interpolate, quantile};
use super::result::{GapProfile, LengthProfile, PredictionError};
use super::{PACKET_BITS, PRECISION_NS, nothing};
use crate::plan::{Both, PacketRecord, Train, Way};
use crate::{Error, Result};

/// Maximum relative deviation of r_last from r_last after the longest gap (§4.4).
const TOLERANCE: f64 = 0.2;

/// Arrival time of each packet of each train, in the direction of the records. Trains that entered the link while an
/// earlier one was under way are left out: `None`.
pub(super) struct Arrivals(Vec<Option<Vec<Option<i64>>>>);

impl Arrivals {
    pub fn new(way: Way, trains: &[Train], records: &[PacketRecord]) -> Self {
        let least = rate::least_delay(records).unwrap_or(0);
        let mut sent = vec![None; trains.len()];
        let mut arrivals: Vec<Vec<Option<i64>>> = trains
            .iter()
            .map(|train| vec![None; train.packets(way).0.into()])
            .collect();
        for record in records {
            let number = record.train as usize;
            let place = arrivals
                .get_mut(number)
                .and_then(|train| train.get_mut(record.index as usize));
            if let Some(place) = place {
                *place = record.arrived_ns;
                sent[number] = sent[number].or(record.sent_ns);
            }
        }
        let mut last = i64::MIN;
        let alone = sent.into_iter().zip(arrivals).map(|(sent, train)| {
            let met = sent.is_some_and(|sent: i64| sent + least < last);
            last = train.iter().flatten().fold(last, |last, &at| last.max(at));
            (!met).then_some(train)
        });
        Self(alone.collect())
    }

    /// Return the number of trains of one length, and packet arrivals in ns after the train's first packet. Trains
    /// without a first packet have no entry.
    fn relative(&self, length: u16) -> (usize, Vec<Vec<Option<f64>>>) {
        let trains = self.0.iter().flatten();
        let trains: Vec<_> = trains
            .filter(|train| train.len() == usize::from(length))
            .collect();
        let known = trains.iter().filter_map(|train| relative(train));
        (trains.len(), known.collect())
    }
}

fn relative(train: &[Option<i64>]) -> Option<Vec<Option<f64>>> {
    let first = (*train.first()?)?;
    let since = |arrived: &Option<i64>| arrived.map(|arrived| (arrived - first) as f64);
    Some(train.iter().map(since).collect())
}

/// Return for each train how long the link held up its first packet, ns; `None` if the train met an earlier one. Trains
/// that lost it are left out.
fn stalls(records: &[PacketRecord]) -> impl Iterator<Item = Option<i64>> {
    let least = rate::least_delay(records).unwrap_or(0);
    let mut last = i64::MIN;
    records.iter().filter_map(move |record| {
        let (sent, arrived) = (record.sent_ns?, record.arrived_ns?);
        let alone = sent + least >= last;
        last = last.max(arrived);
        (record.index == 0).then(|| alone.then_some(arrived - sent - least))
    })
}

/// Return the longest time, ns, for which the link held up a train that met no earlier one.
pub(super) fn longest_stall(records: &[PacketRecord]) -> i64 {
    stalls(records).flatten().max().unwrap_or(0)
}

/// Return the share of trains that entered the link while an earlier one was under way.
pub(super) fn met_share(records: &[PacketRecord]) -> f64 {
    let all: Vec<_> = stalls(records).collect();
    let met = all.iter().filter(|stall| stall.is_none()).count();
    met as f64 / all.len().max(1) as f64
}

/// Inverse of the minimum share of trains whose last packet must have arrived.
const NEEDED_SHARE: usize = 4;

/// R_N of each length. A train with losses contributes the packets that arrived. Lengths of which too many trains lost
/// their last packet are left out.
pub(super) fn profiles(
    way: Way,
    lengths: &[u16],
    arrivals: &Arrivals,
) -> Result<Vec<LengthProfile>> {
    let mut profiles = Vec::new();
    let mut counts = (0, 0);
    for &length in lengths {
        let (sent, trains) = arrivals.relative(length);
        let each: Vec<Option<Estimate>> = (0..usize::from(length))
            .map(|place| {
                let samples: Vec<f64> = trains.iter().filter_map(|train| train[place]).collect();
                Estimate::of(&samples)
            })
            .collect();
        let last = each.last().copied().flatten();
        let usable = last.map_or(0, |last| last.samples);
        counts = (counts.0 + sent, counts.1 + usable);
        if let Some(last) = last.filter(|_| usable >= needed(sent)) {
            profiles.push(LengthProfile {
                length,
                trials: usable as u32,
                mean_arrival_ns: fill_gaps(&each),
                last_error_ns: last.error as u64,
            });
        }
    }
    if profiles.is_empty() {
        return lost(way, "trains", counts.0, counts.1);
    }
    Ok(profiles)
}

fn needed(sent: usize) -> usize {
    sent.div_ceil(NEEDED_SHARE)
}

pub(super) fn lost<T>(way: Way, what: &str, sent: usize, usable: usize) -> Result<T> {
    Err(Error(format!(
        "too many packets were lost {way}: of {sent} {what} only {usable} could be used, {} are needed. Move to a \
         better signal, or calibrate again when the cell is less busy",
        needed(sent)
    )))
}

/// Means in ns, never decreasing. Missing values are interpolated between neighbours; first and last are known.
/// Neighbouring means of different trains may decrease: then the maximum so far is used.
fn fill_gaps(each: &[Option<Estimate>]) -> Vec<i64> {
    let means: Vec<_> = each.iter().map(|each| each.map(|it| it.mean)).collect();
    let means = interpolate(&means).unwrap_or_default();
    let rising = means.into_iter().scan(0, |most, mean| {
        *most = (mean as i64).max(*most);
        Some(*most)
    });
    rising.collect()
}

/// R*_L(N): arrival of the last of N packets, predicted from trains of length L, ns. Light opportunities first, then
/// heavy ones (§4.4).
pub(super) fn predict(chosen: &LengthProfile, length: u16, saturated_bps: f64) -> f64 {
    match chosen.mean_arrival_ns.get(usize::from(length) - 1) {
        Some(&arrival) => arrival as f64,
        None => {
            let more = f64::from(length - chosen.length);
            chosen.last_ns() as f64 + more * PACKET_BITS * 1e9 / saturated_bps
        }
    }
}

/// Return the prediction error of each length, and the shortest length whose error is within one standard error of the
/// smallest (Breiman et al., "Classification and Regression Trees", 1984, §3.4.3).
///
/// Where the delivery does not depend on the length, chance alone would choose long trains, which need long gaps.
pub(super) fn choice(
    profiles: &[LengthProfile],
    saturated_bps: f64,
) -> (u16, Vec<PredictionError>) {
    let candidates = || profiles.iter().filter(|profile| profile.length != SHORT);
    let errors: Vec<PredictionError> = candidates()
        .map(|chosen| {
            let others = candidates().filter(|other| other.length != chosen.length);
            let errors: Vec<f64> = others
                .filter(|other| other.last_ns() > 0)
                .map(|other| {
                    let live = other.last_ns() as f64;
                    (predict(chosen, other.length, saturated_bps) - live).abs() / live
                })
                .collect();
            PredictionError {
                length: chosen.length,
                mean_error: Estimate::of(&errors).map_or(0.0, |errors| round_share(errors.mean)),
            }
        })
        .collect();
    let least = errors
        .iter()
        .min_by(|one, other| one.mean_error.total_cmp(&other.mean_error));
    let most = least.map_or(0.0, |least| {
        let others = candidates().filter(|other| other.length != least.length);
        let squares = others
            .map(|other| other.relative_error().powi(2))
            .sum::<f64>();
        least.mean_error + squares.sqrt() / (errors.len() - 1).max(1) as f64
    });
    let chosen = errors.iter().find(|it| it.mean_error <= most);
    (chosen.map_or(SHORTEST, |chosen| chosen.length), errors)
}

/// Round a share to its significant digits.
fn round_share(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// r_last by gap, from the longest on. Trains come in blocks of equal gaps. The first train of a block follows another
/// gap and is ignored. Gaps after which too few last packets arrived are left out.
pub(super) fn gap_profiles(
    gaps: &[Duration],
    blocks: &[Duration],
    block: usize,
    arrivals: &Arrivals,
) -> Vec<GapProfile> {
    let mut profiles = Vec::new();
    for gap in gaps {
        let members = blocks.iter().zip(arrivals.0.chunks(block));
        let of_gap: Vec<Vec<f64>> = members
            .filter(|(of_block, _)| *of_block == gap)
            .map(|(_, members)| {
                let trains = members.iter().skip(1).flatten();
                trains
                    .filter_map(|train| *relative(train)?.last()?)
                    .collect()
            })
            .collect();
        let (sent, samples) = (of_gap.len() * (block - 1), of_gap.concat());
        if let Some(last) = Estimate::of(&samples).filter(|last| last.samples >= needed(sent)) {
            profiles.push(GapProfile {
                gap_ns: gap.as_nanos(),
                trials: last.samples as u32,
                last_ns: last.mean as i64,
                last_error_ns: error_of_blocks(&of_gap).unwrap_or(last.error) as u64,
            });
        }
    }
    profiles
}

/// Standard error over blocks: trains of a block met the same conditions, so only blocks are independent.
fn error_of_blocks(blocks: &[Vec<f64>]) -> Option<f64> {
    let means: Vec<f64> = blocks
        .iter()
        .filter_map(|block| Some(Estimate::of(block)?.mean))
        .collect();
    Estimate::of(&means)
        .filter(|means| means.samples > 1)
        .map(|means| means.error)
}

/// G_min, the minimum gap whose r_last is within a fifth of the longest gap's, and F = max(0, G_min − r_last(G_min)).
///
/// Gaps are tested from the longest on. Shorter gaps may have an equally long r_last, because previous trains are
/// still queued; such gaps do not count. Chance must not end the search: r_last is compared with the mean of all
/// accepted gaps, a standard error of the difference is allowed, and the next shorter gap must agree. Finally, the last
/// gaps accepted only by that allowance are removed.
pub(super) fn least_gap(gaps: &[GapProfile]) -> (u64, u64) {
    let Some(longest) = gaps.first() else {
        return (0, 0);
    };
    let mut cold = vec![longest];
    let mut warm_before = false;
    for gap in &gaps[1..] {
        let warm = is_warm(gap, &cold, true);
        if warm && warm_before {
            break;
        }
        warm_before = warm;
        if !warm {
            cold.push(gap);
        }
    }
    // The final edge is computed without the allowance.
    while let Some((last, before)) = cold.split_last()
        && !before.is_empty()
        && is_warm(last, before, false)
    {
        cold.pop();
    }
    let least = cold[cold.len() - 1];
    let idle = least.gap_ns as i64 - least.last_ns;
    (least.gap_ns, idle.max(0) as u64)
}

/// Return whether r_last of a gap differs from the mean of `before`. granted: a standard error of the difference is
/// allowed.
fn is_warm(gap: &GapProfile, before: &[&GapProfile], granted: bool) -> bool {
    let count = before.len() as f64;
    let mean = before.iter().map(|gap| gap.last_ns as f64).sum::<f64>() / count;
    let squares = before
        .iter()
        .map(|gap| (gap.last_error_ns as f64).powi(2))
        .sum::<f64>();
    let error = (squares.sqrt() / count).hypot(gap.last_error_ns as f64);
    let allowance = if granted { error } else { 0.0 };
    (gap.last_ns as f64 - mean).abs() > TOLERANCE * mean + allowance + PRECISION_NS
}

/// Round-trip times of trains, ns: from sending the first packet to the arrival of the answer's first packet. Without
/// trains that lost either packet; an error if there are too few others.
pub(super) fn round_trips(trains: &[Train], records: &Both<Vec<PacketRecord>>) -> Result<Vec<f64>> {
    let mut sent = vec![None; trains.len()];
    for record in records.uplink.iter().filter(|record| record.index == 0) {
        if let Some(place) = sent.get_mut(record.train as usize) {
            *place = record.sent_ns;
        }
    }
    let firsts = records.downlink.iter().filter(|record| record.index == 0);
    let times = firsts.filter_map(|record| {
        let sent = sent.get(record.train as usize).copied().flatten()?;
        Some((record.arrived_ns? - sent) as f64)
    });
    let times: Vec<f64> = times.collect();
    enough(
        Way::Downlink,
        Purpose::RoundTrips,
        trains.len(),
        times.len(),
    )?;
    Ok(times)
}

/// Check that enough answers arrived.
fn enough(way: Way, purpose: Purpose, sent: usize, usable: usize) -> Result<()> {
    match usable {
        0 => nothing(way, purpose, sent),
        _ if usable < needed(sent) => lost(way, "round trips", sent, usable),
        _ => Ok(()),
    }
}

/// Offsets in ns by packet size, and standard errors of the offsets.
type Offsets = (Vec<(u16, i64)>, Vec<u64>);

/// Return the delay offset of each packet size in ns, and its standard error. Packets come in rounds of all sizes.
///
/// The paper subtracts round-trip times; this function subtracts one-way delays. The small packet's way would only add
/// jitter, and the clock offset cancels. Changes between rounds also cancel: each delay counts relative to the median
/// of its round. A tenth at either end is left out. Chance must not let larger packets arrive sooner than smaller ones,
/// so the means are made monotone (Ayer et al., "An Empirical Distribution Function for Sampling with Incomplete
/// Information", Annals of Mathematical Statistics, 1955).
pub(super) fn size_offsets(
    way: Way,
    trains: &[Train],
    records: &[PacketRecord],
) -> Result<Offsets> {
    let mut delays = vec![None; trains.len()];
    for record in records {
        if let Some(place) = delays.get_mut(record.train as usize) {
            *place = record.delay_ns().map(|delay| delay as f64);
        }
    }
    let mut by_size = vec![(0, Vec::new()); SIZES];
    for (round, delays) in trains.chunks(SIZE_ROUND).zip(delays.chunks(SIZE_ROUND)) {
        let arrived: Vec<f64> = delays.iter().copied().flatten().collect();
        let Some(middle) = quantile(&arrived, 0.5) else {
            continue;
        };
        for (train, delay) in round.iter().zip(delays) {
            let (_, size) = train.packets(way);
            let (sent, samples) = &mut by_size[usize::from(size) / 100 - 1];
            *sent += 1;
            samples.extend(delay.map(|delay| delay - middle));
        }
    }
    let mut estimates = Vec::new();
    for (sent, samples) in &by_size {
        enough(way, Purpose::Sizes(way), *sent, samples.len())?;
        estimates.extend(Estimate::trimmed_mean(samples));
    }
    let means = in_order(estimates.iter().map(|estimate| estimate.mean));
    let (largest, last) = (means[SIZES - 1], estimates[SIZES - 1]);
    let offsets = (1..)
        .zip(means)
        .map(|(size, mean)| (100 * size, (mean - largest) as i64));
    let mut errors: Vec<u64> = estimates
        .iter()
        .map(|one| one.error.hypot(last.error) as u64)
        .collect();
    errors[SIZES - 1] = 0;
    Ok((offsets.collect(), errors))
}

/// Return the nearest non-decreasing values in the mean square: neighbours in the wrong order share their mean.
fn in_order(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in values {
        let mut pool = (value, 1);
        while let Some((mean, count)) = pools.pop_if(|(mean, _)| *mean > pool.0) {
            let joined = count + pool.1;
            pool.0 = (mean * count as f64 + pool.0 * pool.1 as f64) / joined as f64;
            pool.1 = joined;
        }
        pools.push(pool);
    }
    pools
        .into_iter()
        .flat_map(|(mean, count)| std::iter::repeat_n(mean, count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(lasts: &[(u64, i64)]) -> Vec<GapProfile> {
        let profile = |&(gap, last): &(u64, i64)| GapProfile {
            gap_ns: 1_000_000 * gap,
            trials: 50,
            last_ns: 1_000_000 * last,
            last_error_ns: 0,
        };
        lasts.iter().map(profile).collect()
    }

    #[test]
    fn the_least_gap_is_the_last_after_which_trains_are_as_slow() {
        let exact = gaps(&[(100, 20), (80, 19), (60, 17), (40, 12), (30, 12), (20, 18)]);
        assert_eq!(least_gap(&exact), (60_000_000, 43_000_000));
        let busy = gaps(&[(100, 20), (10, 20)]);
        assert_eq!(least_gap(&busy), (10_000_000, 0));
        let outlier = gaps(&[(100, 20), (80, 12), (60, 20), (40, 12)]);
        assert_eq!(least_gap(&outlier).0, 60_000_000);
    }

    fn profile(length: u16, arrival: impl Fn(i64) -> i64, last_error_ns: u64) -> LengthProfile {
        LengthProfile {
            length,
            trials: 20,
            mean_arrival_ns: (0..length.into()).map(arrival).collect(),
            last_error_ns,
        }
    }

    #[test]
    fn the_length_is_chosen_that_predicts_the_others() {
        // The first 50 packets take 2 ms each, all others 1 ms, as under saturation.
        let arrival = |packet: i64| 2_000_000 * packet.min(49) + 1_000_000 * (packet - 49).max(0);
        let profiles: Vec<_> = [5, 10, 25, 50, 75]
            .map(|length| profile(length, arrival, 0))
            .into();
        let (best, errors) = choice(&profiles, PACKET_BITS * 1000.0);
        assert_eq!(best, 50);
        let short = errors[0];
        // 25: 8 + 20 instead of 48 ms; 50: 8 + 45 of 98; 75: 8 + 70 of 123
        let expected = (20.0 / 48.0 + 45.0 / 98.0 + 45.0 / 123.0) / 3.0;
        assert!((short.mean_error - expected).abs() < 1e-6, "{short:?}");
        assert_eq!(errors.len(), 4); // without length 10
        // Differences within the uncertainty are chance: all packets take 1 ms, within 3 %.
        let alike = [(5, 0), (10, 0), (25, 3), (50, 1), (75, 2)].map(|(length, percent)| {
            let arrival = move |packet: i64| packet * (1_000_000 + 10_000 * percent);
            profile(length, arrival, u64::from(length) * 50_000)
        });
        let (best, errors) = choice(&alike, PACKET_BITS * 1000.0);
        assert!(errors[0].mean_error > errors[2].mean_error, "{errors:?}");
        assert_eq!(best, 5);
    }

    #[test]
    fn what_never_arrived_lies_between_its_neighbours() {
        let known = |mean| {
            Some(Estimate {
                mean,
                error: 0.0,
                samples: 3,
            })
        };
        assert_eq!(
            fill_gaps(&[known(0.0), None, None, known(30.0)]),
            [0, 10, 20, 30]
        );
        assert_eq!(
            fill_gaps(&[known(0.0), known(20.0), known(10.0)]),
            [0, 20, 20]
        );
    }

    #[test]
    fn what_is_out_of_order_shares_its_mean() {
        assert_eq!(
            in_order([1.0, 3.0, 2.0, 4.0].into_iter()),
            [1.0, 2.5, 2.5, 4.0]
        );
        assert_eq!(in_order([3.0, 2.0, 1.0].into_iter()), [2.0, 2.0, 2.0]);
    }
}
