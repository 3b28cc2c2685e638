//! Hosts around a tower.

use cellbed_link::records::RECORD_BYTES;
use cellbed_link::*;
use cellbed_simulator::*;

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
        [(node, TOWER), (TOWER, node)].map(|(from, to)| Lane {
            from,
            to,
            stages: stages(rate, delay),
            changes: Vec::new(),
        })
    });
    Network::graph(4, ways.collect(), cells).unwrap().with_log()
}

/// Uploads of both endpoints to the edge: when the last byte of each had arrived.
fn upload(network: &mut Network, bytes: u64) -> Vec<Time> {
    for client in [0, 1] {
        let ends = Ends {
            client: (client, 40_000),
            server: (2, 80),
        };
        network.connect_ends(ends, Tcp::default());
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
    // The other's 1.5 MB in full segments.
    let more = 1_500_000.0 / 1448.0 * 1500.0 * 8.0 / 12e6;
    assert!(
        (0.95..1.05).contains(&((shared - alone) / more)),
        "{shared} s, {alone} s"
    );
}
