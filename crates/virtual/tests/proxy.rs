//! Downloads through a proxy at the tower, beside those without one.

use cellbed_link::*;
use cellbed_tcp::proxy::{Kind, Place, ProxyTable};
use cellbed_tcp::*;
use cellbed_virtual::*;

const ENDPOINT: u16 = 0;
const SERVER: u16 = 1;
const TOWER: u16 = 2;
const SECONDS: u64 = 6;

fn bottleneck(rate: u64) -> StageConfig {
    let limit = Limit {
        packets: None,
        bytes: Some(Bytes(16_000_000)),
    };
    let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate)));
    bottleneck.with_queue(Discipline::DropTail(limit)).into()
}

fn delay(millis: u64) -> StageConfig {
    DelayConfig::Fixed(Duration::from_millis(millis)).into()
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
        at: TOWER,
        endpoint: ENDPOINT,
        downlink: 3,
    };
    let table = |kind| ProxyTable {
        at: String::new(),
        endpoint: String::new(),
        downlink: String::new(),
        kind,
        buffer_bytes: 8 << 20,
        interval_ns: 1_000_000,
        horizon_ns: 10_000_000,
    };
    network.with_proxies(kind.map(|kind| (place, table(kind))).into_iter().collect())
}

/// The share of the radio link that downloads over so many connections use after a second, and the mean of its queue,
/// bytes.
fn download(mut network: Network, control: Control, connections: u16) -> (f64, f64) {
    for port in 0..connections {
        let ends = Ends {
            client: (ENDPOINT, 40_000 + port),
            server: (SERVER, 80),
        };
        let tcp = Tcp {
            control,
            receive_window: 64 << 20,
            ..Tcp::default()
        };
        network.connect_ends(ends, tcp);
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

/// The proxy holds no more than its buffer: the server waits for its window.
#[test]
fn the_server_is_slowed_down_by_the_window_of_the_proxy() {
    let mut network = network(0.0, Some(Kind::Mmcptp));
    let ends = Ends {
        client: (ENDPOINT, 40_000),
        server: (SERVER, 80),
    };
    let connection = network.connect_ends(ends, Tcp::default());
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
