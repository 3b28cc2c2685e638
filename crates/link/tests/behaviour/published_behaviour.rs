//! The managed queues with congestion-controlled senders in a closed loop, compared with their RFCs and papers.
//! `docs/reference/disciplines.md` has the figures over a wider range.

use cellbed_link::*;

use crate::closed_loop::{Control, Flow, run};

fn mbit(rate: u64) -> BitRate {
    BitRate(rate * 1_000_000)
}

/// A flow with a constant window, over a pipe of 20 packets (1.2 ms each at 10 Mbit/s), the packet in service included.
fn window(packets: u64) -> Flow {
    Flow {
        round_trip: Duration::from_micros(22_800),
        ..Flow::new(Control::Window(packets), 0)
    }
}

/// RFC 8289 §3: "a TCP connection with a 25-packet window sending through a connection with a bandwidth-delay product
/// of 20 packets" has a standing queue of 5 packets; a window of 30 packets has 10, a window of 20 none.
#[test]
fn a_window_beyond_the_pipe_stands_in_the_queue() {
    for (packets, standing) in [(20, 0.0), (25, 5.0), (30, 10.0)] {
        let run = run(&Discipline::Infinite, mbit(10), &[window(packets)], 5);
        let span = run.between(2, 5);
        for delay in span.delays() {
            assert!(
                (delay / 1.2 - standing).abs() < 1e-3,
                "{delay} ms at {packets}"
            );
        }
        assert!((span.utilisation() - 1.0).abs() < 1e-3);
    }
}

/// RFC 8289 §3.2: the median delay of a link with long-lived flows tends to the target (5 ms), at any rate and
/// round-trip time (§4.2: 10 to 300 ms). The peaks of a sawtooth exceed the target for less than the interval; the
/// standing queue does not. A single Reno flow halves a window that just fills the pipe, and so uses at least three
/// quarters of the link.
#[test]
fn codel_lets_no_queue_stand() {
    let codel = Discipline::CoDel(CoDelConfig::default());
    for rate in [10, 40] {
        for round_trip in [20, 50, 100] {
            for flows in [1, 4] {
                let senders = vec![Flow::new(Control::Reno, round_trip); flows];
                let run = run(&codel, mbit(rate), &senders, 30);
                let span = run.between(10, 30);
                let standing = span.standing(Duration::from_millis(200));
                let case = format!("{rate} Mbit/s, {round_trip} ms, {flows} flows");
                let packet = 12.0 / rate as f64;
                assert!(standing <= 5.0 + packet, "{case}: {standing} ms stand");
                assert!(span.utilisation() > 0.75, "{case}: {}", span.utilisation());
            }
        }
    }
}

/// RFC 8033 §4.2: a PI controller has no error in the steady state; its target is 15 ms.
#[test]
fn pie_comes_back_to_its_target_after_every_step_of_load() {
    let queue = Discipline::Pie(PieConfig::default());
    let run = run(&queue, mbit(10), &Flow::varying(), 150);
    let mut dropped = Vec::new();
    for step in 0..5 {
        let span = run.between(30 * step + 10, 30 * step + 30);
        assert!(
            (span.mean_delay() - 15.0).abs() < 1.5,
            "{} ms",
            span.mean_delay()
        );
        assert!(span.utilisation() > 0.98, "{}", span.utilisation());
        dropped.push(span.dropped());
    }
    assert!(dropped[0] < dropped[1] && dropped[1] < dropped[2]);
    assert!(
        (dropped[0] / dropped[4] - 1.0).abs() < 0.2 && (dropped[1] / dropped[3] - 1.0).abs() < 0.1,
        "{dropped:?}"
    );
}

/// Floyd, Gummadi and Shenker, "Adaptive RED" (2001), §4: at any load, the average queue settles within 40 and 60 % of
/// the way between the thresholds. Without adaptation it depends on the load (§2).
#[test]
fn adaptive_red_keeps_the_average_in_the_middle() {
    // §4.4 of the paper: for a delay of 20 ms, min_th = 20 ms · rate / 2 and max_th = 3 min_th
    let rate = mbit(15);
    let (minimum, maximum) = (Bytes(18_750), Bytes(56_250));
    let average = |config: &RedConfig, flows: usize| {
        let flows = vec![Flow::new(Control::Reno, 50); flows];
        let run = run(&Discipline::Red(config.clone()), rate, &flows, 120);
        run.between(60, 120).mean_delay() * 15e6 / 8e3 // bytes
    };
    let adaptive = RedConfig {
        adaptive: true,
        ..RedConfig::new(minimum, maximum)
    };
    for flows in [8, 20, 50] {
        let average = average(&adaptive, flows);
        assert!(
            (33_750.0..=41_250.0).contains(&average),
            "{average} bytes with {flows} flows"
        );
    }
    let plain = RedConfig::new(minimum, maximum);
    assert!(average(&plain, 50) > average(&plain, 8) + 7_500.0);
}

