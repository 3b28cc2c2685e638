//! State of one client at the server.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use cellbed_link::{BitRate, Bytes, Duration, Time};

use super::limits::Limits;
use super::run::Run;
use crate::secure::{COOKIE_LIFE, Channel};
use crate::wire::{CODE_BYTES, Cookie, ip_overhead};

pub(super) struct Session {
    pub(super) channel: Channel,
    /// Address at which the client receives, as proved by a cookie.
    pub(super) address: SocketAddr,
    /// Codes of the hello that began the session and of the hello that proved the address; the welcome to the latter.
    hellos: [[u8; CODE_BYTES]; 2],
    welcome: Vec<u8>,
    cookie_given: Time,
    pub(super) group: Option<[u8; 16]>,
    pub(super) runs: Vec<Run>,
    pub(super) budget: Budget,
    pub(super) bytes: Bytes,
    began: Time,
    /// Time of the last message that only the client can have sent.
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

    /// Return whether the session has accepted the hello with this code.
    pub(super) fn has_accepted(&self, hello: &[u8; CODE_BYTES]) -> bool {
        self.hellos.contains(hello)
    }

    /// Return the welcome to the hello with this code, if that hello was the last.
    pub(super) fn welcome_again(&self, hello: &[u8; CODE_BYTES]) -> Option<Vec<u8>> {
        (self.hellos[1] == *hello).then(|| self.welcome.clone())
    }

    /// Set the address proved by this hello, unless a later hello has proved another. Return whether the address was
    /// set.
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

    /// Close the session for the client and remove its state. The handshake is kept as long as it could be replayed.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.runs.clear();
        self.group = None;
    }

    /// Return the time of removal without further messages; not while the handshake could be replayed.
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

    /// Return the time at which probing must end.
    pub(super) fn probing_ends(&self, limits: &Limits) -> Time {
        self.began + limits.duration
    }

    /// Count bytes sent or received.
    pub(super) fn spend(&mut self, bytes: Bytes) {
        self.bytes = Bytes(self.bytes.0.saturating_add(bytes.0));
    }

    /// Return the bytes of IP and UDP headers of a packet to the client.
    pub(super) fn overhead(&self) -> u16 {
        ip_overhead(self.address.ip())
    }

    pub(super) fn report_memory(&self) -> Bytes {
        self.runs.iter().map(|run| run.log.memory()).sum()
    }

    pub(super) fn run(&mut self, number: u32) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.number == number)
    }
}

/// An authentic hello from an address proved by the cookie.
#[derive(Clone, Copy)]
pub(super) struct Proved<'a> {
    pub(super) now: Time,
    pub(super) from: SocketAddr,
    /// Code of the hello, different for each hello.
    pub(super) code: &'a [u8; CODE_BYTES],
    pub(super) cookie: Cookie,
}

/// Return the network whose clients are counted together: an IPv4 address, or a subscriber's smallest IPv6 prefix.
pub(super) fn network(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

/// Minimum burst: a short train leaves back to back at any rate.
const LEAST_BURST: Duration = Duration::from_millis(10);

/// Maximum overdraft of the budget for reports, which must pass even during a saturation at the limit.
const OVERDRAFT: Duration = Duration::from_secs(1);

/// A rate that may be exceeded only by a burst: the generic cell rate algorithm (ITU-T I.371, virtual scheduling).
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    rate: BitRate,
    burst: Duration,
    /// Time at which all sent bytes would have been sent at `rate`.
    paid_until: Time,
}

impl Budget {
    /// A budget of this rate. `burst`: bytes sent at once, at least those of 10 ms.
    pub(super) fn new(rate: BitRate, burst: Bytes) -> Self {
        let mut budget = Self {
            rate,
            burst: Duration::ZERO,
            paid_until: Time::ZERO,
        };
        budget.burst = budget.cost(burst).max(LEAST_BURST);
        budget
    }

    fn cost(&self, bytes: Bytes) -> Duration {
        let nanos = u128::from(bytes.0) * 8_000_000_000 / u128::from(self.rate.0.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Take `bytes` from the budgets of a session and of all sessions, or from neither.
    pub(super) fn take(both: [&mut Self; 2], now: Time, bytes: Bytes) -> bool {
        Self::overdraw(both, now, bytes, Duration::ZERO)
    }

    /// Like [`take`](Self::take), for a reply or a report.
    pub(super) fn take_for_report(both: [&mut Self; 2], now: Time, bytes: Bytes) -> bool {
        Self::overdraw(both, now, bytes, OVERDRAFT)
    }

    fn overdraw(both: [&mut Self; 2], now: Time, bytes: Bytes, overdraft: Duration) -> bool {
        let paid = |budget: &Self| budget.paid_until.max(now) + budget.cost(bytes);
        let allows = |budget: &&mut Self| paid(budget) <= now + budget.burst + overdraft;
        let allowed = both.iter().all(allows);
        if allowed {
            both.into_iter()
                .for_each(|budget| budget.paid_until = paid(budget));
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_bounded_and_the_rate_holds_after_it() {
        let mut session = Budget::new(BitRate(8_000_000), Bytes(20_000)); // 1 byte per µs
        let mut total = Budget::new(BitRate(80_000_000), Bytes(200_000));
        let mut take = |micros| {
            let budgets = [&mut session, &mut total];
            Budget::take(budgets, Time::from_micros(micros), Bytes(1000))
        };
        assert_eq!((0..100).filter(|_| take(0)).count(), 20);
        assert!(!take(999));
        assert!(take(1000));
        let micros = (1000..=1_001_000).step_by(100);
        let sent = micros.filter(|micros| take(*micros)).count();
        assert_eq!(sent, 1000); // in 1 s
        let budgets = [&mut session, &mut total];
        let now = Time::from_micros(1_001_000);
        assert!(Budget::take_for_report(budgets, now, Bytes(1000)));
    }
}
