//! The device and the scheduler. Before the first bytes the device requests slots or wakes; then the scheduler warms up
//! to the device. Failed blocks are retransmitted.

use super::channel::purpose;
use super::config::{Harq, RadioConfig, Ramp, Release, Second, Sleep};
use super::noise::Noise;
use crate::time::{Duration, Time};

/// Access state of the device at the base station. Positions refer to the surroundings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access {
    /// Last slot that carried bytes.
    last: Option<Duration>,
    /// True if the next slot is the first grant.
    is_first: bool,
    /// End of the last set-up of a connection.
    pub(super) connected: Duration,
}

impl Access {
    /// Return the earliest time of a slot for a packet that arrives at `position` at an empty queue.
    pub(super) fn ready(&mut self, config: &RadioConfig, position: Duration) -> Duration {
        self.is_first = false;
        let mut ready = position;
        if let Some(release) = &config.release
            && self.last.is_none_or(|last| last + release.after < position)
        {
            self.connected = self.connected.max(release.connected(config, position));
        } else if let Some(sleep) = &config.sleep {
            ready = sleep.listens(self.last, position);
        }
        ready = ready.max(self.connected);
        if let Some(grant) = &config.grant
            && self.last.is_none_or(|last| last + grant.tail < position)
        {
            self.is_first = true;
            ready = round_up(ready, grant.period) + grant.delay;
        }
        ready
    }

    /// Return the maximum of bytes in a slot that the access state permits.
    pub(super) fn limit(&self, config: &RadioConfig) -> u64 {
        match &config.grant {
            Some(grant) if self.is_first => grant.first.max(1),
            _ => u64::MAX,
        }
    }

    /// Record that the device has data in its other direction at `position`, and is connected from `connected` on.
    /// Return when it can receive.
    pub(super) fn rouse(&mut self, position: Duration, connected: Duration) -> Duration {
        self.last = self.last.max(Some(position));
        self.connected = self.connected.max(connected);
        self.connected.max(position)
    }

    /// Record that the slot at `position` carried bytes. Return the earliest time of the next slot.
    pub(super) fn sent(&mut self, config: &RadioConfig, position: Duration) -> Duration {
        self.last = Some(position);
        match &config.grant {
            Some(grant) if std::mem::take(&mut self.is_first) => position + grant.delay,
            _ => position,
        }
    }
}

impl Sleep {
    /// Return when the device next listens, at or after `position`.
    fn listens(&self, last: Option<Duration>, position: Duration) -> Duration {
        let asleep = last.map(|last| last + self.after);
        if asleep.is_some_and(|asleep| position <= asleep) {
            return position;
        }
        if !self.short.is_zero()
            && let Some(end) = asleep.map(|asleep| asleep + self.short_for)
            && let listens = self.in_cycles(self.short, position)
            && listens < end
        {
            return listens;
        }
        self.in_cycles(self.cycle, position)
    }

    /// Return when a device with wake-ups every `cycle` next listens.
    fn in_cycles(&self, cycle: Duration, position: Duration) -> Duration {
        match position.as_nanos().checked_rem(cycle.as_nanos()) {
            Some(into) if into >= self.awake.as_nanos() => round_up(position, cycle),
            _ => position,
        }
    }
}

impl Release {
    /// Return when a device without a connection, which has data from `position` on, is connected.
    fn connected(&self, config: &RadioConfig, position: Duration) -> Duration {
        let own = purpose::own(config.way) + purpose::of_device(config.device);
        let chance = Noise::new(config.seed, purpose::SETUP + own).unit(position.as_nanos());
        let spread = self.most.saturating_sub(self.least).as_nanos() as f64;
        let setup = self.least + Duration::from_nanos((chance * spread) as u64);
        round_up(position, self.paging) + setup
    }
}

/// Return the first multiple of `period` at or after `position`.
fn round_up(position: Duration, period: Duration) -> Duration {
    match position.as_nanos().checked_rem(period.as_nanos()) {
        None | Some(0) => position,
        Some(into) => position + period.saturating_sub(Duration::from_nanos(into)),
    }
}

