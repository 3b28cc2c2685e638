//! Flows from the hosts of a data centre to mobile users, end to end.

use cellbed_fabric::ran::Ran;
use cellbed_fabric::transport::{AnyTransport, MobileUsers, TransportConfig};
use cellbed_fabric::{Record, Simulation};
use serde_json::{Value, json};

use crate::{described, leaf_spine, parsed};

fn description(transport: &str, traffic: &str, radio: &str, seed: u64) -> Value {
    json!({
        "seed": seed, "topology": leaf_spine(3, 4, 40e9), "transport": parsed(transport), "traffic": parsed(traffic),
        "radio": match parsed(radio) {
            Value::Object(one) => vec![one.into()],
            Value::Array(list) => list,
            _ => vec![],
        }
    })
}

/// Runs a description in JSON, given in parts. Returns the records in order of flows, and the simulation.
fn run(
    transport: &str,
    traffic: &str,
    radio: &str,
    seed: u64,
) -> (Vec<Record>, Simulation<AnyTransport>) {
    let (mut records, simulation) = crate::run(description(transport, traffic, radio, seed));
    records.sort_by_key(|record| record.id);
    (records, simulation)
}

fn ran(simulation: &Simulation<AnyTransport>) -> &Ran {
    &simulation.transport().rans()[0]
}

const PDCELL: &str = r#"{"kind": "pdcell"}"#;
/// CQI 15, no errors.
const CLEAR: &str =
    r#"{"users": 3, "block_errors": 0, "cqi": {"kind": "trace", "traces": [[15]]}}"#;

#[test]
fn a_short_flow_comes_with_its_request_and_takes_two_ttis() {
    let trace = r#"{"trace": [[4380, 5, 0, 0, 1]]}"#;
    let (records, simulation) = run(PDCELL, trace, CLEAR, 1);
    // A subframe is filled shortly before 1 ms, and sent from 1 to 2 ms.
    assert_eq!(records[0].end.0, 2_000_000_000);
    let counts = ran(&simulation).counts();
    assert_eq!(
        (counts.offered, counts.refused, counts.delivered),
        (3, 0, 3)
    );
    assert_eq!(counts.delivered_bytes, 4380 + 3 * 40);
}

#[test]
fn a_long_flow_alone_gets_the_rate_of_the_channel() {
    let trace = r#"{"trace": [[14600000, 5, 0, 0, 1]]}"#;
    let (records, simulation) = run(PDCELL, trace, CLEAR, 1);
    // 10,000 packets of 1500 bytes at 12,756 bytes a TTI, from 1 ms on.
    let ttis = (10_000.0 * 1500.0 / 12_756.0_f64).ceil() as u64;
    let taken = records[0].end.0 / 1_000_000_000;
    assert!((ttis + 1..ttis + 3).contains(&taken), "{taken} {ttis}");
    // Data came as needed, except for the initial threshold: when the threshold fell, credits for a few packets were in
    // transit.
    let counts = ran(&simulation).counts();
    assert_eq!(counts.delivered, 10_000);
    assert!(counts.refused <= 8, "{counts:?}");
    let late = ran(&simulation).series().iter().skip(200);
    assert!(late.map(|it| it.packets).max() < Some(40));
}

