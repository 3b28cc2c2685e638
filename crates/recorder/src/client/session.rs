//! A session with a server: one TCP connection for requests, with which it ends; datagrams for everything measured.

use std::collections::VecDeque;
use std::net::SocketAddr;

use cellbed_link::{Duration, Time};

use super::event::Event;
use crate::secure::{Channel, Filler, Handshake, HandshakeKeys, Secret};
use crate::socket::Outbox;
use crate::wire::{
    Echo, Encode, FrameReader, Kind, Offer, Probe, Refusal, Reply, Report, Request, put_frame,
    start,
};

/// Silence of datagrams before the server is reported as silent.
const SILENCE: Duration = Duration::from_secs(3);

/// Interval of requests for the server's time. The requests detect silence, prove a new address, and synchronize the
/// clock even if probes go only one way.
const ECHO: Duration = Duration::from_secs(1);

/// Interval of these requests if pauses must be kept. A request waits for other packets to accompany, unless the server
/// was silent for this long.
const ECHO_IN_PAUSES: Duration = Duration::from_secs(2);

/// Interval of these requests until the server knows the client's address.
const ECHO_UNPROVED: Duration = Duration::from_millis(250);

/// Pause before another connection.
const AGAIN: Duration = Duration::from_millis(500);

/// Time without a reply, after a change of the client's address, until the connection counts as broken.
const CUT_OFF: Duration = Duration::from_secs(3);

/// A session with a server, possibly followed by another one.
pub struct Session {
    server: SocketAddr,
    keys: HandshakeKeys,
    channel: Option<Channel>,
    filler: Filler,
    link: Link,
    input: FrameReader,
    output: Vec<u8>,
    /// Requests without an answer.
    pending: VecDeque<Request>,
    /// Challenge of the server's last answer, and whether the server sends probes to this client's address.
    challenge: u64,
    proved: bool,
    /// Time since which the server sees another address and has not replied.
    moved: Option<Time>,
    pub(super) offer: Offer,
    /// Arrival of the server's last datagram.
    pub(super) last_received: Time,
    echoed: Time,
    /// True if requests for the server's time are minimized: each packet breaks pauses that are measured.
    pub(super) keeps_pauses: bool,
    /// True if the server has been silent for a while.
    pub silent: bool,
}

/// State of the connection.
enum Link {
    /// There is none; another one may begin then.
    Closed(Time),
    /// It was requested.
    Opening,
    /// The hello, with code, was sent.
    Greeting(Vec<u8>, Box<Handshake>),
    /// The session's requests and replies go over it.
    Attached,
}

/// Meaning of a message.
pub(super) enum Incoming {
    /// Nothing, or nothing relevant.
    Nothing,
    /// A new session can be used.
    Begun(Offer),
    /// The session is lost.
    Lost,
    Event(Event),
    /// A request was answered.
    Answered(Request, Result<(), Refusal>),
    /// Arrivals reported by the server.
    Report(Report),
    /// A packet of the server.
    Probe(Probe),
}

impl Session {
    pub(super) fn new(server: SocketAddr, secret: &Secret, seed: &[u8; 32], now: Time) -> Self {
        Self {
            server,
            keys: HandshakeKeys::new(secret),
            channel: None,
            filler: Filler::new(seed),
            link: Link::Closed(now),
            input: FrameReader::default(),
            output: Vec::new(),
            pending: VecDeque::new(),
            challenge: 0,
            proved: false,
            moved: None,
            offer: Offer::default(),
            last_received: now,
            echoed: Time::ZERO,
            keeps_pauses: false,
            silent: false,
        }
    }

    /// Return whether runs can use the session.
    pub(super) fn is_ready(&self) -> bool {
        self.channel.is_some() && self.proved
    }

    /// Send a request over the connection of a session.
    pub(super) fn request(&mut self, request: Request) {
        if let Some(channel) = &mut self.channel {
            put_frame(&mut self.output, |out| {
                channel.seal(Kind::Control, &request.encode(), out);
            });
            self.pending.push_back(request);
        }
    }

    /// Return whether a connection to the server must be opened, to be followed by [`Session::on_connected`] or
    /// [`Path::on_closed`](super::Path::on_closed).
    pub fn wants_connection(&mut self, now: Time) -> bool {
        let wants = matches!(self.link, Link::Closed(again) if now >= again);
        if wants {
            self.link = Link::Opening;
        }
        wants
    }

    /// Greet the server over a new connection.
    pub fn on_connected(&mut self) {
        let Some((handshake, hello)) = self.keys.greet() else {
            return self.link = Link::Closed(Time::ZERO); // no random bytes now
        };
        put_frame(&mut self.output, |out| out.extend_from_slice(&hello));
        self.link = Link::Greeting(hello, Box::new(handshake));
    }

    /// Record that the connection could not be made, or has ended, and its session.
    pub(super) fn on_closed(&mut self, now: Time) -> Incoming {
        self.link = Link::Closed(now + AGAIN);
        (self.input, self.output) = Default::default();
        (self.proved, self.moved) = (false, None);
        self.pending.clear();
        if self.channel.take().is_none() {
            return Incoming::Nothing;
        }
        tracing::info!(
            "the session with {} has ended: opening another",
            self.server
        );
        Incoming::Lost
    }

    /// Return whether the connection is probably broken: the address has changed, and the server does not reply.
    pub(super) fn is_cut_off(&self, now: Time) -> bool {
        self.moved.is_some_and(|moved| now.since(moved) >= CUT_OFF)
    }

