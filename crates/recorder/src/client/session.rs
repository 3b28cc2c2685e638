//! A session with a server: handshake, requests retransmitted until answered, resumption after a broken connection.

use std::net::SocketAddr;

use cellbed_link::{Duration, Time};

use super::event::ClockAnswer;
use crate::secure::{Channel, Filler, Opening, Progress, Secret};
use crate::socket::Outbox;
use crate::wire::{Field, Kind, Offer, Probe, Refusal, Reply, Report, Request, SessionId};

/// Silence before the server is assumed to have lost the session, or the client its address.
const SILENCE: Duration = Duration::from_secs(3);

/// Interval of requests for the server's time. The requests detect silence, and synchronize the clock even if probes go
/// only one way.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Interval of these requests if pauses must be kept. A request waits for other packets to accompany, unless the server
/// was silent for this long.
const KEEP_ALIVE_IN_PAUSES: Duration = Duration::from_secs(2);

/// Minimum time until a request is retransmitted.
const LEAST_REPEAT: Duration = Duration::from_millis(250);
const MOST_REPEAT: Duration = Duration::from_secs(3);

/// A handshake with a server, then a session, possibly followed by another one.
pub(super) struct Session {
    server: SocketAddr,
    secret: Secret,
    channel: Option<Channel>,
    opening: Option<Opening>,
    filler: Filler,
    pending: Vec<Pending>,
    /// Time until an unanswered request is retransmitted.
    pub(super) repeat_after: Duration,
    smoothed: Option<f64>,
    /// Arrival of the server's last message.
    pub(super) last_received: Time,
    pinged: Time,
    /// True if requests for the server's time are minimized: each packet breaks pauses that are measured.
    pub(super) keeps_pauses: bool,
    /// True if the server has been silent for a while.
    pub(super) silent: bool,
}

struct Pending {
    request: Request,
    /// Sequence numbers and times at which the request was sent.
    sent: Vec<(u64, Time)>,
    due: Time,
    /// True if the request is retransmitted until answered.
    insists: bool,
}

/// Meaning of a datagram.
pub(super) enum Incoming {
    /// Nothing, or nothing relevant.
    Nothing,
    /// A new session began; the previous one is lost.
    Begun(Offer),
    /// The server refuses all clients, or this one.
    Rejected(Refusal),
    /// A request was answered.
    Answered(Request, Result<(), Refusal>, Duration),
    Clock(ClockAnswer),
    /// Arrivals reported by the server.
    Report(Report),
    /// A packet of the server.
    Probe(Probe),
}

impl Session {
    pub(super) fn new(server: SocketAddr, secret: Secret, seed: &[u8; 32], now: Time) -> Self {
        let opening = Opening::new(&secret, None, now);
        Self {
            server,
            secret,
            channel: None,
            opening: Some(opening),
            filler: Filler::new(seed),
            pending: Vec::new(),
            repeat_after: LEAST_REPEAT,
            smoothed: None,
            last_received: now,
            pinged: now,
            keeps_pauses: false,
            silent: false,
        }
    }

    /// Return the identifier of the session, if there is one.
    pub(super) fn id(&self) -> Option<SessionId> {
        self.channel.as_ref().map(Channel::session)
    }

    /// Send a request, retransmitted until answered.
    pub(super) fn request(&mut self, request: Request, now: Time) {
        self.push(request, now, true);
    }

    fn push(&mut self, request: Request, due: Time, insists: bool) {
        self.pending.push(Pending {
            request,
            sent: Vec::new(),
            due,
            insists,
        });
    }

    /// Request the server's time once, together with another packet sent now, unless requested recently.
    pub(super) fn ping_along(&mut self, now: Time) {
        if now >= self.pinged + KEEP_ALIVE {
            self.ping(now, false);
        }
    }

    fn ping(&mut self, now: Time, insists: bool) {
        self.pinged = now;
        self.pending
            .retain(|pending| !matches!(pending.request, Request::ClockPing { .. }));
        let client_ns = now.as_nanos();
        self.push(Request::ClockPing { client_ns }, now, insists);
    }

    /// Return the time of the next separate request for the server's time.
    fn next_ping(&self) -> Time {
        if self.keeps_pauses {
            self.pinged.max(self.last_received) + KEEP_ALIVE_IN_PAUSES
        } else {
            self.pinged + KEEP_ALIVE
        }
    }

    /// Discard pending saturation requests of a run, which a later one replaces.
    pub(super) fn forget_saturation(&mut self, session: SessionId, number: u32) {
        self.pending.retain(|pending| {
            !matches!(pending.request, Request::Saturate { of, run, .. } if (of, run) == (session, number))
        });
    }

    /// Return whether a saturation request of a run is pending.
    pub(super) fn is_saturating(&self, number: u32) -> bool {
        self.pending.iter().any(
            |pending| matches!(pending.request, Request::Saturate { run, .. } if run == number),
        )
    }

    pub(super) fn next_event(&self) -> Time {
        let opening = self.opening.as_ref().map_or(Time::MAX, Opening::next_event);
        if self.channel.is_none() {
            return opening;
        }
        let requests = self.pending.iter().map(|pending| pending.due);
        let session = self.next_ping().min(self.next_silence());
        requests.fold(opening.min(session), Time::min)
    }

    fn next_silence(&self) -> Time {
        match self.opening {
            Some(_) => Time::MAX,
            None => self.last_received + SILENCE,
        }
    }

