//! A server, its clock, and clients that behave well until a test makes them misbehave.

use std::net::SocketAddr;

use cellbed_link::{Duration, Time};
use cellbed_recorder::secure::{Channel, Filler, Opening, Progress, Secret};
use cellbed_recorder::server::{Counters, Limits, Server};
use cellbed_recorder::socket::Outbox;
use cellbed_recorder::wire::{
    Arrival, Field, Kind, Offer, Probe, Refusal, Reply, Request, Resumption, SessionId, ip_overhead,
};

pub const ALICE: &str = "192.0.2.1:4000";
pub const MALLORY: &str = "198.51.100.66:6666";
pub const VICTIM: &str = "203.0.113.5:53";

pub fn secret() -> Secret {
    Secret::new([42; 32])
}

pub fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// A server at a point in time.
pub struct World {
    pub server: Server,
    pub now: Time,
}

/// Datagrams of the server: destination and content.
pub type Sent = Vec<(SocketAddr, Vec<u8>)>;

impl World {
    pub fn new(limits: Limits) -> Self {
        Self {
            server: Server::new(&secret(), limits, &[7; 32]),
            now: Time::from_millis(100_000),
        }
    }

    /// Return the datagrams that the server sends on receiving `datagram` from `from`.
    pub fn hears(&mut self, from: &str, datagram: &[u8]) -> Sent {
        let mut out = Outbox::default();
        self.server
            .receive(self.now, self.now, at(from), datagram, &mut out);
        sent(&out)
    }

    /// Advances the time; returns the datagrams that the server sends.
    pub fn wait(&mut self, span: Duration) -> Sent {
        let end = self.now + span;
        let mut all = Vec::new();
        while let Some(due) = self.server.next_event().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut out = Outbox::default();
            self.server.step(self.now, &mut out);
            all.extend(sent(&out));
        }
        self.now = end;
        all
    }

    pub fn counters(&self) -> Counters {
        self.server.counters()
    }
}

fn sent(out: &Outbox) -> Sent {
    out.packets()
        .map(|(to, bytes)| (to, bytes.to_vec()))
        .collect()
}

/// Return the sum of IP lengths.
pub fn bytes_of(sent: &Sent) -> usize {
    sent.iter()
        .map(|(to, bytes)| bytes.len() + usize::from(ip_overhead(to.ip())))
        .sum()
}

/// A client with the secret and a session.
pub struct Client {
    pub address: String,
    pub channel: Channel,
    pub offer: Offer,
    filler: Filler,
}

/// Return a server with these limits, and Alice, whose run 1 has begun.
pub fn started(limits: Limits) -> (World, Client) {
    let mut world = World::new(limits);
    let mut alice = Client::open(&mut world, ALICE);
    alice.start(&mut world);
    (world, alice)
}

/// Return the hello that a client sends at `now`.
pub fn greet(opening: &mut Opening, now: Time) -> Vec<u8> {
    let mut hello = Vec::new();
    assert!(opening.step(now, &mut hello));
    hello
}

/// Datagrams of a client that opens or resumes a session, and the answers.
pub struct Handshake {
    pub hello: Vec<u8>,
    pub hello_with_cookie: Vec<u8>,
    pub outcome: Progress,
}

/// Performs a handshake from this address, each datagram exactly once.
pub fn handshake(world: &mut World, from: &str, resumes: Option<Resumption>) -> Handshake {
    let mut opening = Opening::new(&secret(), resumes, world.now);
    let first = greet(&mut opening, world.now);
    let answers = world.hears(from, &first);
    assert_eq!(answers.len(), 1, "a cookie for who knows the secret");
    assert!(matches!(
        opening.receive(world.now, &answers[0].1),
        Progress::Waiting
    ));
    let hello_with_cookie = greet(&mut opening, world.now);
    let answers = world.hears(from, &hello_with_cookie);
    let outcome = answers.first().map_or(Progress::Waiting, |(_, answer)| {
        opening.receive(world.now, answer)
    });
    Handshake {
        hello: first,
        hello_with_cookie,
        outcome,
    }
}

