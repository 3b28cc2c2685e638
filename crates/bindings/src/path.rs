//! Applications over a path in virtual time. The Python module is `cellbed.path`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cellbed_link::{Bytes, Duration, Time};
use cellbed_tcp::{Control, Tcp};
use cellbed_virtual::{
    Download, Downloads, End, Fetch, Handshake, HttpVersion, Network, PageLoad, PageObject, Trains,
};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrivals::refuse;
use crate::columns::nanos;
use crate::link::{LaterStage, parse, parse_changes};

type Column<'py> = Bound<'py, PyArray1<i64>>;
/// Started, finished, repairs and timeouts.
type DownloadTable<'py> = (Column<'py>, Column<'py>, Column<'py>, Column<'py>);
/// Control, HyStart, idle restart, initial window, receive window, segment, send buffer, pacing.
pub type TcpSettings = (String, bool, bool, u64, u64, u64, u64, bool);
/// Bytes of a request, of an answer's header, and of the three parts of the TLS handshake.
type PageSettings = (u64, u64, Option<(u64, u64, u64)>);

const NOTHING: i64 = -1;

/// Two hosts and the path between them.
#[pyclass(frozen, module = "cellbed._core")]
pub struct Path {
    inner: Mutex<Inner>,
}

#[derive(Clone)]
struct Inner {
    network: Network,
    /// Number of applications so far, so that a session can check whether it is the current one.
    runs: u64,
}

impl Inner {
    fn begin(&mut self, at: Time) -> PyResult<()> {
        let now = self.network.now();
        if at < now {
            let (at, now) = (at.as_nanos(), now.as_nanos());
            return refuse(format!(
                "{at} ns is past: the path has been brought to {now} ns already"
            ));
        }
        Ok(())
    }
}

#[pymethods]
impl Path {
    #[new]
    fn new(
        py: Python<'_>,
        uplink: (String, Vec<LaterStage>),
        downlink: (String, Vec<LaterStage>),
        turnaround_ns: u64,
    ) -> PyResult<Self> {
        py.detach(|| {
            let network = Network::new(parse(&uplink.0)?, parse(&downlink.0)?)
                .with_changes(parse_changes(uplink.1)?, parse_changes(downlink.1)?)
                .map_err(|error| PyValueError::new_err(error.to_string()))?
                .with_turnaround(Duration::from_nanos(turnaround_ns));
            let inner = Mutex::new(Inner { network, runs: 0 });
            Ok(Self { inner })
        })
    }

    fn copy(&self, py: Python<'_>) -> Self {
        let inner = py.detach(|| self.inner().clone());
        Self {
            inner: Mutex::new(inner),
        }
    }

    #[getter]
    fn now_ns(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner().network.now().as_nanos())
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

    #[allow(clippy::too_many_arguments)] // Python's keywords
    fn downloads<'py>(
        &self,
        py: Python<'py>,
        at_ns: u64,
        sizes: Vec<u64>,
        thinking_ns: Vec<u64>,
        request: u64,
        keeps_connection: bool,
        tcp: TcpSettings,
        until_ns: u64,
    ) -> PyResult<DownloadTable<'py>> {
        let mut downloads = Downloads::new(&sizes, settings(tcp)?);
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

    #[allow(clippy::too_many_arguments)] // Python's keywords
    fn page<'py>(
        &self,
        py: Python<'py>,
        at_ns: u64,
        objects: Vec<(u64, Option<usize>)>,
        http2: bool,
        sizes: PageSettings,
        processing_ns: u64,
        tcp: TcpSettings,
        until_ns: u64,
    ) -> PyResult<(Column<'py>, Column<'py>)> {
        let known = |(index, &(_, parent)): (usize, &(u64, Option<usize>))| {
            parent.is_none_or(|parent| parent < index)
        };
        if let Some(index) = objects.iter().enumerate().position(|it| !known(it)) {
            return refuse(format!(
                "parents[{index}] must be None or a number below {index}"
            ));
        }
        let (request, header, handshake) = sizes;
        messages("request", &[request])?;
        let protocol = if http2 {
            HttpVersion::Http2
        } else {
            HttpVersion::Http1
        };
        let object = |(bytes, parent)| PageObject { bytes, parent };
        let objects: Vec<PageObject> = objects.into_iter().map(object).collect();
        let mut page = PageLoad::new(protocol, &objects, settings(tcp)?);
        (page.request, page.header) = (request, header.max(1));
        page.handshake = handshake.map(|(hello, answer, end)| Handshake { hello, answer, end });
        if let Some((hello, answer, end)) = handshake {
            messages("tls", &[hello, answer, end])?;
        }
        page.processing = Duration::from_nanos(processing_ns);
        py.detach(|| {
            self.starting(at_ns, |network, at| {
                network.run(&mut page, at, Time::from_nanos(until_ns));
            })
        })?;
        let column = |of: &dyn Fn(&Fetch) -> Option<Time>| {
            let fetches = page.fetches().iter();
            let values: Vec<i64> = fetches.map(|it| of(it).map_or(NOTHING, nanos)).collect();
            values.into_pyarray(py)
        };
        Ok((column(&|it| it.requested), column(&|it| it.arrived)))
    }
}

