//! Linux's tuning of the receive window.

use cellbed_link::{Duration, Time};

/// What Linux offers with its usual first buffer of 128 KiB, while it expects that half of that will be overhead.
const FIRST: u64 = 64 << 10;
/// The room of such a buffer after full packets: seven eighths. With it, the first thirty or so segments
/// are acknowledged one by one, as by Linux 6.18.
const FIRST_BOUND: u64 = 112 << 10;
/// Its assumption of the segments read in the first round trip.
const FIRST_ROUND: u64 = 10;

/// The receive window. Once in the shortest round trip its bound becomes twice what was read in that, more if that was more than in
/// the one before (Linux's dynamic right-sizing, after Fisk & Feng, LACSI 2001); with each segment the window
/// grows by two towards its bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    largest: u64,
    bound: u64,
    offered: u64,
    /// Bytes read in the last round trip.
    round: u64,
    began: Option<(Time, u64)>,
    round_trip: Duration,
}

impl Room {
    pub fn new(largest: u64, segment: u64) -> Self {
        Self {
            largest,
            bound: FIRST_BOUND.min(largest),
            offered: FIRST.min(largest),
            round: FIRST_ROUND * segment,
            began: None,
            round_trip: Duration::MAX,
        }
    }

    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// A segment has arrived. Returns whether the window has grown.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let grown = (self.offered + 2 * bytes).min(self.bound);
        let grows = grown > self.offered;
        self.offered = grown;
        grows
    }

    /// The stream has been read up to `upto`. round_trip: a sample, from the sender's answer to a stamp of ours.
    pub fn read(&mut self, now: Time, upto: u64, round_trip: Duration) {
        self.round_trip = self.round_trip.min(round_trip);
        let (began, before) = *self.began.get_or_insert((now, 0));
        if now - began < self.round_trip {
            return;
        }
        let read = upto - before;
        if read > self.round {
            let twice = 2 * read;
            let wanted = twice + 2 * (twice * (read - self.round) / self.round);
            self.bound = self.bound.max(wanted.min(self.largest));
            self.round = read;
        }
        self.began = Some((now, upto));
    }
}
