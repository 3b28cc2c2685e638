//! One run of a workload, from its start request until the last arrival is known.

use std::net::IpAddr;

use cellbed_link::{BitRate, Duration, Time};

use super::event::{Departure, Event, Reception, RunEnd, RunEvent};
use super::fetcher::{Fetcher, POLL, SATURATED_POLL, STEERING_POLL};
use super::server_saturation::ServerSaturation;
use super::session::Session;
use super::traffic::{Burst, Traffic};
use crate::socket::Outbox;
use crate::wire::{Kind, Probe, Refusal, Report, Request, ip_overhead, least_probe_bytes};
use cellbed_calibration::plan::{Train, Workload};

/// Maximum wait for queues to empty after sending.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);

/// Maximum wait for the server's reports at the end of a run.
const LONGEST_FETCH: Duration = Duration::from_secs(60);

/// Maximum packets sent before received datagrams are read.
const MOST_AT_ONCE: usize = 256;

/// A request for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// Number of the run in its events, unique among all paths of the recorder.
    pub number: u32,
    pub workload: Workload,
    /// Duration; `None`: until stopped or until all trains are sent.
    pub span: Option<Duration>,
    /// Time without packets until the run is over.
    pub quiet: Duration,
}

pub(super) struct Run {
    request: RunRequest,
    /// Maximum rate of the server.
    fastest: BitRate,
    phase: Phase,
    traffic: Traffic,
    saturation: Option<ServerSaturation>,
    fetcher: Fetcher,
    /// The last train, and the number of packets in its answer.
    last_train: Option<(u32, u16)>,
    /// Last known arrival of a packet of the run.
    last_arrival: Time,
    end: RunEnd,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The server has been asked to start.
    Asking,
    Sending {
        end: Time,
    },
    /// Sending has ended; packets may still arrive.
    Draining,
    /// The server has been asked to stop.
    Stopping,
    /// The last arrivals are being fetched.
    Fetching {
        since: Time,
    },
    Over,
}

