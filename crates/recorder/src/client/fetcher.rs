//! Fetching a run's arrivals from the server when it disturbs least.

use std::ops::RangeInclusive;

use cellbed_link::{Duration, Time};

use crate::wire::Request;

/// Interval of polling for chunks after a run; `STEERING_POLL`: if the traffic depends on them; `SATURATED_POLL`:
/// during a fixed saturation.
pub(super) const POLL: Duration = Duration::from_millis(300);
pub(super) const STEERING_POLL: Duration = Duration::from_millis(100);
pub(super) const SATURATED_POLL: Duration = Duration::from_secs(5);

/// Pauses in which a request disturbs least. While trains measure the network, the fetcher requests reports after the
/// answer to a train. Request, reports and their acknowledgement shorten the apparent pause before the next train by at
/// most about a round-trip time. That matters least in pauses of this length: the link is cold, but not asleep. The
/// fetcher waits for such a pause, then for a shorter one, then for any; without an answer at most for [`UNANSWERED`].
const HARMLESS: RangeInclusive<Duration> = Duration::from_millis(25)..=Duration::from_millis(100);
const HARMLESS_AGAIN: Duration = Duration::from_millis(700);
const SHORT: Duration = Duration::from_millis(1_000);
const ANY: Duration = Duration::from_secs(2);
const UNANSWERED: Duration = Duration::from_secs(3);

/// Times of requests, and what remains to be fetched.
#[derive(Default)]
pub(super) struct Fetcher {
    run: u32,
    poll: Duration,
    /// Number of chunks that the server has left, as last reported.
    left: u32,
    /// Time of the last request, and whether it was answered.
    requested: Option<Time>,
    waiting: bool,
    /// Time of the last answered request.
    answered: Option<Time>,
    /// True if polling now does not disturb a measurement.
    good_moment: bool,
}

impl Fetcher {
    pub(super) fn new(run: u32, poll: Duration) -> Self {
        Self {
            run,
            poll,
            ..Self::default()
        }
    }

    /// Poll at this interval from now on.
    pub(super) fn poll_every(&mut self, poll: Duration) {
        self.poll = poll;
        self.good_moment = false;
    }

    /// Poll in [pauses](Self::pause), or at the interval of the workload, from `now` on.
    pub(super) fn begin(&mut self, now: Time, in_pauses: bool) {
        if in_pauses {
            self.poll = UNANSWERED;
        }
        self.requested.get_or_insert(now);
    }

    /// Record that a train was answered and nothing is sent for `length`.
    pub(super) fn pause(&mut self, now: Time, length: Duration) {
        let wait = if HARMLESS.contains(&length) {
            HARMLESS_AGAIN
        } else if length < *HARMLESS.start() {
            SHORT
        } else {
            ANY
        };
        self.good_moment = self
            .requested
            .is_some_and(|requested| now.since(requested) >= wait);
    }

    /// Return the time of the next request.
    pub(super) fn next_event(&self) -> Time {
        match self.requested {
            _ if self.waiting => Time::MAX,
            Some(requested) if !self.good_moment && self.left == 0 => requested + self.poll,
            _ => Time::ZERO,
        }
    }

    /// Return the due request.
    pub(super) fn emit(&mut self, now: Time) -> Option<Request> {
        if self.next_event() > now {
            return None;
        }
        self.requested = Some(now);
        self.waiting = true;
        self.good_moment = false;
        Some(Request::Reports { run: self.run })
    }

    /// Record that the server has reported, with so many chunks left.
    pub(super) fn on_report(&mut self, left: u32) {
        self.left = left;
    }

    /// Record that the last request was answered, after its reports.
    pub(super) fn on_answer(&mut self) {
        self.waiting = false;
        self.answered = self.requested;
    }

    /// Return whether a request made at `time` or later was answered and all available chunks have arrived.
    pub(super) fn has_report_of(&self, time: Time) -> bool {
        self.answered.is_some_and(|answered| answered >= time) && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(fetcher: &mut Fetcher, at: u64, length: u64) {
        fetcher.pause(Time::from_millis(at), Duration::from_millis(length));
    }

    fn asks(fetcher: &mut Fetcher, millisecond: u64) -> bool {
        fetcher.emit(Time::from_millis(millisecond)).is_some()
    }

    #[test]
    fn between_trains_it_waits_for_a_pause_that_does_no_harm_but_not_forever() {
        const LONG: u64 = 300;
        let after_an_answer_at = |requested: u64, pauses: &[(u64, u64)]| {
            let mut fetcher = Fetcher::new(4, POLL);
            fetcher.begin(Time::ZERO, true);
            pause(&mut fetcher, requested, 50);
            assert!(asks(&mut fetcher, requested));
            fetcher.on_answer();
            let mut asks = pauses.iter().filter_map(|(at, length)| {
                pause(&mut fetcher, requested + at, *length);
                asks(&mut fetcher, requested + at).then_some(*at)
            });
            asks.next()
        };
        let pauses = |length| (1..40).map(|it| (it * 100, length)).collect::<Vec<_>>();
        assert_eq!(after_an_answer_at(1_000, &pauses(50)), Some(700));
        assert_eq!(after_an_answer_at(1_000, &pauses(5)), Some(1_000));
        assert_eq!(after_an_answer_at(1_000, &pauses(LONG)), Some(2_000));
        let mixed = [(650, 50), (800, LONG), (850, 5), (900, 50)];
        assert_eq!(after_an_answer_at(1_000, &mixed), Some(900));
        assert_eq!(
            after_an_answer_at(1_000, &[(2_999, 5_000), (3_000, 5_000)]),
            Some(2_999)
        );
    }

    #[test]
    fn requests_follow_each_other_until_nothing_is_left() {
        let mut fetcher = Fetcher::new(4, POLL);
        assert!(
            asks(&mut fetcher, 0) && !asks(&mut fetcher, 900),
            "not answered"
        );
        fetcher.on_report(1);
        fetcher.on_answer();
        assert!(!fetcher.has_report_of(Time::ZERO));
        assert!(asks(&mut fetcher, 900));
        fetcher.on_report(0);
        fetcher.on_answer();
        assert!(fetcher.has_report_of(Time::from_millis(900)));
        assert!(!asks(&mut fetcher, 1_199) && asks(&mut fetcher, 1_200));
    }
}
