//! The network of a virtual run: nodes on the graph of an emulator's configuration, with the emulator's output files.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cellbed_emulator::Config;
use cellbed_link::records::{PACKETS_MAGIC, SERIES_MAGIC, Series};
use cellbed_link::{Bytes, Duration, Time};
use cellbed_tcp::Tcp;
use cellbed_virtual::{ConnectionId, DatagramKind, End, Ends, Event, FLOWS_MAGIC, Network, Room};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::arrivals::invalid;
use crate::outside::OutsideObject;
use crate::path::{parse_control, parse_tcp};

/// The kernel setting of a node that names its congestion control.
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
/// Interval between writes of finished bins to their file.
const FLUSH: Duration = Duration::from_secs(1);

/// Event with attributes: kind, time, connection, whether it concerns the client's end, and label.
type Happening = (&'static str, u64, u64, bool, u64);
/// Counts of a direction: queue full, congestion, lost, handover, marked, duplicated, corrupted.
type Counted = (u64, u64, u64, u64, u64, u64, u64);

/// Nodes that open connections and write messages to them, in virtual time.
#[pyclass(frozen, module = "cellbed._core")]
pub struct VirtualNetwork(Mutex<Inner>);

struct Inner {
    network: Network,
    /// The settings of each vertex.
    tcp: Vec<Tcp>,
    packets: Option<Records>,
    flows: Option<Records>,
    series: Option<(Series, Records)>,
    /// Time of the last start: earlier bins are discarded.
    zero: Time,
    /// When bins are collected next.
    flush: Time,
    outside: Option<OutsideObject>,
}

/// A file of records.
struct Records {
    path: PathBuf,
    file: BufWriter<File>,
    /// The first write error.
    failed: Option<io::Error>,
}

impl Records {
    fn create(path: Option<&PathBuf>, magic: &[u8]) -> PyResult<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        let mut records = Self {
            path: path.clone(),
            file: BufWriter::with_capacity(1 << 18, file),
            failed: None,
        };
        records.write(magic);
        Ok(Some(records))
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.file.write_all(bytes) {
            self.failed.get_or_insert(error);
        }
    }

    fn check(&mut self) -> PyResult<()> {
        match self.failed.take() {
            Some(error) => Err(cannot_write(&self.path, &error)),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> PyResult<()> {
        let flushed = self.file.flush();
        self.failed = self.failed.or(flushed.err());
        self.check()
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> PyErr {
    PyOSError::new_err((
        error.raw_os_error().unwrap_or(0),
        format!("cannot write {}", path.display()),
    ))
}

impl Inner {
    /// Write the events since the last call. all: also the bins.
    fn record(&mut self, all: bool) {
        let (network, zero) = (&mut self.network, self.zero);
        if let Some(records) = &mut self.packets {
            network.drain_packets(|record| records.write(&record));
        }
        if let Some(records) = &mut self.flows {
            records.write(&network.drain_flows());
        }
        if let Some((series, records)) = self.series.as_mut().filter(|_| all) {
            network.finished_bins(|direction, bin| {
                if bin.start >= zero {
                    series.push(direction, bin, |record| records.write(&record));
                }
            });
        }
    }
}

#[pymethods]
impl VirtualNetwork {
    #[new]
    #[pyo3(signature = (config, turnaround_ns, tcp, outside=None))]
    fn new(
        py: Python<'_>,
        config: &str,
        turnaround_ns: u64,
        tcp: &str,
        outside: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let outside = outside.map(OutsideObject::new);
        py.detach(|| {
            let config = Config::parse(config).map_err(invalid)?;
            let usual = parse_tcp(tcp)?;
            let vertices = config.vertices.iter();
            let controls = vertices.map(|it| it.sysctls.get(CONGESTION_CONTROL));
            let tcp = controls.map(|control| match control {
                Some(name) => parse_control(name).map(|control| Tcp { control, ..usual }),
                None => Ok(usual),
            });
            let graph = config.build(|path| File::open(path)).map_err(invalid)?;
            let places = config.places().map_err(invalid)?.into_iter();
            let mut network = Network::graph(graph)
                .map_err(invalid)?
                .with_proxies(
                    places
                        .map(|(place, table)| (place, table.clone()))
                        .collect(),
                )
                .with_marks(config.marks())
                .with_turnaround(Duration::from_nanos(turnaround_ns))
                .with_log();
            let flows = Records::create(config.flows.as_ref(), FLOWS_MAGIC)?;
            if flows.is_some() {
                network = network.with_flows();
            }
            let bins = Series::new(config.directions.len());
            let series = Records::create(config.series.as_ref(), SERIES_MAGIC)?;
            Ok(Self(Mutex::new(Inner {
                network: OutsideObject::join(outside.as_ref(), network),
                tcp: tcp.collect::<PyResult<_>>()?,
                packets: Records::create(config.packet_log.as_ref(), PACKETS_MAGIC)?,
                flows,
                series: series.map(|file| (bins, file)),
                zero: Time::ZERO,
                flush: Time::ZERO + FLUSH,
                outside,
            })))
        })
    }

    /// Open a connection between two vertices and ports, with the settings of each end or its vertex. carried: bytes
    /// from and to the client so far, to continue a connection of other ends. Return the number of the connection.
    #[pyo3(signature = (client, server, client_tcp=None, server_tcp=None, carried=None))]
    fn connect(
        &self,
        py: Python<'_>,
        client: (u16, u16),
        server: (u16, u16),
        client_tcp: Option<&str>,
        server_tcp: Option<&str>,
        carried: Option<(u64, u64)>,
    ) -> PyResult<u64> {
        self.with(py, |inner| {
            let of_end = |vertex: u16, tcp: Option<&str>| {
                tcp.map_or_else(|| Ok(inner.tcp[usize::from(vertex)]), parse_tcp)
            };
            let (near, far) = (of_end(client.0, client_tcp)?, of_end(server.0, server_tcp)?);
            let ends = Ends { client, server };
            let network = &mut inner.network;
            let opened = match carried {
                Some(carried) => network.resume(ends, [near, far], carried),
                None => network.connect_hosts(ends, near, far),
            };
            Ok(opened.number())
        })
    }

    /// Write a message at one end of a connection. push: send the written data now; data written later in the same
    /// instant leaves in other segments.
    #[pyo3(signature = (connection, at_client, bytes, label, push=false))]
    fn write(
        &self,
        py: Python<'_>,
        connection: u64,
        at_client: bool,
        bytes: u64,
        label: u64,
        push: bool,
    ) {
        let (id, end) = end(connection, at_client);
        self.with(py, |inner| {
            inner.network.write(id, end, bytes, label);
            if push {
                inner.network.push();
            }
        });
    }

    /// Enable Nagle's algorithm at an end of a connection: short segments are held back.
    fn use_nagle(&self, py: Python<'_>, connection: u64, at_client: bool) {
        let (id, end) = end(connection, at_client);
        self.with(py, |inner| inner.network.use_nagle(id, end));
    }

    /// Request one event "room" when a third of the send buffer at an end is free. `least`, `most`: limits of the
    /// buffer's size, bytes.
    fn want_room(&self, py: Python<'_>, connection: u64, at_client: bool, least: u64, most: u64) {
        let (id, end) = end(connection, at_client);
        let room = Room { least, most };
        self.with(py, |inner| inner.network.want_room(id, end, room));
    }

    /// Return the size of the send buffer at an end of a connection, bytes, from `least` to `most`.
    fn send_buffer(
        &self,
        py: Python<'_>,
        connection: u64,
        at_client: bool,
        least: u64,
        most: u64,
    ) -> u64 {
        let (id, end) = end(connection, at_client);
        self.with(py, |inner| inner.network.send_buffer(id, end, least, most))
    }

    /// Return the unacknowledged bytes and the received bytes of an end of a connection.
    fn transferred(&self, py: Python<'_>, connection: u64, at_client: bool) -> (u64, u64) {
        let (id, end) = end(connection, at_client);
        self.with(py, |inner| {
            let network = &inner.network;
            (network.buffered(id, end), network.received(id, end))
        })
    }

    /// Close an end of a connection at once; later segments to it get a reset.
    fn close(&self, py: Python<'_>, connection: u64, at_client: bool) {
        let (id, end) = end(connection, at_client);
        self.with(py, |inner| inner.network.close(id, end));
    }

    /// Send a datagram of ICMP or UDP between two vertices and ports; its arrival is an event "datagram".
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
        self.with(py, |inner| {
            let network = &mut inner.network;
            network.send_ends(kind, ends, End::Client, Bytes(bytes), label);
        });
    }

    /// Request an event at a time.
    fn wake(&self, py: Python<'_>, at_ns: u64, label: u64) {
        let at = Time::from_nanos(at_ns);
        self.with(py, |inner| inner.network.wake(at, label));
    }

    /// Restart all schedules at a time.
    fn restart(&self, py: Python<'_>, zero_ns: u64) {
        self.with(py, |inner| {
            inner.zero = Time::from_nanos(zero_ns);
            inner.network.restart(inner.zero);
        });
    }

    /// Return the next event by a time: "due", "open", "message", "room" or "datagram", with its time and attributes;
    /// None if there is none.
    fn next_event(&self, py: Python<'_>, until_ns: u64) -> PyResult<Option<Happening>> {
        let until = Time::from_nanos(until_ns);
        self.with(py, |inner| {
            loop {
                let flush = inner.flush;
                let event = inner.network.next_event(until.min(flush));
                let now = inner.network.now();
                inner.record(now >= flush);
                OutsideObject::check(inner.outside.as_ref())?;
                if now >= flush {
                    inner.flush = now + FLUSH;
                }
                if event.is_some() || until <= flush {
                    let files = [inner.packets.as_mut(), inner.flows.as_mut()].into_iter();
                    files.flatten().try_for_each(Records::check)?;
                    return Ok(event.map(|event| happening(event, now.as_nanos())));
                }
            }
        })
    }

    /// Return the sender's congestion window in segments, smoothed round-trip time in ns, and retransmissions at an
    /// end.
    fn sending(&self, py: Python<'_>, connection: u64, at_client: bool) -> (u64, u64, u64) {
        let (id, end) = end(connection, at_client);
        let found = self.with(py, |inner| inner.network.sending(id, end));
        found.map_or((0, 0, 0), |it| {
            let round_trip = it.round_trip.map_or(0, Duration::as_nanos);
            (it.window, round_trip, it.repairs)
        })
    }

    /// Return the counts of each direction so far.
    fn counted(&self, py: Python<'_>) -> Vec<Counted> {
        self.with(py, |inner| {
            let counters = inner.network.tallies().iter().map(|tally| tally.counters());
            let counted = counters.map(|it| {
                let drops = (it.queue_full, it.congestion, it.lost, it.handover);
                let (full, congestion, lost, handover) = drops;
                let (marked, doubled, corrupted) = (it.marked, it.doubled, it.corrupted);
                (full, congestion, lost, handover, marked, doubled, corrupted)
            });
            counted.collect()
        })
    }

    /// Return the service time of each user of a cell, in ns.
    fn served(&self, py: Python<'_>, cell: usize) -> Vec<u64> {
        let served = self.with(py, |inner| inner.network.served(cell));
        served.into_iter().map(Duration::as_nanos).collect()
    }

    /// Write all records and close the files.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |inner| {
            inner.record(true);
            let series = inner.series.take().map(|(series, mut records)| {
                series.finish(|record| records.write(&record));
                records
            });
            let files = [inner.flows.take(), series, inner.packets.take()];
            files.into_iter().flatten().try_for_each(Records::finish)
        })
    }
}

impl VirtualNetwork {
    /// Run `work` on the network exclusively, without the interpreter.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Inner) -> T + Send) -> T {
        py.detach(|| work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn end(connection: u64, at_client: bool) -> (ConnectionId, End) {
    let end = if at_client { End::Client } else { End::Server };
    (ConnectionId::of(connection), end)
}

fn happening(event: Event, now_ns: u64) -> Happening {
    let of = |kind, connection: ConnectionId, at, label| {
        (kind, now_ns, connection.number(), at == End::Client, label)
    };
    match event {
        Event::Due { label } => ("due", now_ns, 0, false, label),
        Event::Open { connection, at } => of("open", connection, at, 0),
        Event::Message {
            connection,
            at,
            label,
        } => of("message", connection, at, label),
        Event::Room { connection, at } => of("room", connection, at, 0),
        Event::Datagram { label, .. } => ("datagram", now_ns, 0, false, label),
    }
}
