//! A restart, and the time of a packet.

use std::sync::Arc;

use super::*;
use crate::schedule::RateSeries;
use crate::trace::Trace;
use crate::units::BitRate;

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn looped(millis: &[u64]) -> Schedule {
    let trace = Trace::from_millis(millis.iter().copied()).unwrap();
    Schedule::looped(Arc::new(trace))
}

fn accept<P>(bottleneck: &mut Bottleneck<P>, now: Time, size: Bytes, packet: P) -> Admission<P> {
    bottleneck.accept(now, Item::new(packet, size, now))
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
        let time = bottleneck
            .schedule
            .packet_time(bottleneck.opportunity, bottleneck.overhead);
        assert_eq!(time, nanos.map(Duration::from_nanos));
    }
}