/// Warmth of the scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warmth {
    /// From 0 (cold) to 1.
    level: f64,
    /// Maximum waiting bytes since the scheduler was cold.
    peak: f64,
    /// When the level was last updated.
    last: Time,
    busy: bool,
}

impl Warmth {
    pub(super) const COLD: Self = Self {
        level: 0.0,
        peak: 0.0,
        last: Time::ZERO,
        busy: false,
    };

    /// Return the device's share of the resources in a slot that begins at `now`, with `waiting` bytes in the queue.
    pub(super) fn share(&mut self, ramp: &Ramp, now: Time, waiting: u64) -> f64 {
        if ramp.cold >= 1.0 {
            return 1.0;
        }
        let since = now.since(self.last);
        if self.busy {
            let aim = ramp.aim(self.peak);
            if aim > self.level {
                self.level = aim - (aim - self.level) * decay(since, ramp.rise);
            }
        } else {
            let kept = decay(since, ramp.memory);
            self.level *= kept;
            self.peak *= kept;
        }
        self.peak = self.peak.max(waiting as f64);
        self.last = now;
        self.busy = true;
        ramp.cold + (1.0 - ramp.cold) * self.level
    }

    /// Record that nothing is left to send after the slot at `now`.
    pub(super) fn rest(&mut self, now: Time) {
        self.busy = false;
        self.last = now;
    }
}

impl Ramp {
    fn aim(&self, peak: f64) -> f64 {
        if self.full == 0 {
            return 1.0;
        }
        (peak / self.full as f64).min(1.0).powf(self.bend)
    }
}

fn decay(span: Duration, constant: Duration) -> f64 {
    if constant.is_zero() {
        return 0.0;
    }
    (-span.as_secs_f64() / constant.as_secs_f64()).exp()
}

/// State of the second carrier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    /// When the carrier can first be used, if it is activated.
    from: Option<Time>,
    /// When the carrier was last needed.
    needed: Time,
}

impl Aggregation {
    /// Return the usable share of the capacity of both carriers in a slot that begins at `now`.
    ///
    /// waiting: bytes in the queue. capacity: bytes that both carriers could send in the slot.
    pub(super) fn share(&mut self, second: &Second, now: Time, waiting: u64, capacity: f64) -> f64 {
        let first = 1.0 / (1.0 + second.gain);
        if now.since(self.needed) > second.idle {
            self.from = None;
        }
        if self.from.is_none() && waiting >= second.load {
            self.from = Some(now + second.delay);
            self.needed = now + second.delay;
        }
        match self.from {
            Some(from) if from <= now => {
                if waiting as f64 > capacity * first {
                    self.needed = now;
                }
                1.0
            }
            _ => first,
        }
    }
}

/// Pending retransmissions.
#[derive(Clone, Debug)]
pub(super) struct Retransmissions {
    chance: Noise,
    /// Slot and bytes, in order of slots.
    due: Vec<(u64, u64)>,
}

