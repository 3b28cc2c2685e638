//! Handling of hellos.

use std::net::SocketAddr;

use cellbed_link::Time;

use crate::secure::{Handshake, Secret};
use crate::socket::Outbox;
use crate::wire::{
    Answer, CODE_BYTES, Claim, Cookie, Field, HELLO_BYTES, Hello, Refusal, Resumption, SessionId,
    VERSION, Welcome,
};

use super::Server;
use super::session::{Proved, Session, network};

/// The server's random bytes, derived from its seed by a code: unpredictable without the seed.
pub(super) struct Randoms {
    keys: Secret,
    drawn: u64,
}

impl Server {
    pub(super) fn hello(&mut self, now: Time, from: SocketAddr, datagram: &[u8], out: &mut Outbox) {
        if datagram.len() != HELLO_BYTES {
            return self.counters.malformed += 1;
        }
        let of_this_version = datagram[1] == VERSION;
        let Some((message, code)) = self.handshake.of_client(datagram) else {
            let counters = &mut self.counters;
            let count = match of_this_version {
                true => &mut counters.forged,
                false => &mut counters.other_versions,
            };
            return *count += 1;
        };
        if !of_this_version {
            self.counters.other_versions += 1;
            let reason = Refusal::OtherVersion(VERSION.into());
            return self.answer(from, code, &Answer::Rejection(VERSION, reason), out);
        }
        let Ok(hello) = Hello::decode(message) else {
            return self.counters.malformed += 1;
        };
        self.counters.hellos += 1;
        let known = |cookie: &Cookie| self.cookies.knows(cookie, now, from);
        let Some(cookie) = hello.cookie.filter(known) else {
            self.counters.unproved_hellos += 1;
            let cookie = self.cookies.give(now, from);
            return self.answer(from, code, &Answer::Cookie(VERSION, cookie), out);
        };
        let proved = Proved {
            now,
            from,
            code,
            cookie,
        };
        match self.answer_hello(&proved, &hello) {
            Ok(Some(welcome)) => out.push(from, |bytes| bytes.extend_from_slice(&welcome)),
            Ok(None) => {}
            Err(reason) => {
                self.counters.refused += 1;
                self.answer(from, code, &Answer::Rejection(VERSION, reason), out);
            }
        }
    }

    fn answer(&self, to: SocketAddr, hello: &[u8; CODE_BYTES], answer: &Answer, out: &mut Outbox) {
        let mut message = answer.encode();
        self.handshake.sign_answer(&mut message, hello);
        out.push(to, |bytes| bytes.extend_from_slice(&message));
    }

    /// Return the welcome that answers a hello. A repeated hello gets the same welcome: the first may have been lost.
    fn answer_hello(&mut self, proved: &Proved, hello: &Hello) -> Result<Option<Vec<u8>>, Refusal> {
        let known = self
            .sessions
            .values()
            .find(|session| session.has_accepted(proved.code));
        if let Some(session) = known {
            return match session.welcome_again(proved.code) {
                _ if session.ended => Err(Refusal::NoSuchSession),
                None => {
                    self.counters.replayed += 1;
                    Ok(None)
                }
                again => Ok(again),
            };
        }
        match self.handshake.accept(hello) {
            None => {
                self.counters.forged += 1;
                Ok(None)
            }
            Some((handshake, None)) => self.begin(proved, handshake),
            Some((handshake, Some(claim))) => self.resume(proved, handshake, &claim),
        }
    }

    fn begin(&mut self, proved: &Proved, handshake: Handshake) -> Result<Option<Vec<u8>>, Refusal> {
        let most = self.limits.sessions;
        if self.sessions.len() >= most as usize {
            return Err(Refusal::SessionsFull(most.into()));
        }
        let most = self.limits.sessions_per_address;
        let here = self
            .sessions
            .values()
            .filter(|session| network(session.address) == network(proved.from))
            .count();
        if here >= most as usize {
            return Err(Refusal::AddressFull(most.into()));
        }
        let resumption = Resumption {
            session: self.fresh_id(),
            key: self.randoms.draw(),
        };
        let welcome = Welcome {
            resumption,
            offer: self.limits.offer(),
        };
        let Some((datagram, channel)) = handshake.welcome(&welcome) else {
            return Ok(None); // no random bytes now; the client repeats its hello
        };
        let session = Session::new(channel, proved, datagram.clone(), &self.limits);
        self.sessions.insert(resumption.session, session);
        self.counters.sessions += 1;
        Ok(Some(datagram))
    }

    /// Move the session to the hello's address, unless a later hello has proved another. The keys stay.
    fn resume(
        &mut self,
        proved: &Proved,
        handshake: Handshake,
        claim: &Claim,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let session = self.sessions.get_mut(&claim.session);
        let Some(session) = session.filter(|session| !session.ended) else {
            return Err(Refusal::NoSuchSession);
        };
        let resumption = session.channel.resumption();
        if !resumption.verifies(claim, Some(proved.cookie)) {
            self.counters.forged += 1;
            return Ok(None);
        }
        let welcome = Welcome {
            resumption,
            offer: self.limits.offer(),
        };
        let Some((datagram, _)) = handshake.welcome(&welcome) else {
            return Ok(None);
        };
        if !session.move_to(proved, &datagram) {
            self.counters.replayed += 1;
            return Ok(None);
        }
        self.counters.resumed += 1;
        Ok(Some(datagram))
    }

    fn fresh_id(&mut self) -> SessionId {
        loop {
            let [a, b, c, d, ..] = self.randoms.draw();
            let id = SessionId(u32::from_be_bytes([a, b, c, d]));
            if id.0 != 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Randoms {
    pub(super) fn new(seed: &[u8; 32]) -> Self {
        Self {
            keys: Secret::new(*seed),
            drawn: 0,
        }
    }

    /// Return the next 32 bytes.
    pub(super) fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        self.keys.derive(b"random", self.drawn)
    }
}
