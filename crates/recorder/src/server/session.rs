//! State of one client at the server.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use cellbed_link::{BitRate, Bytes, Duration, Time};

use super::limits::Limits;
use super::run::Run;
use crate::secure::Channel;
use crate::wire::ip_overhead;

pub(super) struct Session {
    pub(super) channel: Channel,
    /// Address at which the client receives datagrams, as proved by the number of a challenge.
    pub(super) address: Option<SocketAddr>,
    /// The latest challenge: its number, which only its receiver knows, and its destination.
    challenge: Option<(u64, SocketAddr)>,
    /// Address of the connection.
    peer: SocketAddr,
    pub(super) runs: Vec<Run>,
    pub(super) budget: Budget,
    pub(super) bytes: Bytes,
    began: Time,
    /// Time of the last message that only the client can have sent.
    pub(super) last_received: Time,
}

impl Session {
    pub(super) fn new(channel: Channel, peer: SocketAddr, now: Time, limits: &Limits) -> Self {
        Self {
            channel,
            address: None,
            challenge: None,
            peer,
            runs: Vec::new(),
            budget: Budget::new(limits.rate, limits.longest_answer()),
            bytes: Bytes(0),
            began: now,
            last_received: now,
        }
    }

    /// Set the address if `number` was sent there; return whether the address is proved.
    pub(super) fn prove(&mut self, from: SocketAddr, number: u64) -> bool {
        if self.challenge == Some((number, from)) {
            self.address = Some(from);
        }
        self.address == Some(from)
    }

    /// Return the number of the challenge to an address; `random`: the number of a new one.
    pub(super) fn challenge(&mut self, to: SocketAddr, random: u64) -> u64 {
        let former = self.challenge.filter(|(_, address)| *address == to);
        self.challenge.insert(former.unwrap_or((random, to))).0
    }

    /// Return the time of the next packet of a saturation.
    pub(super) fn next_event(&self, limits: &Limits) -> Time {
        let silent = self.address.map(|_| self.last_received + limits.silence);
        let runs = self.runs.iter();
        let due = runs.filter_map(|run| run.saturator.as_ref()?.next_event());
        due.filter(|due| silent.is_some_and(|silent| *due < silent))
            .min()
            .unwrap_or(Time::MAX)
    }

    /// Return the time of removal without further messages.
    pub(super) fn expiry(&self, limits: &Limits) -> Time {
        let silent = self.last_received + limits.idle;
        silent.min(self.probing_ends(limits) + limits.idle)
    }

    /// Return whether the session has time and bytes left.
    pub(super) fn may_probe(&self, limits: &Limits, now: Time) -> bool {
        now < self.probing_ends(limits) && self.bytes < limits.bytes
    }

    /// Return the time at which probing must end.
    pub(super) fn probing_ends(&self, limits: &Limits) -> Time {
        self.began + limits.duration
    }

    /// Count bytes sent or received.
    pub(super) fn spend(&mut self, bytes: Bytes) {
        self.bytes = Bytes(self.bytes.0.saturating_add(bytes.0));
    }

    /// Return where the client receives datagrams, or probably will.
    pub(super) fn receiver(&self) -> IpAddr {
        self.address.unwrap_or(self.peer).ip()
    }

    /// Return the bytes of IP and UDP headers of a packet to the client.
    pub(super) fn overhead(&self) -> u16 {
        ip_overhead(self.receiver())
    }

    pub(super) fn report_memory(&self) -> Bytes {
        self.runs.iter().map(|run| run.log.memory()).sum()
    }

    pub(super) fn run(&mut self, number: u32) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.number == number)
    }
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
pub(super) const OVERDRAFT: Duration = Duration::from_secs(1);

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

    /// Take `bytes` from the budgets of a session and of all sessions, or from neither. `overdraft`: what may be used
    /// beyond the burst.
    pub(super) fn take(both: [&mut Self; 2], now: Time, bytes: Bytes, overdraft: Duration) -> bool {
        let paid = |budget: &Self| budget.paid_until.max(now) + budget.cost(bytes);
        let allows = |budget: &&mut Self| paid(budget) <= now + budget.burst + overdraft;
        let allowed = both.iter().all(allows);
        if allowed {
            Self::charge(both, now, bytes);
        }
        allowed
    }

    /// Take `bytes` from both budgets, even if less is left.
    pub(super) fn charge(both: [&mut Self; 2], now: Time, bytes: Bytes) {
        for budget in both {
            budget.paid_until = budget.paid_until.max(now) + budget.cost(bytes);
        }
    }

    /// Return whether replies must wait.
    pub(super) fn is_overdrawn(both: [&Self; 2], now: Time) -> bool {
        both.iter()
            .any(|it| it.paid_until > now + it.burst + OVERDRAFT)
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
            Budget::take(
                budgets,
                Time::from_micros(micros),
                Bytes(1000),
                Duration::ZERO,
            )
        };
        assert_eq!((0..100).filter(|_| take(0)).count(), 20);
        assert!(!take(999));
        assert!(take(1000));
        let micros = (1000..=1_001_000).step_by(100);
        let sent = micros.filter(|micros| take(*micros)).count();
        assert_eq!(sent, 1000); // in 1 s
        let budgets = [&mut session, &mut total];
        let now = Time::from_micros(1_001_000);
        assert!(Budget::take(budgets, now, Bytes(1000), OVERDRAFT));
    }
}
