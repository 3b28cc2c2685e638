//! The recorder's server, exposed to the open Internet: everything but socket and clock.
//!
//! A client without the secret gets no answer. A client with an unproved address gets, for a hello of 1200
//! bytes, a cookie of 58, and leaves no state here. [`Limits`] bound all effects of a client with a session.
//! [`Counters`] count all other events.

mod handshake;
mod limits;
mod requests;
mod run;
mod serve;
mod session;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cellbed_link::{Bytes, Time};

use crate::secure::{Cookies, Filler, HandshakeKeys, Opened, Rejected, Secret};
use crate::socket::Outbox;
use crate::wire::{Field, Header, Kind, Probe, Reader, Request, SessionId, ip_overhead};

use handshake::Randoms;
pub use limits::{Counters, Limits};
pub use serve::{Serving, Statistics};
use session::{Budget, Session};

/// The state of all sessions. Every call passes the time.
pub struct Server {
    handshake: HandshakeKeys,
    cookies: Cookies,
    randoms: Randoms,
    filler: Filler,
    limits: Limits,
    total: Budget,
    sessions: BTreeMap<SessionId, Session>,
    counters: Counters,
}

/// The content of an authentic message.
enum Message {
    Probe(Probe),
    Request(Request),
}

/// An authentic message, with its data from the socket.
struct Received {
    session: SessionId,
    sequence: u64,
    /// Time of processing.
    now: Time,
    /// Time of arrival in the kernel.
    arrived: Time,
    /// IP length.
    length: u16,
    /// True for a copy of a previous message.
    again: bool,
    /// True if the client has proved to receive at the address. Otherwise there is no answer.
    proved: bool,
}

impl Server {
    /// A server without sessions. `seed`: fresh random bytes for each start. With equal seeds, two servers would accept
    /// each other's handshakes.
    pub fn new(secret: &Secret, limits: Limits, seed: &[u8; 32]) -> Self {
        let limits = limits.clamp();
        let mut randoms = Randoms::new(seed);
        Self {
            handshake: HandshakeKeys::new(secret),
            cookies: Cookies::new(&randoms.draw()),
            filler: Filler::new(&randoms.draw()),
            randoms,
            limits,
            total: Budget::new(limits.total_rate, limits.longest_answer()),
            sessions: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Return the counters of events so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Return the number of sessions, including those that were closed but whose handshake could still be replayed.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Return the memory of arrivals that are not yet fetched.
    pub fn report_memory(&self) -> Bytes {
        self.sessions.values().map(Session::report_memory).sum()
    }

    /// Count packets of any client lost to the full receive buffer; all active runs report them.
    pub fn overflowed(&mut self, packets: u64) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let runs = self
            .sessions
            .values_mut()
            .flat_map(|session| &mut session.runs);
        for run in runs.filter(|run| !run.stopped) {
            run.overflows = run.overflows.saturating_add(packets);
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
            Ok(Kind::Hello) => self.hello(now, from, datagram, out),
            Ok(kind) if kind.is_sealed() => self.sealed(now, arrived, from, datagram, out),
            _ => self.counters.malformed += 1,
        }
        self.count_sent(out, packets, bytes);
    }

    /// Return the time of the next [`Server::step`] without arrivals.
    pub fn next_event(&self) -> Option<Time> {
        self.sessions
            .values()
            .flat_map(|session| {
                let silent = session.last_received + self.limits.silence;
                let due = session
                    .runs
                    .iter()
                    .filter_map(|run| run.saturator.as_ref()?.next_event());
                due.min()
                    .filter(|due| *due < silent)
                    .into_iter()
                    .chain([session.expiry(&self.limits)])
            })
            .min()
    }

    /// Append the saturation due by `now` to `out`, and remove expired sessions.
    pub fn step(&mut self, now: Time, out: &mut Outbox) {
        let (packets, bytes) = (out.len(), out.payload());
        self.sessions
            .retain(|_, session| now < session.expiry(&self.limits));
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
        let Ok(header) = Header::take(&mut Reader::new(datagram)) else {
            return self.counters.malformed += 1;
        };
        let session = self.sessions.get_mut(&header.session);
        let Some(session) = session.filter(|session| !session.ended) else {
            return self.counters.strangers += 1;
        };
        let Opened { body, again, .. } = match session.channel.open(datagram) {
            Ok(opened) => opened,
            Err(Rejected::Forged) => return self.counters.forged += 1,
            Err(Rejected::Replayed) => return self.counters.replayed += 1,
            Err(Rejected::Malformed) => return self.counters.malformed += 1,
        };
        let message = match header.kind {
            Kind::Control => Request::decode(body).map(Message::Request),
            _ => Probe::decode(body).map(Message::Probe),
        };
        let length = datagram.len() + usize::from(ip_overhead(from.ip()));
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        if again {
            self.counters.replayed += 1; // others must not use up the client's limits
        } else {
            session.last_received = now;
            session.spend(Bytes(u64::from(length)));
        }
        let proved = from.ip().to_canonical() == session.address.ip().to_canonical()
            && from.port() == session.address.port();
        if !proved {
            self.counters.unproved += 1;
        }
        let received = Received {
            session: header.session,
            sequence: header.sequence,
            now,
            arrived,
            length,
            again,
            proved,
        };
        match message {
            Ok(Message::Probe(probe)) => self.probe(&received, header.kind, &probe, out),
            Ok(Message::Request(request)) if proved => self.request(&received, request, out),
            Ok(Message::Request(_)) => {}
            Err(_) => self.counters.malformed += 1,
        }
    }
}
