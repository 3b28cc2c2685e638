//! The fabric without a transport: properties of every run.

use cellbed_fabric::units::{HostId, Picos};
use cellbed_fabric::{Counters, Node, Record, Simulation};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::blind::Blind;
use crate::{described, leaf_spine, parsed, star};

/// Returns a simulation of a description, without its transport.
fn simulation(description: Value) -> Simulation<Blind> {
    let description = described(description);
    description.run(|_| Ok(Blind::default())).unwrap()
}

/// Runs the description with some parts replaced.
fn run(changes: Value) -> (Vec<Record>, Counters) {
    let mut description = json!({
        "seed": 1, "topology": leaf_spine(3, 4, 20e9), "transport": {"kind": "tcp"},
        "traffic": {"flows": 500, "load": 0.6, "sizes": [[1460, 0.5], [14600, 1.0]]}
    });
    merge(&mut description, changes);
    let mut simulation = simulation(description);
    let mut records = Vec::new();
    simulation.run(|record| records.push(record));
    (records, simulation.fabric().counters())
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        // given flows replace random ones
        (Value::Object(into), Value::Object(from)) if !from.contains_key("trace") => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
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
                let (records, _) = run(json!({
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

    /// Debug builds check after each event that bytes are conserved; this test checks that the totals match the flows.
    #[test]
    fn bytes_are_conserved_and_equal_seeds_give_equal_runs(
        seed in any::<u64>(),
        load in 0.1..2.0,
        discipline in prop::sample::select(vec![
            r#"{"kind": "droptail"}"#, r#"{"kind": "priority"}"#, r#"{"kind": "smallest"}"#,
        ]),
        pattern in prop::sample::select(vec![
            r#"{"kind": "all-to-all"}"#, r#"{"kind": "permutation"}"#, r#"{"kind": "incast", "senders": 11}"#,
            r#"{"kind": "to-one", "host": 3, "share": 0.5}"#,
        ]),
        switching in prop::sample::select(vec!["cut-through", "store-and-forward"]),
        balancing in prop::sample::select(vec!["spray", "ecmp"]),
    ) {
        let changes = json!({
            "seed": seed,
            "topology": {"discipline": parsed(discipline), "switching": switching, "balancing": balancing},
            "traffic": {"load": load, "pattern": parsed(pattern)},
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

const LINK: (f64, u64) = (10e9, 200_000);

/// Kleinrock, "Queueing Systems" vol. 1, 1975, §5.6: packets of one size arrive at random at a port with load ρ. Their
/// mean wait is ρ T / (2 (1 − ρ)).
#[test]
fn the_mean_wait_at_a_port_is_that_of_m_d_1() {
    // One slow host receives all packets, so that no packet waits elsewhere.
    let mut links = [(400e9, 200_000); 100];
    links[0] = LINK;
    let topology = star(&links, 1 << 40);
    let all_hosts = 99.0 * 400e9 + 10e9;
    for load in [0.3, 0.6, 0.8] {
        let waits = (0..8).map(|seed| {
            let description = json!({
                "seed": seed, "topology": topology, "transport": {"kind": "tcp"},
                "traffic": {
                    "flows": 40_000, "load": load * 10e9 / all_hosts, "sizes": [[1460, 1.0]],
                    "pattern": {"kind": "to-one", "host": 0, "share": 1.0}
                }
            });
            let mut simulation = simulation(description);
            simulation.run(|_| ());
            let fabric = simulation.fabric();
            let mut ports = fabric.topology().edges().iter().zip(fabric.port_counters());
            let (_, port) = ports
                .find(|(edge, _)| edge.to == Node::Host(HostId(0)))
                .unwrap();
            port.byte_picos as f64 / port.bytes as f64
        });
        let waits: Vec<f64> = waits.collect();
        let mean = waits.iter().sum::<f64>() / 8.0;
        let deviation = (waits.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>() / 7.0).sqrt();
        let expected = load * 1_200_000.0 / (2.0 * (1.0 - load));
        let error = deviation / 8f64.sqrt();
        assert!(error < 0.02 * expected, "load {load}: {waits:?}");
        assert!(
            (mean - expected).abs() < 3.0 * error,
            "load {load}: {mean} ± {error} ps instead of {expected}"
        );
    }
}

/// Two packets reach a port without a buffer at the same picosecond, 400 times: each source loses about half of them.
#[test]
fn no_source_wins_every_tie() {
    let trace: Vec<_> = (0..800_u64)
        .map(|flow| json!([1460, 1 + flow % 2, 0, flow / 2 * 10_000_000]))
        .collect();
    let (records, _) = run(json!({"topology": star(&[LINK; 3], 0), "traffic": {"trace": trace}}));
    let first = records.iter().filter(|it| it.flow.source == HostId(1));
    assert_eq!(records.len(), 400);
    assert!((150..250).contains(&first.count()));
}

#[test]
fn an_incast_ends_when_the_last_link_has_carried_it() {
    let (senders, packets) = (40, 25);
    let trace: Vec<_> = (1..=senders)
        .map(|sender| json!([packets * 1460, sender, 0, 0]))
        .collect();
    let (records, _) =
        run(json!({"topology": star(&[LINK; 41], 1 << 40), "traffic": {"trace": trace}}));
    let last = records.iter().map(|record| record.end).max().unwrap();
    // A header at 10 Gbit/s, two hops, and all packets one after the other.
    assert_eq!(
        last,
        Picos(32_000 + 400_000 + senders * packets * 1_200_000)
    );
}
