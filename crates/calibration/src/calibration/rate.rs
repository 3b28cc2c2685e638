//! Capacity of a direction and limit of its queue, from a saturation; means with their uncertainty.

use cellbed_link::Duration;

use crate::plan::PacketRecord;

/// Initial time, ns, in which the queue fills and the scheduler warms up.
const WARM_UP_NS: i64 = 500_000_000;
const BATCH_NS: i64 = 1_000_000_000;

/// Return the rate of arrivals, bit/s, from `WARM_UP_NS` after the first on, and the rates of its seconds. `None` if
/// hardly any packets arrived.
pub(super) fn saturated(records: &[PacketRecord]) -> Option<(f64, Vec<f64>)> {
    let arrivals = arrivals(records);
    let (first, last) = (arrivals.first()?.0, arrivals.last()?.0);
    let warm_up = WARM_UP_NS.min((last - first) / 2);
    let from = arrivals.partition_point(|&(at, _)| at < first + warm_up);
    let counted = &arrivals[from..];
    let seconds = counted
        .chunk_by(|(one, _), (other, _)| (one - first) / BATCH_NS == (other - first) / BATCH_NS)
        .filter(|batch| batch[batch.len() - 1].0 - batch[0].0 > BATCH_NS / 2)
        .filter_map(rate_of);
    Some((rate_of(counted)?, seconds.collect()))
}

/// Return the rate of the slowest second after the warm-up, bit/s; 0 in an outage. Seconds overlap, in steps of a
/// tenth. `None` if there is less than a second.
pub(super) fn slowest_second(records: &[PacketRecord]) -> Option<f64> {
    let arrivals = arrivals(records);
    let (first, last) = (arrivals.first()?.0 + WARM_UP_NS, arrivals.last()?.0);
    let mut tenths = vec![0; (10 * (last - first) / BATCH_NS).max(0) as usize];
    for (at, bytes) in arrivals {
        let tenth = usize::try_from((10 * (at - first)).div_euclid(BATCH_NS));
        if let Some(total) = tenth.ok().and_then(|tenth| tenths.get_mut(tenth)) {
            *total += bytes;
        }
    }
    let seconds = tenths.windows(10).map(|second| second.iter().sum::<u64>());
    seconds.min().map(|bytes| 8.0 * bytes as f64)
}

/// Return the share of the bytes sent at `rate_bps` that arrived in the time of sending; 1 if the link is not filled.
pub(super) fn delivered(records: &[PacketRecord], rate_bps: f64, span: Duration) -> f64 {
    let span_ns = span.as_nanos() as i64;
    let arrivals = arrivals(records);
    let Some(&(first, _)) = arrivals.first() else {
        return 0.0;
    };
    let bytes: u64 = arrivals
        .iter()
        .take_while(|(at, _)| *at < first + span_ns)
        .map(|(_, bytes)| bytes)
        .sum();
    8.0 * bytes as f64 / (rate_bps * span_ns as f64 / 1e9)
}

/// Limit of a queue, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueLimit {
    /// The limit: packets were lost.
    Bytes(u64),
    /// Minimum of the limit: no packet was lost.
    AtLeast(u64),
}

/// Packets in the window after an overflow, and inverse of their minimum share lost. Other losses are isolated.
const OVERFLOW_WINDOW: usize = 48;
const OVERFLOW_SHARE: usize = 4;

/// Return the minimum one-way delay, ns, with the clock offset included; `None` if nothing arrived.
pub(super) fn least_delay(records: &[PacketRecord]) -> Option<i64> {
    records.iter().filter_map(PacketRecord::delay_ns).min()
}

