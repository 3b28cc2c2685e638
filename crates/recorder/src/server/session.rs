//! State of one client at the server.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use cellbed_link::{Bytes, Time};

use crate::secure::{COOKIE_LIFE, Channel};
use crate::wire::{CODE_BYTES, Cookie};

use super::budget::Budget;
use super::limits::Limits;
use super::run::Run;

pub(super) struct Session {
    pub(super) channel: Channel,
    /// Address at which the client has shown that it receives.
    pub(super) address: SocketAddr,
    /// The codes of the hello that began the session and of the one that showed its address, and the welcome to the
    /// latter.
    hellos: [[u8; CODE_BYTES]; 2],
    welcome: Vec<u8>,
    cookie_given: Time,
    pub(super) group: Option<[u8; 16]>,
    pub(super) runs: Vec<Run>,
    pub(super) budget: Budget,
    pub(super) bytes: Bytes,
    began: Time,
    /// When something that nobody else can have sent came last.
    pub(super) last_received: Time,
    pub(super) ended: bool,
}

impl Session {
    pub(super) fn new(channel: Channel, hello: &Proved, welcome: Vec<u8>, limits: &Limits) -> Self {
        Self {
            channel,
            address: hello.from,
            hellos: [*hello.code; 2],
            welcome,
            cookie_given: Time::from_nanos(hello.cookie.given_ns),
            group: None,
            runs: Vec::new(),
            budget: Budget::new(limits.rate, limits.longest_answer()),
            bytes: Bytes(0),
            began: hello.now,
            last_received: hello.now,
            ended: false,
        }
    }

    /// Return whether the hello with this code is one of the session's.
    pub(super) fn knows(&self, hello: &[u8; CODE_BYTES]) -> bool {
        self.hellos.contains(hello)
    }

    /// The welcome to the hello with this code, if that is the session's last.
    pub(super) fn welcome_again(&self, hello: &[u8; CODE_BYTES]) -> Option<Vec<u8>> {
        (self.hellos[1] == *hello).then(|| self.welcome.clone())
    }

    /// Makes the address that this hello proves the session's, unless a later one has proved another; returns whether
    /// it did.
    pub(super) fn move_to(&mut self, hello: &Proved, welcome: &[u8]) -> bool {
        let given = Time::from_nanos(hello.cookie.given_ns);
        if given <= self.cookie_given {
            return false;
        }
        (self.address, self.cookie_given, self.last_received) = (hello.from, given, hello.now);
        self.hellos[1] = *hello.code;
        self.welcome = welcome.to_vec();
        true
    }

    /// The client closes the session, whose state is removed at once. Its handshake is kept as long as it could be
    /// replayed.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.runs.clear();
        self.group = None;
    }

    /// When the session is removed if nothing more arrives; not while its handshake could be replayed to begin another.
    pub(super) fn expiry(&self, limits: &Limits) -> Time {
        let replayable = self.cookie_given + COOKIE_LIFE;
        if self.ended {
            return replayable;
        }
        let silent = self.last_received + limits.idle;
        silent
            .min(self.probing_ends(limits) + limits.idle)
            .max(replayable)
    }

    /// When it may no longer probe.
    pub(super) fn probing_ends(&self, limits: &Limits) -> Time {
        self.began + limits.duration
    }

    /// So much more was sent, or came.
    pub(super) fn spend(&mut self, bytes: Bytes) {
        self.bytes = Bytes(self.bytes.0.saturating_add(bytes.0));
    }

    pub(super) fn report_memory(&self) -> Bytes {
        Bytes(self.runs.iter().map(|run| run.log.memory().0).sum())
    }

    pub(super) fn run(&mut self, number: u32) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.number == number)
    }
}

/// An authentic hello from an address that its cookie proves.
#[derive(Clone, Copy)]
pub(super) struct Proved<'a> {
    pub(super) now: Time,
    pub(super) from: SocketAddr,
    /// The hello's code: no two hellos have the same.
    pub(super) code: &'a [u8; CODE_BYTES],
    pub(super) cookie: Cookie,
}

/// Return the network whose clients count together: one IPv4 address, or the smallest IPv6 prefix of a subscriber.
pub(super) fn network(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        four => four,
    }
}
