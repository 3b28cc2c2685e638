//! Hosts around a tower.

use cellbed_link::records::RECORD_BYTES;
use cellbed_link::*;
use cellbed_tcp::*;
use cellbed_virtual::*;

const TOWER: u16 = 3;

fn stages(rate: u64, delay_ms: u64) -> Vec<StageConfig> {
    let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate)));
    let delay = Duration::from_millis(delay_ms);
    vec![
        bottleneck.with_queue(Discipline::Infinite).into(),
        DelayConfig::Fixed(delay).into(),
    ]
}

/// Two endpoints (0, 1) and an edge (2), each with a link to the tower.
fn network(rate: u64, cells: &[(CellConfig, Vec<usize>)]) -> Network {
    let links = [(0, rate, 20), (1, rate, 20), (2, 10_000_000_000, 5)];
    let ways = links.iter().flat_map(|&(node, rate, delay)| {
        [(node, TOWER), (TOWER, node)].map(|(from, to)| DirectionConfig {
            from,
            to,
            stages: stages(rate, delay),
            ..DirectionConfig::default()
        })
    });
    let config = GraphConfig {
        vertices: 4,
        directions: ways.collect(),
        cells: cells.to_vec(),
    };
    Network::graph(config).unwrap().with_log()
}

/// Uploads from both endpoints to the edge. Returns when the last byte of each arrived.
fn upload(network: &mut Network, bytes: u64) -> Vec<Time> {
    for client in [0, 1] {
        let ends = Ends::new((client, 40_000), (2, 80));
        network.connect_hosts(ends, Tcp::default(), Tcp::default());
    }
    let mut arrived = vec![Time::ZERO; 2];
    while let Some(event) = network.next_event(Time::from_millis(60_000)) {
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
    let mut network = network(12_000_000, &[]);
    let arrived = upload(&mut network, 1000);
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
    let delivered: u64 = network
        .tallies()
        .iter()
        .map(|it| it.counters().delivered)
        .sum();
    assert_eq!(delivered, numbers.len() as u64);
}

#[test]
fn users_of_a_cell_share_its_time() {
    let last = |cells: &[(CellConfig, Vec<usize>)]| {
        let arrived = upload(&mut network(12_000_000, cells), 1_500_000);
        arrived
            .into_iter()
            .max()
            .unwrap()
            .since(Time::ZERO)
            .as_secs_f64()
    };
    let cell = CellConfig {
        scheduler: Scheduler::RoundRobin {},
        slot: Duration::from_millis(1),
        users: vec![Visit::always(0); 2],
    };
    let (alone, shared) = (last(&[]), last(&[(cell, vec![0, 2])]));
    // Time of the other endpoint's 1.5 MB in full segments.
    let more = 1_500_000.0 / 1448.0 * 1500.0 * 8.0 / 12e6;
    assert!(
        (0.95..1.05).contains(&((shared - alone) / more)),
        "{shared} s, {alone} s"
    );
}

#[test]
fn a_link_that_moves_carries_what_was_sent_to_its_new_end() {
    // The edge joins another tower, 100 ms further away, 50 ms after the start.
    let (far, delay) = (4, 100);
    let mut directions: Vec<DirectionConfig> =
        [(0, TOWER, 20), (TOWER, 0, 20), (2, TOWER, 5), (TOWER, 2, 5)]
            .map(|(from, to, delay)| (from, to, delay))
            .into_iter()
            .chain([(TOWER, far, delay), (far, TOWER, delay)])
            .map(|(from, to, delay)| DirectionConfig {
                from,
                to,
                stages: stages(1_000_000_000, delay),
                ..DirectionConfig::default()
            })
            .collect();
    let at = Duration::from_millis(50);
    directions[2].moves = vec![Move {
        at,
        from: 2,
        to: far,
    }];
    directions[3].moves = vec![Move {
        at,
        from: far,
        to: 2,
    }];
    let mut network = Network::graph(GraphConfig {
        vertices: 5,
        directions,
        cells: Vec::new(),
    })
    .unwrap();
    let ends = Ends::new((0, 40_000), (2, 80));
    network.connect_hosts(ends, Tcp::default(), Tcp::default());
    let mut arrived = None;
    while let Some(event) = network.next_event(Time::from_millis(10_000)) {
        match event {
            Event::Open {
                connection,
                at: End::Client,
            } => network.write(connection, End::Client, 1000, 0),
            Event::Message { .. } => arrived = Some(network.now()),
            _ => {}
        }
    }
    // The handshake takes 50 ms, the request 20 + 100 + 5 ms.
    let arrived = arrived.unwrap().since(Time::ZERO).as_secs_f64();
    assert!((0.175..0.1755).contains(&arrived), "{arrived}");
}

#[test]
fn nagle_s_algorithm_holds_a_short_end_back_behind_a_short_beginning() {
    let taken = |nagle: bool| {
        let mut network = network(1_000_000_000, &[]);
        let ends = Ends::new((0, 40_000), (2, 80));
        let id = network.connect_hosts(ends, Tcp::default(), Tcp::default());
        if nagle {
            network.use_nagle(id, End::Client);
        }
        let mut arrived = Time::ZERO;
        while let Some(event) = network.next_event(Time::from_millis(10_000)) {
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
    let mut network = network(1_000_000, &[]);
    let ids = [40_000, 40_001, 40_002].map(|port| {
        let ends = Ends::new((0, port), (2, 80));
        network.connect_hosts(ends, Tcp::default(), Tcp::default())
    });
    network.wake(Time::from_millis(1000), 9);
    let mut arrived = Vec::new();
    while let Some(event) = network.next_event(Time::from_millis(10_000)) {
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
    let delay = || vec![DelayConfig::Fixed(Duration::from_millis(10)).into()];
    let mut network = Network::new(delay(), delay()).with_log();
    let connection = network.connect(Tcp::default());
    while let Some(event) = network.next_event(Time::from_millis(1000)) {
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
    let mut network = network(12_000_000, &[]);
    let (request, answer) = (1, 2);
    let ends = Ends::new((0, 0), (2, 0));
    let size = Bytes(84);
    network.send_ends(DatagramKind::Icmp, ends, End::Client, size, request);
    let end = Time::from_millis(1000);
    let at = End::Server;
    let label = request;
    assert_eq!(network.next_event(end), Some(Event::Datagram { at, label }));
    network.send_ends(DatagramKind::Icmp, ends, End::Server, size, answer);
    let at = End::Client;
    let label = answer;
    assert_eq!(network.next_event(end), Some(Event::Datagram { at, label }));
    // Two links of 20 and 5 ms in both ways, and 56 µs on the slow one.
    assert_eq!(network.now().as_nanos() / 100_000, 501);
    assert_eq!(logged(&mut network), [(1, 84, 56); 4]);
}

#[test]
fn an_end_that_has_closed_resets_the_other_one() {
    let mut network = network(12_000_000, &[]);
    let ends = Ends::new((0, 40_000), (2, 80));
    let connection = network.connect_hosts(ends, Tcp::default(), Tcp::default());
    network.write(connection, End::Client, 1 << 40, 0);
    network.wake(Time::from_millis(1000), 7);
    while network.next_event(Time::from_millis(1000)) != Some(Event::Due { label: 7 }) {}
    let received = network.received(connection, End::Server);
    assert!(received > 500_000);
    network.close(connection, End::Server);
    logged(&mut network);
    assert_eq!(network.next_event(Time::from_millis(100_000)), None);
    assert_eq!(network.received(connection, End::Server), received);
    let after = logged(&mut network);
    // Each packet in flight is answered once on each link, and nothing follows.
    let resets = after.iter().filter(|it| it.1 == 40).count();
    assert!(resets > 0);
    assert_eq!(network.held(), 0);
    assert!(network.unsent(connection, End::Client) > 1 << 39);
}
