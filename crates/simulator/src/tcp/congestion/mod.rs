//! The number of segments that a sender may have in flight.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod maximum;
mod reduction;

use cellbed_link::{Duration, Time};

pub(super) use bbr::{Bbr, Delivery, Repair};
use cubic::Cubic;
use dctcp::Dctcp;
use hystart::HyStart;
pub(super) use reduction::Reduction;

use super::Tcp;
use super::rate::Deliveries;

/// A congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// CUBIC (RFC 9438) as in Linux.
    #[default]
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
    /// BBR version 1 (Cardwell et al., 2016) as in Linux.
    Bbr,
    /// DCTCP (RFC 8257): NewReno, but a mark reduces the window by the share of marked segments.
    Dctcp,
}

/// The congestion window, in segments.
#[derive(Clone, Debug)]
pub(super) struct Window {
    initial: f64,
    size: f64,
    threshold: f64,
    law: Law,
    start: Option<HyStart>,
    /// Shortest round trip that the control has seen.
    least: Option<Duration>,
}

#[derive(Clone, Debug)]
enum Law {
    Cubic(Cubic),
    NewReno,
    Bbr(Box<Bbr>),
    Dctcp(Dctcp),
}

/// The state of a sender when an acknowledgement arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub now: Time,
    /// Segments that are newly known to have arrived.
    pub segments: u64,
    pub round_trip: Option<Duration>,
    /// The first byte that is missing, and the first that has not been sent.
    pub missing: u64,
    pub next: u64,
    /// Whether the window limited the sender.
    pub limited: bool,
}

impl Window {
    /// Slow start may end before a loss where the settings say so; CUBIC's alone does so in Linux.
    pub fn new(tcp: &Tcp) -> Self {
        Self {
            initial: tcp.initial_window as f64,
            size: tcp.initial_window as f64,
            threshold: f64::INFINITY,
            law: match tcp.control {
                Control::Cubic => Law::Cubic(Cubic::default()),
                Control::NewReno => Law::NewReno,
                Control::Dctcp => Law::Dctcp(Dctcp::default()),
                Control::Bbr => Law::Bbr(Box::new(Bbr::new(tcp.segment, tcp.initial_window))),
            },
            start: (tcp.hystart && tcp.control == Control::Cubic).then(HyStart::default),
            least: None,
        }
    }

    /// Whole segments, at least one.
    pub fn segments(&self) -> u64 {
        (self.size as u64).max(1)
    }

    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    pub fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Sets the window while losses are repaired. BBR alone decides on its window.
    pub fn set(&mut self, segments: f64) {
        if self.bbr().is_none() {
            self.size = segments.max(1.0);
        }
    }

