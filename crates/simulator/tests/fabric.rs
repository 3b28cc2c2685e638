//! The fabric with no transport: what holds of every run.

use cellbed_simulator::fabric::{Description, Record};
use proptest::prelude::*;

/// A run of the description with the given parts replaced.
fn run(changes: serde_json::Value) -> (Vec<Record>, cellbed_simulator::fabric::Counters) {
    let mut description = serde_json::json!({
        "seed": 1,
        "topology": {
            "kind": "leaf-spine", "racks": 3, "hosts_per_rack": 4, "spines": 2, "host_bps": 10e9, "core_bps": 20e9,
            "hop_ps": 200_000, "buffer_bytes": 36_864
        },
        "transport": {"kind": "blind"},
        "traffic": {"flows": 500, "load": 0.6, "sizes": [[1460, 0.5], [14600, 1.0]]}
    });
    merge(&mut description, changes);
    let description: Description = serde_json::from_value(description).unwrap();
    let mut simulation = description.simulation().unwrap();
    let mut records = Vec::new();
    simulation.run(|record| records.push(record));
    (records, simulation.fabric().counters())
}

fn merge(into: &mut serde_json::Value, from: serde_json::Value) {
    match (into, from) {
        // given flows replace random ones
        (serde_json::Value::Object(into), serde_json::Value::Object(from))
            if !from.contains_key("trace") =>
        {
            for (key, value) in from {
                merge(into.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[test]
fn a_flow_alone_takes_the_ideal_time() {
    for (switching, balancing) in [
        ("cut-through", "spray"),
        ("store-and-forward", "spray"),
        ("store-and-forward", "ecmp"),
    ] {
        for (source, destination) in [(0, 1), (0, 11)] {
            for bytes in [1, 1460, 1461, 10 * 1460] {
                let (records, _) = run(serde_json::json!({
                    "topology": {"switching": switching, "balancing": balancing},
                    "traffic": {"trace": [[bytes, source, destination, 5]]}
                }));
                assert_eq!(
                    records[0].slowdown(),
                    1.0,
                    "{switching} {balancing} {source} {destination} {bytes} {records:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Debug builds check after each event that no byte is lost from sight; here that the totals agree with the flows.
    #[test]
    fn bytes_are_conserved_and_equal_seeds_give_equal_runs(
        seed in any::<u64>(),
        load in 0.1..2.0,
        discipline in prop::sample::select(vec![
            r#"{"kind": "droptail"}"#, r#"{"kind": "priority"}"#, r#"{"kind": "smallest"}"#,
            r#"{"kind": "link", "queue": {"kind": "droptail", "bytes": 36864}}"#,
            r#"{"kind": "link", "queue": {"kind": "infinite"}}"#,
        ]),
        pattern in prop::sample::select(vec![
            r#"{"kind": "all-to-all"}"#, r#"{"kind": "permutation"}"#, r#"{"kind": "incast", "senders": 11}"#,
            r#"{"kind": "to-one", "host": 3, "share": 0.5}"#,
        ]),
        switching in prop::sample::select(vec!["cut-through", "store-and-forward"]),
        balancing in prop::sample::select(vec!["spray", "ecmp"]),
    ) {
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let changes = serde_json::json!({
            "seed": seed,
            "topology": {
                "discipline": parse(discipline), "switching": switching, "balancing": balancing
            },
            "traffic": {"load": load, "pattern": parse(pattern)},
        });
        let (records, counters) = run(changes.clone());
        prop_assert_eq!(counters.sent, counters.delivered + counters.dropped);
        prop_assert_eq!(counters.started, 500);
        prop_assert_eq!(counters.finished, records.len() as u64);
        prop_assert!(counters.dropped > 0 || records.len() == 500);
        prop_assert!(records.iter().all(|record| record.slowdown() >= 1.0));
        let again = std::thread::spawn(move || run(changes)).join().unwrap();
        prop_assert_eq!((records, counters), again);
    }
}
