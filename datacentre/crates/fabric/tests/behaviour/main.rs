//! Simulations by their public interface. One program: all tests are linked once, and run in parallel.

mod blind;
mod fabric;
mod ran;
mod transports;

use cellbed_fabric::description::Description;
use cellbed_fabric::transport::AnyTransport;
use cellbed_fabric::{Record, Simulation};
use serde_json::{Value, json};

fn described(description: Value) -> Description {
    serde_json::from_value(description).unwrap()
}

/// Runs a description. Returns its flows in order of their ends, and the finished simulation.
fn run(description: Value) -> (Vec<Record>, Simulation<AnyTransport>) {
    let mut simulation = described(description).simulation().unwrap();
    let mut records = Vec::new();
    simulation.run(|record| records.push(record));
    (records, simulation)
}

/// A leaf-spine with hosts of 10 Gbit/s and 200 ns a hop.
fn leaf_spine(racks: u32, hosts_per_rack: u32, core_bps: f64) -> Value {
    json!({
        "kind": "leaf-spine", "racks": racks, "hosts_per_rack": hosts_per_rack, "spines": 2, "host_bps": 10e9,
        "core_bps": core_bps, "hop_ps": 200_000
    })
}

/// Returns a JSON value.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A switch with a link for each host: rate, bit/s, and delay, ps.
fn star(links: &[(f64, u64)], buffer_bytes: u64) -> Value {
    let hosts = links.len();
    let links = links.iter().enumerate();
    let links: Vec<_> = links
        .map(|(host, (rate, delay))| json!([host, hosts, rate, delay]))
        .collect();
    json!({"kind": "graph", "hosts": hosts, "switches": 1, "links": links, "buffer_bytes": buffer_bytes})
}
