//! What the server knows of one client.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use cellbed_link::{Bytes, Time};

use crate::secure::{COOKIE_LIFE, Channel};
use crate::wire::{Cookie, Hello};

use super::budget::Budget;
use super::limits::Limits;
use super::run::Run;

pub(super) struct Session {
    pub(super) channel: Channel,
    /// Where the client has shown that it receives.
    pub(super) address: SocketAddr,
    pub(super) server_random: [u8; 32],
    /// The handshake that showed it.
    pub(super) client_random: [u8; 32],
    cookie_given: Time,
    pub(super) group: Option<[u8; 16]>,
    pub(super) runs: Vec<Run>,
    pub(super) budget: Budget,
    pub(super) bytes: Bytes,
    began: Time,
    /// When something that nobody else can have sent came last.
    pub(super) heard: Time,
    pub(super) ended: bool,
}

impl Session {
    pub(super) fn new(
        channel: Channel,
        address: SocketAddr,
        server_random: [u8; 32],
        hello: &Hello,
        limits: &Limits,
        now: Time,
    ) -> Self {
        Self {
            channel,
            address,
            server_random,
            client_random: hello.client_random,
            cookie_given: given(hello),
            group: None,
            runs: Vec::new(),
            budget: Budget::new(limits.rate, limits.longest_answer()),
            bytes: Bytes(0),
            began: now,
            heard: now,
            ended: false,
        }
    }

    /// The client is at `address` now, as this hello proves, unless a later one has proved another; whether it is.
    pub(super) fn move_to(&mut self, address: SocketAddr, hello: &Hello, now: Time) -> bool {
        let repeated = given(hello) == self.cookie_given
            && hello.client_random == self.client_random
            && address == self.address;
        if given(hello) <= self.cookie_given && !repeated {
            return false;
        }
        self.address = address;
        self.client_random = hello.client_random;
        self.cookie_given = given(hello);
        if !repeated {
            self.heard = now;
        }
        true
    }

    /// It says goodbye, and what it had is forgotten at once. Its handshake is remembered as long as somebody could replay it.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.runs.clear();
        self.group = None;
    }

    /// When it is to be forgotten, if nothing more is heard; not while somebody could replay its handshake and so begin another.
    pub(super) fn expiry(&self, limits: &Limits) -> Time {
        let replayable = self.cookie_given + COOKIE_LIFE;
        if self.ended {
            return replayable;
        }
        let silent = self.heard + limits.idle;
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

fn given(hello: &Hello) -> Time {
    Time::from_nanos(hello.cookie.unwrap_or(Cookie::NONE).given_ns)
}

/// Whose clients count together: one IPv4 address, or what one subscriber has of IPv6 at least.
pub(super) fn network(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        four => four,
    }
}
