//! One path: a session with the server, and the runs in that session.

use std::net::SocketAddr;

use cellbed_link::{Duration, Time};

use super::event::{Event, RunEvent};
pub use super::run::RunRequest;
use super::run::{Run, Sender};
use super::session::{Incoming, Session};
use crate::secure::Secret;
use crate::socket::Outbox;
use crate::wire::{Refusal, Request, ip_overhead};

/// Default time of a client's silence before the server pauses saturation.
const SERVER_PAUSES: Duration = Duration::from_secs(15);

/// The core of a path: no socket, no clock, no thread. Runs begin as soon as there is a session. If its connection
/// breaks, a new one begins, and the runs of the old one end incomplete.
pub struct Path {
    server: SocketAddr,
    /// The owner of the sockets fulfils its wishes, writes its output, and passes what is read to [`Path::read`].
    pub session: Session,
    waiting: Vec<RunRequest>,
    runs: Vec<Run>,
    departures: Vec<Event>,
    events: Vec<Event>,
}

impl Path {
    /// A path to `server`. `seed`: random bytes for the filler of probes.
    pub fn new(server: SocketAddr, secret: &Secret, seed: &[u8; 32], now: Time) -> Self {
        Self {
            server,
            session: Session::new(server, secret, seed, now),
            waiting: Vec::new(),
            runs: Vec::new(),
            departures: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Record that the connection could not be made, or has ended.
    pub fn on_closed(&mut self, now: Time) {
        let incoming = self.session.on_closed(now);
        self.take(incoming, now);
    }

    /// Process bytes of the connection.
    pub fn read(&mut self, now: Time, bytes: &[u8]) {
        self.session.push(bytes);
        while let Some(incoming) = self.session.take(now) {
            self.take(incoming, now);
        }
        self.forget_runs();
    }

    /// Begin a run at once if there is a session, otherwise with the next session.
    pub fn run(&mut self, request: RunRequest, now: Time) {
        if !self.session.is_ready() {
            self.waiting.push(request);
            return;
        }
        let run = Run::new(request, &mut self.session, now);
        self.runs.push(run);
    }

    /// End the sending of a run, and wait for packets in flight.
    pub fn stop(&mut self, number: u32, now: Time) {
        self.waiting.retain(|request| request.number != number);
        for run in &mut self.runs {
            if run.number() == number {
                run.stop(&mut self.session, now);
            }
        }
    }

    /// Return the time of the next [`Path::step`].
    pub fn next_event(&self) -> Time {
        let runs = self.runs.iter().map(Run::next_event);
        runs.fold(self.session.next_event(), Time::min)
    }

    /// Append due packets to `outbox`. After sending them, call [`Path::on_departure`].
    pub fn step(&mut self, now: Time, outbox: &mut Outbox) {
        self.session.keeps_pauses = self.runs.iter().any(Run::is_sending_trains);
        let mut sender = Sender {
            session: &mut self.session,
            server: self.server.ip(),
            outbox: &mut *outbox,
            departures: &mut self.departures,
        };
        let runs = self.runs.iter_mut();
        runs.for_each(|run| run.step(now, &mut sender));
        if self.session.step(now, outbox) {
            self.events.push(Event::Silent);
        }
        if self.session.is_cut_off(now) {
            self.on_closed(now);
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
                let paused = RunEvent::Paused { from, until: now };
                self.events.push(Event::Run(run.number(), paused));
            }
        }
        match incoming {
            Incoming::Probe(probe) => {
                if let Some(run) = find(&mut self.runs, probe.run) {
                    run.take_probe(&probe, length, at, now, &mut self.events);
                }
            }
            incoming => self.take(incoming, now),
        }
        self.forget_runs();
    }

    fn take(&mut self, incoming: Incoming, now: Time) {
        match incoming {
            Incoming::Nothing | Incoming::Probe(_) => {}
            Incoming::Begun(offer) => {
                self.events.push(Event::Connected(offer));
                for request in std::mem::take(&mut self.waiting) {
                    self.run(request, now);
                }
            }
            Incoming::Lost => {
                for run in std::mem::take(&mut self.runs) {
                    self.events.push(run.ended());
                }
            }
            Incoming::Event(event) => self.events.push(event),
            Incoming::Answered(request, result) => self.answered(&request, result, now),
            Incoming::Report(report) => {
                if let Some(run) = find(&mut self.runs, report.run) {
                    run.take_report(report, now, &mut self.events);
                }
            }
        }
    }

    fn answered(&mut self, request: &Request, result: Result<(), Refusal>, now: Time) {
        let (Request::Start { run }
        | Request::Stop { run }
        | Request::Saturate { run, .. }
        | Request::Reports { run, .. }) = request
        else {
            return;
        };
        if let Some(run) = find(&mut self.runs, *run) {
            run.answered(request, result, now, &mut self.events);
        }
    }

    /// Drain the events since the last call.
    pub fn events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
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