impl Client {
    pub fn open(world: &mut World, address: &str) -> Self {
        Self::try_open(world, address).unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    pub fn try_open(world: &mut World, address: &str) -> Result<Self, Refusal> {
        match handshake(world, address, None).outcome {
            Progress::Begun(channel, offer) => Ok(Self {
                address: address.into(),
                channel: *channel,
                offer,
                filler: Filler::new(&[1; 32]),
            }),
            Progress::Rejected(refusal) => Err(refusal),
            _ => panic!("no answer to a proper handshake"),
        }
    }

    pub fn id(&self) -> SessionId {
        self.channel.session()
    }

    pub fn sealed(&mut self, request: &Request) -> Vec<u8> {
        let mut datagram = Vec::new();
        self.channel.seal_control(&request.encode(), &mut datagram);
        datagram
    }

    /// Sends a request and returns the replies.
    pub fn ask(&mut self, world: &mut World, request: &Request) -> Vec<Reply> {
        let datagram = self.sealed(request);
        let answers = world.hears(&self.address, &datagram);
        let reply = |(to, answer): (SocketAddr, Vec<u8>)| {
            assert_eq!(to, at(&self.address), "an answer goes to who asked");
            Reply::decode(self.channel.open(&answer).unwrap().body).unwrap()
        };
        answers.into_iter().map(reply).collect()
    }

    /// Sends a request and returns its only reply.
    pub fn asks(&mut self, world: &mut World, request: &Request) -> Result<(), Refusal> {
        match &self.ask(world, request)[..] {
            [Reply::Done { .. }] => Ok(()),
            [Reply::Refused { reason, .. }] => Err(*reason),
            other => panic!("{other:?}"),
        }
    }

    /// A sealed probe of 1400 bytes, of a train with an answer.
    pub fn probe(
        &mut self,
        train: u32,
        index: u32,
        answer_packets: u16,
        answer_bytes: u16,
    ) -> Vec<u8> {
        let probe = Probe {
            run: 1,
            train,
            index,
            answer_packets,
            answer_bytes,
            sent_ns: 1,
        };
        let payload = 1400 - usize::from(ip_overhead(at(&self.address).ip()));
        let mut datagram = Vec::new();
        self.channel
            .seal_probe(Kind::Train, &probe, payload, &self.filler, &mut datagram);
        datagram
    }

    pub fn start(&mut self, world: &mut World) {
        let of = self.id();
        self.asks(world, &Request::Start { of, run: 1 }).unwrap();
    }

    pub fn saturate(
        &mut self,
        world: &mut World,
        rate_bps: u64,
        bytes: u16,
        span: Duration,
    ) -> Result<(), Refusal> {
        let request = self.saturation(1, rate_bps, bytes, span);
        self.asks(world, &request)
    }

    /// A request to saturate a run.
    pub fn saturation(&self, run: u32, rate_bps: u64, bytes: u16, span: Duration) -> Request {
        Request::Saturate {
            of: self.id(),
            run,
            rate_bps,
            bytes,
            for_ns: span.as_nanos(),
        }
    }

    /// A request for the reports of run 1.
    pub fn reports(&self, from: u32, most: u16) -> Request {
        Request::Reports {
            of: self.id(),
            run: 1,
            from,
            most,
        }
    }

    /// Fetches all arrivals of the run that the server still has, in order.
    pub fn arrivals(&mut self, world: &mut World) -> Vec<Arrival> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            for reply in self.ask(world, &self.reports(from, 8)) {
                let Reply::Report(report) = reply else {
                    panic!("{reply:?}")
                };
                if report.chunk == report.chunks {
                    return all;
                }
                from = report.chunk + 1;
                all.extend(report.arrivals.iter());
            }
        }
    }
}
