//! Fetching a run's arrivals from the server, chunk by chunk.

use std::collections::BTreeMap;

use cellbed_link::{Duration, Time};

use crate::wire::{Report, Request, SessionId};

/// How often to ask whether there is more, and where what is sent depends on it.
pub(super) const POLL: Duration = Duration::from_millis(300);
pub(super) const STEERING_POLL: Duration = Duration::from_millis(100);

/// Chunks to ask for at once: as much as a saturation of 1 Gbit/s makes in a third of a second.
const MOST_AT_ONCE: u16 = 128;

/// Knows which chunks are there and which to ask for.
pub(super) struct Fetcher {
    run: u32,
    poll: Duration,
    /// The first chunk that is not there.
    next: u32,
    /// How many there are.
    known: u32,
    /// Chunks that came before their turn.
    ahead: BTreeMap<u32, Report>,
    /// When it asked last, and for chunks up to which.
    asked: Option<(Time, u32)>,
    /// Whether a report came since then.
    heard: bool,
    /// When it asked what was answered last.
    answered: Time,
}

impl Fetcher {
    pub(super) fn new(run: u32, poll: Duration) -> Self {
        Self {
            run,
            poll,
            next: 0,
            known: 0,
            ahead: BTreeMap::new(),
            asked: None,
            heard: false,
            answered: Time::ZERO,
        }
    }

    /// When to ask next, if an answer may take `patience`.
    pub(super) fn next_event(&self, patience: Duration) -> Time {
        let Some((asked, through)) = self.asked else {
            return Time::ZERO;
        };
        let answered = self.heard && self.next >= through.min(self.known);
        match answered {
            true if self.next < self.known => Time::ZERO,
            true => asked + self.poll,
            false => asked + patience.max(self.poll),
        }
    }

    /// The request that is due, which acknowledges what is there.
    pub(super) fn emit(&mut self, now: Time, of: SessionId, patience: Duration) -> Option<Request> {
        if self.next_event(patience) > now {
            return None;
        }
        self.asked = Some((now, self.next.saturating_add(u32::from(MOST_AT_ONCE))));
        self.heard = false;
        Some(Request::Reports {
            of,
            run: self.run,
            from: self.next,
            most: MOST_AT_ONCE,
        })
    }

    /// Takes a report, and gives all whose turn it is.
    pub(super) fn take(&mut self, report: Report) -> Vec<Report> {
        self.heard = true;
        if let Some((asked, _)) = self.asked {
            self.answered = asked;
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

    /// Whether all chunks of which the server has told are there.
    pub(super) fn is_level(&self) -> bool {
        self.heard && self.next == self.known
    }

    /// Whether a question that was asked at `time` or later has been answered, and all that there was has come.
    pub(super) fn has_news_of(&self, time: Time) -> bool {
        self.answered >= time && self.next == self.known
    }

    /// Asks at the next opportunity, and is not [level](Self::is_level) before the answer.
    pub(super) fn ask_now(&mut self) {
        self.asked = None;
        self.heard = false;
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
            saturation_sent: 0,
            withheld: 0,
            unrecorded: 0,
            arrivals: Vec::new(),
        }
    }

    fn asked_from(fetcher: &mut Fetcher, millisecond: u64) -> Option<u32> {
        match fetcher.emit(Time::from_millis(millisecond), OF, PATIENCE) {
            Some(Request::Reports { from, .. }) => Some(from),
            _ => None,
        }
    }

    #[test]
    fn chunks_come_out_in_order_and_once_whatever_the_network_does() {
        let mut fetcher = Fetcher::new(4, POLL);
        assert_eq!(asked_from(&mut fetcher, 0), Some(0));
        let mut got = Vec::new();
        for chunk in [2, 0, 0, 2, 1, 1] {
            got.extend(
                fetcher
                    .take(report(chunk, 4))
                    .iter()
                    .map(|report| report.chunk),
            );
        }
        assert_eq!(got, [0, 1, 2]);
        assert!(!fetcher.is_level());
        assert_eq!(asked_from(&mut fetcher, 100), None); // chunk 3 may still come
        assert_eq!(asked_from(&mut fetcher, 500), Some(3));
        assert_eq!(fetcher.take(report(3, 4)).len(), 1);
        assert!(fetcher.is_level());
        assert_eq!(asked_from(&mut fetcher, 600), None);
        assert_eq!(asked_from(&mut fetcher, 800), Some(4));
        assert!(fetcher.take(report(4, 4)).is_empty());
        assert!(fetcher.is_level());
    }
}
