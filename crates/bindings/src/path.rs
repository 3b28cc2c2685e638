//! Applications over a path in virtual time, for the Python module `cellbed.path`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cellbed_calibration::calibration::{Experiment, Purpose};
use cellbed_calibration::plan::{PacketRecord, Workload};
use cellbed_calibration::virtual_network::VirtualNetwork;
use cellbed_link::{Bytes, Duration, Time};
use cellbed_tcp::{Control, Tcp};
use cellbed_virtual::{Download, Downloads, End, Network, Trains};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use serde_json::Value;

use crate::arrivals::{invalid, refuse};
use crate::columns::nanos;
use crate::link::{LaterStage, from_json, parse_direction};
use crate::outside::OutsideObject;

type Column<'py> = Bound<'py, PyArray1<i64>>;
/// Columns: start, finish, retransmissions and timeouts of downloads.
type DownloadTable<'py> = (Column<'py>, Column<'py>, Column<'py>, Column<'py>);

const NOTHING: i64 = -1;

/// Time after the last packet in which others may still arrive.
const QUIET: Duration = Duration::from_secs(600);

/// Two hosts and the path between them.
#[pyclass(frozen, module = "cellbed._core")]
pub struct Path {
    network: Mutex<Network>,
    outside: Option<OutsideObject>,
}

#[pymethods]
impl Path {
    #[new]
    #[pyo3(signature = (uplink, downlink, turnaround_ns, outside=None))]
    fn new(
        py: Python<'_>,
        uplink: (String, Vec<LaterStage>),
        downlink: (String, Vec<LaterStage>),
        turnaround_ns: u64,
        outside: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let outside = outside.map(OutsideObject::new);
        py.detach(|| {
            let uplink = parse_direction(&uplink.0, uplink.1)?;
            let downlink = parse_direction(&downlink.0, downlink.1)?;
            let network = Network::pair(uplink, downlink).map_err(invalid)?;
            let network = network.with_turnaround(Duration::from_nanos(turnaround_ns));
            let network = Mutex::new(OutsideObject::join(outside.as_ref(), network));
            Ok(Self { network, outside })
        })
    }

    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        if self.outside.is_some() {
            return refuse("a path over an outside network cannot be copied".to_owned());
        }
        Ok(Self {
            network: Mutex::new(py.detach(|| self.network().clone())),
            outside: None,
        })
    }

    #[getter]
    fn now_ns(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.network().now().as_nanos())
    }

    #[allow(clippy::too_many_arguments)] // Python's keywords
    fn trains<'py>(
        &self,
        py: Python<'py>,
        at_ns: u64,
        lengths: Vec<usize>,
        gap_ns: u64,
        packet_bytes: u64,
        acknowledgement: u64,
        uplink: bool,
        until_ns: u64,
    ) -> PyResult<(Column<'py>, Column<'py>, Column<'py>)> {
        if let Some(index) = lengths.iter().position(|&length| length == 0) {
            return refuse(format!(
                "lengths[{index}] is 0: a train has at least one packet"
            ));
        }
        let mut trains = Trains::new(&lengths, Duration::from_nanos(gap_ns));
        trains.packet = Bytes(packet_bytes);
        trains.acknowledgement = Bytes(acknowledgement);
        if uplink {
            trains.from = End::Client;
        }
        py.detach(|| {
            self.starting(at_ns, |network, at| {
                network.run(&mut trains, at, Time::from_nanos(until_ns));
            })
        })?;
        let results = trains.results();
        let sent: Vec<i64> = results.iter().map(|train| nanos(train.sent)).collect();
        let completions: Vec<i64> = results
            .iter()
            .map(|train| {
                train
                    .completion
                    .map_or(NOTHING, |taken| nanos(Time::ZERO + taken))
            })
            .collect();
        let arrivals = results.iter().flat_map(|train| &train.arrivals);
        let arrivals: Vec<i64> = arrivals.map(|at| at.map_or(NOTHING, nanos)).collect();
        Ok((
            sent.into_pyarray(py),
            completions.into_pyarray(py),
            arrivals.into_pyarray(py),
        ))
    }

    /// Send the trains of a plan over a copy of the path. Return the packets of the uplink and of the downlink in order
    /// of trains, each as columns train, index, bytes, sent_ns, arrived_ns and copies.
    fn record<'py>(
        &self,
        py: Python<'py>,
        plan: &str,
        span_ns: u64,
    ) -> PyResult<[Vec<Column<'py>>; 2]> {
        let experiment = Experiment {
            purpose: Purpose::RoundTrips,
            workload: Workload::Trains(from_json("the plan", plan)?),
            span: Some(Duration::from_nanos(span_ns)),
            quiet: QUIET,
        };
        let (up, down) = py.detach(|| {
            let network = self.network().clone();
            VirtualNetwork::of(network).run(&experiment)
        });
        Ok([up, down].map(|mut packets| {
            packets.sort_by_key(|packet| (packet.train, packet.index));
            let column = |of: fn(&PacketRecord) -> i64| {
                let values: Vec<i64> = packets.iter().map(of).collect();
                values.into_pyarray(py)
            };
            vec![
                column(|it| it.train.into()),
                column(|it| it.index.into()),
                column(|it| it.bytes.into()),
                column(|it| it.sent_ns.unwrap_or(NOTHING)),
                column(|it| it.arrived_ns.unwrap_or(NOTHING)),
                column(|it| it.copies.into()),
            ]
        }))
    }

    #[allow(clippy::too_many_arguments)] // Python's keywords
    fn downloads<'py>(
        &self,
        py: Python<'py>,
        at_ns: u64,
        sizes: Vec<u64>,
        thinking_ns: Vec<u64>,
        request: u64,
        keeps_connection: bool,
        tcp: &str,
        until_ns: u64,
    ) -> PyResult<DownloadTable<'py>> {
        let mut downloads = Downloads::new(&sizes, parse_tcp(tcp)?);
        messages("sizes", &sizes)?;
        messages("request", &[request])?;
        downloads.request = request;
        downloads.keeps_connection = keeps_connection;
        downloads.thinking = thinking_ns.into_iter().map(Duration::from_nanos).collect();
        py.detach(|| {
            self.starting(at_ns, |network, at| {
                network.run(&mut downloads, at, Time::from_nanos(until_ns));
            })
        })?;
        Ok(table(py, downloads.results()))
    }
}

