//! One path: a session with the server, and the runs in that session.

use std::net::SocketAddr;

use cellbed_link::{BitRate, Duration, Time};

use super::event::{Event, Pause, RunEvent};
pub use super::run::RunRequest;
use super::run::{Run, Sender};
use super::session::{Incoming, Session};
use crate::secure::Secret;
use crate::socket::Outbox;
use crate::wire::{Refusal, Report, Request, ip_overhead};

/// Default time of a client's silence before the server pauses saturation.
const SERVER_PAUSES: Duration = Duration::from_secs(15);

/// Time without a relayed reply until the path sends requests itself, not over the companion.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message between companions: a path with a long queue sends requests over a companion with a short queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Relayed {
    /// A request to send to the server.
    Request(Request),
    /// The result of a request.
    Answer(Request, Result<(), Refusal>),
    /// Arrivals of a run.
    Report(Report),
}

/// Relayed requests and replies of a path.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// Time of the companion's last relayed reply; `None` if the path relies on no companion.
    pub(super) last_relayed: Option<Time>,
    /// Messages for the companion.
    pub(super) outgoing: Vec<Relayed>,
    /// Requests of the companion, each to be sent once.
    accepted: Vec<Request>,
}

impl Relay {
    /// Return whether to send requests over the companion.
    pub(super) fn is_used(&self, now: Time) -> bool {
        self.last_relayed
            .is_some_and(|relayed| now.since(relayed) < PATIENCE)
    }
}

/// The core of a path: no socket, no clock, no thread. Runs begin as soon as there is a session. If the server has
/// forgotten the session, a new one begins, and the runs of the old one end incomplete.
pub struct Path {
    server: SocketAddr,
    session: Session,
    waiting: Vec<RunRequest>,
    runs: Vec<Run>,
    /// Maximum rate of the server.
    fastest: BitRate,
    group: Option<[u8; 16]>,
    relay: Relay,
    departures: Vec<Event>,
    events: Vec<Event>,
}

