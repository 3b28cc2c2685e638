//! The server over sockets: one thread, many packets per system call.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;

use cellbed_link::{Duration, Time};
use serde::Serialize;

use super::{Counters, Limits, Server};
use crate::Result;
use crate::secure::{Secret, random_bytes};
use crate::socket::{
    Flow, Inbox, Listener, Local, Outbox, PollFlags, Socket, Stream, now, sharpen_timers,
    sleep_until, wait,
};
use crate::wire::SessionId;

/// Maximum batches received before other work.
const BATCHES: usize = 16;

/// Maximum consecutive failures of receiving: the kernel may briefly lack memory.
const FAILURES: u32 = 100;
const BREATH: Duration = Duration::from_millis(10);

/// Interval at which an idle server checks whether to stop.
const NAP: Duration = Duration::from_millis(500);

/// Maximum connections accepted, and reads from a connection, before other work.
const ACCEPTS: usize = 16;
const READS: usize = 4;

/// Tries to find a port that is free for both protocols, if any will do.
const TRIES: usize = 16;

/// Interval of the [`Statistics`].
const STATISTICS: Duration = Duration::from_secs(10);

/// Statistics of a server; one line as text.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Statistics {
    /// Current number of sessions.
    pub sessions: usize,
    /// Counters since the server's start.
    pub counters: Counters,
    /// Rate received since the previous statistics, UDP payload, bit/s.
    pub receiving_bps: f64,
    /// Rate sent since the previous statistics, UDP payload, bit/s.
    pub sending_bps: f64,
    /// Number of packets lost by this machine before the server read them, since the server's start.
    pub overflows: u64,
    /// Number of packets refused by the kernel, since the server's start. Packets too long for an interface count once
    /// per round.
    pub unsendable: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        write!(
            f,
            "{} sessions, {:.2} Mbit/s in, {:.2} Mbit/s out, {} probes, {} answers, {} files; dropped: {} forged, {} replayed, {} malformed, \
             {} of another version, {} strangers, {} unproved, {} refused, {} overflows, {} unsendable",
            self.sessions,
            self.receiving_bps / 1e6,
            self.sending_bps / 1e6,
            counters.recorded,
            counters.answered,
            counters.files,
            counters.forged,
            counters.replayed,
            counters.malformed,
            counters.other_versions,
            counters.strangers,
            counters.unproved,
            counters.refused,
            self.overflows,
            self.unsendable,
        )
    }
}

/// A server and its sockets, with the same port of UDP and TCP.
pub struct Serving {
    socket: Socket,
    listener: Listener,
    streams: BTreeMap<SessionId, Stream>,
    server: Server,
    inbox: Inbox,
    outbox: Outbox,
    last: (Time, Counters),
    overflows: u64,
    unsendable: u64,
    /// Number of consecutive failures of receiving.
    failures: u32,
}

impl Serving {
    /// Open the sockets: clients' packets and connections arrive from now on, and [`Serving::run`] answers them.
    ///
    /// local: address; the unspecified IPv6 address also receives IPv4.
    pub fn bind(local: &Local, secret: &Secret, limits: Limits) -> Result<Self> {
        let (socket, listener) = both_sockets(local)?;
        Ok(Self {
            socket,
            listener,
            streams: BTreeMap::new(),
            server: Server::new(secret, limits, &random_bytes()?),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            last: (now(), Counters::default()),
            overflows: 0,
            unsendable: 0,
            failures: 0,
        })
    }

    /// Return the listening address, with the assigned port if 0 was requested.
    pub fn local(&self) -> std::net::SocketAddr {
        self.socket.local()
    }