impl Retransmissions {
    pub(super) fn new(config: &RadioConfig) -> Self {
        let own = purpose::own(config.way) + purpose::of_device(config.device);
        Self {
            chance: Noise::new(config.seed, purpose::HARQ + own),
            due: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
    }

    /// Return the bytes of retransmissions due from slot `from` to `slot`: a cell served others in the slots before
    /// `slot`. Retransmissions due before `from` have been sent.
    pub(super) fn taken(&mut self, from: u64, slot: u64) -> u64 {
        let through = self.due.partition_point(|&(due, _)| due <= slot);
        self.due
            .drain(..through)
            .filter(|&(due, _)| due >= from)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// Send a block of `bytes` in `slot`. Return the additional delay by failures, and whether the block is lost.
    ///
    /// least: minimum probability of a failure.
    /// slot_at: for a span after the start of `slot`, the first slot of this direction at or after its end, and the
    /// span rounded up to that slot.
    pub(super) fn send(
        &mut self,
        harq: &Harq,
        slot: u64,
        bytes: u64,
        least: f64,
        slot_at: impl Fn(Duration) -> Option<(u64, Duration)>,
    ) -> (Duration, bool) {
        let mut late = Duration::ZERO;
        for attempt in 0..ATTEMPTS {
            let chance = if attempt == 0 { harq.first } else { harq.again };
            // Indices of one slot's attempts lie far from the next slots' indices.
            if self.chance.unit(slot ^ (attempt << 48)) >= chance.get().max(least) {
                break;
            }
            let lost = attempt + 1 >= u64::from(harq.attempts.max(1));
            if lost && harq.unacknowledged {
                return (late + harq.recovery, true);
            }
            let wait = if lost { harq.recovery } else { harq.round_trip };
            let Some((next, start)) = slot_at(late + wait) else {
                break;
            };
            late = start;
            let place = self.due.partition_point(|&(due, _)| due <= next);
            self.due.insert(place, (next, bytes));
            if lost {
                break; // retransmissions of the layer above are assumed to arrive
            }
        }
        (late, false)
    }
}

/// Maximum attempts, more than any configuration has.
const ATTEMPTS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::{Grant, Profile, Way};

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
            ..config.sleep.unwrap()
        });
        let mut access = Access::default();
        assert_eq!(access.ready(&config, ms(5)), ms(5)); // the device is listening
        assert_eq!(access.ready(&config, ms(11)), ms(40));
        access.sent(&config, ms(40));
        assert_eq!(access.ready(&config, ms(139)), ms(139));
        assert_eq!(access.ready(&config, ms(141)), ms(160));
    }

    #[test]
    fn short_cycles_come_before_long_ones() {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        config.sleep = Some(Sleep {
            after: ms(100),
            cycle: ms(320),
            awake: ms(10),
            short: ms(40),
            short_for: ms(80),
        });
        let mut access = Access::default();
        access.sent(&config, ms(640));
        assert_eq!(access.ready(&config, ms(775)), ms(800));
        assert_eq!(access.ready(&config, ms(815)), ms(960)); // the next short cycle begins after their end
        assert_eq!(access.ready(&config, ms(1000)), ms(1280));
    }

    #[test]
    fn a_second_carrier_comes_with_the_load_and_goes_without() {
        let second: Second = serde_json::from_str(
            r#"{"gain": 1.0, "load": 5000, "delay_ns": 20000000, "idle_ns": 100000000}"#,
        )
        .unwrap();
        let mut aggregation = Aggregation::default();
        let mut share =
            |at, waiting| aggregation.share(&second, Time::from_millis(at), waiting, 2000.0);
        assert_eq!([share(0, 4999), share(1, 5000), share(20, 9000)], [0.5; 3]);
        assert_eq!(
            [share(21, 1500), share(100, 500), share(121, 500)],
            [1.0; 3]
        );
        assert_eq!(share(122, 1500), 0.5); // not needed for 100 ms
    }

    #[test]
    fn a_released_connection_is_set_up_after_paging() {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        config.release = Some(Release {
            after: ms(5000),
            least: ms(50),
            most: ms(80),
            paging: ms(640),
        });
        let mut access = Access::default();
        let ready = access.ready(&config, ms(100));
        assert!((ms(690)..=ms(720)).contains(&ready), "{ready:?}");
        access.sent(&config, ready);
        let later = ready + ms(4000);
        assert!(access.ready(&config, later) < later + ms(40)); // asleep, but connected
        let released = access.ready(&config, ready + ms(5001));
        assert!((ms(5810)..=ms(5840)).contains(&released), "{released:?}");
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

#[cfg(test)]
mod ramp_tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    const RAMP: Ramp = Ramp {
        cold: 0.2,
        rise: Duration::from_millis(10),
        full: 100_000,
        bend: 1.0,
        memory: Duration::from_millis(10),
    };

    #[test]
    fn the_share_rises_with_time_to_what_the_load_calls_for() {
        let mut warmth = Warmth::COLD;
        assert_eq!(warmth.share(&RAMP, ms(1000), 50_000), 0.2);
        let after = warmth.share(&RAMP, ms(1010), 40_000);
        assert!((after - (0.2 + 0.8 * 0.5 * (1.0 - (-1f64).exp()))).abs() < 1e-9);
        let late = warmth.share(&RAMP, ms(2000), 1000);
        assert!((late - 0.6).abs() < 1e-9); // the maximum backlog counts
    }

    #[test]
    fn warmth_is_lost_while_nothing_is_to_be_sent() {
        let mut warmth = Warmth::COLD;
        warmth.share(&RAMP, ms(0), 200_000);
        warmth.share(&RAMP, ms(1000), 200_000);
        warmth.rest(ms(1000));
        let soon = warmth.share(&RAMP, ms(1001), 1500);
        assert!(soon > 0.9, "{soon}");
        warmth.rest(ms(1001));
        let late = warmth.share(&RAMP, ms(1200), 1500);
        assert!(late < 0.2001, "{late}");
    }

    #[test]
    fn without_a_ramp_the_share_is_everything() {
        let mut warmth = Warmth::COLD;
        assert_eq!(warmth.share(&Ramp::NONE, ms(0), 1), 1.0);
    }
}