/// Return the limit of the bottleneck queue: the bytes ahead of the packets that the queue refused (max-min method:
/// delay at the loss × rate).
///
/// Without waiting, a packet would arrive `least` ns after sending. `least` is the [minimum one-way delay](least_delay)
/// of isolated packets, since under overload all packets wait. Packets sent before and arriving after that time were
/// ahead in the queue.
pub(super) fn queue_limit(records: &[PacketRecord], least: i64) -> Option<QueueLimit> {
    let mut records = records.to_vec();
    records.sort_unstable_by_key(|record| record.index);
    let known: Vec<_> = records
        .iter()
        .map(|it| it.sent_ns.map(|at| at as f64))
        .collect();
    let sent = interpolate(&known)?;
    let mut departures: Vec<(i64, u64)> = arrivals(&records);
    let mut gone = 0;
    for (_, bytes) in &mut departures {
        gone += *bytes;
        *bytes = gone;
    }
    let departed = |at: i64| {
        let behind = departures.partition_point(|&(arrived, _)| arrived <= at);
        behind.checked_sub(1).map_or(0, |last| departures[last].1)
    };
    let mut accepted = 0;
    let (mut ahead, mut most) = (Vec::new(), 0);
    for (place, record) in records.iter().enumerate() {
        let waiting = accepted - departed(sent[place] as i64 + least).min(accepted);
        if record.arrived_ns.is_some() {
            accepted += u64::from(record.bytes);
            most = most.max(waiting + u64::from(record.bytes));
        } else if overflows(&records[place..]) {
            ahead.push(waiting);
        }
    }
    if ahead.is_empty() {
        return Some(QueueLimit::AtLeast(most));
    }
    ahead.sort_unstable();
    Some(QueueLimit::Bytes(ahead[ahead.len() / 2]))
}

fn overflows(records: &[PacketRecord]) -> bool {
    let window = &records[..records.len().min(OVERFLOW_WINDOW)];
    let lost = window.iter().filter(|record| record.arrived_ns.is_none());
    window.len() >= OVERFLOW_WINDOW / 2 && lost.count() * OVERFLOW_SHARE >= window.len()
}

/// Return the values with the unknown ones interpolated linearly; before the first and after the last known value, at
/// their mean pace. `None` if no value is known.
pub(super) fn interpolate(values: &[Option<f64>]) -> Option<Vec<f64>> {
    let places = values.iter().enumerate();
    let known: Vec<(usize, f64)> = places
        .filter_map(|(place, value)| Some((place, (*value)?)))
        .collect();
    let ends = (*known.first()?, *known.last()?);
    let fill = |place: usize| {
        let next = known.partition_point(|(other, _)| *other < place);
        let (one, other) = match (next.checked_sub(1), known.get(next)) {
            (Some(before), Some(after)) => (known[before], *after),
            _ => ends,
        };
        let pace = (other.1 - one.1) / (other.0 - one.0).max(1) as f64;
        one.1 + pace * (place as f64 - one.0 as f64)
    };
    let values = values.iter().enumerate();
    Some(
        values
            .map(|(place, value)| value.unwrap_or_else(|| fill(place)))
            .collect(),
    )
}

/// Return arrivals in order of time, with their bytes.
fn arrivals(records: &[PacketRecord]) -> Vec<(i64, u64)> {
    let mut arrivals: Vec<(i64, u64)> = records
        .iter()
        .filter_map(|record| Some((record.arrived_ns?, u64::from(record.bytes))))
        .collect();
    arrivals.sort_unstable();
    arrivals
}

/// Return the rate between the first and the last arrival, bit/s.
fn rate_of(arrivals: &[(i64, u64)]) -> Option<f64> {
    let span = arrivals.last()?.0 - arrivals.first()?.0;
    let bytes: u64 = arrivals[1..].iter().map(|(_, bytes)| bytes).sum();
    (span > 0).then(|| 8e9 * bytes as f64 / span as f64)
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub mean: f64,
    /// 0 if there is only one sample.
    pub error: f64,
    pub samples: usize,
}

impl Estimate {
    /// Estimate from independent samples; `None` without samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let error = if samples.len() > 1 {
            (squares / (count - 1.0) / count).sqrt()
        } else {
            0.0
        };
        (!samples.is_empty()).then_some(Self {
            mean,
            error,
            samples: samples.len(),
        })
    }

    /// Return the mean without a tenth at either end, robust against occasional retransmissions. The standard error is
    /// that of winsorised deviations (Tukey and McLaughlin, 1963).
    pub fn trimmed_mean(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let cut = sorted.len() / 10;
        let kept = &sorted[cut..sorted.len() - cut];
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        let (low, high) = (*kept.first()?, *kept.last()?);
        let winsorised: Vec<f64> = sorted
            .iter()
            .map(|sample| sample.clamp(low, high))
            .collect();
        let Self { error, .. } = Self::of(&winsorised)?;
        let share = kept.len() as f64 / sorted.len() as f64;
        Some(Self {
            mean,
            error: error / share,
            samples: samples.len(),
        })
    }
}

