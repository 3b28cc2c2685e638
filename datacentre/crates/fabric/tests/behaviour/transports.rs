//! Transports on the fabric, compared with closed forms.

use cellbed_fabric::transport::AnyTransport;
use cellbed_fabric::units::{HostId, Picos};
use cellbed_fabric::{Node, Record, Simulation};
use serde_json::{Value, json};

use crate::{described, leaf_spine, parsed, run, star};

/// Duration of a packet; latencies of a control packet and of a full packet between hosts of a rack: 40 bytes, then the
/// whole packet, at 10 Gbit/s; two hops of 200 ns.
const T: u64 = 1_200_000;
const CONTROL: u64 = 2 * 32_000 + 400_000;
const FULL: u64 = 32_000 + T + 400_000;

fn description(topology: Value, transport: Value, traffic: Value) -> Value {
    json!({"seed": 1, "topology": topology, "transport": transport, "traffic": traffic})
}

/// Runs flows, given as bytes, source, destination and start (ps), on four hosts with 10 Gbit/s at one switch.
fn rack(
    transport: &str,
    flows: &[(u64, u32, u32, u64)],
    buffer: u64,
) -> (Vec<Record>, Simulation<AnyTransport>) {
    let mut topology = leaf_spine(1, 4, 40e9);
    topology["buffer_bytes"] = json!(buffer);
    topology["card_buffer_bytes"] = json!(1_000_000);
    let traffic = json!({"trace": flows});
    let (records, simulation) = run(description(topology, parsed(transport), traffic));
    assert_eq!(records.len(), flows.len());
    (records, simulation)
}

const BUFFER: u64 = 36_864;
const PHOST: &str = r#"{"kind": "phost"}"#;
const PFABRIC: &str = r#"{"kind": "pfabric"}"#;

#[test]
fn a_flow_alone_takes_the_time_of_its_protocol() {
    for (transport, packets, expected) in [
        // The request, 32 ns, then packets by free tokens.
        (PHOST, 3, 32_000 + 2 * T + FULL),
        // Request, first token, nine packets at the pace of the tokens.
        (PHOST, 9, 2 * CONTROL + 8 * T + FULL),
        // At line rate from the first packet.
        (PFABRIC, 50, 49 * T + FULL),
    ] {
        let (records, _) = rack(transport, &[(packets * 1460, 0, 1, 0)], BUFFER);
        assert_eq!(records[0].end.0, expected, "{transport} {packets}");
        assert_eq!(
            records[0].acknowledged.0,
            expected + CONTROL,
            "{transport} {packets}"
        );
    }
}

#[test]
fn free_tokens_of_phost_expire_and_are_granted_again() {
    // Both flows begin with eight tokens. The first flow is served until its last packet leaves at 8 T. The second
    // flow's tokens live until 9.5 T, so that two of them are used. Its destination reserved 8 packet times, and then
    // waits until 16 T after the request before granting the other six again.
    let flows = [(8 * 1460, 0, 1, 0), (8 * 1460, 0, 2, 0)];
    let (records, _) = rack(PHOST, &flows, BUFFER);
    let second = records.iter().find(|it| it.flow.destination == HostId(2));
    let granted = 32_000 + CONTROL + 16 * T;
    assert_eq!(second.unwrap().end.0, granted + CONTROL + 5 * T + FULL);
}

