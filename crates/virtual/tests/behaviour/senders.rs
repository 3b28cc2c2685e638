//! The packets of senders with little data.

use cellbed_link::records::RECORD_BYTES;
use cellbed_link::*;
use cellbed_tcp::*;
use cellbed_virtual::*;

use crate::{ENDLESS, bottleneck, delay, ms};

const SEGMENT: u64 = 1448;

/// 20 Mbit/s and 20 ms each way.
fn network(changes: &[(u64, u64)]) -> Network {
    let stages = || vec![bottleneck(20_000_000, ENDLESS), delay(20)];
    let changes = changes.iter().map(|&(at, rate)| Change {
        at: ms(at),
        stage: 0,
        config: bottleneck(rate, ENDLESS),
    });
    let downlink = DirectionConfig {
        changes: changes.collect(),
        ..stages().into()
    };
    Network::pair(stages().into(), downlink).unwrap().with_log()
}

/// Opens a connection whose server writes `messages` (ms, bytes) with Nagle's algorithm. Returns for each segment of
/// the server its entry into the downlink, its first byte and its length.
fn sent(mut network: Network, control: Control, messages: &[(u64, u64)]) -> Vec<(Time, u32, u32)> {
    let connection = network.connect(Tcp {
        control,
        ..Tcp::default()
    });
    network.use_nagle(connection, End::Server);
    for &(at, bytes) in messages {
        network.wake(Time::from_millis(at), bytes);
    }
    while let Some(event) = network.next_event(Time::from_millis(60_000)) {
        if let Event::Due { label: bytes } = event {
            network.write(connection, End::Server, bytes, 0);
        }
    }
    let mut segments = Vec::new();
    network.drain_packets(|record: [u8; RECORD_BYTES]| {
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        let (arrived, direction) = (record[8..16].try_into().unwrap(), record[40]);
        if direction == 1 && word(56) > 0 {
            let at = Time::from_nanos(u64::from_le_bytes(arrived));
            segments.push((at, word(52), word(56)));
        }
    });
    segments.sort_unstable();
    segments
}

#[test]
fn bbr_keeps_its_bandwidth_while_the_application_sends_little() {
    // The sender learns 20 Mbit/s, then sends a segment in each of 40 rounds, then a burst.
    let mut messages = vec![(100, 2_000_000)];
    messages.extend((0..40).map(|round| (2000 + 100 * round, 500)));
    messages.push((6000, 300_000));
    let segments = sent(network(&[]), Control::Bbr, &messages);
    let begins = Time::from_millis(6000);
    let burst = |until| {
        let span = begins..begins + ms(until);
        segments.iter().filter(|it| span.contains(&it.0)).count()
    };
    // A round trip of 40 ms at 20 Mbit/s; Linux paces 1 % below the bandwidth.
    let expected = 20e6 * 0.04 / (1500.0 * 8.0);
    // The window of this bandwidth needs no first acknowledgement.
    for (millis, share) in [(40, 0.95), (20, 0.45)] {
        let sent = burst(millis);
        assert!(sent as f64 > share * expected, "{sent} of {expected}");
    }
}

#[test]
fn a_tail_loss_probe_carries_the_body_that_waits_for_the_head() {
    // The downlink stalls: the head is not acknowledged within a round trip and 200 ms.
    let stands = [(200, 0), (650, 20_000_000)];
    for &control in Control::ALL.iter().filter(|law| !law.uses_ecn()) {
        let messages = [(150, SEGMENT), (250, 200), (251, 700)];
        let segments = sent(network(&stands), control, &messages);
        let after = |&(_, first, length): &(Time, u32, u32)| (first, length);
        let sequence: Vec<_> = segments.iter().map(after).collect();
        let head = SEGMENT as u32;
        assert_eq!(sequence, [(1, head), (1 + head, 200), (201 + head, 700)]);
        let probe = segments[2].0.since(segments[1].0);
        // Two round trips and 200 ms, and up to two ticks of 4 ms.
        assert!((ms(240)..ms(252)).contains(&probe), "{control:?}: {probe}");
    }
}

/// Returns when packets entered a direction, with or without data.
fn entered(network: &mut Network, direction: u8, with_data: bool) -> Vec<Time> {
    let mut times = Vec::new();
    network.drain_packets(|record: [u8; RECORD_BYTES]| {
        if record[40] == direction && (record[56..60] != [0; 4]) == with_data {
            let arrived = record[8..16].try_into().unwrap();
            times.push(Time::from_nanos(u64::from_le_bytes(arrived)));
        }
    });
    times
}

#[test]
fn the_end_of_a_message_is_acknowledged_when_it_is_read_until_an_answer_has_left() {
    const ANSWER: u64 = u64::MAX;
    for segments in [62, 63] {
        let mut network = network(&[]);
        let connection = network.connect(Tcp::default());
        let mut ends = Vec::new();
        network.wake(Time::from_millis(100), segments * SEGMENT + 500);
        network.wake(Time::from_millis(700), 500);
        while let Some(event) = network.next_event(Time::from_millis(2000)) {
            match event {
                Event::Due { label: 0 } => {}
                Event::Due { label: ANSWER } => network.write(connection, End::Server, 100, 2),
                Event::Due { label } => network.write(connection, End::Client, label, 1),
                Event::Message {
                    at: End::Server, ..
                } => {
                    ends.push(network.now());
                    network.wake(network.now() + Duration::from_millis(1), ANSWER);
                }
                _ => {}
            }
        }
        let acknowledgements = entered(&mut network, 1, false);
        let waits = ends.iter().map(|end| {
            let next = acknowledgements.iter().find(|at| *at >= end);
            next.map(|at| at.since(*end))
        });
        // The second one travels with the answer.
        let waits: Vec<_> = waits.collect();
        let is_read = |wait| wait <= Duration::from_micros(100);
        assert!(waits[0].is_some_and(is_read) && waits[1].is_none());
    }
}

#[test]
fn data_pushed_in_one_instant_leaves_in_segments_of_its_own() {
    for (pushes, packets) in [(true, 2), (false, 1)] {
        let mut network = network(&[]);
        let connection = network.connect(Tcp::default());
        network.wake(Time::from_millis(100), 1);
        while let Some(event) = network.next_event(Time::from_millis(500)) {
            if event == (Event::Due { label: 1 }) {
                for _ in 0..2 {
                    network.write(connection, End::Client, 100, 1);
                    if pushes {
                        network.push();
                    }
                }
            }
        }
        assert_eq!(entered(&mut network, 0, true).len(), packets);
    }
}
