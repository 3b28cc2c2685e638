//! Files over TCP: a request and an answer of some size.

use cellbed_link::{Duration, Time};

use crate::event::{ConnectionId, End, Event};
use crate::network::{Application, Network};
use cellbed_tcp::Tcp;

/// Downloads one after the other.
#[derive(Clone, Debug, Default)]
pub struct Downloads {
    /// Bytes of a request; an upload has large ones.
    pub request: u64,
    /// From the end of a download to the beginning of the next.
    pub thinking: Vec<Duration>,
    /// True if all use the first one's connection; else each opens its own.
    pub keeps_connection: bool,
    tcp: Tcp,
    sizes: Vec<u64>,
    connection: Option<ConnectionId>,
    downloads: Vec<Download>,
    finished: usize,
    /// The repairs and timeouts of the network when the current download began.
    before: (u64, u64),
}

/// A download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// When the client sent the SYN, or on an open connection the request.
    pub started: Time,
    /// When the last byte arrived at the client, if it did.
    pub finished: Option<Time>,
    /// Segments that were sent more than once since the download began, by either end; 0 of an unfinished one.
    pub repairs: u64,
    /// Timeouts since then, without the handshake's; 0 of an unfinished one.
    pub timeouts: u64,
}

impl Download {
    /// The flow completion time.
    pub fn taken(&self) -> Option<Duration> {
        self.finished.map(|finished| finished - self.started)
    }
}

impl Downloads {
    /// Files of these sizes, each at once after the other over its own connection, asked for with 200 bytes.
    pub fn new(sizes: &[u64], tcp: Tcp) -> Self {
        Self {
            request: 200,
            tcp,
            sizes: sizes.to_vec(),
            downloads: Vec::with_capacity(sizes.len()),
            ..Self::default()
        }
    }

    /// The downloads that were begun.
    pub fn results(&self) -> &[Download] {
        &self.downloads
    }

    fn begin(&mut self, network: &mut Network) {
        self.before = network.repairs();
        self.downloads.push(Download {
            started: network.now(),
            finished: None,
            repairs: 0,
            timeouts: 0,
        });
        match self.connection.filter(|_| self.keeps_connection) {
            Some(connection) => network.write(connection, End::Client, self.request, 0),
            None => self.connection = Some(network.connect(self.tcp)),
        }
    }
}

impl Application for Downloads {
    fn on_event(&mut self, event: Event, network: &mut Network) {
        match event {
            Event::Due { .. } if self.downloads.len() < self.sizes.len() => self.begin(network),
            Event::Open {
                connection,
                at: End::Client,
            } => {
                network.write(connection, End::Client, self.request, 0);
            }
            Event::Message {
                connection,
                at: End::Server,
                ..
            } => {
                let size = self.sizes[self.finished];
                network.write(connection, End::Server, size, 0);
            }
            Event::Message {
                at: End::Client, ..
            } => {
                let (repairs, timeouts) = network.repairs();
                let download = &mut self.downloads[self.finished];
                download.finished = Some(network.now());
                download.repairs = repairs - self.before.0;
                download.timeouts = timeouts - self.before.1;
                let thinking = self.thinking.get(self.finished).copied();
                self.finished += 1;
                if self.finished < self.sizes.len() {
                    network.wake(network.now() + thinking.unwrap_or(Duration::ZERO), 0);
                }
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.finished == self.sizes.len()
    }
}
