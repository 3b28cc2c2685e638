//! Hosts around a tower.

use cellbed_link::records::RECORD_BYTES;
use cellbed_link::*;
use cellbed_tcp::*;
use cellbed_virtual::*;

use crate::{ENDLESS, at, bottleneck, delay, direction};

const TOWER: u16 = 3;

/// Both directions of a link.
fn both(one: u16, other: u16, rate: u64, delay_ms: u64) -> [DirectionConfig; 2] {
    let stages = vec![bottleneck(rate, ENDLESS), delay(delay_ms)];
    [(one, other), (other, one)].map(|(from, to)| direction(from, to, stages.clone()))
}

fn graph(directions: Vec<DirectionConfig>) -> Network {
    let config = GraphConfig {
        vertices: 5,
        directions,
        cells: Vec::new(),
    };
    Network::graph(config).unwrap().with_log()
}

/// Two endpoints (0, 1) and an edge (2), each with a link to the tower.
fn network(rate: u64) -> Network {
    let links = [(0, rate, 20), (1, rate, 20), (2, 10_000_000_000, 5)];
    let ways = links.map(|(node, rate, delay)| both(node, TOWER, rate, delay));
    graph(ways.concat())
}

fn connect(network: &mut Network) -> ConnectionId {
    let ends = Ends::new((0, 40_000), (2, 80));
    network.connect_hosts(ends, Tcp::default(), Tcp::default())
}

/// Uploads from endpoints to the edge. Returns when the last byte of each arrived.
fn upload(network: &mut Network, clients: &[u16], bytes: u64) -> Vec<Time> {
    for &client in clients {
        let ends = Ends::new((client, 40_000), (2, 80));
        network.connect_hosts(ends, Tcp::default(), Tcp::default());
    }
    let mut arrived = vec![Time::ZERO; clients.len()];
    while let Some(event) = network.next_event(at(60_000)) {
        match event {
            Event::Open {
                connection,
                at: End::Client,
            } => network.write(connection, End::Client, bytes, 0),
            Event::Message { connection, .. } => {
                arrived[connection.number() as usize] = network.now();
            }
            _ => {}
        }
    }
    arrived
}

