//! Hellos.

use std::net::SocketAddr;

use cellbed_link::Time;

use crate::secure::{Channel, End, Secret, SessionKeys};
use crate::socket::Outbox;
use crate::wire::{
    CookieAnswer, HELLO_BYTES, Hello, Refusal, Rejection, Resumption, SessionId, Welcome,
};

use super::Server;
use super::session::{Session, network};

/// The server's random bytes: from its seed, by a code that nobody can follow without it.
pub(super) struct Randoms {
    keys: Secret,
    drawn: u64,
}

impl Server {
    pub(super) fn hello(&mut self, now: Time, from: SocketAddr, datagram: &[u8], out: &mut Outbox) {
        if datagram.len() != HELLO_BYTES {
            return self.counters.malformed += 1;
        }
        let Some(message) = self.handshake.of_client(datagram) else {
            return self.counters.forged += 1;
        };
        let Ok(hello) = Hello::decode(message) else {
            return self.counters.malformed += 1;
        };
        self.counters.hellos += 1;
        let proved = hello
            .cookie
            .is_some_and(|cookie| self.cookies.knows(&cookie, now, from, &hello.client_random));
        if !proved {
            self.counters.unproved_hellos += 1;
            let cookie = self.cookies.give(now, from, &hello.client_random);
            let answer = CookieAnswer {
                client_random: hello.client_random,
                cookie,
            };
            return self.answer(from, out, |message| answer.encode(message));
        }
        let outcome = match hello.resumes {
            None => self.begin(now, from, &hello),
            Some(resumption) => self.resume(now, from, &hello, resumption),
        };
        match outcome {
            Ok(Some(welcome)) => self.answer(from, out, |message| welcome.encode(message)),
            Ok(None) => {}
            Err(reason) => {
                self.counters.refused += 1;
                let rejection = Rejection {
                    client_random: hello.client_random,
                    reason,
                };
                self.answer(from, out, |message| rejection.encode(message));
            }
        }
    }

    fn answer(&self, to: SocketAddr, out: &mut Outbox, encode: impl FnOnce(&mut Vec<u8>)) {
        out.push(to, |bytes| {
            let start = bytes.len();
            encode(bytes);
            self.handshake.sign_as_server(bytes, start);
        });
    }

    /// A new session, or the one that this very handshake has begun already.
    fn begin(
        &mut self,
        now: Time,
        from: SocketAddr,
        hello: &Hello,
    ) -> Result<Option<Welcome>, Refusal> {
        let begun = self
            .sessions
            .iter()
            .find(|(_, session)| session.client_random == hello.client_random);
        if let Some((id, _)) = begun {
            return self.go_on(now, from, hello, *id);
        }
        let most = self.limits.sessions;
        if self.sessions.len() >= most as usize {
            return Err(Refusal::SessionsFull { most });
        }
        let most = self.limits.sessions_per_address;
        let here = self
            .sessions
            .values()
            .filter(|session| network(session.address) == network(from))
            .count();
        if here >= most as usize {
            return Err(Refusal::AddressFull { most });
        }
        let id = self.fresh_id();
        let server_random = self.randoms.draw();
        let keys = SessionKeys::new(&self.secret, &hello.client_random, &server_random, id);
        let channel = Channel::new(End::Server, id, keys);
        let session = Session::new(channel, from, server_random, hello, &self.limits, now);
        let welcome = self.welcome(id, &session);
        self.sessions.insert(id, session);
        self.counters.sessions += 1;
        Ok(Some(welcome))
    }

    fn resume(
        &mut self,
        now: Time,
        from: SocketAddr,
        hello: &Hello,
        resumption: Resumption,
    ) -> Result<Option<Welcome>, Refusal> {
        let Some(session) = self.sessions.get(&resumption.session) else {
            return Err(Refusal::NoSuchSession);
        };
        if !session.channel.keys().proves(hello) {
            self.counters.forged += 1;
            return Ok(None);
        }
        self.go_on(now, from, hello, resumption.session)
    }

    /// Makes `from` the address of a session, unless a later handshake has given it another.
    fn go_on(
        &mut self,
        now: Time,
        from: SocketAddr,
        hello: &Hello,
        id: SessionId,
    ) -> Result<Option<Welcome>, Refusal> {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.ended) else {
            return Err(Refusal::NoSuchSession);
        };
        let handshake_before = session.client_random;
        if !session.move_to(from, hello, now) {
            self.counters.replayed += 1;
            return Ok(None);
        }
        if handshake_before != hello.client_random {
            self.counters.resumed += 1;
        }
        let mut welcome = self.welcome(id, &self.sessions[&id]);
        welcome.client_random = hello.client_random;
        Ok(Some(welcome))
    }

    fn welcome(&self, id: SessionId, session: &Session) -> Welcome {
        Welcome {
            client_random: session.client_random,
            server_random: session.server_random,
            session: id,
            offer: self.limits.offer(),
        }
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

    /// The next 32 bytes.
    pub(super) fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        self.keys.derive(b"cellbed-recorder 1 random", self.drawn)
    }
}