#[test]
fn flows_between_hosts_need_no_radio() {
    let traffic = r#"{"flows": 300, "load": 0.5, "sizes": [[1460, 0.5], [146000, 1]]}"#;
    let (records, simulation) = run(PDCELL, traffic, "null", 1);
    assert_eq!(records.len(), 300);
    assert!(simulation.transport().rans().is_empty());
    // On an empty network a packet waits for the request only.
    let (records, _) = run(PDCELL, r#"{"trace": [[1460, 5, 0, 0]]}"#, "null", 1);
    assert!((1.0..1.02).contains(&records[0].slowdown()));
}

/// 150 flows to 20 users, with errors and a small buffer.
fn busy(transport: &str, radio: &str, seed: u64) -> (Vec<Record>, Simulation<AnyTransport>) {
    let traffic =
        r#"{"flows": 150, "load": 0.6, "sizes": [[1460, 0.5], [14600, 0.8], [292000, 1]]}"#;
    run(transport, traffic, radio, seed)
}

#[test]
fn all_flows_end_under_every_scheduler_and_admission() {
    for (scheduler, admission) in [
        ("proportional-fair", "htd"),
        ("shortest-remaining", "htd"),
        ("shortest-remaining", "lqd"),
        ("proportional-fair", "lqd"),
        ("round-robin", "tail"),
    ] {
        let config = format!(
            r#"{{"users": 20, "host": 7, "buffer_bytes": 60000, "admission": "{admission}",
            "scheduler": {{"kind": "{scheduler}"}}, "cqi": {{"kind": "gauss-markov"}}}}"#
        );
        let (records, simulation) = busy(PDCELL, &config, 2);
        assert_eq!(records.len(), 150, "{scheduler} {admission}");
        let ran = ran(&simulation);
        let sent: u64 = records.iter().map(|it| it.flow.bytes).sum();
        let packets: u64 = records.iter().map(|it| it.flow.bytes.div_ceil(1460)).sum();
        let counts = ran.counts();
        assert_eq!(
            counts.delivered_bytes,
            sent + 40 * packets,
            "{scheduler} {admission}"
        );
        assert_eq!(ran.held_bytes(), 0);
        assert_eq!(
            counts.dropped > 0,
            admission == "lqd",
            "{scheduler} {admission}: {counts:?}"
        );
        assert!(ran.series().iter().all(|it| it.packets <= 40));
    }
}

#[test]
fn a_run_is_the_same_again_and_another_with_another_seed() {
    let config = r#"{"users": 20, "share": 0.5}"#;
    let ends = |seed| -> Vec<u64> {
        let (records, _) = busy(PDCELL, config, seed);
        records.iter().map(|it| it.end.0).collect()
    };
    assert_eq!(ends(1), ends(1));
    assert_ne!(ends(1), ends(2));
}

/// Runs all flows over these queues to their end. Returns the number of refused packets.
fn over_the_radio(transport: &str, admission: &str) -> u64 {
    let config = format!(
        r#"{{"users": 20, "admission": "{admission}", "user_packets": 60, "share": 0.7, "cqi": {{"kind": "gauss-markov"}}}}"#
    );
    let (records, simulation) = busy(transport, &config, 3);
    assert_eq!(records.len(), 150, "{transport} {admission}");
    let counts = ran(&simulation).counts();
    let users = records.iter().filter(|it| it.flow.user.is_some());
    let bytes: u64 = users.map(|it| it.flow.bytes).sum();
    assert!(counts.delivered_bytes > bytes, "{transport} {admission}");
    counts.refused
}

