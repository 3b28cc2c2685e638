//! The way behind the base station.

use super::channel::purpose;
use super::config::{Path, RadioConfig};
use super::noise::{Noise, Wander};
use crate::time::Duration;

/// The delay of the way behind the base station.
#[derive(Clone, Debug)]
pub(super) struct Route {
    config: Path,
    wander: Wander,
    step: Noise,
}

/// Interval at which the delay can change.
const ROUTE_STEP: Duration = Duration::from_millis(5);

impl Route {
    pub(super) fn new(config: &RadioConfig) -> Self {
        let own = purpose::own(config.way);
        Self {
            wander: Wander::new(
                Noise::new(config.seed, purpose::PATH + own),
                ROUTE_STEP,
                config.path.memory,
            ),
            step: Noise::new(config.seed, purpose::ROUTE + own),
            config: config.path,
        }
    }

    /// Return the delay of a packet of `size` bytes from `position` on.
    pub(super) fn delay(&self, position: Duration, size: u64) -> Duration {
        let path = &self.config;
        let mut nanos = path.delay.as_nanos() as f64;
        if !path.deviation.is_zero() {
            let wander = self.wander.at(self.wander.step_at(position));
            nanos += path.deviation.as_nanos() as f64 * wander.clamp(-LOWEST, HIGHEST);
        }
        if let Some(route) = position.as_nanos().checked_div(path.every.as_nanos()) {
            nanos += path.step.as_nanos() as f64 * self.step.unit(route);
        }
        let parts = path.per_byte_ps.saturating_mul(size) / 1000;
        Duration::from_nanos(nanos.max(0.0) as u64) + Duration::from_nanos(parts)
    }

    /// The least that any packet takes.
    pub(super) fn least(&self) -> Duration {
        let lowest = LOWEST * self.config.deviation.as_nanos() as f64;
        // A nanosecond less, because the sum above is rounded.
        let nanos = self.config.delay.as_nanos() as f64 - lowest - 1.0;
        Duration::from_nanos(nanos.max(0.0) as u64)
    }
}

/// Deviations at which the wandering of a delay is cut.
const LOWEST: f64 = 2.0;
const HIGHEST: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::{Profile, Way};

    #[test]
    fn the_delay_wanders_steps_and_grows_with_the_size() {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        config.path.every = Duration::from_secs(1);
        let route = Route::new(&config);
        let at = |millis| route.delay(Duration::from_millis(millis), 0);
        let delays: Vec<Duration> = (0..100_000).step_by(5).map(at).collect();
        assert!(delays.iter().all(|&delay| delay >= route.least()));
        let jump = |pair: &[Duration]| pair[1].as_secs_f64() - pair[0].as_secs_f64();
        let jumps = delays.windows(2).map(jump).filter(|jump| jump.abs() > 4e-4);
        assert!((20..99).contains(&jumps.count())); // most of the 99 steps
        let more = route.delay(Duration::ZERO, 1400).saturating_sub(at(0));
        assert_eq!(more.as_nanos(), config.path.per_byte_ps * 1400 / 1000);
    }
}