#[test]
fn a_message_crosses_both_links_and_the_log_has_each_packet_twice() {
    let mut network = network(12_000_000);
    let arrived = upload(&mut network, &[0, 1], 1000);
    // A handshake of 50 ms and 60 + 60 bytes, half a round trip, and 1052 bytes.
    for at in arrived {
        let taken = at.since(Time::ZERO).as_secs_f64() * 1e3;
        assert!((75.7..75.9).contains(&taken), "{taken}");
    }
    let mut numbers = Vec::new();
    let number = |record: [u8; RECORD_BYTES]| u64::from_le_bytes(record[..8].try_into().unwrap());
    network.drain_packets(|record| numbers.push(number(record)));
    numbers.sort_unstable();
    assert!(numbers.chunks(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(network.held(), 0);
    let delivered = network.tallies().iter().map(|it| it.counters().delivered);
    assert_eq!(delivered.sum::<u64>(), numbers.len() as u64);
}

#[test]
fn a_link_that_moves_carries_what_was_sent_to_its_new_end() {
    // The edge joins another tower, 100 ms further away, 50 ms after the start.
    let (far, delay) = (4, 100);
    let links = [(0, TOWER, 20), (2, TOWER, 5), (TOWER, far, delay)];
    let mut directions = links
        .map(|(one, other, delay)| both(one, other, 1_000_000_000, delay))
        .concat();
    for (direction, from, to) in [(2, 2, far), (3, far, 2)] {
        let at = Duration::from_millis(50);
        directions[direction].moves = vec![Move { at, from, to }];
    }
    let arrived = upload(&mut graph(directions), &[0], 1000)[0];
    // The handshake takes 50 ms, the request 20 + 100 + 5 ms.
    let arrived = arrived.since(Time::ZERO).as_secs_f64();
    assert!((0.175..0.1755).contains(&arrived), "{arrived}");
}

#[test]
fn nagle_s_algorithm_holds_a_short_end_back_behind_a_short_beginning() {
    let taken = |nagle: bool| {
        let mut network = network(1_000_000_000);
        let id = connect(&mut network);
        if nagle {
            network.use_nagle(id, End::Client);
        }
        let mut arrived = Time::ZERO;
        while let Some(event) = network.next_event(at(10_000)) {
            match event {
                Event::Open {
                    at: End::Client, ..
                } => {
                    network.write(id, End::Client, 200, 0);
                    network.wake(network.now() + Duration::from_micros(10), 1);
                }
                // A full segment and a short one.
                Event::Due { label: 1 } => network.write(id, End::Client, 2000, 2),
                Event::Message { label: 2, .. } => arrived = network.now(),
                _ => {}
            }
        }
        arrived.since(Time::ZERO).as_secs_f64()
    };
    // A round trip of 50 ms.
    let more = taken(true) - taken(false);
    assert!((0.049..0.051).contains(&more), "{more}");
}

#[test]
fn what_is_written_to_several_connections_at_once_leaves_in_this_order() {
    let mut network = network(1_000_000);
    let ids = [40_000, 40_001, 40_002].map(|port| {
        let ends = Ends::new((0, port), (2, 80));
        network.connect_hosts(ends, Tcp::default(), Tcp::default())
    });
    network.wake(at(1000), 9);
    let mut arrived = Vec::new();
    while let Some(event) = network.next_event(at(10_000)) {
        match event {
            Event::Due { .. } => {
                for number in [1, 2, 0] {
                    network.write(ids[number], End::Client, 5000, number as u64);
                }
            }
            Event::Message { label, .. } => arrived.push(label),
            _ => {}
        }
    }
    assert_eq!(arrived, [1, 2, 0]);
}

#[test]
fn a_super_packet_that_arrives_whole_is_acknowledged_once() {
    let mut network = Network::new(vec![delay(10)], vec![delay(10)]).with_log();
    let connection = network.connect(Tcp::default());
    while let Some(event) = network.next_event(at(1000)) {
        if matches!(event, Event::Open { at, .. } if at == End::Client) {
            network.write(connection, End::Client, 4 * 1448, 0);
        }
    }
    let passed = network.tallies().iter().map(|it| it.counters().delivered);
    // SYN, its acknowledgement and two super-packets of two segments; SYN-ACK and two acknowledgements.
    assert_eq!(passed.collect::<Vec<_>>(), [6, 3]);
}

/// Protocol, bytes and payload of the packets in the log.
fn logged(network: &mut Network) -> Vec<(u8, u32, u32)> {
    let word = |record: &[u8; RECORD_BYTES], at: usize| {
        u32::from_le_bytes(record[at..at + 4].try_into().unwrap())
    };
    let mut found = Vec::new();
    network.drain_packets(|it| found.push((it[43], word(&it, 44), word(&it, 56))));
    found
}

#[test]
fn an_echo_is_answered_over_both_links() {
    let mut network = network(12_000_000);
    let (request, answer) = (1, 2);
    let ends = Ends::new((0, 0), (2, 0));
    let size = Bytes(84);
    network.send_ends(DatagramKind::Icmp, ends, End::Client, size, request);
    let end = at(1000);
    let arrives = |at, label| Some(Event::Datagram { at, label });
    assert_eq!(network.next_event(end), arrives(End::Server, request));
    network.send_ends(DatagramKind::Icmp, ends, End::Server, size, answer);
    assert_eq!(network.next_event(end), arrives(End::Client, answer));
    // Two links of 20 and 5 ms in both ways, and 56 µs on the slow one.
    assert_eq!(network.now().as_nanos() / 100_000, 501);
    assert_eq!(logged(&mut network), [(1, 84, 56); 4]);
}

#[test]
fn an_end_that_has_closed_resets_the_other_one() {
    let mut network = network(12_000_000);
    let connection = connect(&mut network);
    network.write(connection, End::Client, 1 << 40, 0);
    network.wake(at(1000), 7);
    while network.next_event(at(1000)) != Some(Event::Due { label: 7 }) {}
    let received = network.received(connection, End::Server);
    assert!(received > 500_000);
    network.close(connection, End::Server);
    logged(&mut network);
    assert_eq!(network.next_event(at(100_000)), None);
    assert_eq!(network.received(connection, End::Server), received);
    let after = logged(&mut network);
    // Each packet in flight is answered once on each link, and nothing follows.
    let resets = after.iter().filter(|it| it.1 == 40).count();
    assert!(resets > 0);
    assert_eq!(network.held(), 0);
    assert!(network.unsent(connection, End::Client) > 1 << 39);
}