impl Path {
    /// A path to `server`. `seed`: random bytes for the filler of probes.
    pub fn new(server: SocketAddr, secret: Secret, seed: &[u8; 32], now: Time) -> Self {
        Self {
            server,
            session: Session::new(server, secret, seed, now),
            waiting: Vec::new(),
            runs: Vec::new(),
            fastest: BitRate(u64::MAX),
            group: None,
            relay: Relay::default(),
            departures: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Let paths with the same `token` act for each other.
    pub fn join(&mut self, token: [u8; 16], now: Time) {
        self.group = Some(token);
        if self.session.id().is_some() {
            self.session.request(Request::Group { token }, now);
        }
    }

    /// Let a companion (another path of the group) fetch this path's arrivals and steer the server's saturation from
    /// now on. Pass [messages](Path::outgoing) of either path to [`Path::take_relayed`] of the other. A companion that
    /// relays nothing for some seconds is not used.
    pub fn rely_on_companion(&mut self, now: Time) {
        self.relay.last_relayed = Some(now);
    }

    /// Take the messages for the companion.
    pub fn outgoing(&mut self) -> Vec<Relayed> {
        std::mem::take(&mut self.relay.outgoing)
    }

    /// Process a request or a reply of the companion.
    pub fn take_relayed(&mut self, relayed: Relayed, now: Time) {
        self.relay.last_relayed = self.relay.last_relayed.map(|last| last.max(now));
        match relayed {
            Relayed::Request(request @ Request::Saturate { of, run, .. }) => {
                self.session.forget_saturation(of, run);
                if self.session.id().is_some() {
                    self.session.request(request, now);
                }
            }
            Relayed::Request(request) => self.relay.accepted.push(request),
            // The companion was not yet in the group, or the run had ended: requests still needed are sent again.
            Relayed::Answer(_, Err(Refusal::NoSuchRun)) => {}
            Relayed::Answer(request, result) => self.answered(&request, result, now),
            Relayed::Report(report) => {
                if let Some(run) = find(&mut self.runs, report.run) {
                    run.take_report(report, now, &mut self.events);
                }
            }
        }
        self.forget_runs();
    }

    fn answered(&mut self, request: &Request, result: Result<(), Refusal>, now: Time) {
        if let Some(run) = number_of(request).and_then(|number| find(&mut self.runs, number)) {
            run.answered(request, result, now, &mut self.events);
        }
    }

    /// Begin a run at once if there is a session, otherwise with the next session.
    pub fn run(&mut self, request: RunRequest, now: Time) {
        if self.session.id().is_none() {
            self.waiting.push(request);
            return;
        }
        let run = Run::new(request, self.fastest, &mut self.session, now);
        self.runs.push(run);
    }

    /// End the sending of a run, and wait for packets in flight.
    pub fn stop(&mut self, number: u32, now: Time) {
        self.waiting.retain(|request| request.number != number);
        for run in &mut self.runs {
            if run.number() == number {
                run.stop(&mut self.session, &mut self.relay, now);
            }
        }
    }

    /// End the session on the server, once and without waiting for an answer.
    pub fn leave(&mut self, outbox: &mut Outbox) {
        self.session.seal(&Request::Bye, outbox);
    }

    /// Return the time of the next [`Path::step`].
    pub fn next_event(&self) -> Time {
        if !self.relay.accepted.is_empty() {
            return Time::ZERO;
        }
        let patience = self.session.repeat_after;
        let runs = self.runs.iter().map(|run| run.next_event(patience));
        runs.fold(self.session.next_event(), Time::min)
    }

    /// Append due packets to `outbox`. After sending them, call [`Path::on_departure`].
    pub fn step(&mut self, now: Time, outbox: &mut Outbox) {
        self.session.keeps_pauses = self.runs.iter().any(Run::is_sending_trains);
        if let Some(of) = self.session.id() {
            let mut sender = Sender {
                session: &mut self.session,
                relay: &mut self.relay,
                of,
                server: self.server.ip(),
                outbox: &mut *outbox,
                departures: &mut self.departures,
            };
            let runs = self.runs.iter_mut();
            runs.for_each(|run| run.step(now, &mut sender));
        }
        for request in std::mem::take(&mut self.relay.accepted) {
            self.session.seal(&request, outbox);
        }
        if self.session.step(now, outbox) {
            self.events.push(Event::Silent);
        }
        self.forget_runs();
    }

    /// Record when the packets of the last step were handed to the kernel.
    pub fn on_departure(&mut self, departed: Time) {
        for mut event in self.departures.drain(..) {
            if let Event::Run(_, RunEvent::Sent(departure)) = &mut event {
                departure.at = departed;
            }
            self.events.push(event);
        }
    }

    /// Process the server's datagram of time `at`.
    pub fn receive(&mut self, at: Time, now: Time, datagram: &[u8]) {
        let length = datagram.len() as u16 + ip_overhead(self.server.ip());
        let (was_silent, last_received) = (self.session.silent, self.session.last_received);
        let incoming = self.session.receive(at, now, datagram);
        if was_silent && !self.session.silent {
            self.events.push(Event::Resumed);
            let from = last_received + SERVER_PAUSES;
            let runs = self.runs.iter().filter(|run| run.is_saturated());
            for run in runs.filter(|_| from < now) {
                let paused = RunEvent::Paused(Pause { from, until: now });
                self.events.push(Event::Run(run.number(), paused));
            }
        }
        match incoming {
            Incoming::Nothing => {}
            Incoming::Begun(offer) => {
                for run in std::mem::take(&mut self.runs) {
                    self.events.push(run.ended());
                }
                self.fastest = BitRate(offer.rate_bps);
                if let Some(token) = self.group {
                    self.session.request(Request::Group { token }, now);
                }
                self.events.push(Event::Connected(offer));
                for request in std::mem::take(&mut self.waiting) {
                    self.run(request, now);
                }
            }
            Incoming::Rejected(reason) => self.events.push(Event::Rejected(reason)),
            Incoming::Answered(request, result, _) => match request {
                Request::Saturate { of, .. } if Some(of) != self.session.id() => {
                    self.relay.outgoing.push(Relayed::Answer(request, result));
                }
                _ => self.answered(&request, result, now),
            },
            Incoming::Clock(answer) => self.events.push(Event::Clock(answer)),
            Incoming::Report(report) => {
                if let Some(run) = find(&mut self.runs, report.run) {
                    run.take_report(report, now, &mut self.events);
                } else if self.group.is_some() {
                    self.relay.outgoing.push(Relayed::Report(report));
                }
            }
            Incoming::Probe(probe) => {
                if let Some(run) = find(&mut self.runs, probe.run) {
                    let (session, events) = (&self.session, &mut self.events);
                    run.take_probe(&probe, length, at, now, session, events);
                }
            }
        }
        self.forget_runs();
    }

    /// Drain the events since the last call.
    pub fn events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Return whether the server has been silent for a while.
    pub fn is_silent(&self) -> bool {
        self.session.silent
    }

    /// Return whether all runs are over.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.waiting.is_empty()
    }

    fn forget_runs(&mut self) {
        for run in self.runs.iter().filter(|run| run.is_over()) {
            self.events.push(run.ended());
        }
        self.runs.retain(|run| !run.is_over());
    }
}

fn find(runs: &mut [Run], number: u32) -> Option<&mut Run> {
    runs.iter_mut().find(|run| run.number() == number)
}

fn number_of(request: &Request) -> Option<u32> {
    match request {
        Request::Start { run, .. } | Request::Stop { run, .. } | Request::Saturate { run, .. } => {
            Some(*run)
        }
        _ => None,
    }
}
