//! Proportional rate reduction: the reduction of the window to its threshold while losses are repaired (RFC 6937).

use super::super::flight::NewlyAcked;

/// Since the losses were found. In segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reduction {
    /// The window when they were.
    before: f64,
    delivered: f64,
    sent: f64,
}

impl Reduction {
    /// Begins with a window of `before` segments, and the acknowledgement that showed the losses.
    pub fn new(before: u64, acked: &NewlyAcked) -> Self {
        Self {
            before: before as f64,
            delivered: acked.segments as f64,
            sent: 0.0,
        }
    }

    /// A segment was sent.
    pub fn sent(&mut self) {
        self.sent += 1.0;
    }

    pub fn delivered(&mut self, acked: &NewlyAcked) {
        self.delivered += acked.segments as f64;
    }

    /// The window that allows the segments that may be sent now (§3.1, with the slow start reduction bound), with so
    /// many segments on their way.
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
