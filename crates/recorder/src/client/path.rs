//! One path: a session with the server and the runs within it.

use std::net::SocketAddr;

use cellbed_link::{BitRate, Duration, Time};

use super::event::{Event, Pause, RunEvent};
pub use super::run::RunRequest;
use super::run::{Run, Sender};
use super::session::{Incoming, Session};
use crate::secure::Secret;
use crate::socket::Outbox;
use crate::wire::{Refusal, Report, Request, ip_overhead};

/// A client's silence before the server pauses saturation, by default.
const SERVER_PAUSES: Duration = Duration::from_secs(15);

/// A companion that has relayed no reply for this time is not used; the path sends its requests itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message between companions: a path whose queue is kept long sends its requests over one whose queue is short.
#[derive(Clone, Debug, PartialEq)]
pub enum Relayed {
    /// A request to send to the server.
    Request(Request),
    /// A request was answered.
    Answer(Request, Result<(), Refusal>),
    /// Arrivals of a run.
    Report(Report),
}

/// Relayed requests and replies of a path.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// When the companion last relayed a reply; `None` if the path relies on none.
    pub(super) last_relayed: Option<Time>,
    /// Messages for the companion.
    pub(super) outgoing: Vec<Relayed>,
    /// Requests of the companion, to be sent once.
    accepted: Vec<Request>,
}

impl Relay {
    /// Return whether to send requests over the companion.
    pub(super) fn is_used(&self, now: Time) -> bool {
        self.last_relayed
            .is_some_and(|relayed| now.since(relayed) < PATIENCE)
    }
}

/// The core of a path: no socket, no clock, no thread. Runs begin as soon as there is a session; a session that the
/// server has forgotten is replaced by a new one, and its runs end incomplete.
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
    /// A path to `server`. `seed` is random bytes for the filler of its probes.
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

    /// Lets paths that know the same `token` speak for each other.
    pub fn join(&mut self, token: [u8; 16], now: Time) {
        self.group = Some(token);
        if self.session.id().is_some() {
            self.session.request(Request::Group { token }, now);
        }
    }

    /// Has another path of the group fetch the arrivals of its runs and steer the server's saturation from now on. Pass
    /// what either path has [for the other](Path::outgoing) to that path's [`Path::take_relayed`]. While a companion
    /// relays nothing for some seconds it is not used.
    pub fn rely_on_companion(&mut self, now: Time) {
        self.relay.last_relayed = Some(now);
    }

    /// Take what the companion must get.
    pub fn outgoing(&mut self) -> Vec<Relayed> {
        std::mem::take(&mut self.relay.outgoing)
    }

    /// Takes a request or a reply of the companion.
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
            // The companion was not yet of the group, or the run had ended: what matters is asked again.
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

    /// Begins a run, at once if there is a session, else when there is.
    pub fn run(&mut self, request: RunRequest, now: Time) {
        if self.session.id().is_none() {
            self.waiting.push(request);
            return;
        }
        let run = Run::new(request, self.fastest, &mut self.session, now);
        self.runs.push(run);
    }

    /// Ends the sending of a run; what is underway is waited for.
    pub fn stop(&mut self, number: u32, now: Time) {
        self.waiting.retain(|request| request.number != number);
        for run in &mut self.runs {
            if run.number() == number {
                run.stop(&mut self.session, &mut self.relay, now);
            }
        }
    }

    /// Says good-bye once, so that the server need not wait for us; without an answer.
    pub fn leave(&mut self, outbox: &mut Outbox) {
        self.session.seal(&Request::Bye, outbox);
    }

    /// When [`Path::step`] has something to do.
    pub fn next_event(&self) -> Time {
        if !self.relay.accepted.is_empty() {
            return Time::ZERO;
        }
        let patience = self.session.repeat_after;
        let runs = self.runs.iter().map(|run| run.next_event(patience));
        runs.fold(self.session.next_event(), Time::min)
    }

    /// Puts into `outbox` what is due. When it has been sent, say when by [`Path::on_departure`].
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

    /// The packets of the last step were handed to the kernel at `at`.
    pub fn on_departure(&mut self, departed: Time) {
        for mut event in self.departures.drain(..) {
            if let Event::Run(_, RunEvent::Sent(departure)) = &mut event {
                departure.at = departed;
            }
            self.events.push(event);
        }
    }

    /// Takes what arrived at `at` from the server.
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
