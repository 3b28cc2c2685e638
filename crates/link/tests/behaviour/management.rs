//! Managed queues in front of a link that is offered more than it carries: the steady state that each aims at.

use cellbed_link::*;

/// Twelve Mbit/s, a packet of 1500 bytes a millisecond.
const LINK: BitRate = BitRate(12_000_000);

struct Result {
    /// Mean queueing delay of the delivered packets, ms.
    delay: f64,
    /// Share of packets dropped, and of those delivered that were marked.
    dropped: f64,
    marked: f64,
}

/// Offers `load` packets a millisecond for a minute; counts from the half of it on.
fn overload(queue: Discipline, load: f64, ecn: Ecn) -> Result {
    let config = BottleneckConfig::new(Schedule::Constant(LINK)).with_queue(queue);
    let mut direction = Direction::new(vec![config.into()], Time::ZERO);
    let (mut delays, mut all, mut dropped, mut marked) = (Vec::new(), 0, 0, 0);
    let packets = (60_000.0 * load) as u64;
    for packet in 0..packets {
        // a little irregular, so that nothing resonates
        let at = (packet as f64 * 1e6 / load) as u64 + packet * packet % 300_007;
        direction.accept_tagged(
            Time::from_nanos(at),
            packet,
            MTU,
            Tag {
                flow: packet % 4,
                ecn,
            },
        );
        while let Some(outcome) = direction.poll(Time::from_nanos(at)) {
            if outcome.packet < packets / 2 {
                continue;
            }
            all += 1;
            match outcome.fate {
                Fate::Delivered => {
                    delays.push((outcome.released - outcome.arrived).as_secs_f64() * 1e3);
                    marked += u32::from(outcome.marked);
                }
                _ => dropped += 1,
            }
        }
    }
    Result {
        delay: delays.iter().sum::<f64>() / delays.len() as f64,
        dropped: f64::from(dropped) / f64::from(all),
        marked: f64::from(marked) / delays.len() as f64,
    }
}

#[test]
fn pie_holds_its_target() {
    // A PI controller has no error in the steady state: 15 ms (RFC 8033 §4), and a drop rate of 1 − 1 / load.
    for load in [1.25, 2.0] {
        let result = overload(Discipline::Pie(PieConfig::default()), load, Ecn::NotEct);
        assert!(
            (result.delay - 15.0).abs() < 3.0,
            "{} ms at {load}",
            result.delay
        );
        assert!(
            (result.dropped - (1.0 - 1.0 / load)).abs() < 0.01,
            "{}",
            result.dropped
        );
    }
}

#[test]
fn dualpi2_holds_its_target() {
    let queue = || Discipline::DualPi2(DualPi2Config::default());
    let classic = overload(queue(), 1.2, Ecn::NotEct);
    assert!((classic.delay - 15.0).abs() < 2.0, "{} ms", classic.delay);
    assert!(
        (classic.dropped - (1.0 - 1.0 / 1.2)).abs() < 0.01,
        "{}",
        classic.dropped
    );
    // Marks do not slow this sender down: at saturation the low-latency queue drops, too (RFC 9332).
    let scalable = overload(queue(), 1.2, Ecn::Ect1);
    assert!((scalable.delay - 15.0).abs() < 2.0, "{} ms", scalable.delay);
    assert!(scalable.dropped > 0.16 && scalable.marked > 0.99);
}

#[test]
fn red_holds_the_average_between_its_thresholds() {
    // A drop rate of p_a with p_b = 0.2/(2 − …): gaps are uniform up to 1 / p_b, so that the rate is about 2 p_b.
    let config = RedConfig::new(Bytes(15_000), Bytes(45_000));
    let result = overload(Discipline::Red(config.clone()), 1.1, Ecn::NotEct);
    // 1 − 1/1.1 = 9.1 % = 2 p_b / (1 + p_b) → p_b = 0.0476 → an average of 15 + 30 · 0.476 kB = 29.3 kB = 19.5 ms
    assert!((result.dropped - 0.0909).abs() < 0.01, "{}", result.dropped);
    assert!((17.0..24.0).contains(&result.delay), "{} ms", result.delay);
    let adaptive = RedConfig {
        adaptive: true,
        ..config
    };
    let result = overload(Discipline::Red(adaptive), 1.1, Ecn::NotEct);
    // the average is brought to within 40 and 60 % of the way: 27 to 33 kB, 18 to 22 ms
    assert!((17.0..24.0).contains(&result.delay), "{} ms", result.delay);
}

#[test]
fn codel_raises_its_drop_rate_until_the_queue_is_short() {
    let queue = |ecn| {
        Discipline::CoDel(CoDelConfig {
            ecn,
            ..CoDelConfig::default()
        })
    };
    let result = overload(queue(false), 1.05, Ecn::NotEct);
    // senders that do not respond: the queue swings about the target rather than growing without bound
    assert!(result.delay < 60.0, "{} ms", result.delay);
    assert!(
        (result.dropped - (1.0 - 1.0 / 1.05)).abs() < 0.01,
        "{}",
        result.dropped
    );
    let marked = overload(queue(true), 1.0, Ecn::Ect0);
    assert_eq!(marked.dropped, 0.0);
}

#[test]
fn fq_codel_keeps_a_sparse_flow_out_of_the_queue_of_others() {
    let config = BottleneckConfig::new(Schedule::Constant(LINK))
        .with_queue(Discipline::FqCoDel(FqCoDelConfig::default()));
    let mut direction = Direction::new(vec![config.into()], Time::ZERO);
    let mut worst = Duration::ZERO;
    for step in 0..10_000u64 {
        let now = Time::from_micros(step * 500);
        direction.accept_tagged(
            now,
            0,
            MTU,
            Tag {
                flow: 1,
                ..Tag::default()
            },
        );
        if step % 40 == 39 {
            direction.accept_tagged(
                now,
                1,
                Bytes(100),
                Tag {
                    flow: 2,
                    ..Tag::default()
                },
            );
        }
        while let Some(outcome) = direction.poll(now) {
            if outcome.packet == 1 {
                assert_eq!(outcome.fate, Fate::Delivered);
                worst = worst.max(outcome.released - outcome.arrived);
            }
        }
    }
    // one packet of the other flow in service, and its own 100 bytes
    assert!(worst <= Duration::from_micros(1067), "{worst}");
}