    /// Serve until `stopped`, which is checked at least twice a second. Reports statistics regularly. Signals wake the
    /// server.
    pub fn run(
        &mut self,
        mut report: impl FnMut(&Statistics),
        stopped: impl Fn() -> bool,
    ) -> Result<Statistics> {
        sharpen_timers();
        while !stopped() {
            for _ in 0..BATCHES {
                match self.receive() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.failures += 1;
                        if self.failures > FAILURES {
                            return Err(error);
                        }
                        sleep_until(now() + BREATH);
                        break;
                    }
                }
            }
            self.server.step(now(), &mut self.outbox);
            self.send();
            self.attend();
            let statistics_due = self.last.0 + STATISTICS;
            if now() >= statistics_due {
                report(&self.statistics());
            }
            let deadline = (now() + NAP).min(statistics_due);
            let due = self.server.next_event().unwrap_or(Time::MAX);
            self.wait(deadline.min(due))?;
        }
        Ok(self.statistics())
    }

    /// Sleep until something happens; accept connections and read from them.
    fn wait(&mut self, deadline: Time) -> Result<()> {
        let mut sockets = vec![
            (self.socket.as_fd(), PollFlags::IN),
            (self.listener.as_fd(), PollFlags::IN),
        ];
        let time = now();
        for (id, stream) in &self.streams {
            let reads = self.server.reads(*id);
            let output = self.server.output(time, *id);
            let writes = output.is_some_and(|output| !output.is_empty());
            sockets.push((stream.as_fd(), stream.interest(reads, writes)));
        }
        let ready = wait(&sockets, deadline)?;
        let readable =
            |flags: &PollFlags| flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        let ids: Vec<_> = self.streams.keys().copied().zip(&ready[2..]).collect();
        let mut input = Vec::new();
        for (id, _) in ids.into_iter().filter(|(_, flags)| readable(flags)) {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            for _ in 0..READS {
                input.clear();
                let flow = stream.read(&mut input);
                self.server.read(now(), id, &input);
                if flow == Flow::Ended {
                    self.server.disconnect(id);
                }
                if flow != Flow::More || !self.server.reads(id) {
                    break;
                }
            }
        }
        if readable(&ready[1]) {
            for _ in 0..ACCEPTS {
                let Some((stream, from)) = self.listener.accept() else {
                    break;
                };
                self.streams
                    .insert(self.server.connect(now(), from), stream);
            }
        }
        Ok(())
    }

    /// Write to connections, and close those that the server has closed.
    fn attend(&mut self) {
        let server = &mut self.server;
        self.streams.retain(|id, stream| {
            while let Some(output) = server.output(now(), *id) {
                if output.is_empty() {
                    return true;
                }
                if stream.write(output) == Flow::Ended {
                    server.disconnect(*id);
                    return false;
                }
                if !output.is_empty() {
                    return true; // no room
                }
            }
            false
        });
    }

    /// Receive one batch. Return whether there may be more.
    fn receive(&mut self) -> Result<bool> {
        let count = self.socket.receive(&mut self.inbox)?;
        self.failures = 0;
        let overflows = self.inbox.take_overflows();
        if overflows > 0 {
            self.overflows += overflows;
            self.server.overflowed(overflows);
        }
        for datagram in self.inbox.packets() {
            // A packet may have arrived after the clock was last read.
            let now = now().max(datagram.arrived);
            self.server.receive(
                now,
                datagram.arrived,
                datagram.from,
                datagram.bytes,
                &mut self.outbox,
            );
        }
        self.send();
        Ok(count > 0)
    }

    /// A packet that the kernel always refuses does not stop the server: a client may have requested too long a packet.
    fn send(&mut self) {
        self.unsendable += match self.socket.send(&mut self.outbox) {
            Ok(refused) => refused as u64,
            Err(_) => 1,
        };
    }

    fn statistics(&mut self) -> Statistics {
        let (now, counters) = (now(), self.server.counters());
        let (then, before) = std::mem::replace(&mut self.last, (now, counters));
        let seconds = now.since(then).as_secs_f64().max(1e-9);
        Statistics {
            sessions: self.server.sessions(),
            counters,
            receiving_bps: (counters.received_bytes - before.received_bytes) as f64 * 8.0 / seconds,
            sending_bps: (counters.sent_bytes - before.sent_bytes) as f64 * 8.0 / seconds,
            overflows: self.overflows,
            unsendable: self.unsendable,
        }
    }
}

/// Open the sockets of both protocols with the same port.
fn both_sockets(local: &Local) -> Result<(Socket, Listener)> {
    let mut tries = 0;
    loop {
        let socket = Socket::bind(local)?;
        let address = Local {
            address: socket.local(),
            interface: local.interface.clone(),
        };
        tries += 1;
        match Listener::bind(&address) {
            Ok(listener) => return Ok((socket, listener)),
            Err(_) if local.address.port() == 0 && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}
