//! comp(s): how much later packets of a size arrive than packets of 1400 bytes (§4.4).

use super::design::{Purpose, SIZE_ROUND, SIZES};
use super::estimate::{Estimate, quantile};
use super::trains::enough;
use crate::error::Result;
use crate::plan::{PacketRecord, TimedTrain, Way};

/// Offsets in ns by packet size, and their standard errors.
type Offsets = (Vec<(u16, i64)>, Vec<u64>);

/// Return the offset of the delay of each packet size in ns, and the standard error of each, from packets that came in
/// rounds of all sizes.
///
/// The paper subtracts round-trip times, this function one-way delays: the way of the small packet
/// adds nothing but jitter, and the offset of the clocks cancels.
/// So does what changes from round to round, since it is each delay's difference to the median of its round that
/// counts. A tenth at either end is left out. Nor does a larger packet arrive sooner than a smaller one, despite
/// chance: the means are put in order (Ayer et al., "An Empirical Distribution Function for Sampling with
/// Incomplete Information", Annals of Mathematical Statistics, 1955).
pub(super) fn offsets(
    way: Way,
    trains: &[TimedTrain],
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
        for (timed, delay) in round.iter().zip(delays) {
            let (_, size) = timed.train.packets(way);
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

/// The never decreasing values that are nearest in the mean square: neighbours that are out of order share their mean.
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

    #[test]
    fn what_is_out_of_order_shares_its_mean() {
        assert_eq!(
            in_order([1.0, 3.0, 2.0, 4.0].into_iter()),
            [1.0, 2.5, 2.5, 4.0]
        );
        assert_eq!(in_order([3.0, 2.0, 1.0].into_iter()), [2.0, 2.0, 2.0]);
    }
}