impl Path {
    /// Return the path, for this thread alone. Call it without the interpreter.
    fn network(&self) -> MutexGuard<'_, Network> {
        let network = self.network.lock();
        network.unwrap_or_else(PoisonError::into_inner)
    }

    fn starting(&self, at_ns: u64, run: impl FnOnce(&mut Network, Time)) -> PyResult<()> {
        let mut network = self.network();
        let now = network.now().as_nanos();
        if at_ns < now {
            return refuse(format!(
                "{at_ns} ns is past: the path has been brought to {now} ns already"
            ));
        }
        run(&mut network, Time::from_nanos(at_ns));
        OutsideObject::check(self.outside.as_ref())
    }
}

fn table<'py>(py: Python<'py>, downloads: &[Download]) -> DownloadTable<'py> {
    let column = |of: &dyn Fn(&Download) -> i64| {
        let values: Vec<i64> = downloads.iter().map(of).collect();
        values.into_pyarray(py)
    };
    (
        column(&|it| nanos(it.started)),
        column(&|it| it.finished.map_or(NOTHING, nanos)),
        column(&|it| it.repairs as i64),
        column(&|it| it.timeouts as i64),
    )
}

/// Return the laws for TCP over a path, where no packets are marked.
fn path_controls() -> impl Iterator<Item = Control> {
    Control::ALL.iter().copied().filter(|law| !law.uses_ecn())
}

/// Return the names of the laws for TCP over a path.
#[pyfunction]
pub fn congestion_controls() -> Vec<String> {
    path_controls().map(Control::name).collect()
}

/// Load a congestion control law from a shared object under a name.
#[pyfunction]
pub fn load_law(name: &str, path: PathBuf) -> PyResult<()> {
    cellbed_laws::load(name, &path).map(drop).map_err(invalid)
}

/// Return the law with a name.
pub fn parse_control(name: &str) -> PyResult<Control> {
    match Control::from_name(name) {
        Some(control) if !control.uses_ecn() => Ok(control),
        _ => {
            let known = congestion_controls().join(", ");
            refuse(format!(
                "there is no control {name:?}: write one of {known}"
            ))
        }
    }
}

/// Read the settings of TCP: the attributes of `cellbed.path.Tcp`, as JSON.
pub fn parse_tcp(settings: &str) -> PyResult<Tcp> {
    let settings: Value = from_json("the settings of TCP", settings)?;
    parse_control(settings["control"].as_str().unwrap_or_default())?;
    let tcp: Tcp = serde_json::from_value(settings).map_err(invalid)?;
    let least = tcp.receive_window.min(tcp.send_buffer);
    if tcp.initial_window == 0 || tcp.segment == 0 || least < tcp.segment {
        return refuse(
            "a window or buffer of TCP holds at least one segment, and that a byte".to_owned(),
        );
    }
    Ok(tcp)
}

fn messages(name: &str, bytes: &[u64]) -> PyResult<()> {
    if bytes.contains(&0) {
        return refuse(format!("{name} has 0 bytes: a message has at least one"));
    }
    Ok(())
}
