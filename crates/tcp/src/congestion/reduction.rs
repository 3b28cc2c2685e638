//! Proportional rate reduction: the reduction of the window to its threshold while losses are repaired (RFC 6937).

use super::super::flight::News;

/// Since the losses were found. In segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reduction {
    /// The window when they were.
    before: f64,
    delivered: f64,
    sent: f64,
}

impl Reduction {
    /// Begins with a window of `before` segments, and the news that showed the losses.
    pub fn new(before: u64, news: &News) -> Self {
        Self {
            before: before as f64,
            delivered: news.segments as f64,
            sent: 0.0,
        }
    }

    /// A segment was sent.
    pub fn sent(&mut self) {
        self.sent += 1.0;
    }

    pub fn delivered(&mut self, news: &News) {
        self.delivered += news.segments as f64;
    }

    /// The window that allows the segments that may be sent now (§3.1, with the slow start reduction bound), with so
    /// many segments on their way.
    pub fn window(&self, flying: u64, threshold: f64, news: &News, lost: u64) -> f64 {
        let flying = flying as f64;
        let allowed = if flying > threshold {
            (self.delivered * threshold / self.before).ceil() - self.sent
        } else {
            let mut bound = (self.delivered - self.sent).max(news.segments as f64);
            if news.advanced && lost == 0 {
                bound += 1.0;
            }
            bound.min(threshold - flying)
        };
        let least = if self.sent == 0.0 { 1.0 } else { 0.0 };
        flying + allowed.max(least)
    }
}