impl Path {
    /// The path for this thread alone. Call it without the interpreter.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn starting(&self, at_ns: u64, run: impl FnOnce(&mut Network, Time)) -> PyResult<()> {
        let at = Time::from_nanos(at_ns);
        let mut inner = self.inner();
        inner.begin(at)?;
        inner.runs += 1;
        run(&mut inner.network, at);
        Ok(())
    }
}

/// A client with interactive downloads over one connection.
#[pyclass(frozen, module = "cellbed._core")]
pub struct Session {
    path: Py<Path>,
    state: Mutex<State>,
}

struct State {
    downloads: Downloads,
    /// Number of this session among the applications of its path, once it has begun.
    run: Option<u64>,
}

#[pymethods]
impl Session {
    #[new]
    fn new(path: Py<Path>, request: u64, tcp: TcpSettings) -> PyResult<Self> {
        messages("request", &[request])?;
        let mut downloads = Downloads::new(&[], settings(tcp)?);
        downloads.request = request;
        downloads.keeps_connection = true;
        let run = None;
        let state = Mutex::new(State { downloads, run });
        Ok(Self { path, state })
    }

    fn fetch<'py>(
        &self,
        py: Python<'py>,
        at_ns: u64,
        size: u64,
        until_ns: u64,
    ) -> PyResult<DownloadTable<'py>> {
        messages("size", &[size])?;
        let at = Time::from_nanos(at_ns);
        let path = self.path.get();
        let last = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut inner = path.inner();
            inner.begin(at)?;
            match state.run {
                None => {
                    inner.network.clear();
                    inner.runs += 1;
                    state.run = Some(inner.runs);
                }
                Some(run) if run == inner.runs => {}
                Some(_) => {
                    return refuse("another application has run on the path since".to_owned());
                }
            }
            if state
                .downloads
                .results()
                .iter()
                .any(|it| it.finished.is_none())
            {
                return refuse("a download of this session was not finished in time".to_owned());
            }
            state.downloads.push(size);
            let until = Time::from_nanos(until_ns);
            inner.network.go_on(&mut state.downloads, at, until);
            Ok(state.downloads.results().last().copied())
        })?;
        Ok(table(py, last.as_slice()))
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

/// The laws of a path's TCP: paths mark no packets.
fn path_controls() -> impl Iterator<Item = Control> {
    Control::ALL.iter().copied().filter(|law| !law.uses_ecn())
}

/// Names of the laws of a path's TCP.
#[pyfunction]
pub fn congestion_controls() -> Vec<String> {
    path_controls().map(Control::name).collect()
}

/// Loads a congestion control law of a shared object under a name.
#[pyfunction]
pub fn load_law(name: &str, path: PathBuf) -> PyResult<()> {
    match cellbed_laws::load(name, &path) {
        Ok(_) => Ok(()),
        Err(error) => refuse(error.to_string()),
    }
}

pub fn settings(tcp: TcpSettings) -> PyResult<Tcp> {
    let (
        control,
        hystart,
        idle_restart,
        initial_window,
        receive_window,
        segment,
        send_buffer,
        pacing,
    ) = tcp;
    if initial_window == 0 || segment == 0 || receive_window.min(send_buffer) < segment {
        return refuse(
            "a window or buffer of TCP holds at least one segment, and that a byte".to_owned(),
        );
    }
    let Some(control) = Control::from_name(&control).filter(|law| !law.uses_ecn()) else {
        let known = congestion_controls().join(", ");
        return refuse(format!(
            "there is no control {control:?}: write one of {known}"
        ));
    };
    Ok(Tcp {
        control,
        hystart,
        idle_restart,
        initial_window,
        receive_window,
        send_buffer,
        segment,
        pacing,
        ..Tcp::default()
    })
}

fn messages(name: &str, bytes: &[u64]) -> PyResult<()> {
    if bytes.contains(&0) {
        return refuse(format!("{name} has 0 bytes: a message has at least one"));
    }
    Ok(())
}
