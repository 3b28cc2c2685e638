//! The client's side of the handshake.

use cellbed_link::{Duration, Time};

use crate::wire::{
    Cookie, CookieAnswer, Hello, Kind, Offer, Refusal, Rejection, Resumption, SessionId, Welcome,
};

use super::{Channel, End, HandshakeKeys, Secret, SessionKeys};

/// The first hello is repeated after so long, the next ones each after twice the time before, up to [`REPEAT_AT_MOST`].
const REPEAT_FIRST: Duration = Duration::from_millis(250);
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

/// A handshake that has begun: say [`Opening::step`] whenever its time has come, hand over what arrives, until it is over.
///
/// It never gives up by itself: a server does not answer who has another secret or another version, so silence is all there is.
pub struct Opening {
    secret: Secret,
    keys: HandshakeKeys,
    client_random: [u8; 32],
    resumes: Option<(SessionId, SessionKeys)>,
    cookie: Option<Cookie>,
    due: Time,
    pause: Duration,
}

/// What became of a handshake.
pub enum Progress {
    /// Nothing yet; the datagram was not for it, or it asks for another [`Opening::step`].
    Waiting,
    /// There is a new session.
    Begun(Box<Channel>, Offer),
    /// The session that was to be resumed goes on; its [`Channel`] is as good as before.
    Resumed(Offer),
    /// The server says no.
    Rejected(Refusal),
}

impl Opening {
    /// Begins one, for a new session or to go on with one. `client_random` must be fresh.
    pub fn new(
        secret: &Secret,
        client_random: [u8; 32],
        resumes: Option<&Channel>,
        now: Time,
    ) -> Self {
        Self {
            secret: secret.clone(),
            keys: HandshakeKeys::new(secret),
            client_random,
            resumes: resumes.map(|channel| (channel.session(), channel.keys().clone())),
            cookie: None,
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
        let resumes = self.resumes.as_ref().map(|(session, keys)| Resumption {
            session: *session,
            proof: keys.resumption_proof(&self.client_random, self.cookie.as_ref()),
        });
        let start = out.len();
        Hello {
            client_random: self.client_random,
            cookie: self.cookie,
            resumes,
        }
        .encode(out);
        self.keys.sign_as_client(out, start);
        true
    }

    /// Reads what may be an answer of the server.
    pub fn receive(&mut self, now: Time, datagram: &[u8]) -> Progress {
        let Some(message) = self.keys.of_server(datagram) else {
            return Progress::Waiting;
        };
        match Kind::of(message) {
            Ok(Kind::CookieAnswer) => {
                if let Ok(answer) = CookieAnswer::decode(message) {
                    self.accept_cookie(answer, now);
                }
                Progress::Waiting
            }
            Ok(Kind::Welcome) => {
                Welcome::decode(message).map_or(Progress::Waiting, |welcome| self.accept(welcome))
            }
            Ok(Kind::Rejection) => match Rejection::decode(message) {
                Ok(rejection) if rejection.client_random == self.client_random => {
                    Progress::Rejected(rejection.reason)
                }
                _ => Progress::Waiting,
            },
            _ => Progress::Waiting,
        }
    }

    /// Of several cookies the last given is good for longest.
    fn accept_cookie(&mut self, answer: CookieAnswer, now: Time) {
        let newer = self
            .cookie
            .is_none_or(|cookie| cookie.given_ns < answer.cookie.given_ns);
        if answer.client_random == self.client_random && newer {
            self.cookie = Some(answer.cookie);
            self.due = now;
            self.pause = REPEAT_FIRST;
        }
    }

    fn accept(&self, welcome: Welcome) -> Progress {
        if welcome.client_random != self.client_random {
            return Progress::Waiting;
        }
        match &self.resumes {
            Some((session, _)) if *session == welcome.session => Progress::Resumed(welcome.offer),
            Some(_) => Progress::Waiting,
            None => {
                let keys = SessionKeys::new(
                    &self.secret,
                    &self.client_random,
                    &welcome.server_random,
                    welcome.session,
                );
                let channel = Channel::new(End::Client, welcome.session, keys);
                Progress::Begun(Box::new(channel), welcome.offer)
            }
        }
    }
}
