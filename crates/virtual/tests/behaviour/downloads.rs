//! Transfers over TCP, compared with calculations by hand.

use cellbed_link::*;
use cellbed_tcp::*;
use cellbed_virtual::*;

use crate::{ENDLESS, at, bottleneck, delay, loss, ms};

const SEGMENT: u64 = 1448;

/// A drop-tail bottleneck and 20 ms one way.
fn stages(rate: u64, queue: u64) -> Vec<StageConfig> {
    vec![bottleneck(rate, queue), delay(20)]
}

fn network(rate: u64, queue: u64) -> Network {
    Network::new(stages(rate, queue), stages(rate, queue))
}

fn download(mut network: Network, size: u64, tcp: Tcp) -> (Network, Download) {
    let mut downloads = Downloads::new(&[size], tcp);
    network.run(&mut downloads, Time::ZERO, at(600_000));
    let result = downloads.results()[0];
    (network, result)
}

fn taken_ms(rate: u64, size: u64, tcp: Tcp) -> f64 {
    let (_, result) = download(network(rate, ENDLESS), size, tcp);
    result.taken().expect("the link carries all").as_secs_f64() * 1e3
}

#[test]
fn on_a_fat_link_each_doubling_of_the_window_is_a_round_trip() {
    let tcp = Tcp {
        hystart: false,
        ..Tcp::default()
    };
    // Rounds of 10, 20, 40, 80 segments, or a few less if the last acknowledgement of a round is delayed.
    let last = [(10, 2), (30, 3), (67, 4), (140, 5)];
    let first = [(1, 2), (11, 3), (31, 4), (71, 5), (151, 6)];
    for (segments, rounds) in first.into_iter().chain(last) {
        let taken = taken_ms(100_000_000_000, segments * SEGMENT, tcp);
        let expected = 40.0 * f64::from(rounds);
        assert!(
            taken >= expected && taken < expected + 0.1,
            "{segments}: {taken} ms"
        );
    }
}

#[test]
fn a_long_transfer_has_the_rate_of_the_link() {
    for &control in Control::ALL.iter().filter(|law| !law.uses_ecn()) {
        let tcp = Tcp {
            control,
            ..Tcp::default()
        };
        let [short, long] = [5_000_000, 15_000_000].map(|size| taken_ms(20_000_000, size, tcp));
        let rate = 10_000_000.0 * 8.0 / ((long - short) * 1e-3);
        let goodput = 20e6 * SEGMENT as f64 / 1500.0;
        assert!((rate / goodput - 1.0).abs() < 0.005, "{control:?}: {rate}");
    }
}

#[test]
fn losses_of_a_full_queue_are_repaired_without_a_timeout() {
    for hystart in [false, true] {
        let tcp = Tcp {
            hystart,
            ..Tcp::default()
        };
        let (_, result) = download(network(20_000_000, 60_000), 10_000_000, tcp);
        assert!(result.repairs > 0);
        assert_eq!(result.timeouts, 0);
        let least = 10_000_000.0 * 8.0 / 20e6 * 1500.0 / SEGMENT as f64;
        let taken = result.taken().unwrap().as_secs_f64();
        assert!(
            taken > least && taken < 1.15 * least,
            "{taken} s, {least} s at the least"
        );
    }
}

/// A downlink that loses all packets from `from_ms` to `to_ms`.
fn with_outage(from_ms: u64, to_ms: u64) -> Network {
    let mut downlink = stages(20_000_000, ENDLESS);
    downlink.insert(0, loss(0.0, 1));
    changing(downlink, &[(from_ms, loss(1.0, 1)), (to_ms, loss(0.0, 1))])
}

/// A downlink whose first stage changes, at times in ms.
fn changing(downlink: Vec<StageConfig>, changes: &[(u64, StageConfig)]) -> Network {
    let changes = changes.iter().map(|(from, config)| Change {
        at: ms(*from),
        stage: 0,
        config: config.clone(),
    });
    let downlink = DirectionConfig {
        changes: changes.collect(),
        ..downlink.into()
    };
    Network::pair(stages(20_000_000, ENDLESS).into(), downlink).unwrap()
}

#[test]
fn a_lost_tail_is_found_by_a_probe_and_a_lost_flight_by_a_timeout() {
    // The answer leaves at 60 ms and takes 6.5 ms to send. All packets from 55 ms on are lost, also the probe of two
    // round trips later; the timeout comes 240 ms after the probe.
    let (_, flight) = download(with_outage(55, 200), 10 * SEGMENT, Tcp::default());
    assert_eq!(flight.timeouts, 1);
    let taken = flight.taken().unwrap();
    let expected = ms(148 + 240 + 40)..ms(148 + 240 + 4 * 40);
    assert!(expected.contains(&taken), "{taken}");
    // The probe arrives, and its acknowledgement shows that all other packets are lost. As nothing is in flight, they
    // are retransmitted as in slow start.
    let (_, probed) = download(with_outage(55, 100), 10 * SEGMENT, Tcp::default());
    assert_eq!(probed.timeouts, 0);
    assert!(probed.taken() < Some(ms(148 + 40 + 4 * 40)), "{probed:?}");
}