    /// Return the bytes to be written to the connection.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Return the first frame of another connection, which fetches a file.
    pub fn file_request(&mut self, bytes: u64) -> Option<Vec<u8>> {
        let mut frame = start(Kind::Download).to_vec();
        let channel = self.channel.as_mut()?;
        channel.seal(Kind::File, &bytes.encode(), &mut frame)?;
        self.keys.sign(&mut frame);
        let mut framed = Vec::new();
        put_frame(&mut framed, |out| out.extend_from_slice(&frame));
        Some(framed)
    }

    /// Request the server's time once, together with another packet sent now, unless requested recently.
    pub(super) fn echo_along(&mut self, now: Time, outbox: &mut Outbox) {
        if now >= self.echoed + ECHO {
            self.echo(now, outbox);
        }
    }

    fn echo(&mut self, now: Time, outbox: &mut Outbox) {
        self.echoed = now;
        let echo = Echo {
            client_ns: now.as_nanos(),
            challenge: self.challenge,
            ..Echo::default()
        };
        if let Some(channel) = &mut self.channel {
            outbox.push(self.server, |bytes| {
                channel.seal(Kind::Echo, &echo.encode(), bytes);
            });
        }
    }

    /// Return the time of the next separate request for the server's time.
    fn next_echo(&self) -> Time {
        if !self.proved {
            self.echoed + ECHO_UNPROVED
        } else if self.keeps_pauses {
            self.echoed.max(self.last_received) + ECHO_IN_PAUSES
        } else {
            self.echoed + ECHO
        }
    }

    pub(super) fn next_event(&self) -> Time {
        let link = match self.link {
            Link::Closed(again) => again,
            _ => Time::MAX,
        };
        if self.channel.is_none() {
            return link;
        }
        let cut_off = self.moved.map_or(Time::MAX, |moved| moved + CUT_OFF);
        cut_off.min(self.next_echo()).min(self.next_silence())
    }

    fn next_silence(&self) -> Time {
        match self.silent {
            true => Time::MAX,
            false => self.last_received + SILENCE,
        }
    }

    /// Append due packets to `outbox`; return whether the server has just become silent.
    pub(super) fn step(&mut self, now: Time, outbox: &mut Outbox) -> bool {
        if self.channel.is_none() {
            return false;
        }
        if now >= self.next_echo() {
            self.echo(now, outbox);
        }
        let silent = now >= self.next_silence();
        self.silent |= silent;
        silent
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

    /// End the session, once and without waiting for an answer.
    pub fn leave(&mut self) {
        self.request(Request::Bye);
    }

    /// Process a datagram that arrived at `at`.
    pub(super) fn receive(&mut self, at: Time, now: Time, datagram: &[u8]) -> Incoming {
        let Some(channel) = &mut self.channel else {
            return Incoming::Nothing;
        };
        let Ok(opened) = channel.open(datagram) else {
            return Incoming::Nothing;
        };
        let (kind, probe, echo) = (
            opened.header.kind,
            Probe::decode(opened.body),
            Echo::decode(opened.body),
        );
        self.last_received = now;
        self.silent = false;
        match (probe, echo) {
            (Ok(probe), _) if kind.is_probe() => Incoming::Probe(probe),
            (_, Ok(echo)) if kind == Kind::Echo => {
                self.challenge = echo.challenge;
                if !echo.proved {
                    self.echoed = Time::ZERO; // proves the address at once
                    if self.proved && self.moved.is_none() {
                        self.moved = Some(now);
                        self.request(Request::Check);
                    }
                } else if !std::mem::replace(&mut self.proved, true) {
                    return Incoming::Begun(self.offer);
                }
                Incoming::Event(Event::Clock(echo, at))
            }
            _ => Incoming::Nothing,
        }
    }

    /// Add received bytes of the connection. Then call [`Session::take`] until `None`.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.input.push(bytes);
    }

    /// Return the meaning of the next received frame. After an invalid frame, the connection is replaced.
    pub(super) fn take(&mut self, now: Time) -> Option<Incoming> {
        let Ok(frame) = self.input.take() else {
            return Some(self.on_closed(now));
        };
        let frame = frame?;
        match std::mem::replace(&mut self.link, Link::Closed(now + AGAIN)) {
            Link::Attached => {
                self.link = Link::Attached;
                Some(self.reply(now, &frame))
            }
            Link::Greeting(hello, mut handshake) => {
                if let Some(reason) = self.keys.rejection(&frame, &hello) {
                    return Some(Incoming::Event(Event::Rejected(reason)));
                }
                if let Some(welcome) = handshake.read(&frame) {
                    self.channel = handshake.channel(&welcome);
                    self.offer = welcome.offer;
                    self.last_received = now;
                    self.link = Link::Attached;
                    self.request(Request::Check); // begins the session
                }
                Some(Incoming::Nothing)
            }
            link => {
                self.link = link;
                None
            }
        }
    }

    /// Process a frame of a session's connection.
    fn reply(&mut self, now: Time, frame: &[u8]) -> Incoming {
        self.moved = None;
        let opened = self.channel.as_mut().and_then(|it| it.open(frame).ok());
        let result = match opened.map(|it| Reply::decode(it.body)) {
            Some(Ok(Reply::Report(report))) => return Incoming::Report(report),
            Some(Ok(Reply::Done)) => Ok(()),
            Some(Ok(Reply::Refused(reason))) => Err(reason),
            _ => return self.on_closed(now),
        };
        let answered = self.pending.pop_front();
        answered.map_or(Incoming::Nothing, |it| Incoming::Answered(it, result))
    }
}
