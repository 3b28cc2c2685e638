//! A day in virtual time: what repeats itself repeats itself to the nanosecond, however often.

use std::sync::Arc;

use cellbed_link::{
    BitRate, BottleneckConfig, Bytes, DelayConfig, Direction, Duration, Packets, RateSeries,
    Schedule, StageConfig, Time, Trace,
};

const DAY: u64 = 86_400_000_000_000;

/// Sends the same packets in each period of a day, and holds their departures against those of the second period. In the
/// first one nothing lies before them.
///
/// period: ns. arrivals: time in the period, and bytes.
fn repeat_for_a_day(stages: Vec<StageConfig>, period: u64, arrivals: &[(u64, u64)]) {
    let mut link = Direction::new(stages, Time::ZERO);
    let mut pattern: Vec<Option<u64>> = vec![None; arrivals.len()];
    let mut last = 0;
    let mut check = |link: &mut Direction<(u64, usize)>, now: Time| {
        while let Some(outcome) = link.poll(now) {
            let (cycle, index) = outcome.packet;
            let within = outcome.departed.as_nanos() - cycle * period;
            match (cycle, pattern[index]) {
                (0, _) => {}
                (_, None) => pattern[index] = Some(within),
                (_, Some(first)) => assert_eq!(within, first, "packet {index} of cycle {cycle}"),
            }
            last = cycle;
        }
    };
    let cycles = DAY.div_ceil(period);
    for cycle in 0..cycles {
        for (index, &(at, size)) in arrivals.iter().enumerate() {
            let now = Time::from_nanos(cycle * period + at);
            check(&mut link, now);
            link.accept(now, (cycle, index), Bytes(size));
        }
    }
    check(&mut link, Time::from_nanos((cycles + 1) * period));
    assert_eq!(link.held().packets, Packets(0));
    assert_eq!(last, cycles - 1);
}

/// Arrivals at odd times with odd sizes, in the first two thirds of the period.
fn odd_arrivals(period: u64, count: u64) -> Vec<(u64, u64)> {
    let at = |index: u64| index * (2 * period / 3) / count + index * index % 997;
    (0..count)
        .map(|index| (at(index), 40 + index * 7919 % 1461))
        .collect()
}

fn with_delay(schedule: Schedule) -> Vec<StageConfig> {
    let delay = DelayConfig::Fixed(Duration::from_nanos(12_345_679));
    vec![BottleneckConfig::new(schedule).into(), delay.into()]
}

#[test]
fn a_looped_trace() {
    let millis = (0..500u64).map(|index| index * 73 / 2 + index * index % 31);
    let mut millis: Vec<u64> = millis.collect();
    millis.sort_unstable();
    let trace = Trace::from_millis(millis).unwrap();
    let period = trace.duration().as_nanos();
    assert_ne!(DAY % period, 0, "a day is no whole number of loops");
    let arrivals = odd_arrivals(period, 100);
    let trace = Arc::new(trace);
    repeat_for_a_day(
        with_delay(Schedule::looped(Arc::clone(&trace))),
        period,
        &arrivals,
    );
    let offset = Duration::from_nanos(period / 3 + 1);
    let shifted = Schedule::Trace {
        trace: Arc::clone(&trace),
        repeat: cellbed_link::Repeat::Looped,
        offset,
    };
    repeat_for_a_day(with_delay(shifted), period, &arrivals);
    let mahimahi = BottleneckConfig::mahimahi(Schedule::looped(trace));
    repeat_for_a_day(vec![mahimahi.into()], period, &arrivals);
}

#[test]
fn a_rate_series() {
    let second = 1_000_000_000;
    let steps = [
        (0, 1_000_003),
        (second / 3, 0),
        (second / 2 + 1, 77_777),
        (7 * second, 2_000_000_011),
    ];
    let steps = steps.map(|(at, rate)| (Duration::from_nanos(at), BitRate(rate)));
    let period = 10 * second + 7;
    let series = RateSeries::new(steps.to_vec(), Some(Duration::from_nanos(period))).unwrap();
    let schedule = Schedule::Series {
        series: Arc::new(series),
        offset: Duration::from_nanos(3),
    };
    repeat_for_a_day(with_delay(schedule), period, &odd_arrivals(period, 50));
}

#[test]
fn a_constant_rate_and_a_token_bucket() {
    let rate = BitRate(333_333);
    let period = 1_000_000_007;
    repeat_for_a_day(
        with_delay(Schedule::Constant(rate)),
        period,
        &odd_arrivals(period, 20),
    );
    let bucket = Schedule::TokenBucket {
        rate,
        burst: Bytes(3_001),
    };
    repeat_for_a_day(with_delay(bucket), period, &odd_arrivals(period, 20));
}

/// A link that is never idle has sent n bits after n / rate, rounded up to a nanosecond once and not n times.
#[test]
fn a_link_that_is_busy_all_day() {
    let rate = 123_457;
    let again = Some(Duration::from_nanos(999_999_937));
    let series = RateSeries::new(vec![(Duration::ZERO, BitRate(rate))], again).unwrap();
    let series = Schedule::Series {
        series: Arc::new(series),
        offset: Duration::ZERO,
    };
    for schedule in [Schedule::Constant(BitRate(rate)), series] {
        let stages = vec![BottleneckConfig::new(schedule).into()];
        let mut link = Direction::new(stages, Time::ZERO);
        link.accept(Time::ZERO, (), Bytes(1500));
        link.accept(Time::ZERO, (), Bytes(1500)); // so that another one waits whenever one leaves
        let mut bits = 0;
        while let Some(due) = link.next_event().filter(|due| due.as_nanos() < DAY) {
            link.accept(due, (), Bytes(1500));
            bits += 1500 * 8 * 1_000_000_000;
            let exact = u128::div_ceil(bits, u128::from(rate));
            let outcome = link.poll(due).unwrap();
            assert_eq!(u128::from(outcome.departed.as_nanos()), exact);
        }
    }
}
