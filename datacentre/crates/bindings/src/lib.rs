//! The Python module `cellbed_datacentre._core`: thin, without logic. `_core.pyi` describes it to Python's tools.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cellbed_fabric::description::Description;
use cellbed_fabric::ran::RanConfig;
use cellbed_fabric::transport::{AnyTransport, MobileUsers, TransportConfig};
use cellbed_fabric::units::{FlowId, HostId, Picos};
use cellbed_fabric::{Flow, Node, PortCounters, Sample, Simulation};
use cellbed_tcp::Control;
use numpy::IntoPyArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::{called, check_radio, congestion_controls, simulate, transports, watch};
}

/// Return the names of the laws of the transport `tcp`.
#[pyfunction]
fn congestion_controls() -> Vec<String> {
    let laws = Control::ALL.iter().copied().filter(|law| !law.uses_ecn());
    laws.map(Control::name).collect()
}

/// Refuse a radio access network, JSON of [`RanConfig`], by ValueError.
#[pyfunction]
fn check_radio(description: &str) -> PyResult<()> {
    let refused = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let value: serde_json::Value =
        serde_json::from_str(description).map_err(|error| refused(&error))?;
    let radio: RanConfig = serde_json::from_value(value).map_err(|error| refused(&error))?;
    radio.check().map_err(|error| refused(&error))
}

/// Return all transports as a list in JSON: `table` with the defaults of all keys, `text`, `keys` with texts and
/// minima, whether they support `mobile_users`, and whether they end at the central unit.
#[pyfunction]
fn transports() -> String {
    let entry = |it: TransportConfig| {
        let mobile_users = it.mobile_users() != MobileUsers::None;
        let at_unit = it.mobile_users() == MobileUsers::CentralUnit;
        let (text, keys) = it.documentation();
        serde_json::json!({"table": it, "text": text, "keys": keys, "mobile_users": mobile_users, "at_unit": at_unit})
    };
    let entries = TransportConfig::all().into_iter().map(entry);
    serde_json::Value::from_iter(entries).to_string()
}

/// Note which function of a header is running, in the first four bytes of a file.
#[pyfunction]
fn watch(file: PathBuf) -> PyResult<()> {
    let file = File::options().read(true).write(true).open(file)?;
    Ok(cellbed_foreign::watch(&file)?)
}

/// Return the name of a function that [`watch`] notes; empty for 0.
#[pyfunction]
fn called(number: u32) -> &'static str {
    cellbed_foreign::CALLS
        .get(number as usize)
        .copied()
        .unwrap_or_default()
}

/// Number of events between two readings of the clock. An event of a radio cell with many users takes milliseconds.
const EVENTS: u64 = 1 << 8;
/// Interval between two calls of Python.
const INTERVAL: Duration = Duration::from_millis(50);

/// Columns of flows.
const FLOW: [&str; 9] = [
    "flow",
    "source",
    "destination",
    "bytes",
    "user",
    "start_ps",
    "end_ps",
    "acknowledged_ps",
    "ideal_ps",
];

/// Flows, one row each; −1 for a missing value.
#[derive(Default)]
struct Flows([Vec<i64>; FLOW.len()]);

impl Flows {
    fn push(&mut self, id: FlowId, flow: &Flow, times: [Option<Picos>; 3]) {
        let [end, acknowledged, ideal] = times.map(|time| time.map_or(-1, |it| it.0 as i64));
        let [id, source, destination] = [id.0, flow.source.0, flow.destination.0].map(i64::from);
        let user = flow.user.map_or(-1, i64::from);
        let [bytes, start] = [flow.bytes, flow.start.0].map(|it| it as i64);
        let row = [
            id,
            source,
            destination,
            bytes,
            user,
            start,
            end,
            acknowledged,
            ideal,
        ];
        for (column, value) in self.0.iter_mut().zip(row) {
            column.push(value);
        }
    }
}

/// Return a table for Python.
fn table<'py, T: numpy::Element>(
    py: Python<'py>,
    columns: impl IntoIterator<Item = (&'static str, Vec<T>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for (name, values) in columns {
        found.set_item(name, values.into_pyarray(py))?;
    }
    Ok(found)
}

