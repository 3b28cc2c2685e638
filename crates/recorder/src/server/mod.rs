//! The recorder's server, exposed to the open Internet: everything but sockets and clock.
//!
//! A peer without the secret gets no byte and leaves no state but a connection among few. A datagram is answered only
//! if a session's key has sealed it: by as many bytes, or by more at an address that the client has proved.
//! [`Limits`] bound all effects of a client with a session. [`Counters`] count all other events.

mod connections;
mod limits;
mod requests;
mod run;
mod serve;
mod session;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cellbed_link::{Bytes, Time};

use crate::secure::{Filler, HandshakeKeys, Opened, Secret};
use crate::socket::Outbox;
use crate::wire::{
    ECHO_BYTES, Echo, Encode, HEADER_BYTES, Header, Kind, OLD_HELLO_BYTES, Probe, SessionId,
    TAG_BYTES, ip_overhead,
};

use connections::{Connection, State};
pub use limits::{Counters, Limits};
pub use serve::{Serving, Statistics};
use session::{Budget, OVERDRAFT, Session};

/// The state of all sessions and connections. Every call passes the time.
pub struct Server {
    handshake: HandshakeKeys,
    filler: Filler,
    /// Secret source of random numbers, and how many it has given.
    seed: Secret,
    draws: u64,
    limits: Limits,
    total: Budget,
    connections: BTreeMap<SessionId, Connection>,
    next_id: SessionId,
    counters: Counters,
}

/// An authentic datagram, with its data from the socket.
struct Received {
    session: SessionId,
    from: SocketAddr,
    /// Time of processing.
    now: Time,
    /// Time of arrival in the kernel.
    arrived: Time,
    /// IP length.
    length: u16,
    /// True for a copy of a previous probe.
    again: bool,
    /// True if the client has proved to receive at the address. Otherwise trains are not answered.
    proved: bool,
}

impl Server {
    /// A server without sessions. `seed`: fresh random bytes for each start. With equal seeds, two servers would accept
    /// each other's handshakes.
    pub fn new(secret: &Secret, limits: Limits, seed: &[u8; 32]) -> Self {
        let limits = limits.clamp();
        let seed = Secret::new(*seed);
        Self {
            handshake: HandshakeKeys::new(secret),
            filler: Filler::new(&seed.derive(b"seed of the filler", 0)),
            seed,
            draws: 0,
            limits,
            total: Budget::new(limits.total_rate, limits.longest_answer()),
            connections: BTreeMap::new(),
            next_id: SessionId(1),
            counters: Counters::default(),
        }
    }

