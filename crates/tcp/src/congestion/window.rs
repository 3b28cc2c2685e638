//! The congestion window, its use, and its reduction during loss repair.

use cellbed_link::Duration;

use super::super::Tcp;
use super::super::flight::NewlyAcked;

/// The congestion window, in segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    initial: f64,
    pub size: f64,
    /// Window at which slow start ends.
    pub threshold: f64,
}

impl Window {
    pub fn new(tcp: &Tcp) -> Self {
        Self {
            initial: tcp.initial_window as f64,
            size: tcp.initial_window as f64,
            threshold: f64::INFINITY,
        }
    }

    /// Return whole segments, at least one.
    pub fn segments(&self) -> u64 {
        (self.size as u64).max(1)
    }

    pub fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Grow by acknowledged segments up to the threshold (RFC 5681 §3.1). Return the segments left for congestion
    /// avoidance; `None` if slow start took all.
    pub fn slow_start(&mut self, segments: f64) -> Option<f64> {
        if !self.is_slow_start() {
            return Some(segments);
        }
        let grown = (self.size + segments).min(self.threshold);
        let rest = segments - (grown - self.size);
        self.size = grown;
        (rest > 0.0).then_some(rest)
    }

    /// Halves the window for each timeout without sending, down to the initial window (RFC 2861 §3.2 as in Linux).
    pub fn decay(&mut self, mut idle: Duration, timeout: Duration) {
        if self.threshold.is_finite() {
            self.threshold = self.threshold.max(0.75 * self.size);
        }
        let floor = self.initial.min(self.size);
        while idle > timeout && self.size > floor {
            idle = idle.saturating_sub(timeout);
            self.size = (self.size / 2.0).floor();
        }
        self.size = self.size.max(floor);
    }
}

/// Use of the window over about a round trip, as Linux judges it: an unused window must not grow (reasons in RFC 7661
/// §4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    limited: bool,
    /// Maximum segments in flight.
    most: u64,
    /// Byte whose arrival ends the validity of the earlier period.
    end: u64,
}

impl Usage {
    /// Record an attempt to send. held_back: data waits for the window. under_way: segments in flight. missing, next:
    /// the first byte that has not arrived, and the first unsent one.
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

    /// Return whether the window may grow; in slow start, half of it must have been used.
    pub fn is_limited(&self, window: &Window) -> bool {
        let half = window.is_slow_start() && window.segments() < 2 * self.most;
        self.limited || half
    }
}

/// Proportional rate reduction: the reduction of the window to its threshold during loss repair (RFC 6937).
///
/// Counts since the detection of the losses, in segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reduction {
    /// The window at the detection.
    before: f64,
    delivered: f64,
    sent: f64,
}

impl Reduction {
    /// Begin with a window of `before` segments, and the acknowledgement that revealed the losses.
    pub fn new(before: u64, acked: &NewlyAcked) -> Self {
        Self {
            before: before as f64,
            delivered: acked.segments as f64,
            sent: 0.0,
        }
    }

    /// Count a sent segment.
    pub fn sent(&mut self) {
        self.sent += 1.0;
    }

    pub fn delivered(&mut self, acked: &NewlyAcked) {
        self.delivered += acked.segments as f64;
    }

    /// Return the window that allows the segments to be sent now (§3.1, with the slow start reduction bound), with
    /// `in_flight` segments in flight.
    pub fn window(&self, in_flight: u64, threshold: f64, acked: &NewlyAcked, lost: u64) -> f64 {
        let in_flight = in_flight as f64;
        let allowed = if in_flight > threshold {
            (self.delivered * threshold / self.before).ceil() - self.sent
        } else {
            let mut bound = (self.delivered - self.sent).max(acked.segments as f64);
            if acked.advanced && lost == 0 {
                bound += 1.0;
            }
            bound.min(threshold - in_flight)
        };
        let least = if self.sent == 0.0 { 1.0 } else { 0.0 };
        in_flight + allowed.max(least)
    }
}