impl Run {
    pub(super) fn new(request: RunRequest, session: &mut Session, now: Time) -> Self {
        let run = request.number;
        session.request(Request::Start { run });
        let poll = match request.workload.is_adaptive() {
            true => STEERING_POLL,
            false => SATURATED_POLL,
        };
        Self {
            request,
            fastest: BitRate(session.offer.rate_bps),
            phase: Phase::Asking,
            traffic: Traffic::Silence,
            saturation: None,
            fetcher: Fetcher::new(run, poll),
            last_train: None,
            last_arrival: now,
            end: RunEnd {
                at: now,
                ..RunEnd::default()
            },
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.request.number
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Return whether the server saturates the downlink.
    pub(super) fn is_saturated(&self) -> bool {
        let saturation = self.saturation.as_ref();
        saturation.is_some_and(ServerSaturation::is_granted)
            && matches!(self.phase, Phase::Sending { .. })
    }

    /// Return whether the run sends trains. No other packet may interrupt the pauses between trains.
    pub(super) fn is_sending_trains(&self) -> bool {
        self.request.workload.is_trains() && matches!(self.phase, Phase::Sending { .. })
    }

    /// Return the end event of the run.
    pub(super) fn ended(&self) -> Event {
        Event::Run(self.number(), RunEvent::Ended(self.end))
    }

    pub(super) fn next_event(&self) -> Time {
        let fetch = self.fetcher.next_event();
        match self.phase {
            Phase::Asking | Phase::Stopping | Phase::Over => Time::MAX,
            Phase::Sending { end } => {
                let saturation = self.saturation.as_ref();
                let renewal = saturation
                    .and_then(ServerSaturation::due)
                    .unwrap_or(Time::MAX);
                let traffic = self.traffic.next_event().unwrap_or(Time::MAX);
                let over = match self.is_out_of_trains() {
                    true => Time::ZERO,
                    false => end,
                };
                traffic.min(renewal).min(over).min(fetch)
            }
            Phase::Draining => fetch.min(self.end.at + LONGEST_DRAIN),
            Phase::Fetching { since } => fetch.min(since + LONGEST_FETCH),
        }
    }

    /// Stop sending, and wait for packets in flight.
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
        self.traffic = Traffic::Silence;
        self.fetcher.poll_every(POLL);
        if let Some(saturation) = &mut self.saturation {
            saturation.stop(session, now);
        }
    }

    pub(super) fn step(&mut self, now: Time, sender: &mut Sender<'_>) {
        if let Phase::Sending { end } = self.phase {
            if let Some(saturation) = &mut self.saturation {
                saturation.renew(now, end, sender.session);
            }
            self.send_what_is_due(now, end, sender);
            if now >= end || self.is_out_of_trains() {
                self.finish_sending(sender.session, now);
            }
        }
        if self.phase == Phase::Draining && self.is_drained(now) {
            self.phase = Phase::Stopping;
            let run = self.number();
            sender.session.request(Request::Stop { run });
        }
        self.fetch(now, sender);
    }

    fn is_out_of_trains(&self) -> bool {
        self.request.workload.is_trains() && self.traffic.next_event().is_none()
    }

    /// Return whether both ends were quiet for a while, as confirmed by a report requested afterwards.
    fn is_drained(&self, now: Time) -> bool {
        let quiet = self.last_arrival.max(self.end.at) + self.request.quiet;
        now >= self.end.at + LONGEST_DRAIN || (now >= quiet && self.fetcher.has_report_of(quiet))
    }

    fn send_what_is_due(&mut self, now: Time, end: Time, sender: &mut Sender<'_>) {
        let mut sent = 0;
        while now < end && sent < MOST_AT_ONCE {
            match self.traffic.emit(now) {
                None => return,
                Some(Burst::Train(number, train)) => {
                    for index in 0..u32::from(train.up) {
                        sender.probe(now, Kind::Train, self.number(), number, index, &train);
                    }
                    sent += usize::from(train.up);
                    self.last_train = Some((number, train.down));
                    if train.down == 0 {
                        self.pause(now);
                    }
                }
                Some(Burst::Packet(index)) => {
                    let Workload::Saturation { bytes, .. } = self.request.workload else {
                        return;
                    };
                    let lone = Train::new((1, bytes), (0, 0));
                    sender.probe(now, Kind::Saturation, self.number(), 0, index, &lone);
                    sent += 1;
                }
            }
        }
    }

    /// Pause after the last train was answered, until the next one is due.
    fn pause(&mut self, now: Time) {
        if self.is_sending_trains()
            && let Some(next) = self.traffic.next_event()
        {
            self.fetcher.pause(now, next.since(now));
        }
    }

    fn fetch(&mut self, now: Time, sender: &mut Sender<'_>) {
        if matches!(self.phase, Phase::Asking | Phase::Stopping | Phase::Over) {
            return;
        }
        if let Phase::Fetching { since } = self.phase {
            let level = self.fetcher.has_report_of(since);
            if level || now >= since + LONGEST_FETCH {
                self.end.complete = level;
                self.phase = Phase::Over;
            }
        }
        if let Some(request) = self.fetcher.emit(now) {
            sender.session.request(request);
            if self.is_sending_trains() {
                sender.session.echo_along(now, sender.outbox);
            }
        }
    }

    /// Handle the server's answer to a request of this run.
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
                    self.traffic = Traffic::new(&self.request.workload, self.fastest, now, end);
                    if let Workload::Saturation { ways, bytes } = &self.request.workload {
                        let (run, fastest) = (self.number(), self.fastest);
                        self.saturation = ways.downlink.map(|downlink| {
                            ServerSaturation::new(run, &downlink, *bytes, fastest, now)
                        });
                    }
                    self.phase = Phase::Sending { end };
                    self.fetcher.begin(now, self.request.workload.is_trains());
                    events.push(Event::Run(self.number(), RunEvent::Began(now)));
                }
                Err(_) => {
                    self.end.at = now;
                    self.end.complete = true;
                    self.phase = Phase::Over;
                }
            },
            (Request::Saturate { for_ns, .. }, _) if *for_ns > 0 => {
                let run = self.number();
                let saturation = self.saturation.as_mut();
                let span = Duration::from_nanos(*for_ns);
                if let Some(from) = saturation.and_then(|it| it.on_grant(span, now)) {
                    let paused = RunEvent::Paused { from, until: now };
                    events.push(Event::Run(run, paused));
                }
            }
            (Request::Stop { .. }, Phase::Stopping) => {
                self.phase = Phase::Fetching { since: now };
                self.fetcher.poll_every(Duration::ZERO);
            }
            (Request::Reports { .. }, _) => self.fetcher.on_answer(),
            _ => {}
        }
    }

    pub(super) fn take_report(&mut self, report: Report, now: Time, events: &mut Vec<Event>) {
        self.end.counts = report.counts;
        if let Some(saturation) = &mut self.saturation {
            saturation.sent(report.counts.saturation_sent);
        }
        self.fetcher.on_report(report.left);
        self.traffic.arrived(now, &report.arrivals);
        for arrival in report.arrivals.iter() {
            self.last_arrival = now;
            events.push(Event::Run(self.number(), RunEvent::ArrivedUplink(arrival)));
        }
    }

    pub(super) fn take_probe(
        &mut self,
        probe: &Probe,
        bytes: u16,
        at: Time,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        self.last_arrival = self.last_arrival.max(at);
        let answered =
            |(train, packets)| probe.train == train && probe.index + 1 == u32::from(packets);
        if self.last_train.is_some_and(answered) {
            self.pause(now);
        }
        if let Some(saturation) = &mut self.saturation {
            saturation.arrived(probe, at);
        }
        let reception = Reception {
            train: probe.train,
            index: probe.index,
            bytes,
            sent_ns: probe.sent_ns,
            at,
        };
        let arrived = RunEvent::ArrivedDownlink(reception);
        events.push(Event::Run(self.number(), arrived));
    }
}

/// A session with outputs for probes.
pub(super) struct Sender<'a> {
    pub(super) session: &'a mut Session,
    pub(super) server: IpAddr,
    pub(super) outbox: &'a mut Outbox,
    pub(super) departures: &'a mut Vec<Event>,
}

impl Sender<'_> {
    /// Send a packet of a run's train, or of its saturation.
    pub(super) fn probe(
        &mut self,
        now: Time,
        kind: Kind,
        run: u32,
        number: u32,
        index: u32,
        train: &Train,
    ) {
        let least = least_probe_bytes(self.server);
        let bytes = train.up_bytes.max(least);
        let probe = Probe {
            run,
            train: number,
            index,
            answer_packets: train.down,
            answer_bytes: match train.down {
                0 => 0,
                _ => train.down_bytes.max(least),
            },
            sent_ns: now.as_nanos(),
        };
        let payload = usize::from(bytes - ip_overhead(self.server));
        self.session.seal_probe(kind, &probe, payload, self.outbox);
        let departure = Departure {
            train: number,
            index,
            bytes,
            at: now,
        };
        let sent = RunEvent::Sent(departure);
        self.departures.push(Event::Run(run, sent));
    }
}