/// Run a description, JSON of [`Description`]. `progress` is called with the number of finished flows, and may raise.
#[pyfunction]
#[pyo3(signature = (description, progress=None))]
fn simulate<'py>(
    py: Python<'py>,
    description: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (simulation, flows) = py.detach(|| {
        let malformed = |error| PyValueError::new_err(format!("malformed description: {error}"));
        let description: Description = serde_json::from_str(description).map_err(malformed)?;
        let mut simulation = description
            .simulation()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let mut flows = Flows::default();
        let mut asked = Instant::now();
        while simulation.advance(EVENTS, &mut |record| {
            let times = [record.end, record.acknowledged, record.ideal].map(Some);
            flows.push(record.id, &record.flow, times);
        }) {
            if cellbed_foreign::failure().is_some() {
                break;
            }
            if asked.elapsed() >= INTERVAL {
                asked = Instant::now();
                let finished = simulation.fabric().counters().finished;
                Python::attach(|py| {
                    py.check_signals()?;
                    progress
                        .as_ref()
                        .map_or(Ok(()), |it| it.call1(py, (finished,)).map(drop))
                })?;
            }
        }
        if let Some(failure) = cellbed_foreign::failure() {
            return Err(PyValueError::new_err(failure.to_owned()));
        }
        let fabric = simulation.fabric();
        for (id, flow, end) in fabric.live() {
            flows.push(id, flow, [end, None, Some(fabric.ideal(flow))]);
        }
        Ok::<_, PyErr>((simulation, flows))
    })?;
    let found = PyDict::new(py);
    found.set_item("flows", table(py, FLOW.into_iter().zip(flows.0))?)?;
    found.set_item("ports", table(py, ports(&simulation))?)?;
    found.set_item("queues", table(py, queues(&simulation))?)?;
    let tables = PyDict::new(py);
    for (host, of_host) in simulation.transport().tables() {
        let by_name = PyDict::new(py);
        for it in of_host {
            by_name.set_item(it.name, table(py, it.columns)?)?;
        }
        tables.set_item(host, by_name)?;
    }
    found.set_item("tables", tables)?;
    found.set_item("packet_hops", simulation.fabric().counters().packet_hops)?;
    found.set_item("end_ps", simulation.fabric().now().0)?;
    Ok(found)
}

/// Return samples of the queues, a row for each pair of node kinds and instant.
fn queues(simulation: &Simulation<AnyTransport>) -> [(&'static str, Vec<f64>); 5] {
    let samples = simulation.samples();
    let column = |value: fn(&Sample) -> f64| samples.iter().map(value).collect();
    [
        ("from", column(|it| f64::from(it.from))),
        ("to", column(|it| f64::from(it.to))),
        ("time_s", column(|it| it.at.as_secs_f64())),
        ("mean_bytes", column(|it| it.mean_bytes)),
        ("most_bytes", column(|it| it.most_bytes as f64)),
    ]
}

/// Return a row for each direction of a link; nodes as in the description: hosts, then switches.
fn ports(simulation: &Simulation<AnyTransport>) -> [(&'static str, Vec<f64>); 10] {
    let fabric = simulation.fabric();
    let topology = fabric.topology();
    let node = |node: Node| match node {
        Node::Host(HostId(host)) => f64::from(host),
        Node::Switch(switch) => f64::from(topology.hosts() + switch),
    };
    let edges = topology.edges().iter();
    let run = fabric.now().0.max(1) as f64;
    let queues = fabric.port_counters().map(|it| it.byte_picos as f64 / run);
    let column = |value: fn(&PortCounters) -> f64| fabric.port_counters().map(value).collect();
    [
        ("from", edges.clone().map(|it| node(it.from)).collect()),
        ("to", edges.clone().map(|it| node(it.to)).collect()),
        ("rate_bit_s", edges.map(|it| it.rate.bps()).collect()),
        ("packets", column(|it| it.packets as f64)),
        ("bytes", column(|it| it.bytes as f64)),
        ("dropped", column(|it| it.dropped as f64)),
        ("dropped_bytes", column(|it| it.dropped_bytes as f64)),
        ("marked", column(|it| it.marked as f64)),
        ("most_queue_bytes", column(|it| it.most_bytes as f64)),
        ("mean_queue_bytes", queues.collect()),
    ]
}
