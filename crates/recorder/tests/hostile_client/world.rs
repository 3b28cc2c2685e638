//! A server, its clock, and clients that behave well until a test makes them misbehave.

use std::net::SocketAddr;

use cellbed_link::{Duration, Time};
use cellbed_recorder::secure::{Channel, Filler, HandshakeKeys, Secret};
use cellbed_recorder::server::{Counters, Limits, Server};
use cellbed_recorder::socket::Outbox;
use cellbed_recorder::wire::{
    Arrival, Echo, Encode, FrameReader, Kind, Offer, Probe, Refusal, Reply, Request, SessionId,
    ip_overhead, put_frame, start,
};

pub const ALICE: &str = "192.0.2.1:4000";
pub const MALLORY: &str = "198.51.100.66:6666";
pub const VICTIM: &str = "203.0.113.5:53";

pub fn secret() -> Secret {
    Secret::new([42; 32])
}

pub fn keys() -> HandshakeKeys {
    HandshakeKeys::new(&secret())
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

    /// Opens a connection.
    pub fn connect(&mut self, from: &str) -> SessionId {
        self.server.connect(self.now, at(from))
    }

    /// Sends a frame; returns the bytes of the server, or `None` if the connection is closed without any.
    pub fn says_raw(&mut self, connection: SessionId, frame: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, |out| out.extend_from_slice(frame));
        self.server.read(self.now, connection, &bytes);
        self.bytes(connection)
    }

    /// Sends a frame; returns the frames of the server like [`World::says_raw`].
    pub fn says(&mut self, connection: SessionId, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let output = self.says_raw(connection, frame)?;
        let mut reader = FrameReader::default();
        reader.push(&output);
        let frames = std::iter::from_fn(|| reader.take().unwrap());
        Some(frames.collect())
    }

    /// Returns all bytes that the server has for a connection.
    pub fn bytes(&mut self, connection: SessionId) -> Option<Vec<u8>> {
        let mut bytes = std::mem::take(self.server.output(self.now, connection)?);
        while let Some(more) = self
            .server
            .output(self.now, connection)
            .filter(|it| !it.is_empty())
        {
            bytes.append(more);
        }
        Some(bytes)
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
    pub connection: SessionId,
    pub channel: Channel,
    pub offer: Offer,
    /// The hello that began the session.
    pub hello: Vec<u8>,
    filler: Filler,
}

/// Return a server with these limits, and Alice, whose run 1 has begun.
pub fn started(limits: Limits) -> (World, Client) {
    let mut world = World::new(limits);
    let mut alice = Client::open(&mut world, ALICE);
    alice.start(&mut world);
    (world, alice)
}

impl Client {
    pub fn open(world: &mut World, address: &str) -> Self {
        Self::try_open(world, address).unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    /// Begins a session over a connection from this address, and proves the same address for datagrams.
    pub fn try_open(world: &mut World, address: &str) -> Result<Self, Refusal> {
        let connection = world.connect(address);
        let (mut handshake, hello) = keys().greet().unwrap();
        let [answer] = &world.says(connection, &hello).unwrap()[..] else {
            panic!("no answer to a proper handshake")
        };
        if let Some(refusal) = keys().rejection(answer, &hello) {
            return Err(refusal);
        }
        let welcome = handshake.read(answer).unwrap();
        let mut client = Self {
            address: address.into(),
            connection,
            channel: handshake.channel(&welcome).unwrap(),
            offer: welcome.offer,
            hello,
            filler: Filler::new(&[1; 32]),
        };
        client.asks(world, &Request::Check).unwrap();
        assert!(client.proves(world, address));
        Ok(client)
    }

    pub fn id(&self) -> SessionId {
        self.channel.session()
    }

    pub fn sealed(&mut self, request: &Request) -> Vec<u8> {
        let mut frame = Vec::new();
        self.channel
            .seal(Kind::Control, &request.encode(), &mut frame);
        frame
    }

    /// A sealed request for the server's time.
    pub fn echo(&mut self, challenge: u64) -> Vec<u8> {
        let echo = Echo {
            challenge,
            ..Echo::default()
        };
        let mut datagram = Vec::new();
        self.channel.seal(Kind::Echo, &echo.encode(), &mut datagram);
        datagram
    }

    /// Sends a request for the server's time; returns the answer.
    pub fn echoes(&mut self, world: &mut World, from: &str, challenge: u64) -> Echo {
        let datagram = self.echo(challenge);
        let answers = world.hears(from, &datagram);
        let [(to, answer)] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!((*to, answer.len()), (at(from), datagram.len()));
        Echo::decode(self.channel.open(answer).unwrap().body).unwrap()
    }

    /// Proves to receive at an address; returns whether the server believes it.
    pub fn proves(&mut self, world: &mut World, from: &str) -> bool {
        let challenge = self.echoes(world, from, 0).challenge;
        self.echoes(world, from, challenge).proved
    }

    /// The first frame of a connection that fetches a file.
    pub fn file_request(&mut self, bytes: u64) -> Vec<u8> {
        let mut frame = start(Kind::Download).to_vec();
        self.channel.seal(Kind::File, &bytes.encode(), &mut frame);
        keys().sign(&mut frame);
        frame
    }

    /// Sends a request and returns the replies.
    pub fn ask(&mut self, world: &mut World, request: &Request) -> Vec<Reply> {
        let frame = self.sealed(request);
        let answers = world.says(self.connection, &frame).unwrap();
        self.opened(answers)
    }

    pub fn opened(&mut self, frames: Vec<Vec<u8>>) -> Vec<Reply> {
        let reply =
            |frame: Vec<u8>| Reply::decode(self.channel.open(&frame).unwrap().body).unwrap();
        frames.into_iter().map(reply).collect()
    }

    /// Sends a request and returns the result.
    pub fn asks(&mut self, world: &mut World, request: &Request) -> Result<(), Refusal> {
        match self.ask(world, request).last() {
            Some(Reply::Done) => Ok(()),
            Some(Reply::Refused(reason)) => Err(*reason),
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
        self.asks(world, &Request::Start { run: 1 }).unwrap();
    }

    pub fn saturate(
        &mut self,
        world: &mut World,
        rate_bps: u64,
        bytes: u16,
        span: Duration,
    ) -> Result<(), Refusal> {
        self.asks(world, &saturation(1, rate_bps, bytes, span))
    }

    /// Fetches all arrivals of the run that the server still has, in order.
    pub fn arrivals(&mut self, world: &mut World) -> Vec<Arrival> {
        let (mut all, mut left) = (Vec::new(), 1);
        while left > 0 {
            for reply in self.ask(world, &Request::Reports { run: 1 }) {
                match reply {
                    Reply::Report(report) => {
                        left = report.left;
                        all.extend(report.arrivals.iter());
                    }
                    reply => assert_eq!(reply, Reply::Done),
                }
            }
        }
        all
    }
}

/// A request to saturate a run.
pub fn saturation(run: u32, rate_bps: u64, bytes: u16, span: Duration) -> Request {
    Request::Saturate {
        run,
        rate_bps,
        bytes,
        for_ns: span.as_nanos(),
    }
}
