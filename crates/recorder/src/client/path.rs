//! One path: a session with the server and the runs within it.

use std::net::SocketAddr;

use cellbed_link::{BitRate, Duration, Time};

use super::errand::{Brought, Errands, same_saturation};
use super::event::{ClockAnswer, Event, Pause, RunEvent};
use super::run::Run;
pub use super::run::RunRequest;
use super::sender::Sender;
use super::session::{Incoming, Session, SessionError};
use crate::secure::Secret;
use crate::socket::Outbox;
use crate::wire::{Refusal, Request, ip_overhead, least_probe_bytes};

/// A server's default silence of a client after which it pauses saturation.
const SERVER_PAUSES: Duration = Duration::from_secs(15);

/// The core of a path: no socket, no clock, no thread. Runs begin as soon as there is a session; a session that the server has forgotten
/// is replaced by a new one, and its runs end incomplete.
pub struct Path {
    server: SocketAddr,
    session: Session,
    waiting: Vec<RunRequest>,
    runs: Vec<Run>,
    /// Maximum rate of the server.
    fastest: BitRate,
    group: Option<[u8; 16]>,
    errands: Errands,
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
            errands: Errands::default(),
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

    /// From now on the arrivals of its runs are fetched, and the server's saturation is steered, by another path of its group: hand
    /// [`Path::errands`] to that one's [`Path::accept`], and what it has [brought](Path::brought) to [`Path::take`]. A companion that brings
    /// nothing for a while is no longer relied on until it does.
    pub fn rely_on_companion(&mut self, now: Time) {
        self.errands.relied = Some(now);
    }

    /// Take the requests that the companion must send to the server.
    pub fn errands(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.errands.outgoing)
    }

    /// Asks the server something for the companion.
    pub fn accept(&mut self, request: Request, now: Time) {
        if let Request::Saturate { of, run, .. } = request {
            self.session.forget(|other| same_saturation(other, of, run));
            if self.session.id().is_some() {
                self.session.request(request, now);
            }
        } else {
            self.errands.accepted.push(request);
        }
    }

    /// Take the server's replies to the companion's requests.
    pub fn brought(&mut self) -> Vec<Brought> {
        std::mem::take(&mut self.errands.brought)
    }

    /// Takes what the companion has brought.
    pub fn take(&mut self, brought: Brought, now: Time) {
        self.errands.relied = self.errands.relied.map(|last| last.max(now));
        match brought {
            // The companion was not yet of the group, or the run had ended: what matters is asked again.
            Brought::Answer(_, Err(Refusal::NoSuchRun)) => {}
            Brought::Answer(request, result) => self.answered(&request, result, now),
            Brought::Report(report) => {
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
                run.stop(&mut self.session, &mut self.errands, now);
            }
        }
    }

    /// Says good-bye once, so that the server need not wait for us; without an answer.
    pub fn leave(&mut self, outbox: &mut Outbox) -> Result<(), SessionError> {
        self.session.seal(&Request::Bye, outbox).map(drop)
    }

    /// When [`Path::step`] has something to do.
    pub fn next_event(&self) -> Time {
        if !self.errands.accepted.is_empty() {
            return Time::ZERO;
        }
        let patience = self.session.repeat_after();
        let runs = self.runs.iter().map(|run| run.next_event(patience));
        runs.fold(self.session.next_event(), Time::min)
    }

    /// Puts into `outbox` what is due. When it has been sent, say when by [`Path::departed`].
    pub fn step(&mut self, now: Time, outbox: &mut Outbox) -> Result<(), SessionError> {
        let pauses = self.runs.iter().any(Run::is_sending_trains);
        self.session.keep_pauses(pauses);
        if let Some(of) = self.session.id() {
            let mut sender = Sender {
                session: &mut self.session,
                errands: &mut self.errands,
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
        for request in std::mem::take(&mut self.errands.accepted) {
            self.session.seal(&request, outbox)?;
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
            if let Event::Run(_, RunEvent::Sent(departure)) = &mut event {
                departure.at = departed;
            }
            self.events.push(event);
        }
    }

    /// Takes what arrived at `at` from the server.
    pub fn receive(&mut self, at: Time, now: Time, datagram: &[u8]) {
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
                let pause = Pause { from, until: now };
                self.events
                    .push(Event::Run(run.number(), RunEvent::Paused(pause)));
            }
        }
        match incoming {
            Incoming::Nothing | Incoming::Resumed => {}
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
            Incoming::Answered(request, result, round_trip) => {
                self.events.push(Event::RoundTrip(round_trip));
                match request {
                    Request::Saturate { of, .. } if Some(of) != self.session.id() => {
                        self.errands.brought.push(Brought::Answer(request, result));
                    }
                    _ => self.answered(&request, result, now),
                }
            }
            Incoming::Clock {
                asked,
                received_ns,
                sent_ns,
            } => self.events.push(Event::Clock(ClockAnswer {
                asked,
                received_ns,
                sent_ns,
                at,
            })),
            Incoming::Report(report) => {
                if let Some(run) = find(&mut self.runs, report.run) {
                    run.take_report(report, now, &mut self.events);
                } else if self.group.is_some() {
                    self.errands.brought.push(Brought::Report(report));
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
        self.session.is_silent()
    }

    /// Return whether all runs are over.
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