/// Floyd and Jacobson (1993), §7 and Figure 4, with the slope of `gentle` above max_th (Floyd 2000): the drop
/// probability as a function of the average queue. A sender that never reacts, at `load` times the link's rate, loses 1
/// − 1 / load: the average settles where the curve has this value. The gap between two drops is longer than k packets
/// with probability 1 − k p_b / (1 − p_b) (method 2).
#[test]
fn red_s_drop_probability_is_the_published_curve() {
    let (minimum, maximum, max_p) = (15_000.0, 45_000.0, 0.1);
    let curve = |average: f64| match average {
        _ if average < minimum => 0.0,
        _ if average < maximum => max_p * (average - minimum) / (maximum - minimum),
        _ => max_p + (1.0 - max_p) * (average - maximum) / maximum,
    };
    let loss = |p_b: f64| {
        let longer = (0..).map(|k| 1.0 - f64::from(k) * p_b / (1.0 - p_b));
        1.0 / longer.take_while(|&longer| longer > 0.0).sum::<f64>()
    };
    let queue = RedConfig::new(Bytes(15_000), Bytes(45_000));
    for load in [1.02, 1.05, 1.1, 1.18, 1.4, 2.0] {
        let sender = Flow::new(Control::Constant(BitRate((load * 10e6) as u64)), 0);
        let run = run(&Discipline::Red(queue.clone()), mbit(10), &[sender], 120);
        let span = run.between(40, 120);
        assert!(
            (span.dropped() - (1.0 - 1.0 / load)).abs() < 2e-3,
            "{}",
            span.dropped()
        );
        let average = span.mean_delay() * 10e3 / 8.0 - 750.0; // half of the packet in service is not queued
        let (low, high) = (loss(curve(average - 500.0)), loss(curve(average + 500.0)));
        assert!(
            (low..high).contains(&span.dropped()),
            "{average} bytes at a load of {load}"
        );
    }
}

/// RFC 8290 §1 and §3: flows without a queue go first, and the others share the link byte by byte, independent of their
/// round-trip times and packet sizes.
#[test]
fn fq_codel_is_fair_and_keeps_a_sparse_flow_short() {
    let queue = Discipline::FqCoDel(FqCoDelConfig::default());
    let run = run(&queue, mbit(10), &Flow::unequal(), 60);
    let span = run.between(20, 60);
    let shares: Vec<f64> = (0..4)
        .map(|flow| span.of(|other| other == flow).throughput())
        .collect();
    // Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", 1984
    let index = shares.iter().sum::<f64>().powi(2)
        / 4.0
        / shares.iter().map(|share| share * share).sum::<f64>();
    assert!(index > 0.99, "{index}: {shares:?}");
    let of_sparse = span.of(|flow| flow == 4);
    assert!(
        of_sparse.mean_delay() < 1.2,
        "{} ms",
        of_sparse.mean_delay()
    );
    assert_eq!(of_sparse.dropped(), 0.0);
}

/// RFC 9332: p_L = k √p_C while the coupling rules (§2.1, equation 1), the classic queue at its target of 15 ms
/// (Appendix A.1), the low-latency queue below 1 ms on average and 2 ms at the 99th percentile (RFC 9330 §1), and flows
/// of both kinds at about the same rate (Appendix C.2; Prague flows as there, with a round-trip time of at least 25 ms
/// for their increase).
#[test]
fn dualpi2_couples_both_queues() {
    for rate in [40, 100] {
        for round_trip in [5, 10, 20] {
            let queue = Discipline::DualPi2(DualPi2Config::default());
            let run = run(&queue, mbit(rate), &Flow::coupled(4, round_trip), 30);
            let span = run.between(10, 30);
            let (classic, low) = (span.of(|flow| flow < 4), span.of(|flow| flow >= 4));
            let case = format!("{rate} Mbit/s, {round_trip} ms");
            let coupling = low.marked() / classic.dropped().sqrt();
            assert!((coupling - 2.0).abs() < 0.2, "{case}: k = {coupling}");
            assert!(
                (classic.mean_delay() - 15.0).abs() < 1.5,
                "{case}: {:?} ms",
                classic.mean_delay()
            );
            assert!(
                low.mean_delay() < 1.0 && low.delay_quantile(0.99) < 2.0,
                "{case}: {} ms",
                low.mean_delay()
            );
            assert_eq!((low.dropped(), classic.marked()), (0.0, 0.0));
            let ratio = low.throughput() / classic.throughput();
            assert!((0.5..=2.0).contains(&ratio), "{case}: {ratio}");
            assert!(span.utilisation() > 0.99, "{case}: {}", span.utilisation());
        }
    }
}
