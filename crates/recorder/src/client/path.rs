//! One path: a session with the server and the runs within it.

use std::net::SocketAddr;

use cellbed_link::{Duration, Time};

use super::event::Event;
pub use super::run::RunRequest;
use super::run::{Run, Sender};
use super::session::{Incoming, Session, SessionError};
use crate::secure::Secret;
use crate::socket::Outbox;
use crate::wire::{Request, ip_overhead, least_probe_bytes};

/// A server pauses saturation whose client it has not heard for so long, unless it was told otherwise.
const SERVER_PAUSES: Duration = Duration::from_secs(15);

/// The core of a path: no socket, no clock, no thread. Runs begin as soon as there is a session; a session that the server has forgotten
/// is replaced by a new one, and its runs end incomplete.
pub struct Path {
    server: SocketAddr,
    session: Session,
    waiting: Vec<RunRequest>,
    runs: Vec<Run>,
    /// Runs of the session so far.
    count: u32,
    departures: Vec<Event>,
    events: Vec<Event>,
}

impl Path {
    /// A path to `server`. `draw` gives fresh random bytes for each handshake.
    pub fn new(
        server: SocketAddr,
        secret: Secret,
        draw: Box<dyn FnMut() -> [u8; 32] + Send>,
        now: Time,
    ) -> Self {
        Self {
            server,
            session: Session::new(server, secret, draw, now),
            waiting: Vec::new(),
            runs: Vec::new(),
            count: 0,
            departures: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Begins a run, at once if there is a session, else when there is.
    pub fn run(&mut self, request: RunRequest, now: Time) {
        if self.session.id().is_none() {
            self.waiting.push(request);
            return;
        }
        self.count += 1;
        let run = Run::new(request, self.count, &mut self.session, now);
        self.runs.push(run);
    }

    /// Ends the sending of a run; what is underway is waited for.
    pub fn stop(&mut self, number: u32, now: Time) {
        self.waiting.retain(|request| request.number != number);
        for run in &mut self.runs {
            if run.number() == number {
                run.stop(&mut self.session, now);
            }
        }
    }

    /// Says good-bye once, so that the server need not wait for us; without an answer.
    pub fn leave(&mut self, now: Time, outbox: &mut Outbox) -> Result<(), SessionError> {
        self.session.seal(&Request::Bye, now, outbox).map(drop)
    }

    /// When [`Path::step`] has something to do.
    pub fn next_event(&self) -> Time {
        let patience = self.session.repeat_after();
        let runs = self.runs.iter().map(|run| run.next_event(patience));
        runs.fold(self.session.next_event(), Time::min)
    }

    /// Puts into `outbox` what is due. When it has been sent, say when by [`Path::departed`].
    pub fn step(&mut self, now: Time, outbox: &mut Outbox) -> Result<(), SessionError> {
        if let Some(of) = self.session.id() {
            let mut sender = Sender {
                session: &mut self.session,
                of,
                overhead: ip_overhead(self.server.ip()),
                least_bytes: least_probe_bytes(self.server.ip()),
                outbox: &mut *outbox,
                departures: &mut self.departures,
            };
            self.runs
                .iter_mut()
                .for_each(|run| run.step(now, &mut sender));
        }
        if self.session.step(now, outbox)? {
            self.events.push(Event::Silent);
        }
        self.forget_runs();
        Ok(())
    }

    /// The packets of the last step were handed to the kernel at `at`.
    pub fn departed(&mut self, departed: Time) {
        for mut event in self.departures.drain(..) {
            if let Event::Sent { at, .. } = &mut event {
                *at = departed;
            }
            self.events.push(event);
        }
    }

    /// Takes what arrived at `at` from the server.
    pub fn receive(&mut self, at: Time, now: Time, datagram: &mut [u8]) {
        let length = datagram.len() as u16 + ip_overhead(self.server.ip());
        let (was_silent, heard) = (self.session.is_silent(), self.session.heard());
        let incoming = self.session.receive(now, datagram);
        if was_silent && !self.session.is_silent() {
            self.events.push(Event::Resumed);
            let from = heard + SERVER_PAUSES;
            for run in self
                .runs
                .iter()
                .filter(|run| from < now && run.is_saturated())
            {
                self.events.push(Event::Paused {
                    run: run.number(),
                    from,
                    until: now,
                });
            }
        }
        match incoming {
            Incoming::Nothing | Incoming::Resumed => {}
            Incoming::Begun(offer) => {
                for run in std::mem::take(&mut self.runs) {
                    self.events.push(Event::Ended {
                        run: run.number(),
                        end: run.end(),
                    });
                }
                self.count = 0;
                self.events.push(Event::Connected(offer));
                for request in std::mem::take(&mut self.waiting) {
                    self.run(request, now);
                }
            }
            Incoming::Rejected(reason) => self.events.push(Event::Rejected(reason)),
            Incoming::Answered(request, result, round_trip) => {
                self.events.push(Event::RoundTrip(round_trip));
                if let Some(run) = number_of(&request).and_then(|wire| find(&mut self.runs, wire)) {
                    run.answered(&request, result, now, &mut self.events);
                }
            }
            Incoming::Report(report) => {
                if let Some(run) = find(&mut self.runs, report.run) {
                    run.take_report(report, now, &mut self.events);
                }
            }
            Incoming::Probe(probe) => {
                if let Some(run) = find(&mut self.runs, probe.run) {
                    run.take_probe(&probe, length, at, &mut self.events);
                }
            }
        }
        self.forget_runs();
    }

    /// What has been learnt since it was last asked.
    pub fn events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Whether the server has been silent for a while.
    pub fn is_silent(&self) -> bool {
        self.session.is_silent()
    }

    /// Whether all runs are over.
    pub fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.waiting.is_empty()
    }

    fn forget_runs(&mut self) {
        for run in self.runs.iter().filter(|run| run.is_over()) {
            self.events.push(Event::Ended {
                run: run.number(),
                end: run.end(),
            });
        }
        self.runs.retain(|run| !run.is_over());
    }
}

fn find(runs: &mut [Run], wire: u32) -> Option<&mut Run> {
    runs.iter_mut().find(|run| run.wire() == wire)
}

fn number_of(request: &Request) -> Option<u32> {
    match request {
        Request::Start { run, .. } | Request::Stop { run, .. } | Request::Saturate { run, .. } => {
            Some(*run)
        }
        _ => None,
    }
}
