//! Downloads through a proxy at the tower, compared with downloads without.

use cellbed_link::*;
use cellbed_tcp::proxy::{Kind, Place, ProxyTable};
use cellbed_tcp::*;
use cellbed_virtual::*;
use proptest::prelude::*;

use crate::{at, delay, direction, ms};

const ENDPOINT: u16 = 0;
const SERVER: u16 = 1;
const TOWER: u16 = 2;
const SECONDS: u64 = 6;

fn bottleneck(rate: u64) -> StageConfig {
    crate::bottleneck(rate, 16_000_000)
}

fn table(kind: Kind) -> ProxyTable {
    ProxyTable {
        uplink: String::new(),
        downlink: String::new(),
        kind,
        buffer_bytes: 8 << 20,
        interval_ns: 1_000_000,
        horizon_ns: 10_000_000,
    }
}

/// An endpoint behind a millimetre-wave link whose rate changes every 200 ms, often by much, and a server 20 ms away.
fn network(loss: f64, kind: Option<Kind>) -> Network {
    let rates = (1..5 * SECONDS).map(|step| (step, 40 + step * step * 7919 % 400));
    let changes = rates.map(|(step, megabits)| Change {
        at: ms(200 * step),
        stage: 1,
        config: bottleneck(1_000_000 * megabits),
    });
    let radio = vec![crate::loss(loss, 1), bottleneck(100_000_000), delay(3)];
    let mut radio = direction(TOWER, ENDPOINT, radio);
    radio.changes = changes.collect();
    let uplink = vec![bottleneck(50_000_000), delay(3)];
    let directions = vec![
        direction(ENDPOINT, TOWER, uplink),
        radio,
        direction(TOWER, SERVER, vec![delay(20)]),
        direction(SERVER, TOWER, vec![delay(20)]),
    ];
    let proxy = kind.map(|kind| (place(0), table(kind)));
    graph(3, directions, Vec::new()).with_proxies(proxy.into_iter().collect())
}

fn graph(
    vertices: usize,
    directions: Vec<DirectionConfig>,
    cells: Vec<(CellConfig, Vec<usize>)>,
) -> Network {
    let config = GraphConfig {
        vertices,
        directions,
        cells,
    };
    Network::graph(config).unwrap().with_log()
}

/// Runs downloads without an end over all connections.
fn serve(network: &mut Network) {
    while let Some(event) = network.next_event(at(1000 * SECONDS)) {
        if let Event::Open {
            connection,
            at: End::Server,
        } = event
        {
            network.write(connection, End::Server, 1 << 32, 0);
        }
    }
}

/// Returns the share of the radio link that downloads over `connections` use after a second, and its mean queue, bytes.
fn download(mut network: Network, control: Control, connections: u16) -> (f64, f64) {
    for port in 0..connections {
        let ends = Ends::new((ENDPOINT, 40_000 + port), (SERVER, 80));
        let tcp = Tcp {
            control,
            receive_window: 64 << 20,
            ..Tcp::default()
        };
        network.connect_hosts(ends, tcp, tcp);
    }
    let (mut used, mut offered, mut queues, mut bins) = (0, 0, 0, 0);
    serve(&mut network);
    network.finished_bins(|direction, bin| {
        if direction == 1 && bin.start >= at(1000) {
            used += bin.used.0;
            offered += bin.capacity.unwrap().0;
            queues += bin.queue.bytes.0;
            bins += 1;
        }
    });
    (
        used as f64 / offered as f64,
        queues as f64 / f64::from(bins),
    )
}

#[test]
fn mmcptp_fills_the_link_with_a_tenth_of_the_queue_of_bbr() {
    let (_, bbr_queue) = download(network(0.0, None), Control::Bbr, 1);
    let (_, split_queue) = download(network(0.0, Some(Kind::Split)), Control::Cubic, 1);
    for connections in [1, 4] {
        let proxied = network(0.0, Some(Kind::Mmcptp));
        let (share, queue) = download(proxied, Control::Cubic, connections);
        assert!(share > 0.95, "{share}");
        assert!(queue < bbr_queue / 10.0, "{queue} of {bbr_queue}");
        assert!(queue < split_queue / 10.0, "{queue} of {split_queue}");
    }
}

