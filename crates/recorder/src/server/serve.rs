//! The server over a socket: one thread, many packets to a system call.

use std::fmt;

use cellbed_link::{Duration, Time};
use serde::Serialize;

use super::{Counters, Limits, Server};
use crate::Result;
use crate::secure::{Secret, random_bytes};
use crate::socket::{Inbox, Local, Outbox, Socket, now, sharpen_timers, sleep_until};

/// Batches that are received before anything else gets its turn.
const BATCHES: usize = 16;

/// The kernel may lack memory for a moment. If it keeps failing, the server ends.
const FAILURES: u32 = 100;
const BREATH: Duration = Duration::from_millis(10);

/// A server that has nothing to do looks as often whether it is to stop.
const NAP: Duration = Duration::from_millis(500);

/// Interval of the [`Statistics`].
const STATISTICS: Duration = Duration::from_secs(10);

/// Statistics of a server. As text it is one line.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Statistics {
    /// Sessions at this moment.
    pub sessions: usize,
    /// Since the server started.
    pub counters: Counters,
    /// Received since the previous statistics, UDP payload, bit/s.
    pub receiving_bps: f64,
    /// Sent since the previous statistics, UDP payload, bit/s.
    pub sending_bps: f64,
    /// Packets that this machine lost before the server saw them, since the server started.
    pub overflows: u64,
    /// Packets that the kernel did not take, since the server started; of those that are too long for an interface one
    /// a round is counted.
    pub unsendable: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        write!(
            f,
            "{} sessions, {:.2} Mbit/s in, {:.2} Mbit/s out, {} probes, {} answers; dropped: {} forged, {} replayed, {} malformed, \
             {} of another version, {} strangers, {} unproved, {} refused, {} overflows, {} unsendable",
            self.sessions,
            self.receiving_bps / 1e6,
            self.sending_bps / 1e6,
            counters.recorded,
            counters.answered,
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

/// A socket with a server behind it.
pub struct Serving {
    socket: Socket,
    server: Server,
    inbox: Inbox,
    outbox: Outbox,
    last: (Time, Counters),
    unsendable: u64,
    /// Of receiving, one after the other.
    failures: u32,
}

impl Serving {
    /// Opens the socket: from now on packets of clients arrive, and are answered by [`Serving::run`].
    ///
    /// local: its address; the unspecified IPv6 address hears IPv4, too.
    pub fn bind(local: &Local, secret: &Secret, limits: Limits) -> Result<Self> {
        Ok(Self {
            socket: Socket::bind(local)?,
            server: Server::new(secret, limits, &random_bytes()?),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            last: (now(), Counters::default()),
            unsendable: 0,
            failures: 0,
        })
    }

    /// Return the listening address, with the assigned port if 0 was requested.
    pub fn local(&self) -> std::net::SocketAddr {
        self.socket.local()
    }

    /// Serves until `stopped`, which is checked at least twice a second, and reports statistics from time to time.
    /// Signals wake it.
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
            let statistics_due = self.last.0 + STATISTICS;
            if now() >= statistics_due {
                report(&self.statistics());
            }
            let deadline = (now() + NAP).min(statistics_due);
            let due = self.server.next_event().unwrap_or(Time::MAX);
            self.socket.wait(deadline.min(due))?;
        }
        Ok(self.statistics())
    }

    /// Takes one batch. Returns whether there may be more.
    fn receive(&mut self) -> Result<bool> {
        let before = self.inbox.overflows();
        let count = self.socket.receive(&mut self.inbox)?;
        self.failures = 0;
        let overflows = self.inbox.overflows() - before;
        if overflows > 0 {
            self.server.overflowed(overflows);
        }
        for datagram in self.inbox.packets() {
            // The stamp of a packet that came since may be later than an earlier look at the clock.
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

    /// A packet that the kernel never takes is no reason to stop: its client may have asked for one that is too long.
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
            overflows: self.inbox.overflows(),
            unsendable: self.unsendable,
        }
    }
}