/// Return whether the 95 % interval of the median, from order statistics (Hahn and Meeker, 1991, §5.2), is narrow:
/// within a twentieth of it on each side.
pub(super) fn median_is_known(samples: &[f64]) -> bool {
    let reach = 0.98 / (samples.len() as f64).sqrt();
    let [low, median, high] = [0.5 - reach, 0.5, 0.5 + reach].map(|share| quantile(samples, share));
    let (low, median, high) = (
        low.unwrap_or(0.0),
        median.unwrap_or(0.0),
        high.unwrap_or(0.0),
    );
    high - low <= 2.0 * super::PRECISION * median
}

/// Return the value below which `share` of the samples lies, interpolated linearly; `None` without samples.
pub(super) fn quantile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (
        sorted.get(place.floor() as usize)?,
        sorted.get(place.ceil() as usize)?,
    );
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    const MS: i64 = 1_000_000;

    /// One packet of 1000 bytes per ms, over a link with 4 ms per packet, a queue of `limit` packets and 20 ms delay.
    fn overload(limit: usize, count: u32) -> Vec<PacketRecord> {
        let mut waiting: Vec<i64> = Vec::new();
        (0..count)
            .map(|index| {
                let sent = i64::from(index) * MS;
                waiting.retain(|&left| left > sent);
                let arrived = (waiting.len() < limit).then(|| {
                    let left = waiting.last().copied().unwrap_or(sent) + 4 * MS;
                    waiting.push(left);
                    left + 20 * MS
                });
                PacketRecord {
                    train: 0,
                    index,
                    bytes: 1000,
                    sent_ns: Some(sent),
                    arrived_ns: arrived,
                    copies: u8::from(arrived.is_some()),
                }
            })
            .collect()
    }

    #[test]
    fn a_full_queue_is_told_from_packets_that_get_lost() {
        let holds = |records: &[PacketRecord], bytes: RangeInclusive<u64>| {
            let limit = queue_limit(records, 20 * MS);
            matches!(limit, Some(QueueLimit::Bytes(limit)) if bytes.contains(&limit))
        };
        let lose = |records: &mut Vec<PacketRecord>, every| {
            let lost = records.iter_mut().step_by(every);
            lost.for_each(|record| record.arrived_ns = None);
        };
        let mut records = overload(100, 5000);
        assert!(holds(&records, 98_000..=102_000));
        // Sending times of the server's lost packets are unknown.
        let mut unknown = records.clone();
        for record in unknown.iter_mut().filter(|it| it.arrived_ns.is_none()) {
            record.sent_ns = None;
        }
        assert!(holds(&unknown, 98_000..=102_000));
        lose(&mut records, 100);
        assert!(holds(&records, 90_000..=102_000));
        let mut wide = overload(10_000, 1000);
        lose(&mut wide, 50);
        let most = queue_limit(&wide, 20 * MS);
        assert!(matches!(most, Some(QueueLimit::AtLeast(600_000..=800_000))));
    }

    #[test]
    fn a_second_without_arrivals_is_the_slowest_one() {
        let mut records = overload(10_000, 2000); // for 8 s at 2 Mbit/s
        assert_eq!(slowest_second(&records), Some(2e6));
        let gap = 3500 * MS..4600 * MS;
        records.retain(|record| record.arrived_ns.is_none_or(|at| !gap.contains(&at)));
        assert_eq!(slowest_second(&records), Some(0.0));
    }

    #[test]
    fn a_mean_knows_its_error_and_a_trimmed_one_ignores_an_outlier() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(estimate.mean, 2.5);
        assert!((estimate.error - (5.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(Estimate::of(&[7.0]).unwrap().error, 0.0);
        let mut samples: Vec<f64> = (0..20).map(|at| 10.0 + f64::from(at % 2)).collect();
        samples[3] = 500.0;
        let estimate = Estimate::trimmed_mean(&samples).unwrap();
        assert!((estimate.mean - 10.5).abs() < 0.1, "{}", estimate.mean);
        assert!(estimate.error < 0.2, "{}", estimate.error);
    }
}
