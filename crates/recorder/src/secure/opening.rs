//! The client's side of the handshake.

use cellbed_link::{Duration, Time};

use crate::wire::{Answer, Cookie, Kind, Offer, Refusal};

use super::{Channel, Handshake, HandshakeKeys, Resumption, Secret};

/// The first hello is repeated after so long, the next ones each after twice the time before, up to [`REPEAT_AT_MOST`].
const REPEAT_FIRST: Duration = Duration::from_millis(250);
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

/// A handshake that has begun: say [`Opening::step`] whenever its time has come, hand over what arrives, until it is
/// over.
///
/// It never gives up by itself: a server does not answer a client with another secret, so silence is all there is.
pub struct Opening {
    keys: HandshakeKeys,
    resumes: Option<Resumption>,
    cookie: Option<Cookie>,
    /// The hello that is repeated until it is answered, and its handshake.
    hello: Option<(Handshake, Vec<u8>)>,
    due: Time,
    pause: Duration,
}

/// Progress of a handshake.
pub enum Progress {
    /// Nothing yet; the datagram was not for it, or it asks for another [`Opening::step`].
    Waiting,
    /// There is a new session.
    Begun(Box<Channel>, Offer),
    /// The resumed session continues; its [`Channel`] stays valid.
    Resumed(Offer),
    /// The server refuses.
    Rejected(Refusal),
}

impl Opening {
    /// Begins one, for a new session or to resume one.
    pub fn new(secret: &Secret, resumes: Option<Resumption>, now: Time) -> Self {
        Self {
            keys: HandshakeKeys::new(secret),
            resumes,
            cookie: None,
            hello: None,
            due: now,
            pause: REPEAT_FIRST,
        }
    }

    /// When [`Opening::step`] has something to send.
    pub fn next_event(&self) -> Time {
        self.due
    }

    /// Appends the hello that is due, if one is.
    pub fn step(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + self.pause;
        self.pause = (self.pause + self.pause).min(REPEAT_AT_MOST);
        if self.hello.is_none() {
            self.hello = self.keys.greet(self.cookie, self.resumes.as_ref());
        }
        let Some((_, hello)) = &self.hello else {
            return false; // no random bytes now; perhaps later
        };
        out.extend_from_slice(hello);
        true
    }

    /// Reads what may be an answer of the server.
    pub fn receive(&mut self, now: Time, datagram: &[u8]) -> Progress {
        let Some((handshake, hello)) = &mut self.hello else {
            return Progress::Waiting;
        };
        if Kind::of(datagram) == Ok(Kind::Welcome) {
            let Some(welcome) = handshake.read(datagram) else {
                return Progress::Waiting;
            };
            let resumes = self.resumes.map(|resumption| resumption.session);
            return match (resumes, self.hello.take()) {
                (Some(session), _) if session == welcome.session => {
                    Progress::Resumed(welcome.offer)
                }
                (None, Some((handshake, _))) => {
                    let channel = handshake.channel(&welcome);
                    channel.map_or(Progress::Waiting, |channel| {
                        Progress::Begun(Box::new(channel), welcome.offer)
                    })
                }
                _ => Progress::Waiting,
            };
        }
        let answer = self.keys.of_server(datagram, hello).map(Answer::decode);
        match answer {
            Some(Ok(Answer::Cookie(cookie))) => {
                (self.cookie, self.hello) = (Some(cookie), None);
                (self.due, self.pause) = (now, REPEAT_FIRST);
                Progress::Waiting
            }
            Some(Ok(Answer::Rejection(reason))) => Progress::Rejected(reason),
            _ => Progress::Waiting,
        }
    }
}
