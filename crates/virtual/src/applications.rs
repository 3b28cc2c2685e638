//! Applications: downloads over TCP, with sizes for request and answer; and trains of datagrams, with acknowledgements.

use cellbed_link::{Bytes, Duration, Time};
use cellbed_tcp::Tcp;

use crate::event::{ConnectionId, End, Event};
use crate::network::{Application, Network};

/// Downloads one after the other.
#[derive(Clone, Debug, Default)]
pub struct Downloads {
    /// Size of a request, bytes; uploads have large requests.
    pub request: u64,
    /// Times from the end of a download to the beginning of the next.
    pub thinking: Vec<Duration>,
    /// True if all downloads share one connection; else each opens one.
    pub keeps_connection: bool,
    tcp: Tcp,
    sizes: Vec<u64>,
    connection: Option<ConnectionId>,
    downloads: Vec<Download>,
    finished: usize,
    /// Retransmissions and timeouts of the network when the current download began.
    before: (u64, u64),
}

/// A download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Time of the client's SYN, or of the request on an open connection.
    pub started: Time,
    /// Arrival of the last byte at the client, if it arrived.
    pub finished: Option<Time>,
    /// Retransmissions by both ends since the download began; 0 if unfinished.
    pub repairs: u64,
    /// Timeouts since the download began, without the handshake's; 0 if unfinished.
    pub timeouts: u64,
}

impl Download {
    /// Return the flow completion time.
    pub fn taken(&self) -> Option<Duration> {
        self.finished.map(|finished| finished - self.started)
    }
}

impl Downloads {
    /// Downloads of these sizes, without pauses, each over a separate connection, with requests of 200 bytes.
    pub fn new(sizes: &[u64], tcp: Tcp) -> Self {
        Self {
            request: 200,
            tcp,
            sizes: sizes.to_vec(),
            downloads: Vec::with_capacity(sizes.len()),
            ..Self::default()
        }
    }

    /// Return the downloads that have begun.
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

/// Packet trains (Sentosa et al., NSDI 2025, §3.2): packets back to back; the last one is acknowledged.
#[derive(Clone, Debug)]
pub struct Trains {
    /// Sender of the trains.
    pub from: End,
    /// IP length of their packets.
    pub packet: Bytes,
    /// IP length of the acknowledgement.
    pub acknowledgement: Bytes,
    /// Time between the beginnings of two trains.
    pub gap: Duration,
    lengths: Vec<usize>,
    trains: Vec<Train>,
    acknowledged: usize,
}

/// The outcome of a train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    /// Send time.
    pub sent: Time,
    /// Arrival of each packet, if it arrived.
    pub arrivals: Vec<Option<Time>>,
    /// Time from the send time until the acknowledgement of the last packet arrives; `None` if either was lost.
    pub completion: Option<Duration>,
}

/// Number of bits for the packet in a label; the train's number is above them.
const PACKET_BITS: u32 = 32;

impl Trains {
    /// Trains of these lengths from the server, with packets of 1400 bytes and acknowledgements of 100 bytes.
    pub fn new(lengths: &[usize], gap: Duration) -> Self {
        Self {
            from: End::Server,
            packet: Bytes(1400),
            acknowledgement: Bytes(100),
            gap,
            lengths: lengths.to_vec(),
            trains: Vec::with_capacity(lengths.len()),
            acknowledged: 0,
        }
    }

    /// Return the trains that were sent.
    pub fn results(&self) -> &[Train] {
        &self.trains
    }
}

impl Application for Trains {
    fn on_event(&mut self, event: Event, network: &mut Network) {
        let now = network.now();
        match event {
            Event::Due { .. } => {
                let number = self.trains.len();
                let Some(&length) = self.lengths.get(number) else {
                    return;
                };
                for index in 0..length {
                    let label = (number as u64) << PACKET_BITS | index as u64;
                    network.send(self.from, self.packet, label);
                }
                self.trains.push(Train {
                    sent: now,
                    arrivals: vec![None; length],
                    completion: None,
                });
                if number + 1 < self.lengths.len() {
                    network.wake(now + self.gap, 0);
                }
            }
            Event::Datagram { at, label } if at == self.from => {
                let train = &mut self.trains[label as usize];
                if train.completion.is_none() {
                    train.completion = Some(now - train.sent);
                    self.acknowledged += 1;
                }
            }
            Event::Datagram { label, .. } => {
                let number = label >> PACKET_BITS;
                let arrivals = &mut self.trains[number as usize].arrivals;
                let index = (label & ((1 << PACKET_BITS) - 1)) as usize;
                arrivals[index].get_or_insert(now);
                if index + 1 == arrivals.len() {
                    network.send(self.from.peer(), self.acknowledgement, number);
                }
            }
            _ => {}
        }
    }

    /// Packets that arrive after the last one of their train do not count.
    fn is_done(&self) -> bool {
        self.acknowledged == self.lengths.len()
    }
}
