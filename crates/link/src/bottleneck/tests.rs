//! Departures worked out by hand.

use std::sync::Arc;

use super::*;
use crate::schedule::RateSeries;
use crate::trace::Trace;
use crate::units::BitRate;

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn looped(millis: &[u64]) -> Schedule {
    Schedule::looped(Arc::new(
        Trace::from_millis(millis.iter().copied()).unwrap(),
    ))
}

/// Departures of packets given as (arrival in ms, size); `None` for those dropped.
fn departures(config: BottleneckConfig, packets: &[(u64, u64)]) -> Vec<Option<Time>> {
    let mut bottleneck = Bottleneck::new(&config, Time::ZERO);
    let mut departures = vec![None; packets.len()];
    for (index, &(arrival, size)) in packets.iter().enumerate() {
        take_until(&mut bottleneck, ms(arrival), &mut departures);
        if let Admission::Passed(_) = accept(&mut bottleneck, ms(arrival), Bytes(size), index) {
            departures[index] = Some(ms(arrival));
        }
    }
    take_until(&mut bottleneck, Time::MAX, &mut departures);
    departures
}

fn take_until(bottleneck: &mut Bottleneck<usize>, now: Time, departures: &mut [Option<Time>]) {
    while let Some(departure) = bottleneck
        .next_event()
        .filter(|&departure| departure <= now)
    {
        if let Some(Step::Left(item)) = bottleneck.step(departure) {
            departures[item.packet] = Some(departure);
        }
    }
}

fn accept<P>(bottleneck: &mut Bottleneck<P>, now: Time, size: Bytes, packet: P) -> Admission<P> {
    bottleneck.accept(now, Item::new(packet, size, now))
}

fn at<const N: usize>(millis: [u64; N]) -> Vec<Option<Time>> {
    millis.map(|millis| Some(ms(millis))).to_vec()
}

#[test]
fn packets_share_and_span_opportunities() {
    let plain = |millis: &[u64]| BottleneckConfig::new(looped(millis));
    let mahimahi = BottleneckConfig {
        opportunity: Bytes(1504),
        overhead: Bytes(4),
        ..plain(&[1, 2])
    };
    let four = [1, 2, 3, 4];
    for (config, packets, expected) in [
        // One opportunity finishes several small packets.
        (
            plain(&[5, 10]),
            &[(0, 500), (1, 500), (2, 500), (3, 1)][..],
            &[5, 5, 5, 10][..],
        ),
        // A packet sent in part carries over: 1400 + 100 | 1300 + 200 | 1200.
        (plain(&four), &[(0, 1400), (0, 1400), (0, 1400)], &[1, 2, 3]),
        (plain(&four), &[(0, 4000), (0, 500), (0, 1)], &[3, 3, 4]),
        // A packet may use what is left at the instant of its arrival.
        (plain(&[1, 9]), &[(0, 500), (1, 1000), (1, 1)], &[1, 1, 9]),
        (
            mahimahi,
            &[(0, 1500), (0, 748), (0, 748), (0, 1)],
            &[1, 2, 2, 3],
        ),
    ] {
        let expected: Vec<_> = expected.iter().map(|&millis| Some(ms(millis))).collect();
        assert_eq!(departures(config, packets), expected);
    }
    let nothing = BottleneckConfig {
        opportunity: Bytes(0),
        ..plain(&[1])
    };
    assert_eq!(departures(nothing, &[(0, 1)]), [None]);
}

#[test]
fn unused_bytes_are_lost() {
    let config = BottleneckConfig::new(looped(&[1, 2, 10]));
    // the opportunity at 1 ms has 1499 bytes left, which a packet of 1.5 ms cannot have
    let mut bottleneck = Bottleneck::new(&config, Time::ZERO);
    let mut departures = [None; 3];
    accept(&mut bottleneck, Time::ZERO, Bytes(1), 0);
    take_until(&mut bottleneck, ms(1), &mut departures);
    accept(&mut bottleneck, Time::from_micros(1500), Bytes(1500), 1);
    accept(&mut bottleneck, Time::from_micros(1600), Bytes(1), 2);
    take_until(&mut bottleneck, Time::MAX, &mut departures);
    assert_eq!(departures.to_vec(), at([1, 2, 10]));
}

#[test]
fn a_constant_rate_sends_back_to_back() {
    let config = BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))); // 1500 B in 1 ms
    assert_eq!(
        departures(config, &[(0, 1500), (0, 3000), (10, 750)])[..2],
        at([1, 3])
    );
    let config = BottleneckConfig::new(Schedule::Constant(BitRate(3))); // 8 bits in 2 666 666 666.7 ns
    let departures_at_3 = departures(config, &[(0, 1), (0, 1), (0, 1)]);
    let expected =
        [2_666_666_667, 5_333_333_334, 8_000_000_000].map(|at| Some(Time::from_nanos(at)));
    assert_eq!(departures_at_3, expected, "rounding up does not add up");
    let stopped = BottleneckConfig::new(Schedule::Constant(BitRate(0)));
    assert_eq!(departures(stopped, &[(0, 1)]), [None]);
}

#[test]
fn an_unlimited_schedule_holds_nothing_back() {
    let config = BottleneckConfig::new(Schedule::Unlimited);
    assert_eq!(
        departures(config, &[(0, 1500), (0, 1 << 40), (3, 1)]),
        at([0, 0, 3])
    );
}

#[test]
fn what_was_sent_before_a_restart_stays_sent() {
    let config = BottleneckConfig::new(looped(&[10, 20]));
    let mut bottleneck = Bottleneck::new(&config, Time::ZERO);
    accept(&mut bottleneck, Time::ZERO, Bytes(4000), ());
    bottleneck.restart(ms(15), ms(15), Duration::ZERO); // 1500 bytes have left, the rest takes 25 and 35 ms
    assert_eq!(bottleneck.next_event(), Some(ms(35)));
    bottleneck.restart(ms(16), ms(16), Duration::from_millis(9)); // from 9 ms on: 17, 27, …
    assert_eq!(bottleneck.next_event(), Some(ms(27)));
}

#[test]
fn a_packet_takes_its_time_at_the_mean_rate() {
    let secs = Duration::from_secs;
    let steps = vec![
        (secs(0), BitRate(100_000_000)),
        (secs(1), BitRate(1_000_000)),
    ];
    let series = |period| Schedule::Series {
        series: Arc::new(RateSeries::new(steps.clone(), period).unwrap()),
        offset: Duration::ZERO,
    };
    let trace = || Arc::new(Trace::from_millis([2, 4]).unwrap());
    let half = BottleneckConfig {
        opportunity: Bytes(750),
        ..BottleneckConfig::new(Schedule::looped(trace()))
    };
    for (bottleneck, nanos) in [
        (
            BottleneckConfig::new(series(Some(secs(100)))),
            Some(6_030_151),
        ), // 12,000 bits at 1.99 Mbit/s
        (BottleneckConfig::new(series(None)), Some(120_000)),
        (
            BottleneckConfig::mahimahi(Schedule::looped(trace())),
            Some(2_000_000),
        ),
        (half, Some(4_000_000)),
        (BottleneckConfig::new(Schedule::Unlimited), None),
    ] {
        assert_eq!(bottleneck.packet_time(), nanos.map(Duration::from_nanos));
    }
}
