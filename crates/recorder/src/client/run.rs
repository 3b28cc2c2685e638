//! One run: a workload from the request to begin until the last arrival is known.

use cellbed_link::{Duration, Time};

use super::event::{Event, RunEnd};
use super::fetcher::Fetcher;
use super::session::Session;
use super::traffic::{Burst, Traffic, Workload};
use crate::plan::{Saturation, Train};
use crate::socket::Outbox;
use crate::wire::{Kind, Probe, Refusal, Report, Request, SessionId};

/// The server's saturation ends by itself after so long, so that it does not outlive its client; it is renewed well before.
const SATURATION_LASTS: Duration = Duration::from_secs(30);
const RENEWED_AFTER: Duration = Duration::from_secs(5);

/// A queue that takes longer to empty is not waited for.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);

/// A server that never answers the end of a run is not waited for.
const LONGEST_FETCH: Duration = Duration::from_secs(60);

/// Packets to send before looking at what has arrived.
const MOST_AT_ONCE: usize = 256;

/// A request for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// The number that its events bear.
    pub number: u32,
    /// What to send.
    pub workload: Workload,
    /// How long; `None` until it is stopped, or until its trains have been sent.
    pub span: Option<Duration>,
    /// Packets are waited for until there were none for so long.
    pub quiet: Duration,
}

/// What a run sends by: a session, and a place for probes.
pub(super) struct Sender<'a> {
    pub(super) session: &'a mut Session,
    pub(super) of: SessionId,
    /// Bytes of IP and UDP headers.
    pub(super) overhead: u16,
    /// IP length of a probe without filler.
    pub(super) least_bytes: u16,
    pub(super) outbox: &'a mut Outbox,
    pub(super) departures: &'a mut Vec<Event>,
}

pub(super) struct Run {
    request: RunRequest,
    /// Its number in the session.
    wire: u32,
    phase: Phase,
    traffic: Traffic,
    fetcher: Fetcher,
    /// When a packet of it was last known to have arrived.
    heard: Time,
    /// When the server's saturation was last asked for, and until when it goes on.
    renewed: Option<Time>,
    saturated_until: Option<Time>,
    end: RunEnd,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The server is asked to begin.
    Asking,
    Sending {
        end: Time,
    },
    /// Nothing is sent any more; packets may still arrive.
    Draining,
    /// The server is asked to stop.
    Stopping,
    /// The last arrivals are fetched.
    Fetching {
        since: Time,
    },
    Over,
}