#[cfg(test)]
mod harq_tests {
    use super::*;
    use crate::radio::{Profile, Way};
    use crate::random::Probability;

    fn config(first: f64, again: f64) -> RadioConfig {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        config.harq = Harq {
            first: Probability::new(first).unwrap(),
            again: Probability::new(again).unwrap(),
            round_trip: Duration::from_millis(8),
            attempts: 3,
            recovery: Duration::from_millis(40),
            decode: Duration::ZERO,
            ..config.harq
        };
        config
    }

    fn grid(slot: u64) -> impl Fn(Duration) -> Option<(u64, Duration)> {
        move |span| {
            let slots = span.as_nanos().div_ceil(1_000_000);
            Some((slot + slots, Duration::from_millis(slots)))
        }
    }

    #[test]
    fn a_block_that_fails_comes_a_round_trip_later_in_place_of_new_bytes() {
        let config = config(1.0, 0.0);
        let mut retransmissions = Retransmissions::new(&config);
        let late = retransmissions.send(&config.harq, 5, 700, 0.0, grid(5)).0;
        assert_eq!(late, Duration::from_millis(8));
        assert_eq!(retransmissions.taken(12, 12), 0);
        assert_eq!(retransmissions.taken(13, 13), 700);
        assert_eq!(retransmissions.taken(13, 13), 0);
    }

    #[test]
    fn after_the_last_attempt_the_layer_above_takes_over() {
        let config = config(1.0, 1.0);
        let mut retransmissions = Retransmissions::new(&config);
        let late = retransmissions.send(&config.harq, 0, 1, 0.0, grid(0)).0;
        assert_eq!(late, Duration::from_millis(8 + 8 + 40));
    }

    #[test]
    fn blocks_of_two_devices_fail_independently() {
        let fails = |device| {
            let config = RadioConfig {
                device,
                ..config(0.5, 0.0)
            };
            let mut retransmissions = Retransmissions::new(&config);
            (0..1000)
                .map(|slot| {
                    !retransmissions
                        .send(&config.harq, slot, 1, 0.0, grid(slot))
                        .0
                        .is_zero()
                })
                .collect::<Vec<_>>()
        };
        let alike = fails(1)
            .iter()
            .zip(&fails(2))
            .filter(|(a, b)| a == b)
            .count();
        assert!((400..600).contains(&alike), "{alike}");
    }

    #[test]
    fn blocks_fail_as_often_as_asked() {
        let config = config(0.1, 0.0);
        let mut retransmissions = Retransmissions::new(&config);
        let late = (0..100_000)
            .filter(|&slot| {
                !retransmissions
                    .send(&config.harq, slot, 1, 0.0, grid(slot))
                    .0
                    .is_zero()
            })
            .count();
        assert!((9_700..10_300).contains(&late), "{late}");
    }
}