#[test]
fn losses_on_the_radio_link_do_not_slow_mmcptp_down() {
    let share = |loss, kind| download(network(loss, kind), Control::Cubic, 1).0;
    let [without, with] = [0.0, 0.001].map(|loss| share(loss, Some(Kind::Mmcptp)));
    assert!(with > 0.99 * without, "{with} of {without}");
    assert!(share(0.001, Some(Kind::Split)) < 0.8 * with);
}

/// The proxy holds at most its buffer: the server waits for the proxy's window.
#[test]
fn the_server_is_slowed_down_by_the_window_of_the_proxy() {
    let mut network = network(0.0, Some(Kind::Mmcptp));
    let ends = Ends::new((ENDPOINT, 40_000), (SERVER, 80));
    let connection = network.connect_hosts(ends, Tcp::default(), Tcp::default());
    serve(&mut network);
    let left = (1 << 32) - network.unsent(connection, End::Server);
    let ahead = left - network.received(connection, End::Client);
    assert!((7 << 20..10 << 20).contains(&ahead), "{ahead}");
}

/// Endpoints 20 ms away from the server (the last host) whose downlinks of 100 Mbit/s share a cell.
fn cell(users: u16, scheduler: Scheduler) -> Network {
    let (server, tower) = (users, users + 1);
    let up = |user| direction(user, tower, vec![bottleneck(50_000_000), delay(3)]);
    let down = |user| direction(tower, user, vec![bottleneck(100_000_000), delay(3)]);
    let mut directions: Vec<_> = (0..users).flat_map(|it| [up(it), down(it)]).collect();
    directions.push(direction(tower, server, vec![delay(20)]));
    directions.push(direction(server, tower, vec![delay(20)]));
    let config = CellConfig {
        scheduler,
        slot: ms(1),
        users: vec![Visit::always(0); users.into()],
    };
    let members = (0..users).map(|user| 2 * usize::from(user) + 1).collect();
    graph(usize::from(users) + 2, directions, vec![(config, members)])
}

fn place(user: u16) -> Place {
    Place {
        endpoint: user,
        uplink: 2 * usize::from(user),
        downlink: 2 * usize::from(user) + 1,
    }
}

/// Returns the share of a cell and the mean queue, bytes, of each user with a download, without the first second. Only
/// the first `proxied` users have a proxy, mmCPTP.
fn shares(users: u16, scheduler: Scheduler, proxied: u16) -> Vec<(f64, f64)> {
    let proxies = (0..proxied).map(|user| (place(user), table(Kind::Mmcptp)));
    let mut network = cell(users, scheduler).with_proxies(proxies.collect());
    for user in 0..users {
        let ends = Ends::new((user, 40_000), (users, 80));
        let tcp = Tcp {
            receive_window: 64 << 20,
            ..Tcp::default()
        };
        network.connect_hosts(ends, tcp, tcp);
    }
    serve(&mut network);
    let mut found = vec![(0.0, 0.0); users.into()];
    network.finished_bins(|direction, bin| {
        let user = direction / 2;
        if bin.start >= at(1000) && user < found.len() && direction % 2 == 1 {
            found[user].0 += bin.used.0 as f64 / (12.5e6 * (SECONDS - 1) as f64);
            found[user].1 += bin.queue.bytes.0 as f64 / (100.0 * (SECONDS - 1) as f64);
        }
    });
    found
}

#[test]
fn users_of_a_cell_fill_it_with_queues_of_their_shares() {
    let fair = Scheduler::ProportionalFair {
        window: Duration::from_secs(1),
        begin: Begin::FairShare,
    };
    for (users, scheduler, proxied) in [
        (3, fair, 3),
        (3, fair, 1),
        (20, Scheduler::RoundRobin {}, 1),
        (8, Scheduler::RoundRobin {}, 8),
    ] {
        let found = shares(users, scheduler, proxied);
        let even = 1.0 / f64::from(users);
        for (share, _) in &found {
            assert!((share / even - 1.0).abs() < 0.03, "{found:?}");
        }
        // 10 ms at the share of 100 Mbit/s; at least a slot of 1 ms and the interval of 1 ms.
        let most = 128_000.0 * even.max(0.2);
        for (_, queue) in &found[..proxied.into()] {
            assert!(*queue < most, "{found:?}");
        }
    }
}