impl Run {
    pub(super) fn new(request: RunRequest, wire: u32, session: &mut Session, now: Time) -> Self {
        if let Some(of) = session.id() {
            session.request(Request::Start { of, run: wire }, now);
        }
        Self {
            request,
            wire,
            phase: Phase::Asking,
            traffic: Traffic::Silence,
            fetcher: Fetcher::new(wire),
            heard: now,
            renewed: None,
            saturated_until: None,
            end: RunEnd {
                at: now,
                complete: false,
                saturation_sent: 0,
                withheld: 0,
                unrecorded: 0,
                refusal: None,
            },
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.request.number
    }

    pub(super) fn wire(&self) -> u32 {
        self.wire
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the server saturates the downlink.
    pub(super) fn is_saturated(&self) -> bool {
        self.saturated_until.is_some() && matches!(self.phase, Phase::Sending { .. })
    }

    /// How it ended, or stands when the session is lost.
    pub(super) fn end(&self) -> RunEnd {
        self.end.clone()
    }

    pub(super) fn next_event(&self, patience: Duration) -> Time {
        let fetch = self.fetcher.next_event(patience);
        match self.phase {
            Phase::Asking | Phase::Stopping | Phase::Over => Time::MAX,
            Phase::Sending { end } => {
                let renewal = self.renewal_due(end).unwrap_or(Time::MAX);
                let traffic = self.traffic.next_event().unwrap_or(Time::MAX);
                let over = if self.is_out_of_trains() {
                    Time::ZERO
                } else {
                    end
                };
                traffic.min(renewal).min(over).min(fetch)
            }
            Phase::Draining => self.drained_at().min(fetch),
            Phase::Fetching { since } => fetch.min(since + LONGEST_FETCH),
        }
    }

    /// Ends the sending; what is underway is waited for.
    pub(super) fn stop(&mut self, session: &mut Session, now: Time) {
        match self.phase {
            Phase::Asking => {
                self.phase = Phase::Over;
                self.end.complete = true;
            }
            Phase::Sending { .. } => self.finish_sending(session, now),
            _ => {}
        }
    }

    fn finish_sending(&mut self, session: &mut Session, now: Time) {
        self.end.at = now;
        self.phase = Phase::Draining;
        session.forget(
            |request| matches!(request, Request::Saturate { run, .. } if *run == self.wire),
        );
        if self.saturated_until.is_some_and(|until| until > now)
            && let (Some(of), Workload::Saturation { bytes, .. }) =
                (session.id(), &self.request.workload)
        {
            session.request(
                Request::Saturate {
                    of,
                    run: self.wire,
                    rate_bps: 0,
                    bytes: *bytes,
                    for_ns: 0,
                },
                now,
            );
        }
    }

    pub(super) fn step(&mut self, now: Time, sender: &mut Sender<'_>) {
        if let Phase::Sending { end } = self.phase {
            self.renew(now, end, sender);
            self.send_what_is_due(now, end, sender);
            if now >= end || self.is_out_of_trains() {
                self.finish_sending(sender.session, now);
            }
        }
        if self.phase == Phase::Draining && now >= self.drained_at() {
            self.phase = Phase::Stopping;
            let (of, run) = (sender.of, self.wire);
            sender.session.request(Request::Stop { of, run }, now);
        }
        self.fetch(now, sender);
    }

    fn is_out_of_trains(&self) -> bool {
        let trains = !matches!(self.request.workload, Workload::Saturation { .. });
        trains && self.traffic.next_event().is_none()
    }

    fn drained_at(&self) -> Time {
        let quiet = self.heard.max(self.end.at) + self.request.quiet;
        quiet.min(self.end.at + LONGEST_DRAIN.max(self.request.quiet))
    }

    /// When the server's saturation is to be asked for again.
    fn renewal_due(&self, end: Time) -> Option<Time> {
        let Workload::Saturation {
            downlink: Some(_), ..
        } = self.request.workload
        else {
            return None;
        };
        match (self.renewed, self.saturated_until) {
            (None, _) => Some(Time::ZERO),
            (Some(_), Some(until)) if until >= end => None,
            (Some(asked), _) => Some(asked + RENEWED_AFTER),
        }
    }

    fn renew(&mut self, now: Time, end: Time, sender: &mut Sender<'_>) {
        let Workload::Saturation {
            downlink: Some(Saturation::Fixed { rate_bps }),
            bytes,
            ..
        } = self.request.workload
        else {
            return;
        };
        if self.renewal_due(end).is_none_or(|due| due > now) {
            return;
        }
        self.renewed = Some(now);
        let ours = |request: &Request| matches!(request, Request::Saturate { run, .. } if *run == self.wire);
        if sender.session.is_asking(ours) {
            return; // it is repeated until there is an answer
        }
        let for_ns = SATURATION_LASTS.min(end - now).as_nanos();
        sender.session.request(
            Request::Saturate {
                of: sender.of,
                run: self.wire,
                rate_bps,
                bytes,
                for_ns,
            },
            now,
        );
    }

    fn send_what_is_due(&mut self, now: Time, end: Time, sender: &mut Sender<'_>) {
        let mut sent = 0;
        while now < end && sent < MOST_AT_ONCE {
            match self.traffic.emit(now) {
                None => return,
                Some(Burst::Train(number, train)) => {
                    for index in 0..u32::from(train.up) {
                        self.send_probe(now, Kind::Train, number, index, &train, sender);
                    }
                    sent += usize::from(train.up);
                }
                Some(Burst::Packet(index)) => {
                    let Workload::Saturation { bytes, .. } = self.request.workload else {
                        return;
                    };
                    let lone = Train {
                        up: 1,
                        down: 0,
                        up_bytes: bytes,
                        down_bytes: 0,
                        gap_ns: None,
                    };
                    self.send_probe(now, Kind::Saturation, 0, index, &lone, sender);
                    sent += 1;
                }
            }
        }
    }

    fn send_probe(
        &self,
        now: Time,
        kind: Kind,
        number: u32,
        index: u32,
        train: &Train,
        sender: &mut Sender<'_>,
    ) {
        let bytes = train.up_bytes.max(sender.least_bytes);
        let probe = Probe {
            run: self.wire,
            train: number,
            index,
            answer_packets: train.down,
            answer_bytes: if train.down > 0 {
                train.down_bytes.max(sender.least_bytes)
            } else {
                0
            },
            sent_ns: now.as_nanos(),
        };
        let payload = usize::from(bytes - sender.overhead);
        sender
            .session
            .seal_probe(kind, &probe, payload, sender.outbox);
        sender.departures.push(Event::Sent {
            run: self.number(),
            train: number,
            index,
            bytes,
            at: now,
        });
    }

    fn fetch(&mut self, now: Time, sender: &mut Sender<'_>) {
        if matches!(self.phase, Phase::Asking | Phase::Stopping | Phase::Over) {
            return;
        }
        let patience = sender.session.repeat_after();
        if let Phase::Fetching { since } = self.phase {
            let level = self.fetcher.is_level();
            if level || now >= since + LONGEST_FETCH {
                self.end.complete = level;
                self.phase = Phase::Over;
                self.fetcher.ask_now(); // once more: it acknowledges all
            }
        }
        if let Some(request) = self.fetcher.emit(now, sender.of, patience) {
            // A request that is lost is asked again by the fetcher.
            let _ = sender.session.seal(&request, now, sender.outbox);
        }
    }

    /// Takes the server's answer to a request of this run.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        result: Result<(), Refusal>,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        if let Err(reason) = result {
            self.end.refusal = Some(reason);
        }
        match (request, self.phase) {
            (Request::Start { .. }, Phase::Asking) => match result {
                Ok(()) => {
                    let end = self.request.span.map_or(Time::MAX, |span| now + span);
                    self.traffic = Traffic::new(&self.request.workload, now, end);
                    self.phase = Phase::Sending { end };
                    events.push(Event::Began {
                        run: self.number(),
                        at: now,
                    });
                }
                Err(_) => {
                    self.end.at = now;
                    self.end.complete = true;
                    self.phase = Phase::Over;
                }
            },
            (Request::Saturate { for_ns, .. }, _) if *for_ns > 0 => {
                if let Some(from) = self.saturated_until.filter(|until| *until < now) {
                    events.push(Event::Paused {
                        run: self.number(),
                        from,
                        until: now,
                    });
                }
                self.saturated_until = Some(now + Duration::from_nanos(*for_ns));
            }
            (Request::Stop { .. }, Phase::Stopping) => {
                self.phase = Phase::Fetching { since: now };
                self.fetcher.ask_now();
            }
            _ => {}
        }
    }

    pub(super) fn take_report(&mut self, report: Report, now: Time, events: &mut Vec<Event>) {
        self.end.saturation_sent = self.end.saturation_sent.max(report.saturation_sent);
        self.end.withheld = self.end.withheld.max(report.withheld);
        self.end.unrecorded = self.end.unrecorded.max(report.unrecorded);
        for report in self.fetcher.take(report) {
            for arrival in report.arrivals {
                self.heard = now;
                events.push(Event::ArrivedUplink {
                    run: self.number(),
                    arrival,
                });
            }
        }
    }

    pub(super) fn take_probe(
        &mut self,
        probe: &Probe,
        bytes: u16,
        at: Time,
        events: &mut Vec<Event>,
    ) {
        self.heard = self.heard.max(at);
        events.push(Event::ArrivedDownlink {
            run: self.number(),
            train: probe.train,
            index: probe.index,
            bytes,
            sent_ns: probe.sent_ns,
            at,
        });
    }
}
