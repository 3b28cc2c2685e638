//! A web page: objects that request others, over HTTP/1.1 or HTTP/2.

use std::collections::VecDeque;

use cellbed_link::{Duration, Time};

use crate::event::{ConnectionId, End, Event, Room};
use crate::network::{Application, Network};
use cellbed_tcp::Tcp;

/// An object of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageObject {
    /// Bytes of its body.
    pub bytes: u64,
    /// Number of the object that requests it, which must come before it; `None` for the document.
    pub parent: Option<usize>,
}

/// HTTP version, which determines the transport of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpVersion {
    /// Persistent connections, one object at a time on each (RFC 9112), as many as browsers open to a server: six.
    Http1,
    /// One connection; requested objects take turns by frames of 16 KiB (RFC 9113 §4.2).
    Http2,
}

/// Bytes of a TLS 1.3 handshake (RFC 8446 §2), which takes one round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The client's hello.
    pub hello: u64,
    /// The server's hello, certificate and end.
    pub answer: u64,
    /// The client's end, with which the first request travels.
    pub end: u64,
}

/// Our sizes: a padded hello, two certificates.
impl Default for Handshake {
    fn default() -> Self {
        Self {
            hello: 517,
            answer: 3500,
            end: 80,
        }
    }
}

/// The load of a page by a browser with an empty cache.
#[derive(Clone, Debug)]
pub struct PageLoad {
    /// Bytes of a request.
    pub request: u64,
    /// Bytes in front of the body of each answer.
    pub header: u64,
    /// Of TLS, if it is used.
    pub handshake: Option<Handshake>,
    /// From the arrival of an object until the browser requests those that it names.
    pub processing: Duration,
    protocol: HttpVersion,
    tcp: Tcp,
    objects: Vec<PageObject>,
    fetches: Vec<Fetch>,
    /// Objects that no connection is free for.
    waiting: VecDeque<usize>,
    idle: Vec<ConnectionId>,
    /// Connections, and of them those that are not ready.
    connections: usize,
    opening: usize,
    /// HTTP/2: answers that the server has begun, and their unwritten bytes.
    answers: VecDeque<(usize, u64)>,
    arrived: usize,
}

/// The outcome of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fetch {
    /// When its request was sent.
    pub requested: Option<Time>,
    /// When its last byte arrived.
    pub arrived: Option<Time>,
}

/// Maximum number of connections of browsers to a server.
const CONNECTIONS: usize = 6;
/// A full frame of HTTP/2 and its header.
const FRAME: u64 = 16_384;
const FRAME_HEADER: u64 = 9;
/// Unsent bytes of an HTTP/2 server: enough never to run dry, but few, as written data keeps its order.
const AHEAD: u64 = 4 * FRAME;

/// Labels that are no object's number. Frames that do not end an object are ignored.
const HELLO: u64 = u64::MAX;
const ANSWER: u64 = u64::MAX - 1;
const FRAGMENT: u64 = u64::MAX - 2;

impl PageLoad {
    /// A load of these objects, with TLS. Sizes of headers are ours: those of HTTP/2 are compressed (RFC 7541).
    pub fn new(protocol: HttpVersion, objects: &[PageObject], tcp: Tcp) -> Self {
        let (request, header) = match protocol {
            HttpVersion::Http1 => (500, 300),
            HttpVersion::Http2 => (100, 100),
        };
        Self {
            request,
            header,
            handshake: Some(Handshake::default()),
            processing: Duration::ZERO,
            protocol,
            tcp,
            objects: objects.to_vec(),
            fetches: vec![Fetch::default(); objects.len()],
            waiting: VecDeque::new(),
            idle: Vec::new(),
            connections: 0,
            opening: 0,
            answers: VecDeque::new(),
            arrived: 0,
        }
    }

    /// The outcome of each object.
    pub fn fetches(&self) -> &[Fetch] {
        &self.fetches
    }

