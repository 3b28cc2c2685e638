//! Fetching a run's arrivals from the server, chunk by chunk.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use cellbed_link::{Duration, Time};

use crate::wire::{Report, Request, SessionId};

/// Interval of polling for chunks; `STEERING_POLL`: if the traffic depends on them.
pub(super) const POLL: Duration = Duration::from_millis(300);
pub(super) const STEERING_POLL: Duration = Duration::from_millis(100);

/// Pauses in which a request disturbs least. While trains measure the network, the fetcher requests reports after the
/// answer to a train. The request lengthens the apparent pause before the next train by at most about a round-trip
/// time. That matters least in pauses of this length: the link is cold, but not asleep. The fetcher waits for such a
/// pause, then for a shorter one, then for any; without an answer at most for [`UNANSWERED`].
const HARMLESS: RangeInclusive<Duration> = Duration::from_millis(25)..=Duration::from_millis(100);
const SHORT: Duration = Duration::from_millis(600);
const ANY: Duration = Duration::from_secs(2);
const UNANSWERED: Duration = Duration::from_secs(3);

/// Maximum chunks per request: a third of a second of saturation at 1 Gbit/s.
const MOST_AT_ONCE: u16 = 128;

/// Chunks that have arrived, and chunks to request.
#[derive(Default)]
pub(super) struct Fetcher {
    run: u32,
    poll: Duration,
    /// The first missing chunk.
    next: u32,
    /// Number of chunks announced.
    known: u32,
    /// Chunks that arrived before earlier ones.
    ahead: BTreeMap<u32, Report>,
    /// Time of the last request, and its last chunk.
    requested: Option<(Time, u32)>,
    /// True if a report has arrived since the request.
    reported: bool,
    /// Time at which the last answered request was sent.
    answered: Time,
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

    /// Poll in [pauses](Self::pause) from `now` on.
    pub(super) fn poll_in_pauses(&mut self, now: Time) {
        self.poll = UNANSWERED;
        self.requested.get_or_insert((now, 0));
    }

    /// Record that a train was answered and nothing is sent for `length`.
    pub(super) fn pause(&mut self, now: Time, length: Duration, patience: Duration) {
        let wait = if HARMLESS.contains(&length) {
            POLL
        } else if length < *HARMLESS.start() {
            SHORT
        } else {
            ANY
        };
        let wait = if self.is_answered() {
            wait
        } else {
            wait.max(patience)
        };
        self.good_moment = self
            .requested
            .is_some_and(|(requested, _)| now.since(requested) >= wait);
    }

    /// Return the time of the next request; `patience`: maximum time of an answer.
    pub(super) fn next_event(&self, patience: Duration) -> Time {
        let Some((requested, _)) = self.requested.filter(|_| !self.good_moment) else {
            return Time::ZERO;
        };
        match self.is_answered() {
            true if self.next < self.known => Time::ZERO,
            true => requested + self.poll,
            false => requested + patience.max(self.poll),
        }
    }

    /// Return whether all chunks last requested have arrived.
    fn is_answered(&self) -> bool {
        let through = self.requested.map_or(0, |(_, through)| through);
        self.reported && self.next >= through.min(self.known)
    }

    /// Return the due request, which acknowledges the received chunks.
    pub(super) fn emit(&mut self, now: Time, of: SessionId, patience: Duration) -> Option<Request> {
        if self.next_event(patience) > now {
            return None;
        }
        self.requested = Some((now, self.next.saturating_add(u32::from(MOST_AT_ONCE))));
        self.reported = false;
        self.good_moment = false;
        Some(Request::Reports {
            of,
            run: self.run,
            from: self.next,
            most: MOST_AT_ONCE,
        })
    }

    /// Accept a report; return all reports now in order.
    pub(super) fn take(&mut self, report: Report) -> Vec<Report> {
        self.reported = true;
        if let Some((requested, _)) = self.requested {
            self.answered = requested;
        }
        self.known = self.known.max(report.chunks);
        if report.chunk >= self.next && report.chunk < report.chunks {
            self.ahead.insert(report.chunk, report);
        }
        let mut ready = Vec::new();
        while let Some(report) = self.ahead.remove(&self.next) {
            self.next += 1;
            ready.push(report);
        }
        ready
    }

