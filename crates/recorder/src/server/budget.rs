//! A rate that may not be exceeded for longer than a burst: the generic cell rate algorithm (ITU-T I.371, virtual
//! scheduling).

use cellbed_link::{BitRate, Bytes, Duration, Time};

/// A short train leaves back to back however low the rate.
const LEAST_BURST: Duration = Duration::from_millis(10);

/// Reports must get through a saturation at the very limit: for them the budget may be overdrawn by so much.
const OVERDRAFT: Duration = Duration::from_secs(1);

/// Remaining amount that may be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    rate: BitRate,
    burst: Duration,
    /// When all that was sent would have been sent at the rate.
    paid_until: Time,
}

impl Budget {
    /// Of this rate, with a burst of so many bytes at once, and of 10 ms at least.
    pub(super) fn new(rate: BitRate, burst: Bytes) -> Self {
        let mut budget = Self {
            rate,
            burst: Duration::ZERO,
            paid_until: Time::ZERO,
        };
        budget.burst =
            Duration::from_nanos(budget.cost(burst).as_nanos().max(LEAST_BURST.as_nanos()));
        budget
    }

    fn cost(&self, bytes: Bytes) -> Duration {
        let nanos = u128::from(bytes.0) * 8_000_000_000 / u128::from(self.rate.0.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn allows(&self, now: Time, bytes: Bytes, overdraft: Duration) -> bool {
        self.paid_until.max(now) + self.cost(bytes) <= now + self.burst + overdraft
    }

    fn pay(&mut self, now: Time, bytes: Bytes) {
        self.paid_until = self.paid_until.max(now) + self.cost(bytes);
    }
}

/// One session's budget combined with the budget of all sessions.
pub(super) struct Budgets<'a> {
    pub(super) session: &'a mut Budget,
    pub(super) total: &'a mut Budget,
}

impl Budgets<'_> {
    /// Takes so many bytes from both, or from neither.
    pub(super) fn take(&mut self, now: Time, bytes: Bytes) -> bool {
        self.take_up_to(now, bytes, Duration::ZERO)
    }

    /// The same for a reply or a report.
    pub(super) fn take_for_report(&mut self, now: Time, bytes: Bytes) -> bool {
        self.take_up_to(now, bytes, OVERDRAFT)
    }

    fn take_up_to(&mut self, now: Time, bytes: Bytes, overdraft: Duration) -> bool {
        let allowed =
            self.session.allows(now, bytes, overdraft) && self.total.allows(now, bytes, overdraft);
        if allowed {
            self.session.pay(now, bytes);
            self.total.pay(now, bytes);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_bounded_and_the_rate_holds_after_it() {
        let mut session = Budget::new(BitRate(8_000_000), Bytes(20_000)); // 1 byte a µs
        let mut total = Budget::new(BitRate(80_000_000), Bytes(200_000));
        let mut budgets = Budgets {
            session: &mut session,
            total: &mut total,
        };
        let at = |micros| Time::from_micros(micros);
        assert_eq!(
            (0..100)
                .filter(|_| budgets.take(at(0), Bytes(1000)))
                .count(),
            20
        );
        assert!(!budgets.take(at(999), Bytes(1000)));
        assert!(budgets.take(at(1000), Bytes(1000)));
        let sent = (1000..=1_001_000)
            .filter(|micros| budgets.take(at(*micros), Bytes(1000)))
            .count();
        assert_eq!(sent, 1000); // 1 s
        assert!(budgets.take_for_report(at(1_001_000), Bytes(1000)));
    }

    #[test]
    fn one_session_cannot_use_more_than_all_may() {
        let mut total = Budget::new(BitRate(8_000_000), Bytes(20_000));
        let mut sessions = [Budget::new(BitRate(8_000_000), Bytes(20_000)); 3];
        let mut taken = 0;
        for session in &mut sessions {
            let mut budgets = Budgets {
                session,
                total: &mut total,
            };
            taken += (0..20)
                .filter(|_| budgets.take(Time::ZERO, Bytes(1000)))
                .count();
        }
        assert_eq!(taken, 20);
    }
}
