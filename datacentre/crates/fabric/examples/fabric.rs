//! Runs a description of the fabric and prints its cost: packet-hops, processor time, memory.
//!
//! `cargo run --release -p cellbed-fabric --example fabric -- DESCRIPTION.json [KEY=JSON]...`; a key is a path such as
//! `traffic.flows`. Without a file, the run is the paper's topology under load 0.6 of pHost. `traffic.file=PATH` reads
//! a flow trace of the reference: lines of number, bytes, source, destination, start in microseconds. `flows=PATH`
//! writes a line for each flow: number, bytes, then start, arrival of the last byte, last acknowledgement and ideal
//! time in picoseconds.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read, Write};

use cellbed_fabric::description::Description;
use serde_json::{Value, json};

/// Flow sizes of `CDF_aditya.txt`, in packets.
const SIZES: [(f64, f64); 12] = [
    (1.0, 0.0),
    (1.0, 0.5),
    (2.0, 0.6),
    (3.0, 0.7),
    (5.0, 0.75),
    (7.0, 0.8),
    (40.0, 0.8125),
    (72.0, 0.825),
    (137.0, 0.85),
    (267.0, 0.9),
    (1187.0, 0.95),
    (2107.0, 1.0),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut description = json!({
        "seed": 1,
        "topology": {
            "kind": "leaf-spine", "racks": 9, "hosts_per_rack": 16, "spines": 4, "host_bps": 10e9, "core_bps": 40e9,
            "hop_ps": 200_000, "buffer_bytes": 36_864, "card_buffer_bytes": 1u64 << 40
        },
        "transport": {"kind": "phost"},
        "traffic": {"flows": 10_000, "load": 0.6, "sizes": SIZES.map(|(packets, share)| (packets * 1460.0, share))}
    });
    let mut flows: Option<BufWriter<File>> = None;
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("flows", path)) => flows = Some(BufWriter::new(File::create(path)?)),
            Some(("traffic.file", path)) => description["traffic"] = json!({"trace": trace(path)?}),
            Some((key, value)) => {
                let place = key
                    .split('.')
                    .fold(&mut description, |value, key| &mut value[key]);
                *place = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            }
            None => description = serde_json::from_reader(File::open(argument)?)?,
        }
    }
    let description: Description = serde_json::from_value(description)?;
    let mut simulation = description.simulation()?;
    let before = user_seconds()?;
    let mut written = Ok(());
    simulation.run(|record| {
        if let Some(file) = &mut flows {
            let (id, flow) = (record.id.0, record.flow);
            let times = [flow.start, record.end, record.acknowledged, record.ideal].map(|it| it.0);
            let [start, end, acknowledged, ideal] = times;
            let line = writeln!(
                file,
                "{id} {} {start} {end} {acknowledged} {ideal}",
                flow.bytes
            );
            written = std::mem::replace(&mut written, Ok(())).and(line);
        }
    });
    written?;
    if let Some(file) = &mut flows {
        file.flush()?;
    }
    let seconds = user_seconds()? - before;
    let counters = simulation.fabric().counters();
    println!(
        "{} of {} flows, {} packet-hops, {} events, {} bytes sent, {} dropped, until {:.6} s",
        counters.finished,
        counters.started,
        counters.packet_hops,
        counters.events,
        counters.sent,
        counters.dropped,
        simulation.fabric().now().as_secs_f64()
    );
    println!(
        "{seconds:.2} s of user time, {:.2} million packet-hops a second, {:.2} events a hop, peak memory {} MB",
        counters.packet_hops as f64 / seconds / 1e6,
        counters.events as f64 / counters.packet_hops as f64,
        peak_kilobytes()? / 1000
    );
    Ok(())
}

/// Return the rows of a description's trace.
fn trace(path: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    let row = |line: &str| -> Option<Value> {
        let fields: Vec<f64> = line
            .split_whitespace()
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let [_, bytes, source, destination, micros] = fields[..] else {
            return None;
        };
        let whole = |number: f64| number as u64;
        Some(json!([
            whole(bytes),
            whole(source),
            whole(destination),
            whole((micros * 1e6).round())
        ]))
    };
    let rows = text.lines().enumerate();
    rows.map(|(number, line)| {
        row(line).ok_or_else(|| format!("{path}, line {}: not a flow", number + 1).into())
    })
    .collect()
}

/// Return the user time of this process, in seconds.
fn user_seconds() -> Result<f64, Box<dyn Error>> {
    let line = std::fs::read_to_string("/proc/self/stat")?;
    let fields = line.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = fields.split_whitespace().nth(11).unwrap_or("0").parse()?;
    Ok(ticks / 100.0)
}

fn peak_kilobytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(peak
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or("0")
        .parse()?)
}
