//! Periodic updates of a controller, made up for when the queue is next looked at.

use crate::time::{Duration, Time};

/// The instants of a periodic update: zero + period, zero + 2 periods, …
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    next: Time,
    period: Duration,
}

impl Timer {
    /// A period of less than a microsecond counts as one.
    pub(crate) fn new(zero: Time, period: Duration) -> Self {
        let period = period.max(Duration::from_nanos(1000));
        Self {
            next: zero + period,
            period,
        }
    }

    /// The next instant, if it lies before `now`. An update at the very instant of a packet comes after it.
    ///
    /// Of very many that were missed only the last ten thousand count: by then any controller has settled.
    pub(crate) fn due(&mut self, now: Time) -> Option<Time> {
        let backlog = Duration::from_nanos(self.period.as_nanos().saturating_mul(10_000));
        self.skip_to(now - backlog);
        let due = self.next;
        if due >= now {
            return None;
        }
        self.next += self.period;
        Some(due)
    }

    /// Leaves out all instants before `now`.
    pub(crate) fn skip_to(&mut self, now: Time) {
        if self.next < now {
            let missed = now
                .since(self.next)
                .as_nanos()
                .div_ceil(self.period.as_nanos());
            self.next += Duration::from_nanos(missed.saturating_mul(self.period.as_nanos()));
        }
    }
}
