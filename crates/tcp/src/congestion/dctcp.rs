//! DCTCP's reaction to marks (RFC 8257; Alizadeh et al., "Data Center TCP", SIGCOMM 2010).

use super::super::Tcp;
use super::{AckSample, Controller, Window, grow};

/// Weight of the latest window in the estimate (RFC 8257 §4.2).
const G: f64 = 1.0 / 16.0;

/// The share of marked segments, averaged over windows.
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    alpha: f64,
    acknowledged: u64,
    marked: u64,
    /// Byte whose arrival updates the estimate, and byte whose arrival ends a reduction.
    end: u64,
    reduced_until: u64,
}

impl Controller for Dctcp {
    fn on_ecn(&mut self, window: &mut Window, ack: &AckSample, marked: u64, repairing: bool) {
        let (upto, next) = (ack.missing, ack.next);
        self.count(ack.segments, marked, upto, next);
        if marked > 0 && !repairing && !self.is_reduced(upto) {
            window.size = self.reduced(window.size, next).max(2.0);
            window.threshold = window.size;
        }
    }

    fn on_ack(&mut self, window: &mut Window, ack: &AckSample) {
        if !self.is_reduced(ack.missing) {
            grow(self, window, ack);
        }
    }

    fn uses_ecn(&self) -> bool {
        true
    }
}

impl Dctcp {
    pub fn new(_tcp: &Tcp) -> Self {
        Self {
            alpha: 1.0, // §3.3: the first mark halves the window
            acknowledged: 0,
            marked: 0,
            end: 0,
            reduced_until: 0,
        }
    }

    /// Count acknowledged segments and the marked ones among them; update the estimate once per window (§3.3). upto:
    /// all bytes before have arrived. next: the first unsent byte.
    pub fn count(&mut self, segments: u64, marked: u64, upto: u64, next: u64) {
        self.acknowledged += segments;
        self.marked += marked;
        if upto > self.end && self.acknowledged > 0 {
            let share = (self.marked as f64 / self.acknowledged as f64).min(1.0);
            self.alpha += G * (share - self.alpha);
            (self.acknowledged, self.marked, self.end) = (0, 0, next);
        }
    }

    /// Return whether the window has been reduced for the data in flight: it neither grows nor shrinks (RFC 3168
    /// §6.1.2).
    pub fn is_reduced(&self, upto: u64) -> bool {
        upto <= self.reduced_until
    }

    /// Return the window after a mark. The next reduction is possible after all bytes up to `next` have arrived.
    pub fn reduced(&mut self, window: f64, next: u64) -> f64 {
        self.reduced_until = next;
        window * (1.0 - self.alpha / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_the_moving_average_of_the_marked_share() {
        let mut law = Dctcp::new(&Tcp::default());
        law.count(4, 1, 1, 10); // (15 · 1 + 1/4) / 16
        assert_eq!(law.alpha, 0.953_125);
        law.count(5, 5, 6, 20);
        assert_eq!(law.alpha, 0.953_125); // within a window nothing changes
        law.count(5, 0, 11, 20); // (15 · 0.953125 + 1/2) / 16
        assert_eq!(law.alpha, 0.924_804_687_5);
        assert_eq!(law.reduced(16.0, 20), 16.0 * (1.0 - 0.924_804_687_5 / 2.0));
        assert!(law.is_reduced(20) && !law.is_reduced(21));
    }

    #[test]
    fn alpha_and_the_sawtooth_are_those_of_the_closed_form() {
        // Alizadeh et al. §3.3, one round trip at a time: the window grows by 1 up to W + 1, where all of a round is
        // marked, then falls by α/2. α²(1 − α/4) = (2 W + 1)/(W + 1)², and the amplitude is (W + 1) α/2. A small W
        // keeps α nearly constant over a cycle (g < 1.386 / sqrt(2 W)).
        let critical = 60.0;
        let (mut law, mut window, mut upto) = (Dctcp::new(&Tcp::default()), critical, 0);
        let (mut least, mut most, mut alpha) = (f64::INFINITY, 0.0f64, 0.0);
        for round in 0..2000 {
            let is_marked = window > critical;
            upto += 1000;
            let segments = window as u64;
            law.count(
                segments,
                if is_marked { segments } else { 0 },
                upto,
                upto + 999,
            );
            window = if is_marked {
                law.reduced(window, upto)
            } else {
                window + 1.0
            };
            if round > 1000 {
                (least, most) = (least.min(window), most.max(window));
                if is_marked {
                    alpha = if alpha == 0.0 {
                        law.alpha
                    } else {
                        alpha + (law.alpha - alpha) / 16.0
                    };
                }
            }
        }
        let closed = (2.0 * critical + 1.0) / (critical + 1.0f64).powi(2);
        let found = alpha * alpha * (1.0 - alpha / 4.0);
        // A cycle is a whole number of rounds, about six.
        assert!(
            (found / closed - 1.0).abs() < 1.0 / 12.0,
            "{found} {closed}"
        );
        assert!(
            (most - least - (critical + 1.0) * alpha / 2.0).abs() < 1.0,
            "{least} {most}"
        );
    }
}