#[test]
fn a_lost_request_of_phost_is_repeated() {
    // A port without a buffer besides the packet in transmission: of three simultaneous requests it drops two.
    let flows = [0, 2, 3].map(|source| (9 * 1460, source, 1, 0));
    let (records, _) = rack(r#"{"kind": "phost", "repeat_request": 100}"#, &flows, 0);
    assert!(
        records[0].end.0 < 100 * T && records[1].end.0 > 100 * T,
        "{records:?}"
    );
}

#[test]
fn a_short_flow_of_pfabric_waits_only_for_the_packet_in_transmission() {
    let flows = [(100 * 1460, 0, 1, 0), (1460, 2, 1, 20_000_000)];
    let (records, _) = rack(PFABRIC, &flows, BUFFER);
    assert!(records[0].completion().0 <= FULL + T, "{records:?}");
}

#[test]
fn a_lost_packet_of_pfabric_is_sent_again_after_the_timeout() {
    // A port without a buffer besides the packet in transmission: of two simultaneous packets it drops one.
    let (records, _) = rack(PFABRIC, &[(1460, 0, 1, 0), (1460, 2, 1, 0)], 0);
    let ends: Vec<u64> = records.iter().map(|it| it.end.0).collect();
    assert_eq!(ends, [FULL, 45_000_000 + FULL]);
}

#[test]
fn a_starved_flow_of_pfabric_probes_without_data() {
    // The port to host 1 drops all packets of the longer flow while the shorter one fills it.
    let flows = [(300 * 1460, 0, 1, 0), (299 * 1460, 2, 1, 0)];
    let dropped = |probe_after: u32| {
        let transport = format!(r#"{{"kind": "pfabric", "probe_after": {probe_after}}}"#);
        rack(&transport, &flows, 0).1.fabric().counters().dropped
    };
    assert!(dropped(1) < dropped(0));
}

/// 32 hosts in four racks.
fn loaded(transport: Value) -> Value {
    let traffic =
        json!({"flows": 500, "load": 0.8, "sizes": [[1460, 0.3], [14600, 0.8], [292_000, 1.0]]});
    description(leaf_spine(4, 8, 40e9), transport, traffic)
}

#[test]
fn two_dctcp_flows_keep_the_queue_at_the_mark() {
    // Two sources, one destination, 10 Gbit/s, a round trip of 100 µs plus transmission times; marks above 40 packets.
    let packets = 40.0;
    let mut topology = star(&[(10e9, 25_000_000); 3], 1_000_000);
    topology["mark_above_bytes"] = json!(60_000);
    let traffic = json!({"trace": [[60_000_000, 0, 2, 0], [60_000_000, 1, 2, 7_000_000]]});
    let description = described(description(topology, json!({"kind": "dctcp"}), traffic));
    let mut simulation = description.simulation().unwrap();
    // Traffic at the port to the destination so far: bytes, bytes · waiting time, drops.
    let mut until = |millis: u64| {
        while simulation.fabric().now() < Picos::from_millis(millis) {
            assert!(simulation.advance(100, &mut |_| {}));
        }
        let fabric = simulation.fabric();
        let mut ports = fabric.topology().edges().iter().zip(fabric.port_counters());
        let (_, port) = ports
            .find(|(edge, _)| edge.to == Node::Host(HostId(2)))
            .unwrap();
        (
            fabric.now().as_secs_f64(),
            port.bytes as f64,
            port.byte_picos as f64 * 1e-12,
            port.dropped,
        )
    };
    let (before, after) = (until(30), until(80));
    let seconds = after.0 - before.0;
    let queue = (after.2 - before.2) / seconds / 1500.0;
    // Alizadeh et al. 2010, §3.3: the queue moves between K + N − A and K + N, where A = sqrt(2 N (C RTT + K)) / 2.
    let (flows, product) = (2.0, 10e9 / 8.0 / 1500.0 * 103e-6);
    let amplitude = f64::sqrt(2.0 * flows * (product + packets)) / 2.0;
    assert!(
        queue < packets + flows && queue > packets + flows - amplitude,
        "{queue} of {amplitude}"
    );
    assert!((after.1 - before.1) * 8.0 / seconds > 0.999 * 10e9);
    assert_eq!(after.3, 0);
}

#[test]
fn samples_of_queues_change_nothing_and_agree_with_their_counters() {
    for kind in ["phost", "pfabric", "dctcp"] {
        let mut description = loaded(json!({"kind": kind}));
        let (unsampled, _) = run(description.clone());
        let kinds: Vec<u16> = [vec![0; 32], vec![1; 4], vec![2; 2]].concat();
        description["sampling"] = json!({"interval_ps": 100_000, "kinds": kinds});
        let (records, simulation) = run(description);
        assert_eq!(records, unsampled, "{kind}");
        // For all cards: the integral of waiting bytes over time, and the longest queue.
        let cards = || {
            let samples = simulation.samples().iter();
            samples.filter(|it| (it.from, it.to) == (0, 1))
        };
        let step = cards().nth(1).unwrap().at.0;
        let sampled: f64 = cards().map(|it| it.mean_bytes * 32.0 * step as f64).sum();
        let counters = || simulation.fabric().port_counters().take(32);
        let counted: f64 = counters().map(|it| it.byte_picos as f64).sum();
        // pFabric drops packets that have waited; the counters exclude their waiting time.
        assert!(sampled > 0.97 * counted, "{kind}: {sampled} {counted}");
        assert!(
            sampled < 1.03 * counted || kind == "pfabric",
            "{kind}: {sampled} {counted}"
        );
        let most = cards().map(|it| it.most_bytes).max();
        assert!(most <= counters().map(|it| it.most_bytes).max(), "{kind}");
    }
}

#[test]
fn connections_of_a_host_take_turns_at_its_card() {
    // Two flows from one source to two destinations, limited by the source's card: the card drops and marks nothing,
    // and each flow gets half of its rate.
    for kind in ["tcp", "dctcp"] {
        let traffic = json!({"trace": [[10_000_000, 0, 1, 0], [10_000_000, 0, 2, 0]]});
        let topology = star(&[(10e9, 1_000_000); 3], BUFFER);
        let (records, simulation) = run(description(topology, json!({"kind": kind}), traffic));
        let card = *simulation.fabric().port_counters().next().unwrap();
        assert!(card.most_bytes <= 4_500, "{kind}: {card:?}");
        assert_eq!((card.dropped, card.marked), (0, 0), "{kind}");
        // 1448 bytes of data in 1500 bytes; besides, only the handshake and the path take time.
        let least = 20e6 / 1448.0 * 1500.0 * 8.0 / 10e9;
        for record in records {
            let taken = record.end.as_secs_f64();
            assert!(
                taken > 0.999 * least && taken < 1.01 * least,
                "{kind}: {taken} {least}"
            );
        }
    }
}

#[test]
fn switches_mark_and_hosts_do_not() {
    // Alizadeh et al., "DCTCP", SIGCOMM 2010, §3.1.
    let links = [(10e9, 1_000_000), (1e9, 1_000_000), (10e9, 1_000_000)];
    let mut topology = star(&links, 1_000_000);
    topology["mark_above_bytes"] = json!(1);
    let traffic = json!({"trace": [[1_000_000, 0, 1, 0]]});
    let (_, simulation) = run(description(topology, json!({"kind": "dctcp"}), traffic));
    let fabric = simulation.fabric();
    let edges = fabric.topology().edges().iter();
    let marked: Vec<_> = edges
        .zip(fabric.port_counters())
        .filter(|(_, port)| port.marked > 0)
        .map(|(edge, _)| edge.from)
        .collect();
    assert_eq!(marked, [Node::Switch(0)]);
}

/// Returns sums of completion times and of times until the acknowledgement, ps, of 300 flows of seed 7; and the dropped
/// bytes.
fn sums(transport: &str, traffic: &str, buffer: u64) -> (u64, u64, u64) {
    let mut topology = leaf_spine(3, 4, 20e9);
    topology["buffer_bytes"] = json!(buffer);
    let mut description = description(topology, parsed(transport), parsed(traffic));
    description["seed"] = json!(7);
    let (records, simulation) = run(description);
    assert_eq!(records.len(), 300, "{transport}");
    let ends = records.iter().map(|it| it.completion().0);
    let acknowledged = records.iter().map(|it| it.acknowledged.0 - it.flow.start.0);
    (
        ends.sum(),
        acknowledged.sum(),
        simulation.fabric().counters().dropped,
    )
}

#[test]
fn results_of_a_seed_never_change() {
    let traffic =
        r#"{"flows": 300, "load": 0.8, "sizes": [[1460, 0.5], [14600, 0.8], [292000, 1.0]]}"#;
    let transports = [
        r#"{"kind": "phost"}"#,
        r#"{"kind": "phost", "short_flow": 0}"#,
        r#"{"kind": "pfabric"}"#,
    ];
    let results = transports.map(|transport| sums(transport, traffic, 36_864));
    assert_eq!(
        results,
        [
            (24_556_762_090, 24_965_033_273, 0),
            (25_048_358_592, 25_448_875_507, 0),
            (21_168_961_438, 21_634_812_226, 439_700),
        ]
    );
}

#[test]
fn every_flow_ends_however_much_is_dropped() {
    let incast = r#"{
        "flows": 300, "load": 3.0, "sizes": [[1460, 0.3], [58400, 1.0]], "pattern": {"kind": "incast", "senders": 11}
    }"#;
    for transport in [
        r#"{"kind": "phost"}"#,
        r#"{"kind": "pfabric"}"#,
        r#"{"kind": "tcp"}"#,
        r#"{"kind": "tcp", "control": "cubic"}"#,
        r#"{"kind": "tcp", "control": "bbr"}"#,
        r#"{"kind": "dctcp"}"#,
    ] {
        let (_, _, dropped) = sums(transport, incast, 3_000);
        assert!(dropped > 0, "{transport}");
    }
}
