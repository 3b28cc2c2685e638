//! Downloads through a proxy at the tower, compared with downloads without.

use cellbed_link::*;
use cellbed_tcp::proxy::{Kind, Place, ProxyTable};
use cellbed_tcp::*;
use cellbed_virtual::*;
use proptest::prelude::*;

const ENDPOINT: u16 = 0;
const SERVER: u16 = 1;
const TOWER: u16 = 2;
const SECONDS: u64 = 6;

fn bottleneck(rate: u64) -> StageConfig {
    let limit = Limit::bytes(16_000_000);
    let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate)));
    bottleneck.with_queue(Discipline::DropTail(limit)).into()
}

fn delay(millis: u64) -> StageConfig {
    DelayConfig::Fixed(Duration::from_millis(millis)).into()
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
        at: Duration::from_millis(200 * step),
        stage: 1,
        config: bottleneck(1_000_000 * megabits),
    });
    let direction = |from, to, stages, changes| DirectionConfig {
        from,
        to,
        stages,
        changes,
        ..DirectionConfig::default()
    };
    let lost = LossConfig::Independent {
        probability: Probability::new(loss).unwrap(),
        seed: Seed(1),
    };
    let radio = vec![lost.into(), bottleneck(100_000_000), delay(3)];
    let uplink = vec![bottleneck(50_000_000), delay(3)];
    let config = GraphConfig {
        vertices: 3,
        directions: vec![
            direction(ENDPOINT, TOWER, uplink, Vec::new()),
            direction(TOWER, SERVER, vec![delay(20)], Vec::new()),
            direction(SERVER, TOWER, vec![delay(20)], Vec::new()),
            direction(TOWER, ENDPOINT, radio, changes.collect()),
        ],
        cells: Vec::new(),
    };
    let network = Network::graph(config).unwrap().with_log();
    let place = Place {
        endpoint: ENDPOINT,
        uplink: 0,
        downlink: 3,
    };
    network.with_proxies(kind.map(|kind| (place, table(kind))).into_iter().collect())
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
    while let Some(event) = network.next_event(Time::from_millis(1000 * SECONDS)) {
        if let Event::Open {
            connection,
            at: End::Server,
        } = event
        {
            network.write(connection, End::Server, 1 << 32, 0);
        }
    }
    network.finished_bins(|direction, bin| {
        if direction == 3 && bin.start >= Time::from_millis(1000) {
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
    let (bbr_use, bbr_queue) = download(network(0.0, None), Control::Bbr, 1);
    let (split_use, split_queue) = download(network(0.0, Some(Kind::Split)), Control::Cubic, 1);
    for connections in [1, 4] {
        let proxied = network(0.0, Some(Kind::Mmcptp));
        let (share, queue) = download(proxied, Control::Cubic, connections);
        println!("{share} {queue}; BBR {bbr_use} {bbr_queue}; split {split_use} {split_queue}");
        assert!(share > 0.95, "{share}");
        assert!(queue < bbr_queue / 10.0, "{queue} of {bbr_queue}");
        assert!(queue < split_queue / 10.0, "{queue} of {split_queue}");
    }
}

#[test]
fn losses_on_the_radio_link_do_not_slow_mmcptp_down() {
    let share = |loss, kind| download(network(loss, kind), Control::Cubic, 1).0;
    let (without, with) = (
        share(0.0, Some(Kind::Mmcptp)),
        share(0.001, Some(Kind::Mmcptp)),
    );
    assert!(with > 0.99 * without, "{with} of {without}");
    assert!(share(0.001, Some(Kind::Split)) < 0.8 * with);
}

/// The proxy holds at most its buffer: the server waits for the proxy's window.
#[test]
fn the_server_is_slowed_down_by_the_window_of_the_proxy() {
    let mut network = network(0.0, Some(Kind::Mmcptp));
    let ends = Ends::new((ENDPOINT, 40_000), (SERVER, 80));
    let connection = network.connect_hosts(ends, Tcp::default(), Tcp::default());
    while network
        .next_event(Time::from_millis(5000))
        .is_some_and(|event| {
            if let Event::Open {
                at: End::Server, ..
            } = event
            {
                network.write(connection, End::Server, 1 << 32, 0);
            }
            true
        })
    {}
    let left = (1 << 32) - network.unsent(connection, End::Server);
    let ahead = left - network.received(connection, End::Client);
    assert!((7 << 20..10 << 20).contains(&ahead), "{ahead}");
}

/// Endpoints 20 ms away from the server (the last host) whose downlinks of 100 Mbit/s share a cell.
fn cell(users: u16, scheduler: Scheduler) -> Network {
    let (server, tower) = (users, users + 1);
    let direction = |from, to, stages| DirectionConfig {
        from,
        to,
        stages,
        ..DirectionConfig::default()
    };
    let up = |user| direction(user, tower, vec![bottleneck(50_000_000), delay(3)]);
    let down = |user| direction(tower, user, vec![bottleneck(100_000_000), delay(3)]);
    let mut directions: Vec<_> = (0..users).flat_map(|it| [up(it), down(it)]).collect();
    directions.push(direction(tower, server, vec![delay(20)]));
    directions.push(direction(server, tower, vec![delay(20)]));
    let config = CellConfig {
        scheduler,
        slot: Duration::from_millis(1),
        users: vec![Visit::always(0); users.into()],
    };
    let members = (0..users).map(|user| 2 * usize::from(user) + 1).collect();
    let config = GraphConfig {
        vertices: usize::from(users) + 2,
        directions,
        cells: vec![(config, members)],
    };
    Network::graph(config).unwrap().with_log()
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
    while let Some(event) = network.next_event(Time::from_millis(1000 * SECONDS)) {
        if let Event::Open {
            connection,
            at: End::Server,
        } = event
        {
            network.write(connection, End::Server, 1 << 32, 0);
        }
    }
    let mut found = vec![(0.0, 0.0); users.into()];
    network.finished_bins(|direction, bin| {
        let user = direction / 2;
        if bin.start >= Time::from_millis(1000) && user < found.len() && direction % 2 == 1 {
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
    let millis = Duration::from_millis;
    let times: Vec<_> = times.iter().copied().map(millis).collect();
    let interruption = millis(20);
    let outages = times.iter().map(|&at| (at, interruption)).collect();
    let flushes = if drops { times.clone() } else { Vec::new() };
    let gate = GateConfig::new(outages)
        .unwrap()
        .with_flushes(flushes)
        .unwrap();
    let moves = |down: bool| {
        let towers = [4, 3].into_iter().cycle();
        let at = times.iter().zip(towers);
        let joined = move |(&at, tower)| Move {
            at,
            from: if down { tower } else { 0 },
            to: if down { 0 } else { tower },
        };
        at.map(joined).collect::<Vec<_>>()
    };
    let radio = |seed, gate: &GateConfig| {
        let lost = LossConfig::Independent {
            probability: Probability::new(loss).unwrap(),
            seed: Seed(seed),
        };
        vec![
            lost.into(),
            gate.clone().into(),
            bottleneck(40_000_000),
            delay(5),
        ]
    };
    let direction = |from, to, stages, moves| DirectionConfig {
        from,
        to,
        stages,
        moves,
        ..DirectionConfig::default()
    };
    let core = |from, to| direction(from, to, vec![delay(10)], Vec::new());
    let open = GateConfig::default();
    let directions = vec![
        direction(0, 3, radio(1, &gate), moves(false)),
        direction(3, 0, radio(2, &gate), moves(true)),
        direction(1, 3, radio(3, &open), Vec::new()),
        direction(3, 1, radio(4, &open), Vec::new()),
        core(3, 2),
        core(2, 3),
        core(3, 5),
        core(5, 3),
        core(4, 5),
        core(5, 4),
    ];
    let mut edges = vec![Duration::ZERO];
    edges.extend(times.iter().enumerate().map(|(number, &at)| {
        at + if number % 2 == 0 {
            Duration::ZERO
        } else {
            interruption
        }
    }));
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
        slot: millis(1),
        users: visits,
    };
    let config = GraphConfig {
        vertices: 6,
        directions,
        cells: vec![(cell, members)],
    };
    Network::graph(config).unwrap().with_log()
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
        let mut at = 0;
        let times: Vec<_> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let kind = if split { Kind::Split } else { Kind::Mmcptp };
        let proxies = [1, 0].map(|user| (place(user), table(kind)));
        let mut network = towers(loss, &times, drops).with_proxies(proxies.into());
        for (port, (client, server)) in [(0, 2), (1, 2), (0, 1), (1, 0)].into_iter().enumerate() {
            let ends = Ends::new((client, 40_000 + port as u16), (server, 80));
            network.connect_hosts(ends, Tcp::default(), Tcp::default());
        }
        let mut messages = 0;
        while let Some(event) = network.next_event(Time::from_millis(120_000)) {
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
