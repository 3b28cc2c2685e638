//! The network of a virtual run: nodes on the graph of an emulator's configuration, with the emulator's files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cellbed_link::graph::table::{CellTable, DirectionTable, GraphTables};
use cellbed_link::records::{PACKETS_MAGIC, SERIES_MAGIC, Series};
use cellbed_link::{Bytes, Duration, Time};
use cellbed_tcp::Tcp;
use cellbed_tcp::proxy::ProxyTable;
use cellbed_virtual::{ConnectionId, DatagramKind, End, Ends, Event, FLOWS_MAGIC, Network, Room};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::path::TcpSettings;

/// The kernel setting of a node that names its congestion control.
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
/// Interval at which finished bins are written to their file.
const FLUSH: Duration = Duration::from_secs(1);

/// Event and its attributes: a kind, time, connection, whether it concerns its client's end, and label.
type Happening = (&'static str, u64, u64, bool, u64);
/// Of a direction: queue full, congestion, lost, handover, marked, doubled, corrupted.
type Counted = (u64, u64, u64, u64, u64, u64, u64);

/// The parts of the emulator's configuration that a virtual run has.
#[derive(Deserialize)]
struct Config {
    vertices: Vec<Vertex>,
    directions: Vec<DirectionTable>,
    #[serde(default)]
    cells: Vec<CellTable>,
    #[serde(default)]
    proxies: Vec<ProxyTable>,
    series: Option<PathBuf>,
    packet_log: Option<PathBuf>,
    flows: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Vertex {
    name: String,
    #[serde(default)]
    sysctls: BTreeMap<String, String>,
}

/// Nodes that open connections and write messages to them, in virtual time.
#[pyclass(frozen, module = "cellbed._core")]
pub struct VirtualNetwork(Mutex<Inner>);

struct Inner {
    network: Network,
    /// The settings of each vertex.
    tcp: Vec<Tcp>,
    packets: Option<Records>,
    series: Option<(Series, Records)>,
    flows: Option<Records>,
    /// The last start: bins before it are not kept.
    zero: Time,
    /// When bins are taken next.
    flush: Time,
    /// A file could not be written.
    failed: Option<std::io::Error>,
}

/// A file of records.
struct Records {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Records {
    fn create(path: &PathBuf, magic: &[u8]) -> PyResult<Self> {
        let made = File::create(path).and_then(|file| {
            let mut file = BufWriter::with_capacity(1 << 18, file);
            file.write_all(magic).map(|()| file)
        });
        let file = made.map_err(|error| cannot_write(path, &error))?;
        let path = path.clone();
        Ok(Self { path, file })
    }
}

fn cannot_write(path: &std::path::Path, error: &std::io::Error) -> PyErr {
    PyOSError::new_err((
        error.raw_os_error().unwrap_or(0),
        format!("cannot write {}", path.display()),
    ))
}

impl Inner {
    /// Writes what has happened since the last call. all: the bins, too.
    fn record(&mut self, all: bool) {
        let Self {
            network,
            packets,
            series,
            flows,
            zero,
            failed,
            ..
        } = self;
        let mut write = |records: &mut Records, bytes: &[u8]| {
            if let Err(error) = records.file.write_all(bytes) {
                failed.get_or_insert(error);
            }
        };
        if let Some(records) = packets {
            network.drain_packets(|record| write(records, &record));
        }
        if let Some(records) = flows {
            write(records, &network.drain_flows());
        }
        if let Some((series, records)) = series
            && all
        {
            network.finished_bins(|direction, bin| {
                if bin.start >= *zero {
                    series.push(direction, bin, |record| write(records, &record));
                }
            });
        }
    }
}

#[pymethods]
impl VirtualNetwork {
    #[new]
    fn new(py: Python<'_>, config: &str, turnaround_ns: u64, tcp: TcpSettings) -> PyResult<Self> {
        let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        py.detach(|| {
            let config: Config = serde_json::from_str(config).map_err(|error| wrong(&error))?;
            let of_vertex = |vertex: &Vertex| {
                let mut tcp = tcp.clone();
                if let Some(control) = vertex.sysctls.get(CONGESTION_CONTROL) {
                    tcp.control.clone_from(control);
                }
                tcp.check()
            };
            let tcp = config
                .vertices
                .iter()
                .map(of_vertex)
                .collect::<PyResult<_>>()?;
            let tables = GraphTables {
                vertices: config.vertices.iter().map(|it| it.name.as_str()).collect(),
                directions: config.directions.iter().collect(),
                cells: &config.cells,
            };
            let graph = tables.build(|path| File::open(path));
            let graph = graph.map_err(|error| wrong(&error))?;
            let network = Network::graph(graph).map_err(|error| wrong(&error))?;
            let placed = config.proxies.iter().map(|table| {
                let place = table.place(&tables);
                Ok((place.map_err(|error| wrong(&error))?, table.clone()))
            });
            let network = network.with_proxies(placed.collect::<PyResult<_>>()?);
            let create = |path: &Option<PathBuf>, magic: &[u8]| {
                let create = |path| Records::create(path, magic);
                path.as_ref().map(create).transpose()
            };
            let bins = Series::new(config.directions.len());
            let flows = create(&config.flows, FLOWS_MAGIC)?;
            let network = network.with_turnaround(Duration::from_nanos(turnaround_ns));
            let network = network.with_log();
            Ok(Self(Mutex::new(Inner {
                network: if flows.is_some() {
                    network.with_flows()
                } else {
                    network
                },
                tcp,
                packets: create(&config.packet_log, PACKETS_MAGIC)?,
                series: create(&config.series, SERIES_MAGIC)?.map(|file| (bins, file)),
                flows,
                zero: Time::ZERO,
                flush: Time::ZERO + FLUSH,
                failed: None,
            })))
        })
    }

    /// Opens a connection between two vertices, each with its port, with the settings of an end or of its vertex;
    /// returns its number.
    #[pyo3(signature = (client, server, client_tcp=None, server_tcp=None))]
    fn connect(
        &self,
        py: Python<'_>,
        client: (u16, u16),
        server: (u16, u16),
        client_tcp: Option<TcpSettings>,
        server_tcp: Option<TcpSettings>,
    ) -> PyResult<u64> {
        py.detach(|| {
            let mut inner = self.inner();
            let of_end = |vertex: u16, tcp: Option<TcpSettings>| {
                tcp.map_or_else(|| Ok(inner.tcp[usize::from(vertex)]), |tcp| tcp.check())
            };
            let near = of_end(client.0, client_tcp)?;
            let far = of_end(server.0, server_tcp)?;
            let ends = Ends { client, server };
            Ok(inner.network.connect_hosts(ends, near, far).number())
        })
    }

    /// Writes a message at the client's end of a connection or at the other.
    fn write(&self, py: Python<'_>, connection: u64, at_client: bool, bytes: u64, label: u64) {
        py.detach(|| {
            let connection = ConnectionId::of(connection);
            let mut inner = self.inner();
            inner
                .network
                .write(connection, end(at_client), bytes, label);
        });
    }

    /// Lets an end of a connection hold back short segments.
    fn use_nagle(&self, py: Python<'_>, connection: u64, at_client: bool) {
        let connection = ConnectionId::of(connection);
        py.detach(|| self.inner().network.use_nagle(connection, end(at_client)));
    }

    /// Asks for one event "room" when a third of the send buffer of an end of a connection is free, which has at least
    /// and at most so many bytes.
    fn want_room(&self, py: Python<'_>, connection: u64, at_client: bool, least: u64, most: u64) {
        py.detach(|| {
            let connection = ConnectionId::of(connection);
            let mut inner = self.inner();
            inner
                .network
                .want_room(connection, end(at_client), Room { least, most });
        });
    }

    /// The size of the send buffer at an end of a connection, bytes, between a least and a largest one.
    fn send_buffer(
        &self,
        py: Python<'_>,
        connection: u64,
        at_client: bool,
        least: u64,
        most: u64,
    ) -> u64 {
        py.detach(|| {
            let (connection, at) = (ConnectionId::of(connection), end(at_client));
            self.inner()
                .network
                .send_buffer(connection, at, least, most)
        })
    }

    /// Of an end of a connection: bytes that are not acknowledged there, and that have arrived there.
    fn transferred(&self, py: Python<'_>, connection: u64, at_client: bool) -> (u64, u64) {
        py.detach(|| {
            let (connection, at) = (ConnectionId::of(connection), end(at_client));
            let network = &self.inner().network;
            (
                network.buffered(connection, at),
                network.received(connection, at),
            )
        })
    }

    /// Closes an end of a connection at once, with a reset for what still arrives there.
    fn close(&self, py: Python<'_>, connection: u64, at_client: bool) {
        let connection = ConnectionId::of(connection);
        py.detach(|| self.inner().network.close(connection, end(at_client)));
    }

    /// Sends a datagram of ICMP or UDP between two vertices, each with its port; where it arrives is "datagram".
    fn send(
        &self,
        py: Python<'_>,
        icmp: bool,
        source: (u16, u16),
        target: (u16, u16),
        bytes: u64,
        label: u64,
    ) {
        let kind = if icmp {
            DatagramKind::Icmp
        } else {
            DatagramKind::Udp
        };
        let ends = Ends {
            client: source,
            server: target,
        };
        py.detach(|| {
            let mut inner = self.inner();
            let (network, bytes) = (&mut inner.network, Bytes(bytes));
            network.send_ends(kind, ends, End::Client, bytes, label);
        });
    }

    /// Asks for an event at a time.
    fn wake(&self, py: Python<'_>, at_ns: u64, label: u64) {
        py.detach(|| self.inner().network.wake(Time::from_nanos(at_ns), label));
    }

    /// Starts all schedules anew at a time.
    fn restart(&self, py: Python<'_>, zero_ns: u64) {
        py.detach(|| {
            let mut inner = self.inner();
            inner.zero = Time::from_nanos(zero_ns);
            let zero = inner.zero;
            inner.network.restart(zero);
        });
    }

    /// The next event by a time: "due", "open", "message", "room" or "datagram", when, and which; None if there is
    /// none.
    fn next_event(&self, py: Python<'_>, until_ns: u64) -> PyResult<Option<Happening>> {
        let until = Time::from_nanos(until_ns);
        py.detach(|| {
            let mut inner = self.inner();
            let found = loop {
                let flush = inner.flush;
                let event = inner.network.next_event(until.min(flush));
                let now = inner.network.now();
                inner.record(now >= flush);
                if now >= flush {
                    inner.flush = now + FLUSH;
                }
                let now = now.as_nanos();
                match event {
                    Some(Event::Due { label }) => break Some(("due", now, 0, false, label)),
                    Some(Event::Open { connection, at }) => {
                        let at_client = at == End::Client;
                        break Some(("open", now, connection.number(), at_client, 0));
                    }
                    Some(Event::Message {
                        connection,
                        at,
                        label,
                    }) => {
                        let at_client = at == End::Client;
                        break Some(("message", now, connection.number(), at_client, label));
                    }
                    Some(Event::Room { connection, at }) => {
                        let at_client = at == End::Client;
                        break Some(("room", now, connection.number(), at_client, 0));
                    }
                    Some(Event::Datagram { label, .. }) => {
                        break Some(("datagram", now, 0, false, label));
                    }
                    None if until <= flush => break None,
                    None => {}
                }
            };
            match (inner.failed.take(), &inner.packets) {
                (Some(error), Some(records)) => Err(cannot_write(&records.path, &error)),
                _ => Ok(found),
            }
        })
    }

    /// Of the sender at an end: congestion window in segments, smoothed round-trip time in ns, retransmissions.
    fn sending(&self, py: Python<'_>, connection: u64, at_client: bool) -> (u64, u64, u64) {
        py.detach(|| {
            let inner = self.inner();
            let connection = ConnectionId::of(connection);
            let found = inner.network.sending(connection, end(at_client));
            found.map_or((0, 0, 0), |it| {
                let round_trip = it.round_trip.map_or(0, Duration::as_nanos);
                (it.window, round_trip, it.repairs)
            })
        })
    }

    /// Of each direction what it has done to packets so far.
    fn counted(&self, py: Python<'_>) -> Vec<Counted> {
        py.detach(|| {
            let inner = self.inner();
            let counters = inner.network.tallies().iter().map(|tally| tally.counters());
            let counted = counters.map(|it| {
                let dropped = (it.queue_full, it.congestion, it.lost, it.handover);
                let (full, congestion, lost, handover) = dropped;
                (
                    full,
                    congestion,
                    lost,
                    handover,
                    it.marked,
                    it.doubled,
                    it.corrupted,
                )
            });
            counted.collect()
        })
    }

    /// Of each user of a cell for how long it had it, in ns.
    fn served(&self, py: Python<'_>, cell: usize) -> Vec<u64> {
        let served = py.detach(|| self.inner().network.served(cell));
        served.into_iter().map(Duration::as_nanos).collect()
    }

    /// Writes everything and closes the files.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut inner = self.inner();
            inner.record(true);
            let mut last = inner.packets.take();
            if let Some(mut records) = inner.flows.take() {
                let written = records.file.flush();
                written.map_err(|error| cannot_write(&records.path, &error))?;
            }
            if let Some((series, mut records)) = inner.series.take() {
                let mut failed = None;
                series.finish(|record| {
                    if let Err(error) = records.file.write_all(&record) {
                        failed.get_or_insert(error);
                    }
                });
                let written = failed
                    .map_or(Ok(()), Err)
                    .and_then(|()| records.file.flush());
                written.map_err(|error| cannot_write(&records.path, &error))?;
            }
            if let Some(records) = &mut last {
                let written = inner.failed.take().map_or(Ok(()), Err);
                let written = written.and_then(|()| records.file.flush());
                written.map_err(|error| cannot_write(&records.path, &error))?;
            }
            Ok(())
        })
    }
}

impl VirtualNetwork {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(at_client: bool) -> End {
    if at_client { End::Client } else { End::Server }
}
