//! Transports under load on a small leaf-spine: exact results of a fixed seed, and completion of every flow.

use cellbed_fabric::description::Description;

/// Returns sums of completion times and of times until the acknowledgement, ps, of 300 flows; and the dropped bytes.
fn run(transport: &str, traffic: &str, buffer: u64) -> (u64, u64, u64) {
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let description = serde_json::json!({
        "seed": 7,
        "topology": {
            "kind": "leaf-spine", "racks": 3, "hosts_per_rack": 4, "spines": 2, "host_bps": 10e9, "core_bps": 20e9,
            "hop_ps": 200_000, "buffer_bytes": buffer
        },
        "transport": parse(transport),
        "traffic": parse(traffic),
    });
    let description: Description = serde_json::from_value(description).unwrap();
    let mut simulation = description.simulation().unwrap();
    let (mut flows, mut ends, mut acknowledged) = (0, 0, 0);
    simulation.run(|record| {
        flows += 1;
        ends += record.completion().0;
        acknowledged += record.acknowledged.0 - record.flow.start.0;
    });
    assert_eq!(flows, 300, "{transport}");
    (ends, acknowledged, simulation.fabric().counters().dropped)
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
    let results = transports.map(|transport| run(transport, traffic, 36_864));
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
        let (_, _, dropped) = run(transport, incast, 3_000);
        assert!(dropped > 0, "{transport}");
    }
}