#[test]
fn tcp_runs_end_to_end_through_the_queues_of_users() {
    let tcp = r#"{"kind": "tcp"}"#;
    assert_eq!(over_the_radio(tcp, "infinite"), 0);
    assert!(over_the_radio(tcp, "tail") > 0);
    // On an empty network: request, data and acknowledgement use the radio downlink and the uplink.
    let (records, _) = run(tcp, r#"{"trace": [[1460, 5, 0, 0, 1]]}"#, CLEAR, 1);
    let [end, acknowledged] =
        [records[0].end, records[0].acknowledged].map(|it| it.0 / 1_000_000_000);
    assert_eq!((end, acknowledged), (8, 12)); // 2 + 4 ms of the handshake, data by 8 ms, 4 ms for the acknowledgement
}

#[test]
fn transports_of_the_data_centre_end_at_the_central_unit() {
    let phost = r#"{"kind": "phost"}"#;
    assert_eq!(over_the_radio(phost, "infinite"), 0);
    // The sources of pHost do not know the channel: they send repeatedly.
    assert!(over_the_radio(phost, "tail") > 10_000);
    // The source gets its acknowledgement from the central unit long before the device gets the data.
    let (records, simulation) = run(phost, r#"{"trace": [[1460, 5, 0, 0, 1]]}"#, CLEAR, 1);
    assert_eq!(records[0].end.0, 2_000_000_000);
    assert_eq!(ran(&simulation).counts().delivered, 1);
}

/// Two central units with two distributed units each, and hosts of the core on the way to the first.
const CELLS: &str = r#"[
    {"host": 7, "users": 10, "units": [{}, {"carrier": {"kind": "nr", "bandwidth_mhz": 20}}], "dual": true,
     "through": [2, 4], "through_ps": 20000000, "share": 0.7, "load_of": "cell", "cqi": {"kind": "placed"}},
    {"host": 3, "users": 30, "units": [{}, {"fronthaul_bps": 20e6}], "capacity_bps": 100e6, "buffer_bytes": 300000}
]"#;

#[test]
fn all_flows_to_users_of_several_central_units_end() {
    for transport in [PDCELL, r#"{"kind": "phost"}"#, r#"{"kind": "tcp"}"#] {
        let (records, simulation) = busy(transport, CELLS, 4);
        assert_eq!(records.len(), 150, "{transport}");
        let users = |host| {
            let to = records
                .iter()
                .filter(move |it| it.flow.destination.0 == host && it.flow.user.is_some());
            to.collect::<Vec<_>>()
        };
        // 10 of 40 users.
        let [first, second] = [users(7), users(3)];
        assert!(
            second.len() > 2 * first.len() && first.len() > 10,
            "{transport}"
        );
        for (ran, flows) in simulation.transport().rans().iter().zip([first, second]) {
            let bytes: u64 = flows.iter().map(|it| it.flow.bytes).sum();
            assert!(ran.counts().delivered_bytes > bytes, "{transport}");
            assert_eq!(ran.held_bytes(), 0, "{transport}");
        }
        let rows = |name| {
            let tables = simulation.transport().tables().flat_map(|it| it.1);
            let tables = tables.filter(|it| it.name == name);
            tables
                .map(|table| {
                    let rows = table.columns[0].1.len();
                    assert!(table.columns.iter().all(|it| it.1.len() == rows));
                    rows
                })
                .sum::<usize>()
        };
        assert_eq!(["users", "units", "counts"].map(rows), [40, 4, 2]);
    }
}

#[test]
fn hosts_of_the_core_delay_a_flow_on_each_pass() {
    let end = |transport: &str, bytes: u64, radio: &str| {
        let trace = format!(r#"{{"trace": [[{bytes}, 5, 0, 0, 1]]}}"#);
        let (records, _) = run(transport, &trace, radio, 1);
        records[0].end.0 / 1_000_000_000
    };
    let through = |stops| {
        let keys = format!(r#"{{"through": {stops}, "through_ps": 2000000000, "#);
        CLEAR.replacen('{', &keys, 1)
    };
    let two = through("[3, 8]");
    // 8 packets come with the request, after 4 ms.
    assert_eq!(end(PDCELL, 11_680, CLEAR), 2);
    assert_eq!(end(PDCELL, 11_680, &two), 6);
    // Of 10 packets 8 have a credit at once: request, credit and data, then another credit and data, 4 ms each.
    assert_eq!(end(PDCELL, 14_600, &two), 22);
    // SYN, its answer and data.
    let tcp = r#"{"kind": "tcp"}"#;
    assert_eq!(end(tcp, 1460, &two) - end(tcp, 1460, CLEAR), 12);
    // A source among the hosts of the core does not pass itself.
    assert_eq!(end(PDCELL, 11_680, &through("[3, 5]")), 4);
}

#[test]
fn impossible_descriptions_are_refused_in_one_sentence() {
    let refuse_transport = |transport: &str, traffic: &str, radio: &str| {
        let description = described(description(transport, traffic, radio, 1));
        description.simulation().unwrap_err().to_string()
    };
    let random = r#"{"flows": 1, "load": 0.5, "sizes": [[1460, 1]]}"#;
    let lqd = r#"{"admission": "lqd"}"#;
    let mut cases = vec![(r#"{"kind": "phost"}"#.to_owned(), lqd, "LQD")];
    for transport in TransportConfig::all() {
        if transport.mobile_users() == MobileUsers::None {
            let table = serde_json::to_string(&transport).unwrap();
            cases.push((table, "{}", "long before a device can answer"));
        }
    }
    for (transport, radio, expected) in cases {
        let error = refuse_transport(&transport, random, radio);
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}
