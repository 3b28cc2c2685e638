//! The PI2 controller, the low-latency queue's own ramp, and how either turns into signals (RFC 9332, Appendix A).

use super::DualPi2Config;
use crate::time::Duration;

/// The controller, names as in the RFC.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Control {
    /// p′
    pub(super) base: f64,
    /// Delay at the last update, s.
    pub(super) previous: f64,
    /// Accumulated likelihood of each queue, see [`recur`].
    pub(super) low_count: f64,
    pub(super) classic_count: f64,
}

impl Control {
    pub(super) fn update(&mut self, config: &DualPi2Config, delay: f64) {
        let integral = config.alpha * (delay - config.target.as_secs_f64());
        let proportional = config.beta * (delay - self.previous);
        self.base = (self.base + integral + proportional).clamp(0.0, 1.0);
        self.previous = delay;
    }

    /// p_CL = k · p′ (Figure 8, line 4)
    pub(super) fn coupled(&self, config: &DualPi2Config) -> f64 {
        (config.coupling * self.base).min(1.0)
    }

    /// p_C = p′² (Figure 8, line 5)
    pub(super) fn classic(&self) -> f64 {
        self.base * self.base
    }

    /// Return whether L has reached p_Lmax = 1 (Figure 7, line 4b), so that packets are dropped there, too.
    pub(super) fn saturates_low(&self, config: &DualPi2Config) -> bool {
        self.coupled(config) >= 1.0
    }

    /// Return whether C has reached p_Cmax = min(1 / k², 1), so that marks give way to drops (Figure 7, line 12b).
    pub(super) fn saturates_classic(&self, config: &DualPi2Config) -> bool {
        self.classic() >= (1.0 / (config.coupling * config.coupling)).min(1.0)
    }
}

/// Return whether it is this packet's turn: on average one in 1 / `likelihood`, evenly spaced (`recur`, RFC 9332 Figure
/// 4).
pub(super) fn recur(count: &mut f64, likelihood: f64) -> bool {
    *count += likelihood;
    let turn = *count > 1.0;
    if turn {
        *count -= 1.0;
    }
    turn
}

/// p′_L, the low-latency queue's own marking (`laqm`, RFC 9332 Figure 5).
pub(super) fn ramp(config: &DualPi2Config, sojourn: Duration) -> f64 {
    if sojourn >= config.threshold + config.range {
        return 1.0;
    }
    let above = sojourn.saturating_sub(config.threshold).as_nanos();
    above as f64 / config.range.as_nanos().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_steps_as_the_rfc_says() {
        let config = DualPi2Config::default();
        let mut control = Control::default();
        control.update(&config, 0.025);
        // 0.16 · 0.010 + 3.2 · 0.025
        assert!((control.base - 0.0816).abs() < 1e-12);
        control.update(&config, 0.020);
        // + 0.16 · 0.005 − 3.2 · 0.005
        assert!((control.base - 0.0664).abs() < 1e-12);
        (0..100).for_each(|_| control.update(&config, 0.0));
        assert_eq!(control.base, 0.0);
    }

    #[test]
    fn the_ramp_rises_between_its_thresholds() {
        let config = DualPi2Config::default();
        let after = |micros| ramp(&config, Duration::from_micros(micros));
        assert_eq!(
            [800, 900, 1000, 1200, 5000].map(after),
            [0.0, 0.25, 0.5, 1.0, 1.0]
        );
        let step = DualPi2Config {
            range: Duration::ZERO,
            ..config.clone()
        };
        assert_eq!(
            [799, 800, 801].map(|micros| ramp(&step, Duration::from_micros(micros))),
            [0.0, 1.0, 1.0]
        );
    }
}