    pub fn bbr(&self) -> Option<&Bbr> {
        match &self.law {
            Law::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// The handshake took `round_trip`.
    pub fn opened(&mut self, now: Time, round_trip: Duration) {
        if let Law::Bbr(bbr) = &mut self.law {
            bbr.opened(now, round_trip, self.size as u64);
        }
    }

    /// Takes in a delivery, on which BBR decides.
    pub fn delivered(&mut self, news: &Delivery) {
        if let Law::Bbr(bbr) = &mut self.law {
            self.size = bbr.acknowledged(self.size as u64, news) as f64;
        }
    }

    /// Takes in the marks among newly acknowledged segments, on which DCTCP decides. repairing: losses have reduced the window.
    pub fn marked(&mut self, progress: &Progress, marked: u64, repairing: bool) {
        let Law::Dctcp(law) = &mut self.law else {
            return;
        };
        let (upto, next) = (progress.missing, progress.next);
        law.count(progress.segments, marked, upto, next);
        if marked > 0 && !repairing && !law.is_reduced(upto) {
            self.size = law.reduced(self.size, next).max(2.0);
            self.threshold = self.size;
        }
    }

    /// A segment leaves, and none was in flight for want of data.
    pub fn restart(&mut self, now: Time) {
        if let Law::Bbr(bbr) = &mut self.law {
            let mut window = self.size as u64;
            bbr.restart(now, &mut window);
            self.size = window as f64;
        }
    }

    /// Takes a round-trip sample, which may end slow start.
    pub fn measured(&mut self, progress: &Progress) {
        let (Some(round_trip), Law::Cubic(cubic)) = (progress.round_trip, &self.law) else {
            return;
        };
        if cubic.is_young(progress.now) {
            return; // The queue of before may still stand.
        }
        let least = self.least.map_or(round_trip, |least| least.min(round_trip));
        self.least = Some(least);
        let slow = self.is_slow_start();
        if let Some(start) = self.start.as_mut().filter(|_| slow)
            && start.shall_end(progress, round_trip, least, self.size)
        {
            self.threshold = self.size;
        }
    }

    /// Grows by the acknowledged segments.
    pub fn grow(&mut self, progress: &Progress) {
        let reduced = matches!(&self.law, Law::Dctcp(law) if law.is_reduced(progress.missing));
        if !progress.limited || reduced || self.bbr().is_some() {
            return;
        }
        let mut segments = progress.segments as f64;
        if self.is_slow_start() {
            let grown = (self.size + segments).min(self.threshold);
            segments -= grown - self.size;
            self.size = grown;
            if segments <= 0.0 {
                return;
            }
        }
        self.size += segments
            * match &mut self.law {
                Law::Cubic(cubic) => {
                    let least = self.least.unwrap_or(Duration::ZERO);
                    cubic.increase(progress.now, self.size, segments, least)
                }
                Law::NewReno | Law::Dctcp(_) | Law::Bbr(_) => 1.0 / self.size,
            };
    }

    /// Reduces the threshold after congestion and returns it. The caller reduces the window. BBR takes a loss for none.
    pub fn reduce(&mut self) -> f64 {
        self.threshold = match &mut self.law {
            Law::Cubic(cubic) => cubic.reduced(self.size),
            Law::NewReno | Law::Dctcp(_) => self.size / 2.0, // RFC 8257 §3.4
            Law::Bbr(bbr) => {
                bbr.save(self.size as u64);
                return self.threshold;
            }
        }
        .floor()
        .max(2.0);
        self.threshold
    }

    /// Resets the state after a timeout. lost: segments so far.
    pub fn collapse(&mut self, flying: u64, deliveries: &Deliveries, lost: u64) {
        match &mut self.law {
            Law::Cubic(cubic) => *cubic = Cubic::default(),
            Law::NewReno | Law::Dctcp(_) => {}
            Law::Bbr(bbr) => {
                bbr.timed_out(deliveries, lost);
                self.size = (flying + 1) as f64;
                return;
            }
        }
        if let Some(start) = &mut self.start {
            *start = HyStart::default();
        }
        self.least = None;
        self.size = 1.0;
    }

    /// Restores the window before a spurious reduction.
    pub fn restore(&mut self, size: f64, threshold: f64) {
        if let Law::Bbr(bbr) = &mut self.law {
            return bbr.undo();
        }
        self.size = self.size.max(size);
        self.threshold = self.threshold.max(threshold);
    }

    /// Nothing was sent for `idle`: halves the window for each timeout in it, down to the initial one (RFC 2861 §3.2 as
    /// in Linux).
    pub fn rested(&mut self, idle: Duration, timeout: Duration) {
        if self.bbr().is_some() {
            return;
        }
        if self.threshold.is_finite() {
            self.threshold = self.threshold.max(0.75 * self.size);
        }
        let (mut idle, floor) = (idle, self.initial.min(self.size));
        while idle > timeout && self.size > floor {
            idle = idle.saturating_sub(timeout);
            self.size = (self.size / 2.0).floor();
        }
        self.size = self.size.max(floor);
    }

    /// No packet was in flight for `idle`: the law of growth does not count this time.
    pub fn paused(&mut self, now: Time, idle: Duration) {
        if let Law::Cubic(cubic) = &mut self.law {
            cubic.paused(now, idle);
        }
    }
}

/// Whether a sender uses its window, over about a round trip, as Linux judges it: one that it does not use must not grow
/// (RFC 7661 §4 has the reasons).
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
