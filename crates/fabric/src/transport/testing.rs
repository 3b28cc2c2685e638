//! A rack of four hosts for the tests of transports, and times in it.

use super::AnyTransport;
use crate::description::Description;
use crate::{Record, Simulation};

/// Time of a packet, and latencies of control and of a full packet: 40 bytes, then all of it, at 10 Gbit/s; two hops of 200 ns.
pub const T: u64 = 1_200_000;
pub const CONTROL: u64 = 2 * 32_000 + 400_000;
pub const FULL: u64 = 32_000 + T + 400_000;

/// Flows of bytes, source, destination and start (ps) on four hosts with 10 Gbit/s at one switch.
pub fn simulation(transport: &str, flows: &[(u64, u32, u32, u64)]) -> Simulation<AnyTransport> {
    with_buffer(transport, flows, 36_864)
}

/// The same with ports of another size.
pub fn with_buffer(
    transport: &str,
    flows: &[(u64, u32, u32, u64)],
    buffer: u64,
) -> Simulation<AnyTransport> {
    let transport: serde_json::Value = serde_json::from_str(transport).unwrap();
    let description = serde_json::json!({
        "seed": 1,
        "topology": {
            "kind": "leaf-spine", "racks": 1, "hosts_per_rack": 4, "spines": 1, "host_bps": 10e9, "core_bps": 40e9,
            "hop_ps": 200_000, "buffer_bytes": buffer, "card_buffer_bytes": 1_000_000
        },
        "transport": transport,
        "traffic": {"trace": flows},
    });
    let description: Description = serde_json::from_value(description).unwrap();
    description.simulation().unwrap()
}

/// The records of the run in order of the acknowledgements.
pub fn run(transport: &str, flows: &[(u64, u32, u32, u64)]) -> Vec<Record> {
    let mut records = Vec::new();
    simulation(transport, flows).run(|record| records.push(record));
    records
}