    /// Return whether all announced chunks have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.reported && self.next == self.known
    }

    /// Return whether a request made at `time` or later was answered and all available chunks have arrived.
    pub(super) fn has_report_of(&self, time: Time) -> bool {
        self.answered >= time && self.next == self.known
    }

    /// Poll at the next opportunity; not [complete](Self::is_complete) until answered.
    pub(super) fn poll_now(&mut self) {
        self.requested = None;
        self.reported = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: SessionId = SessionId(1);
    const PATIENCE: Duration = Duration::from_millis(500);

    fn report(chunk: u32, chunks: u32) -> Report {
        Report {
            run: 4,
            chunk,
            chunks,
            ..Report::default()
        }
    }

    fn pause(fetcher: &mut Fetcher, at: u64, length: u64) {
        let length = Duration::from_millis(length);
        fetcher.pause(Time::from_millis(at), length, PATIENCE);
    }

    fn asked_from(fetcher: &mut Fetcher, millisecond: u64) -> Option<u32> {
        match fetcher.emit(Time::from_millis(millisecond), OF, PATIENCE) {
            Some(Request::Reports { from, .. }) => Some(from),
            _ => None,
        }
    }

    #[test]
    fn between_trains_it_waits_for_a_pause_that_does_no_harm_but_not_forever() {
        const LONG: u64 = 300;
        let after_an_answer_at = |requested: u64, pauses: &[(u64, u64)]| {
            let mut fetcher = Fetcher::new(4, POLL);
            fetcher.poll_in_pauses(Time::ZERO);
            pause(&mut fetcher, requested, 50);
            assert_eq!(asked_from(&mut fetcher, requested), Some(0));
            fetcher.take(report(0, 0));
            let mut asks = pauses.iter().filter_map(|(at, length)| {
                pause(&mut fetcher, requested + at, *length);
                asked_from(&mut fetcher, requested + at).map(|_| *at)
            });
            asks.next()
        };
        let pauses = |length| (1..40).map(|it| (it * 100, length)).collect::<Vec<_>>();
        assert_eq!(after_an_answer_at(500, &pauses(50)), Some(300));
        assert_eq!(after_an_answer_at(500, &pauses(5)), Some(600));
        assert_eq!(after_an_answer_at(500, &pauses(LONG)), Some(2_000));
        let mixed = [(250, 50), (400, LONG), (500, 5), (900, 50)];
        assert_eq!(after_an_answer_at(500, &mixed), Some(900));
    }

    #[test]
    fn without_answers_between_trains_it_asks_each_three_seconds() {
        let mut fetcher = Fetcher::new(4, POLL);
        fetcher.poll_in_pauses(Time::from_millis(100));
        assert_eq!(fetcher.next_event(PATIENCE), Time::from_millis(3_100));
        assert_eq!(asked_from(&mut fetcher, 3_100), Some(0));
        assert_eq!(fetcher.next_event(PATIENCE), Time::from_millis(6_100));
        // A lost chunk is requested again in a pause, but not while the chunk may still arrive.
        pause(&mut fetcher, 3_500, 50);
        assert_eq!(asked_from(&mut fetcher, 3_500), None);
        pause(&mut fetcher, 3_600, 50);
        assert_eq!(asked_from(&mut fetcher, 3_600), Some(0));
        fetcher.poll_every(POLL);
        assert_eq!(asked_from(&mut fetcher, 4_100), Some(0));
    }

    #[test]
    fn chunks_come_out_in_order_and_once_whatever_the_network_does() {
        let mut fetcher = Fetcher::new(4, POLL);
        assert_eq!(asked_from(&mut fetcher, 0), Some(0));
        let mut got = Vec::new();
        for chunk in [2, 0, 0, 2, 1, 1] {
            let ready = fetcher.take(report(chunk, 4));
            got.extend(ready.iter().map(|report| report.chunk));
        }
        assert_eq!(got, [0, 1, 2]);
        assert!(!fetcher.is_complete());
        assert_eq!(asked_from(&mut fetcher, 100), None); // chunk 3 may still arrive
        assert_eq!(asked_from(&mut fetcher, 500), Some(3));
        assert_eq!(fetcher.take(report(3, 4)).len(), 1);
        assert!(fetcher.is_complete());
        assert_eq!(asked_from(&mut fetcher, 600), None);
        assert_eq!(asked_from(&mut fetcher, 800), Some(4));
        assert!(fetcher.take(report(4, 4)).is_empty());
        assert!(fetcher.is_complete());
    }
}
