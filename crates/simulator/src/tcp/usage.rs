//! Whether a sender uses its window: one that it does not use must not grow (RFC 7661 §4 has the reasons).

use super::congestion::Window;

/// The use of the window, over about a round trip, as Linux judges it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    limited: bool,
    /// Maximum segments in flight.
    most: u64,
    /// When this byte has arrived, the earlier period no longer counts.
    end: u64,
}

impl Usage {
    /// held_back: data waits for the window. under_way: segments. missing, next: the first byte that has not arrived, and
    /// that has not been sent.
    pub fn note(&mut self, held_back: bool, under_way: u64, missing: u64, next: u64) {
        let more = !self.limited && under_way > self.most;
        if missing >= self.end || held_back || more {
            *self = Self {
                limited: held_back,
                most: under_way,
                end: next,
            };
        }
    }

    /// Whether the window may grow: in slow start, when half of it was used.
    pub fn is_limited(&self, window: &Window) -> bool {
        let half = window.is_slow_start() && window.segments() < 2 * self.most;
        self.limited || half
    }
}