/// An endpoint (0) moves at `times` (ms) between two towers (3, 4), which are 2 × 10 ms apart. At tower 3, where the
/// server (2) is, the endpoint shares a cell with another one (1).
fn towers(loss: f64, times: &[u64], drops: bool) -> Network {
    let times: Vec<_> = times.iter().copied().map(ms).collect();
    let interruption = ms(20);
    let outages = times.iter().map(|&at| (at, interruption)).collect();
    let flushes = if drops { times.clone() } else { Vec::new() };
    let gate = GateConfig::new(outages)
        .unwrap()
        .with_flushes(flushes)
        .unwrap();
    let moves = |down: bool| {
        let towers = [4, 3].into_iter().cycle();
        let joined = move |(&at, tower)| {
            let (from, to) = if down { (tower, 0) } else { (0, tower) };
            Move { at, from, to }
        };
        times.iter().zip(towers).map(joined).collect::<Vec<_>>()
    };
    let radio = |from, to, seed, gate: &GateConfig, moves| {
        let gate = gate.clone().into();
        let stages = vec![
            crate::loss(loss, seed),
            gate,
            bottleneck(40_000_000),
            delay(5),
        ];
        DirectionConfig {
            moves,
            ..direction(from, to, stages)
        }
    };
    let open = GateConfig::default();
    let mut directions = vec![
        radio(0, 3, 1, &gate, moves(false)),
        radio(3, 0, 2, &gate, moves(true)),
        radio(1, 3, 3, &open, Vec::new()),
        radio(3, 1, 4, &open, Vec::new()),
    ];
    let core = [(3, 2), (2, 3), (3, 5), (5, 3), (4, 5), (5, 4)];
    directions.extend(core.map(|(from, to)| direction(from, to, vec![delay(10)])));
    // The endpoint leaves at the times of even number, and is back after the interruption of the odd ones.
    let mut edges = vec![Duration::ZERO];
    let pauses = [Duration::ZERO, interruption].into_iter().cycle();
    edges.extend(times.iter().zip(pauses).map(|(&at, pause)| at + pause));
    let mut visits = vec![Visit::always(0)];
    visits.extend(edges.chunks(2).map(|stay| Visit {
        priority: 0,
        from: stay[0],
        until: stay.get(1).copied(),
    }));
    let members = [3]
        .into_iter()
        .chain(std::iter::repeat_n(1, visits.len() - 1))
        .collect();
    let cell = CellConfig {
        scheduler: Scheduler::RoundRobin {},
        slot: ms(1),
        users: visits,
    };
    graph(6, directions, vec![(cell, members)])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8) })]

    /// All data arrive in both directions, despite losses on the radio link and at handovers, also between two
    /// endpoints with a proxy each.
    #[test]
    fn connections_survive_handovers(
        loss in 0.0..0.02,
        gaps in proptest::collection::vec(25u64..400, 1..9),
        drops: bool,
        split: bool,
        kilobytes in 100u64..1000,
    ) {
        let mut now = 0;
        let times: Vec<_> = gaps.iter().map(|gap| { now += gap; now }).collect();
        let kind = if split { Kind::Split } else { Kind::Mmcptp };
        let proxies = [1, 0].map(|user| (place(user), table(kind)));
        let mut network = towers(loss, &times, drops).with_proxies(proxies.into());
        for (port, (client, server)) in [(0, 2), (1, 2), (0, 1), (1, 0)].into_iter().enumerate() {
            let ends = Ends::new((client, 40_000 + port as u16), (server, 80));
            network.connect_hosts(ends, Tcp::default(), Tcp::default());
        }
        let mut messages = 0;
        while let Some(event) = network.next_event(at(120_000)) {
            match event {
                Event::Open { connection, at } => network.write(connection, at, kilobytes << 10, 0),
                Event::Message { .. } => messages += 1,
                _ => {}
            }
        }
        prop_assert_eq!(messages, 8);
        prop_assert_eq!(network.held(), 0);
    }
}
