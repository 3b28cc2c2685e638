//! A day on a link, in virtual time: after 86,400 seconds every departure still equals the result of integer
//! arithmetic, to the nanosecond.

use std::sync::Arc;

use cellbed_link::*;

const DAY: Time = Time::from_millis(86_400_000);
const BYTES: u64 = 1500;

/// Size of a packet in bit/s · ns.
const AREA: u128 = BYTES as u128 * 8 * 1_000_000_000;

/// Keeps a link busy until the end of the day. Returns the departure of each packet.
fn saturate(schedule: Schedule, bytes: u64) -> Vec<Time> {
    let mut link = Direction::new(vec![BottleneckConfig::new(schedule).into()], Time::ZERO);
    let mut departures = Vec::new();
    (0..3).for_each(|_| link.accept(Time::ZERO, (), Bytes(bytes)));
    while let Some(now) = link.next_event().filter(|&now| now <= DAY) {
        while let Some(outcome) = link.poll(now) {
            departures.push(outcome.departed);
            link.accept(now, (), Bytes(bytes));
        }
    }
    departures
}

fn assert_equal(departures: &[Time], expected: impl IntoIterator<Item = u128>) {
    let mut expected = expected.into_iter();
    for (index, departure) in departures.iter().enumerate() {
        let nanos = u128::from(departure.as_nanos());
        assert_eq!(Some(nanos), expected.next(), "packet {index}");
    }
    let next = expected.next().expect("the day ends before the packets do");
    assert!(next > u128::from(DAY.as_nanos()));
}

#[test]
fn a_rate_that_does_not_divide_gathers_no_rounding() {
    for rate in [33_337u64, 9_999, 7] {
        let departures = saturate(Schedule::Constant(BitRate(rate)), BYTES);
        let exact = (1u128..).map(|count| (count * AREA).div_ceil(u128::from(rate)));
        assert_equal(&departures, exact);
    }
}

#[test]
fn a_token_bucket_gathers_no_rounding() {
    let (rate, burst) = (33_337u128, 5 * BYTES);
    let schedule = Schedule::TokenBucket {
        rate: BitRate(rate as u64),
        burst: Bytes(burst),
    };
    let exact = (1u128..).map(|count| (count.saturating_sub(5) * AREA).div_ceil(rate));
    assert_equal(&saturate(schedule, BYTES), exact);
}

/// Rates whose steps carry no whole packets; one is zero.
fn steps(period: u64) -> RateSeries {
    let steps = STEPS.map(|(start, rate)| (Duration::from_nanos(start), BitRate(rate)));
    RateSeries::new(steps.to_vec(), Some(Duration::from_nanos(period))).unwrap()
}

const STEPS: [(u64, u64); 4] = [
    (0, 33_337),
    (1_234_567_891, 0),
    (2_345_678_912, 100_003),
    (7_000_000_001, 12_345),
];

#[test]
fn a_looped_rate_series_gathers_no_rounding() {
    const PERIOD: u64 = 10_007_000_003;
    let schedule = Schedule::Series {
        series: Arc::new(steps(PERIOD)),
        offset: Duration::ZERO,
    };
    let ends = STEPS.iter().skip(1).map(|step| step.0).chain([PERIOD]);
    let spans: Vec<(u128, u128)> = STEPS
        .iter()
        .zip(ends)
        .map(|(&(start, rate), end)| (u128::from(end - start), u128::from(rate)))
        .collect();
    let cycle: u128 = spans.iter().map(|(width, rate)| width * rate).sum();
    let exact = (1u128..).map(|count| {
        let area = count * AREA;
        let cycles = (area - 1) / cycle;
        let (mut now, mut rest) = (cycles * u128::from(PERIOD), area - cycles * cycle);
        for (width, rate) in &spans {
            if rest <= width * rate {
                return now + rest.div_ceil(*rate);
            }
            now += width;
            rest -= width * rate;
        }
        unreachable!("the rest is at most a cycle")
    });
    assert_equal(&saturate(schedule, BYTES), exact);
}
