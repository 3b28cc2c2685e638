//! Before the first bytes: the device asks for slots or wakes.

use super::config::{Grant, RadioConfig, Sleep};
use crate::time::Duration;

/// Access state of the device at the base station. Positions refer to the surroundings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access {
    /// When bytes were last sent.
    last: Option<Duration>,
    /// Purpose of the next slot.
    next: Next,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    /// As much as fits.
    #[default]
    Everything,
    /// The first grant.
    First,
}

impl Access {
    /// From when on slots can be had for a packet that comes at `position` and finds nothing waiting.
    pub(super) fn ready(&mut self, config: &RadioConfig, position: Duration) -> Duration {
        self.next = Next::Everything;
        let mut ready = position;
        if let Some(sleep) = &config.sleep {
            ready = sleep.listens(self.last, position);
        }
        if let Some(grant) = &config.grant
            && self.last.is_none_or(|last| last + grant.tail < position)
        {
            self.next = Next::First;
            ready = round_up(ready, grant.period) + grant.delay;
        }
        ready
    }

    /// Return the maximum of bytes in a slot that the access state permits.
    pub(super) fn limit(&self, config: &RadioConfig) -> u64 {
        match (self.next, &config.grant) {
            (Next::First, Some(grant)) => grant.first.max(1),
            _ => u64::MAX,
        }
    }

    /// Bytes were sent in the slot at `position`. Returns from when on the next slot can be had.
    pub(super) fn sent(&mut self, config: &RadioConfig, position: Duration) -> Duration {
        self.last = Some(position);
        let first = std::mem::take(&mut self.next) == Next::First;
        match &config.grant {
            Some(Grant { delay, .. }) if first => position + *delay,
            _ => position,
        }
    }
}

impl Sleep {
    /// When the device listens next at or after `position`.
    fn listens(&self, last: Option<Duration>, position: Duration) -> Duration {
        let active = last.is_some_and(|last| position <= last + self.after);
        let Some(into) = position.as_nanos().checked_rem(self.cycle.as_nanos()) else {
            return position;
        };
        if active || into < self.awake.as_nanos() {
            return position;
        }
        round_up(position, self.cycle)
    }
}

/// The first multiple of `period` at or after `position`.
fn round_up(position: Duration, period: Duration) -> Duration {
    match position.as_nanos().checked_rem(period.as_nanos()) {
        None | Some(0) => position,
        Some(into) => position + period.saturating_sub(Duration::from_nanos(into)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::{Profile, Way};

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_sleeping_device_wakes_with_its_cycle() {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        config.grant = None;
        config.sleep = Some(Sleep {
            after: ms(100),
            cycle: ms(40),
            awake: ms(10),
        });
        let mut access = Access::default();
        assert_eq!(access.ready(&config, ms(5)), ms(5)); // it is listening just then
        assert_eq!(access.ready(&config, ms(11)), ms(40));
        access.sent(&config, ms(40));
        assert_eq!(access.ready(&config, ms(139)), ms(139));
        assert_eq!(access.ready(&config, ms(141)), ms(160));
    }

    #[test]
    fn an_uplink_asks_first_and_tells_then_how_much_waits() {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Uplink);
        config.sleep = None;
        config.grant = Some(Grant {
            period: ms(10),
            delay: ms(4),
            first: 200,
            tail: ms(5),
        });
        let mut access = Access::default();
        assert_eq!(access.ready(&config, ms(11)), ms(24));
        assert_eq!(access.limit(&config), 200);
        assert_eq!(access.sent(&config, ms(24)), ms(28));
        assert_eq!(access.limit(&config), u64::MAX);
        assert_eq!(access.sent(&config, ms(28)), ms(28));
        assert_eq!(access.ready(&config, ms(33)), ms(33)); // grants continue for a while
        assert_eq!(access.ready(&config, ms(34)), ms(44));
    }
}