    /// Append due packets to `outbox`; return whether the server has just become silent.
    pub(super) fn step(&mut self, now: Time, outbox: &mut Outbox) -> bool {
        let mut fell_silent = false;
        if let Some(channel) = &self.channel
            && now >= self.next_silence()
        {
            let resumes = Some(channel.resumption());
            self.opening = Some(Opening::new(&self.secret, resumes, now));
            fell_silent = !std::mem::replace(&mut self.silent, true);
            tracing::info!("{} is silent: resuming the session", self.server);
        }
        if let Some(opening) = &mut self.opening
            && now >= opening.next_event()
        {
            outbox.push(self.server, |bytes| {
                opening.step(now, bytes);
            });
        }
        if self.channel.is_none() {
            return fell_silent;
        }
        if now >= self.next_ping() {
            self.ping(now, true);
        }
        for index in 0..self.pending.len() {
            if self.pending[index].due > now {
                continue;
            }
            let number = self.seal(&self.pending[index].request.clone(), outbox);
            let tries = self.pending[index].sent.len() as u64;
            let pause = Duration::from_nanos(self.repeat_after.as_nanos() << tries.min(4));
            let pending = &mut self.pending[index];
            if tries > 0 {
                tracing::debug!("{} has not answered: repeating a request", self.server);
            }
            pending.sent.extend(number.map(|number| (number, now)));
            pending.due = match pending.insists {
                true => now + pause.min(MOST_REPEAT),
                false => Time::MAX,
            };
        }
        fell_silent
    }

    /// Send a request once, without waiting for an answer; return its number.
    pub(super) fn seal(&mut self, request: &Request, outbox: &mut Outbox) -> Option<u64> {
        let (channel, mut number) = (self.channel.as_mut()?, None);
        outbox.push(self.server, |bytes| {
            number = channel.seal_control(&request.encode(), bytes);
        });
        number
    }

    /// Append a probe of `payload` bytes to `outbox`.
    pub(super) fn seal_probe(
        &mut self,
        kind: Kind,
        probe: &Probe,
        payload: usize,
        outbox: &mut Outbox,
    ) {
        if let Some(channel) = &mut self.channel {
            outbox.push(self.server, |bytes| {
                channel.seal_probe(kind, probe, payload, &self.filler, bytes);
            });
        }
    }

    /// Process a datagram that arrived at `at`.
    pub(super) fn receive(&mut self, at: Time, now: Time, datagram: &[u8]) -> Incoming {
        match Kind::of(datagram) {
            Ok(kind) if kind.is_sealed() => self.open(at, now, datagram),
            Ok(_) => self.shake_hands(now, datagram),
            Err(_) => Incoming::Nothing,
        }
    }

    fn shake_hands(&mut self, now: Time, datagram: &[u8]) -> Incoming {
        let Some(opening) = &mut self.opening else {
            return Incoming::Nothing;
        };
        match opening.receive(now, datagram) {
            Progress::Waiting => Incoming::Nothing,
            Progress::Begun(channel, offer) => {
                self.channel = Some(*channel);
                self.opening = None;
                self.pending.clear();
                self.note_received(now);
                Incoming::Begun(offer)
            }
            Progress::Resumed(_) => {
                self.opening = None;
                self.note_received(now);
                for pending in &mut self.pending {
                    pending.due = now;
                }
                Incoming::Nothing
            }
            Progress::Rejected(Refusal::NoSuchSession) if self.channel.is_some() => {
                tracing::info!("{} has lost the session: opening another", self.server);
                self.channel = None;
                self.opening = Some(Opening::new(&self.secret, None, now));
                Incoming::Nothing
            }
            Progress::Rejected(reason) => Incoming::Rejected(reason),
        }
    }

    fn open(&mut self, at: Time, now: Time, datagram: &[u8]) -> Incoming {
        let Some(channel) = &mut self.channel else {
            return Incoming::Nothing;
        };
        let Ok(opened) = channel.open(datagram) else {
            return Incoming::Nothing;
        };
        if opened.header.kind != Kind::Control {
            let probe = Probe::decode(opened.body);
            self.note_received(now);
            return probe.map_or(Incoming::Nothing, Incoming::Probe);
        }
        let reply = Reply::decode(opened.body);
        self.note_received(now);
        match reply {
            Ok(Reply::Done { to }) => self.answer(now, to, Ok(())),
            Ok(Reply::ClockPong {
                to,
                received_ns,
                sent_ns,
                ..
            }) => match self.answer(now, to, Ok(())) {
                Incoming::Answered(_, _, round_trip) => Incoming::Clock(ClockAnswer {
                    requested: now - round_trip,
                    received_ns,
                    sent_ns,
                    at,
                }),
                _ => Incoming::Nothing,
            },
            Ok(Reply::Refused { to, reason }) => self.answer(now, to, Err(reason)),
            Ok(Reply::Report(report)) => Incoming::Report(report),
            Err(_) => Incoming::Nothing,
        }
    }

    fn answer(&mut self, now: Time, to: u64, result: Result<(), Refusal>) -> Incoming {
        let mut pending = self.pending.iter().enumerate();
        let found = pending.find_map(|(index, pending)| {
            let sent = pending.sent.iter().find(|(number, _)| *number == to)?;
            Some((index, now - sent.1))
        });
        let Some((index, round_trip)) = found else {
            return Incoming::Nothing;
        };
        self.measure(round_trip);
        let pending = self.pending.swap_remove(index);
        Incoming::Answered(pending.request, result, round_trip)
    }

    /// Update the time until retransmission: twice the smoothed round-trip time.
    fn measure(&mut self, round_trip: Duration) {
        let sample = round_trip.as_secs_f64();
        let old = self.smoothed.unwrap_or(sample);
        let smoothed = old + (sample - old) / 4.0;
        self.smoothed = Some(smoothed);
        self.repeat_after = Duration::from_secs_f64(2.0 * smoothed)
            .max(LEAST_REPEAT)
            .min(MOST_REPEAT);
    }

    fn note_received(&mut self, now: Time) {
        self.last_received = now;
        self.opening = None;
        self.silent = false;
    }
}