    /// When the last object arrived, if all did.
    pub fn finished(&self) -> Option<Time> {
        let arrivals = self.fetches.iter().map(|fetch| fetch.arrived);
        arrivals.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Requests all objects that `parent` names.
    fn want(&mut self, parent: Option<usize>, network: &mut Network) {
        for number in 0..self.objects.len() {
            if self.objects[number].parent == parent {
                self.waiting.push_back(number);
            }
        }
        self.assign(network);
    }

    /// Assigns waiting objects to connections, and opens missing ones.
    fn assign(&mut self, network: &mut Network) {
        while !self.waiting.is_empty() {
            let Some(connection) = self.idle.pop() else {
                break;
            };
            self.ask(connection, network);
        }
        let most = match self.protocol {
            HttpVersion::Http1 => CONNECTIONS,
            HttpVersion::Http2 => 1,
        };
        while self.opening < self.waiting.len() && self.connections < most {
            self.connections += 1;
            self.opening += 1;
            network.connect(self.tcp);
        }
    }

    /// Requests the next object, on HTTP/2 all.
    fn ask(&mut self, connection: ConnectionId, network: &mut Network) {
        while let Some(number) = self.waiting.pop_front() {
            self.fetches[number].requested = Some(network.now());
            network.write(connection, End::Client, self.request, number as u64);
            if self.protocol == HttpVersion::Http1 {
                return;
            }
        }
        self.idle.push(connection);
    }

    fn ready(&mut self, connection: ConnectionId, network: &mut Network) {
        self.opening -= 1;
        self.ask(connection, network);
    }

    fn answer(&mut self, connection: ConnectionId, number: usize, network: &mut Network) {
        let bytes = self.header + self.objects[number].bytes;
        match self.protocol {
            HttpVersion::Http1 => network.write(connection, End::Server, bytes, number as u64),
            HttpVersion::Http2 => {
                self.answers.push_back((number, bytes));
                self.take_turns(connection, network);
            }
        }
    }

    fn take_turns(&mut self, connection: ConnectionId, network: &mut Network) {
        while network.unsent(connection, End::Server) < AHEAD {
            let Some((number, left)) = self.answers.pop_front() else {
                return;
            };
            let frame = left.min(FRAME);
            let label = if frame == left {
                number as u64
            } else {
                self.answers.push_back((number, left - frame));
                FRAGMENT
            };
            network.write(connection, End::Server, FRAME_HEADER + frame, label);
        }
        network.want_room(connection, End::Server, Room::Unsent(AHEAD));
    }

    fn arrive(&mut self, connection: ConnectionId, number: usize, network: &mut Network) {
        self.fetches[number].arrived = Some(network.now());
        self.arrived += 1;
        if self.processing.is_zero() {
            self.want(Some(number), network);
        } else {
            network.wake(network.now() + self.processing, 1 + number as u64);
        }
        if self.protocol == HttpVersion::Http1 {
            self.ask(connection, network);
        }
    }
}

impl Application for PageLoad {
    fn on_event(&mut self, event: Event, network: &mut Network) {
        match event {
            Event::Due { label } => self.want(label.checked_sub(1).map(|it| it as usize), network),
            Event::Open {
                connection,
                at: End::Client,
            } => match self.handshake {
                Some(handshake) => network.write(connection, End::Client, handshake.hello, HELLO),
                None => self.ready(connection, network),
            },
            Event::Message {
                connection,
                at: End::Server,
                label,
            } => match label {
                HELLO => {
                    let bytes = self.handshake.map_or(0, |handshake| handshake.answer);
                    network.write(connection, End::Server, bytes, ANSWER);
                }
                FRAGMENT => {}
                number => self.answer(connection, number as usize, network),
            },
            Event::Message {
                connection,
                at: End::Client,
                label,
            } => match label {
                ANSWER => {
                    let bytes = self.handshake.map_or(0, |handshake| handshake.end);
                    network.write(connection, End::Client, bytes, FRAGMENT);
                    self.ready(connection, network);
                }
                FRAGMENT => {}
                number => self.arrive(connection, number as usize, network),
            },
            Event::Room {
                connection,
                at: End::Server,
            } => self.take_turns(connection, network),
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.arrived == self.objects.len()
    }
}