#[test]
fn a_timeout_that_was_wrong_is_undone() {
    // The downlink stalls for 600 ms: all packets are late, none is lost.
    let stall =
        [(500, 0), (1100, 20_000_000)].map(|(from, rate)| (from, bottleneck(rate, ENDLESS)));
    let network = |changes| changing(stages(20_000_000, ENDLESS), changes);
    // A window that keeps the link busy before and after the stall.
    let tcp = Tcp {
        receive_window: 150_000,
        ..Tcp::default()
    };
    let (_, smooth) = download(network(&[]), 3_000_000, tcp);
    let (_, still) = download(network(&stall), 3_000_000, tcp);
    assert!(still.timeouts > 0);
    let lost = still
        .taken()
        .unwrap()
        .saturating_sub(smooth.taken().unwrap());
    assert!((ms(600)..ms(640)).contains(&lost), "{lost}");
}

#[test]
fn a_connection_that_is_kept_saves_the_handshake_and_forgets_its_window_when_idle() {
    let sizes = [500_000; 3];
    let run = |keeps_connection, idle_restart| {
        let tcp = Tcp {
            idle_restart,
            hystart: false,
            ..Tcp::default()
        };
        let mut downloads = Downloads::new(&sizes, tcp);
        downloads.keeps_connection = keeps_connection;
        downloads.thinking = vec![Duration::from_secs(5); 3];
        let mut network = network(1_000_000_000, ENDLESS);
        network.run(&mut downloads, Time::ZERO, at(100_000));
        downloads
            .results()
            .iter()
            .map(|it| it.taken().unwrap())
            .collect::<Vec<_>>()
    };
    let (anew, kept, warm) = (run(false, true), run(true, true), run(true, false));
    assert_eq!(anew[0], anew[1]);
    assert!(
        kept[1] + ms(39) < anew[1] && kept[1] + ms(41) > anew[1],
        "{kept:?} {anew:?}"
    );
    assert!(warm[1] < ms(50) && kept[1] > ms(150), "{warm:?} {kept:?}");
}

#[test]
fn hosts_that_take_their_time_do_so_with_every_packet() {
    let slow = network(100_000_000_000, ENDLESS).with_turnaround(ms(1));
    let (_, result) = download(slow, 1000, Tcp::default());
    let taken = result.taken().unwrap();
    assert!(taken >= ms(84) && taken < ms(85), "{taken}");
}

#[test]
fn newreno_follows_the_square_root_law() {
    // Mathis et al., CCR 27(3), 1997: segments in a round trip = C / sqrt(p), with C = 1.31 for random losses where
    // every segment lets the window grow, as in Linux with delayed acknowledgements too (RFC 3465).
    const C: f64 = 1.31;
    let measured = |probability: f64, segments: u64| {
        let uplink = stages(100_000_000_000, ENDLESS);
        let downlink = std::iter::once(loss(probability, 1)).chain(uplink.clone());
        let tcp = Tcp {
            control: Control::NewReno,
            receive_window: 1 << 30,
            ..Tcp::default()
        };
        let network = Network::new(uplink.clone(), downlink.collect());
        let (_, result) = download(network, segments * SEGMENT, tcp);
        assert_eq!(result.timeouts, 0);
        let rounds = result.taken().unwrap().as_secs_f64() / 0.04;
        segments as f64 / rounds * (result.repairs as f64 / segments as f64).sqrt()
    };
    // The law counts neither the round that finds a loss nor the round of its retransmission: at most 2 of 1 / (C
    // sqrt(p)).
    let (often, seldom) = (measured(0.01, 80_000), measured(0.0025, 320_000));
    for (constant, probability) in [(often, 0.01f64), (seldom, 0.0025)] {
        let repairs = 2.0 * C * probability.sqrt();
        assert!(constant < C && constant > C * (1.0 - repairs), "{constant}");
    }
    // This share is proportional to sqrt(p), so that it can be extrapolated away; the randomness of 800 losses remains.
    let without = 2.0 * seldom - often;
    assert!((without / C - 1.0).abs() < 0.02, "{without}");
}

#[test]
fn the_receive_window_follows_a_queue_that_grows() {
    // Linux's reno fills 1 MB behind 14 Mbit/s within a second, and loses packets of its slow start.
    let tcp = Tcp {
        control: Control::NewReno,
        hystart: false,
        ..Tcp::default()
    };
    let (network, result) = download(network(14_400_000, 1_000_000), 10_000_000, tcp);
    assert!(result.taken().is_some());
    assert!(network.repairs().0 > 100, "{:?}", network.repairs());
}
