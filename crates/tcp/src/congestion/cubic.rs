//! CUBIC (RFC 9438), and HyStart, which ends its slow start before a loss (Ha & Rhee, Computer Networks 55, 2011, §4),
//! with the constants and the details of Linux.

use cellbed_link::{Duration, Time};

use super::super::Tcp;
use super::{AckSample, Controller, Window};

/// Segments per cubic second (RFC 9438 §5).
const C: f64 = 0.4;
/// Factor of a reduction (RFC 9438 §4.6); in Linux in 1024ths.
const BETA: f64 = 717.0 / 1024.0;
/// Growth of a flow as fast as Reno with this reduction (RFC 9438 §4.3).
const RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Maximum growth in a round trip, relative to the window (RFC 9438 §4.2).
const FASTEST: f64 = 0.5;
/// Growth per round trip in Linux before the first loss, relative to the window.
const BEFORE_LOSS: f64 = 0.05;
/// Growth in Linux where the cubic would shrink or stop.
const SLOWEST: f64 = 0.01;
const YOUNG: Duration = Duration::from_secs(1);
/// Window below which HyStart never ends slow start.
const LEAST_WINDOW: f64 = 16.0;
/// Maximum gap between acknowledgements of one train.
const TRAIN: Duration = Duration::from_millis(2);
/// Maximum allowance of Linux for aggregated acknowledgements (more below 2 Gbit/s).
const HELD_BACK: Duration = Duration::from_millis(1);
/// Number of round-trip samples that suffice to judge a round.
const SAMPLES: u32 = 8;

#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    curve: Curve,
    start: Option<HyStart>,
    /// Minimum round trip.
    least: Option<Duration>,
}

impl Cubic {
    /// Return a law whose slow start may end before a loss if the settings permit.
    pub fn new(tcp: &Tcp) -> Self {
        Self {
            curve: Curve::default(),
            start: tcp.hystart.then(HyStart::default),
            least: None,
        }
    }
}

impl Controller for Cubic {
    /// End slow start when round trips indicate a queue.
    fn on_round_trip(&mut self, window: &mut Window, ack: &AckSample, round_trip: Duration) {
        if self.curve.is_young(ack.now) {
            return; // The previous queue may still exist.
        }
        let least = self.least.map_or(round_trip, |least| least.min(round_trip));
        self.least = Some(least);
        if window.is_slow_start()
            && let Some(start) = &mut self.start
            && start.shall_end(ack, round_trip, least, window.size)
        {
            window.threshold = window.size;
        }
    }

    fn increase(&mut self, window: f64, ack: &AckSample, segments: f64) -> f64 {
        let least = self.least.unwrap_or(Duration::ZERO);
        self.curve.increase(ack.now, window, segments, least)
    }

    fn decrease(&mut self, window: f64) -> f64 {
        self.curve.reduced(window)
    }

    fn on_timeout(&mut self, window: &mut Window, _timeout: &AckSample) {
        self.curve = Curve::default();
        self.start = self.start.take().map(|_| HyStart::default());
        self.least = None;
        window.size = 1.0;
    }

    /// Exclude the pause from the curve.
    fn on_write(&mut self, now: Time, idle: Duration) {
        self.curve.on_pause(now, idle);
    }
}

/// The law of growth.
#[derive(Clone, Debug, Default)]
struct Curve {
    /// Window of the last reduction.
    largest: f64,
    epoch: Option<Epoch>,
}

/// Growth since the last reduction.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    since: Time,
    /// Seconds until the cubic is level, and the window there.
    inflection: f64,
    plateau: f64,
    /// The window of a Reno flow.
    reno: f64,
}

impl Curve {
    /// Return whether growth began less than a second ago.
    pub fn is_young(&self, now: Time) -> bool {
        self.epoch.is_some_and(|epoch| now - epoch.since < YOUNG)
    }

    /// Return the growth per arrived segment.
    pub fn increase(&mut self, now: Time, window: f64, segments: f64, least: Duration) -> f64 {
        let largest = self.largest;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            since: now,
            inflection: ((largest - window).max(0.0) / C).cbrt(),
            plateau: largest.max(window),
            reno: window,
        });
        let time = (now - epoch.since + least).as_secs_f64();
        let target = epoch.plateau + C * (time - epoch.inflection).powi(3);
        epoch.reno += segments * RENO / window;
        let mut increase = (target - window).max(epoch.reno - window) / window;
        if largest == 0.0 {
            increase = increase.max(BEFORE_LOSS);
        }
        increase.clamp(SLOWEST / window, FASTEST)
    }

    /// Return the window after congestion, with fast convergence (RFC 9438 §4.7).
    pub fn reduced(&mut self, window: f64) -> f64 {
        self.epoch = None;
        self.largest = if window < self.largest {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        window * BETA
    }

    pub fn on_pause(&mut self, now: Time, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.since = (epoch.since + idle).min(now);
        }
    }
}

/// The rule that ends slow start.
#[derive(Clone, Debug, Default)]
struct HyStart {
    found: bool,
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    began: Time,
    /// Byte whose arrival ends the round.
    end: u64,
    /// The last acknowledgement of the train.
    last: Time,
    least: Duration,
    samples: u32,
}

impl HyStart {
    /// Return whether a train of acknowledgements is as long as half a round trip, or a round's round trips exceed the
    /// minimum by an eighth of it. least: the minimum.
    pub fn shall_end(
        &mut self,
        at: &AckSample,
        round_trip: Duration,
        least: Duration,
        window: f64,
    ) -> bool {
        if self.found {
            return false;
        }
        let begun = Round {
            began: at.now,
            end: at.next,
            last: at.now,
            least: Duration::MAX,
            samples: 0,
        };
        let round = self.round.get_or_insert(begun);
        if at.missing > round.end {
            *round = begun;
        }
        if window < LEAST_WINDOW {
            return false;
        }
        if at.now - round.last <= TRAIN {
            round.last = at.now;
            let half = Duration::from_nanos((least + HELD_BACK).as_nanos() / 2);
            self.found = at.now - round.began > half;
        }
        round.least = round.least.min(round_trip);
        if round.samples < SAMPLES {
            round.samples += 1;
        } else {
            let eighth = Duration::from_nanos(least.as_nanos() / 8);
            let margin = eighth.clamp(Duration::from_millis(4), Duration::from_millis(16));
            self.found |= round.least > least + margin;
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_comes_back_to_where_it_was_after_k_seconds() {
        // RFC 9438 §4.2: K = cbrt(W_max (1 − β) / C), without Reno's part at a long round trip.
        let mut cubic = Curve::default();
        let mut window = cubic.reduced(1000.0);
        let k = (1000.0 * (1.0 - BETA) / C).cbrt();
        let (mut now, step) = (Time::ZERO, Duration::from_millis(200));
        while now < Time::from_nanos((k * 1e9) as u64) {
            let segments = window;
            window += segments * cubic.increase(now, window, segments, step);
            now += step;
        }
        assert!((window - 1000.0).abs() < 10.0, "{window}");
    }
}