    /// Return the counters of events so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn live_sessions(&self) -> impl Iterator<Item = &Session> {
        self.connections.values().filter_map(|it| match &it.state {
            State::Session(session) => Some(&**session),
            _ => None,
        })
    }

    /// Return the number of sessions.
    pub fn sessions(&self) -> usize {
        self.live_sessions().count()
    }

    /// Return the memory of arrivals that are not yet fetched.
    pub fn report_memory(&self) -> Bytes {
        self.live_sessions().map(Session::report_memory).sum()
    }

    /// Count packets of any client lost to the full receive buffer; all active runs report them.
    pub fn overflowed(&mut self, packets: u64) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let sessions = self
            .connections
            .values_mut()
            .filter_map(Connection::session);
        let runs = sessions.flat_map(|session| &mut session.runs);
        for run in runs.filter(|run| !run.stopped) {
            run.counts.overflows = run.counts.overflows.saturating_add(packets);
        }
    }

    /// Process any datagram and append the answers to `out`. `arrived` is the kernel's stamp, on the clock of `now`.
    pub fn receive(
        &mut self,
        now: Time,
        arrived: Time,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut Outbox,
    ) {
        let (packets, bytes) = (out.len(), out.payload());
        self.counters.received += 1;
        self.counters.received_bytes += datagram.len() as u64;
        match Kind::of(datagram) {
            _ if from.port() == 0 => self.counters.malformed += 1, // no answer is possible there
            Ok(Kind::Hello) if datagram.len() == OLD_HELLO_BYTES => {
                match self.old_hello(datagram) {
                    Some(answer) => out.push(from, |bytes| bytes.extend_from_slice(&answer)),
                    None => self.counters.forged += 1,
                }
            }
            Ok(kind) if kind.is_datagram() => self.sealed(now, arrived, from, datagram, out),
            _ => self.counters.malformed += 1,
        }
        self.count_sent(out, packets, bytes);
    }

    /// Return the time of the next [`Server::step`] without arrivals.
    pub fn next_event(&self) -> Option<Time> {
        let connections = self.connections.values();
        let due = connections.map(|it| it.next_event(&self.limits));
        due.filter(|at| *at < Time::MAX).min()
    }

    /// Append the saturation due by `now` to `out`, and remove expired sessions and connections.
    pub fn step(&mut self, now: Time, out: &mut Outbox) {
        let (packets, bytes) = (out.len(), out.payload());
        self.keep_connections(now);
        self.saturate(now, out);
        self.count_sent(out, packets, bytes);
    }

    fn count_sent(&mut self, out: &Outbox, packets: usize, bytes: usize) {
        self.counters.sent += (out.len() - packets) as u64;
        self.counters.sent_bytes += (out.payload() - bytes) as u64;
    }

    fn sealed(
        &mut self,
        now: Time,
        arrived: Time,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut Outbox,
    ) {
        let Ok((header, _)) = Header::split(datagram) else {
            return self.counters.malformed += 1;
        };
        let connection = self.connections.get_mut(&header.session);
        let Some(session) = connection.and_then(Connection::session) else {
            return self.counters.strangers += 1;
        };
        let Opened { body, again, .. } = match session.channel.open(datagram) {
            Ok(opened) => opened,
            Err(reason) => return self.count(reason),
        };
        let (probe, echo) = (Probe::decode(body), Echo::decode(body));
        let length = datagram.len() + usize::from(ip_overhead(from.ip()));
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        if again {
            self.counters.replayed += 1; // others must not use up the client's limits
        } else {
            session.last_received = now;
            session.spend(Bytes(u64::from(length)));
        }
        let proved = session.prove(from, echo.map_or(0, |echo| echo.challenge));
        let received = Received {
            session: header.session,
            from,
            now,
            arrived,
            length,
            again,
            proved,
        };
        match (probe, echo) {
            (_, Ok(echo)) if header.kind == Kind::Echo => self.echo(&received, &echo, out),
            (Ok(probe), _) => {
                self.counters.unproved += u64::from(!proved);
                self.probe(&received, header.kind, &probe, out);
            }
            _ => self.counters.malformed += 1,
        }
    }

    /// Return a random number, unpredictable without the seed.
    fn random(&mut self) -> u64 {
        self.draws += 1;
        let [a, b, c, d, e, f, g, h, ..] = self.seed.derive(b"random", self.draws);
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// Answer a request for the server's time and a challenge, at the same length.
    fn echo(&mut self, received: &Received, echo: &Echo, out: &mut Outbox) {
        let random = self.random();
        let connection = self.connections.get_mut(&received.session);
        let Some(session) = connection.and_then(Connection::session) else {
            return;
        };
        let length = (HEADER_BYTES + ECHO_BYTES + TAG_BYTES) as u64;
        let length = Bytes(length + u64::from(ip_overhead(received.from.ip())));
        let budgets = [&mut session.budget, &mut self.total];
        if !Budget::take(budgets, received.now, length, OVERDRAFT) {
            return;
        }
        session.spend(length);
        let answer = Echo {
            client_ns: echo.client_ns,
            received_ns: received.arrived.as_nanos(),
            sent_ns: received.now.as_nanos(),
            challenge: session.challenge(received.from, random),
            proved: received.proved,
        };
        out.push(received.from, |bytes| {
            session.channel.seal(Kind::Echo, &answer.encode(), bytes);
        });
    }
}
