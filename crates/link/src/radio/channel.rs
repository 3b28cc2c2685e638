//! The surroundings of a device: the capacity of slots over time, and gaps without service.

use super::config::{Fade, Path, RadioConfig, SYMBOLS, Users, Way};
use super::noise::{Noise, Wander};
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// Spectral efficiency of CQI 1 to 15, bit per resource element (TS 38.214, table 5.2.2.1-3: up to 256-QAM).
const EFFICIENCY: [f64; 15] = [
    0.1523, 0.3770, 0.8770, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223, 3.9023, 4.5234, 5.1152, 5.5547,
    6.2266, 6.9141, 7.4063,
];

/// Share of the Shannon bound that link adaptation reaches, as in TR 36.942, §A.1. The factor of 0.6 there belongs to
/// early LTE; with our factor, the highest CQI needs 30 dB.
const ATTENUATION: f64 = 0.75;

const SUBCARRIERS: f64 = 12.0;

/// Purposes of random numbers. The number of a purpose never changes.
pub(super) mod purpose {
    pub const FADING: u64 = 1;
    pub const CELL: u64 = 2;
    pub const TURN: u64 = 3;
    pub const HARQ: u64 = 4;
    pub const HANDOVER: u64 = 5;
    pub const GAP: u64 = 6;
    pub const SITE: u64 = 7;
    pub const PATH: u64 = 8;
    pub const ROUTE: u64 = 9;
    pub const BURST: u64 = 10;
    pub const LENGTH: u64 = 11;
    pub const SETUP: u64 = 12;

    /// Return the addition for numbers that directions must not share.
    pub fn own(way: super::Way) -> u64 {
        match way {
            super::Way::Downlink => 0,
            super::Way::Uplink => 1 << 32,
        }
    }

    /// Return the addition for numbers that devices at one place must not share.
    pub fn of_device(device: u16) -> u64 {
        (device as u64) << 40
    }
}

/// The last result: fading step, cell step and site, with bytes per symbol and depth of the fade, dB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cache(Option<((u64, u64, u64), f64, f64)>);

impl Cache {
    /// Return the minimum probability of a failure in the last slot.
    pub(super) fn failure(&self, fade: Option<Fade>) -> f64 {
        let is_deep = |fade: &Fade| self.0.is_some_and(|(_, _, depth)| depth > fade.below_db);
        fade.filter(is_deep).map_or(0.0, |fade| fade.chance.get())
    }
}

/// Capacity of a radio link over time, for a device with a warm scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Potential {
    pub(super) surroundings: Surroundings,
    pub(super) zero: Time,
    pub(super) offset: Duration,
}

impl Potential {
    /// Return the bytes from `from` up to but excluding `to`.
    pub(crate) fn capacity(&self, from: Time, to: Time) -> Bytes {
        let position = |at: Time| at.since(self.zero) + self.offset;
        Bytes(self.surroundings.offered(position(from), position(to)))
    }
}

/// Interval between changes of the share that other users leave.
const CELL_STEP: Duration = Duration::from_millis(20);

/// Radio surroundings of the device over time, independent of its packets.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    config: RadioConfig,
    fading: Wander,
    cell: Wander,
    turn: Noise,
    when: Noise,
    gap: Noise,
    site: Noise,
}

impl Surroundings {
    pub(super) fn new(config: &RadioConfig) -> Self {
        let seed = config.seed;
        let own = purpose::own(config.way);
        let device = purpose::of_device(config.device);
        let fading = Noise::new(seed, purpose::FADING + device);
        Self {
            fading: Wander::new(fading, config.channel.report, config.channel.memory),
            cell: Wander::new(
                Noise::new(seed, purpose::CELL + own),
                CELL_STEP,
                config.cell.memory,
            ),
            turn: Noise::new(seed, purpose::TURN + own + device),
            when: Noise::new(seed, purpose::HANDOVER),
            gap: Noise::new(seed, purpose::GAP),
            site: Noise::new(seed, purpose::SITE),
            config: config.clone(),
        }
    }

    /// Return the symbols of a slot for this direction.
    fn symbols(&self, slot: u64) -> u8 {
        let pattern = &self.config.slots.symbols;
        match pattern.len() as u64 {
            0 => 0,
            length => pattern[(slot % length) as usize].min(SYMBOLS),
        }
    }

    /// Return the start of a slot; `None` beyond the end of time.
    pub(super) fn start(&self, slot: u64) -> Option<Duration> {
        let start = slot.checked_mul(self.config.slots.length.as_nanos())?;
        Some(Duration::from_nanos(start))
    }

    /// Return the device's first slot at or after `position`; `None` if there is none until the end of time.
    pub(super) fn next_slot(&self, position: Duration) -> Option<u64> {
        let length = self.config.slots.length.as_nanos();
        if length == 0
            || self
                .config
                .slots
                .symbols
                .iter()
                .all(|&symbols| symbols == 0)
        {
            return None;
        }
        let turn = self.config.cell.turn.get().max(LEAST_TURN);
        let mut slot = position.as_nanos().div_ceil(length);
        loop {
            let start = self.start(slot)?;
            if let Some(end) = self.gap_at(start) {
                slot = end.as_nanos().div_ceil(length).max(slot.checked_add(1)?);
            } else if self.symbols(slot) == 0 || (turn < 1.0 && self.turn.unit(slot) >= turn) {
                slot = slot.checked_add(1)?;
            } else {
                return Some(slot);
            }
        }
    }

    /// Return the bytes, at least one, that a slot carries for the device when the scheduler is warm. `known` caches
    /// the last result, which successive slots mostly share.
    pub(super) fn capacity(&self, slot: u64, known: &mut Cache) -> f64 {
        let position = self.start(slot).unwrap_or(Duration::MAX);
        let steps = (
            self.fading.step_at(position),
            self.cell.step_at(position),
            self.site_at(position),
        );
        let per_symbol = match known.0 {
            Some((at, bytes, _)) if at == steps => bytes,
            _ => {
                let (bytes, depth) = self.bytes_per_symbol(steps);
                known.0 = Some((steps, bytes, depth));
                bytes
            }
        };
        (per_symbol * f64::from(self.symbols(slot))).max(1.0)
    }

    /// Return the bytes that all slots from `from` up to but excluding `to` carry for the device.
    pub(super) fn offered(&self, from: Duration, to: Duration) -> u64 {
        let (mut known, mut bytes, mut position) = (Cache::default(), 0, from);
        while let Some(slot) = self.next_slot(position)
            && let Some(start) = self.start(slot).filter(|&start| start < to)
        {
            bytes += self.capacity(slot, &mut known) as u64;
            position = start + Duration::from_nanos(1);
        }
        bytes
    }

    /// Return the bytes per symbol of all carriers, and the depth of the fade in dB.
    fn bytes_per_symbol(&self, (fading, cell, site): (u64, u64, u64)) -> (f64, f64) {
        let (channel, carrier) = (&self.config.channel, &self.config.carrier);
        let spread = self
            .config
            .handover
            .map_or(0.0, |handover| handover.spread_db);
        let db = channel.mean_db
            + channel.deviation_db * self.fading.at(fading)
            + spread
                * if spread > 0.0 {
                    self.site.normal(site)
                } else {
                    0.0
                };
        let elements = f64::from(carrier.blocks) * SUBCARRIERS * f64::from(carrier.layers);
        let usable = elements * (1.0 - carrier.overhead) * efficiency(db);
        let carriers = 1.0 + self.config.second.map_or(0.0, |second| second.gain);
        (
            usable * self.left(cell) / 8.0 * carriers,
            channel.mean_db - db,
        )
    }

    /// Return the share that other users leave.
    fn left(&self, step: u64) -> f64 {
        let cell = &self.config.cell;
        let share = match cell.deviation {
            0.0 => cell.share,
            _ => (cell.share + cell.deviation * self.cell.at(step)).clamp(0.1 * cell.share, 1.0),
        };
        match &cell.users {
            Some(users) => share / (1.0 + self.active(users, step)),
            None => share,
        }
    }

    /// Return the number of active users at the beginning of a step.
    fn active(&self, users: &Users, step: u64) -> f64 {
        let [burst, length] = [purpose::BURST, purpose::LENGTH]
            .map(|of| Noise::new(self.config.seed, of + purpose::own(self.config.way)));
        let every = users.every.as_nanos().max(1);
        let at = step.saturating_mul(CELL_STEP.as_nanos());
        let active = |user: u64, part: u64| {
            let index = part ^ (user << 56);
            let begin = (part * every) as f64 + burst.unit(index) * every as f64;
            let mean = users.length.as_nanos() as f64;
            let length = (-(1.0 - length.unit(index)).ln() * mean).min(every as f64);
            (begin..begin + length).contains(&(at as f64))
        };
        let parts = (at / every).saturating_sub(1)..=at / every;
        let active = |user| parts.clone().any(|part| active(user, part));
        (0..u64::from(users.count))
            .filter(|&user| active(user))
            .count() as f64
    }

    /// Return begin and end of the handover gap in a part of the grid; `None` beyond the end of time.
    fn gap(&self, part: u64) -> Option<(Duration, Duration)> {
        let handover = self.config.handover?;
        let every = handover.every.as_nanos();
        let most = handover.most.as_nanos().min(every / 2);
        let least = handover.least.as_nanos().min(most);
        let length = least + (self.gap.unit(part) * (most - least) as f64) as u64;
        let within = (self.when.unit(part) * (every - most) as f64) as u64;
        let begin = part.checked_mul(every)?.checked_add(within)?;
        Some((
            Duration::from_nanos(begin),
            Duration::from_nanos(begin.saturating_add(length)),
        ))
    }

    /// Return the end of the gap that contains `position`, if any.
    fn gap_at(&self, position: Duration) -> Option<Duration> {
        let every = self.config.handover?.every.as_nanos();
        let (begin, end) = self.gap(position.as_nanos().checked_div(every)?)?;
        (begin <= position && position < end).then_some(end)
    }

    /// Return the number of the cell that serves the device.
    fn site_at(&self, position: Duration) -> u64 {
        let Some(handover) = self.config.handover else {
            return 0;
        };
        let part = position.as_nanos().checked_div(handover.every.as_nanos());
        let part = part.unwrap_or(0);
        part + u64::from(self.gap(part).is_some_and(|(_, end)| end <= position))
    }
}

/// Minimum probability of a turn: below it, a search would take too long.
const LEAST_TURN: f64 = 0.01;

/// Return the bits per resource element at a signal to noise ratio: the efficiency of the highest CQI that the channel
/// supports, or of the lowest CQI if it supports none.
fn efficiency(db: f64) -> f64 {
    let bound = ATTENUATION * (1.0 + 10f64.powf(db / 10.0)).log2();
    let borne = EFFICIENCY.partition_point(|&efficiency| efficiency <= bound);
    EFFICIENCY[borne.saturating_sub(1)]
}

/// The delay of the path behind the base station.
#[derive(Clone, Debug)]
pub(super) struct Route {
    config: Path,
    wander: Wander,
    step: Noise,
}

/// Interval between changes of the delay.
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

    /// Return the minimum delay of any packet.
    pub(super) fn least(&self) -> Duration {
        let lowest = LOWEST * self.config.deviation.as_nanos() as f64;
        // A nanosecond less, because `delay` rounds its sum.
        let nanos = self.config.delay.as_nanos() as f64 - lowest - 1.0;
        Duration::from_nanos(nanos.max(0.0) as u64)
    }
}

/// Limits of the variation of a delay, in deviations.
const LOWEST: f64 = 2.0;
const HIGHEST: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::Profile;

    #[test]
    fn the_efficiency_follows_the_signal() {
        assert_eq!(efficiency(-20.0), 0.1523);
        assert_eq!(efficiency(0.0), 0.3770); // the bound is 0.75 bit
        assert_eq!(efficiency(40.0), 7.4063);
        assert!(efficiency(20.0) > 4.0 && efficiency(20.0) < 5.1);
    }

    #[test]
    fn devices_at_one_place_share_the_cell_and_its_handovers_but_not_the_fading() {
        let [one, other] = [1, 2].map(|device| {
            Surroundings::new(&RadioConfig {
                device,
                ..Profile::MIDBAND_DRIVING.config(Way::Downlink)
            })
        });
        assert!((0..100).all(|part| one.gap(part) == other.gap(part)));
        assert!((0..100).all(|step| one.left(step) == other.left(step)));
        let alike = (0..1000).filter(|&step| one.fading.at(step) == other.fading.at(step));
        assert_eq!(alike.count(), 0);
    }

    #[test]
    fn active_users_take_equal_shares_of_the_cell() {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        let alone = Surroundings::new(&config);
        let users = r#"{"count": 4, "every_ns": 1000000000, "length_ns": 200000000}"#;
        config.cell.users = serde_json::from_str(users).unwrap();
        let shared = Surroundings::new(&config);
        let others = |step| alone.left(step) / shared.left(step) - 1.0;
        let mean = (0..10_000).map(others).sum::<f64>() / 1e4;
        assert!((0.7..0.9).contains(&mean), "{mean}"); // 4 users, a fifth of the time
        assert!((0..10_000).all(|step| (others(step) - others(step).round()).abs() < 1e-9));
    }

    #[test]
    fn handovers_come_as_often_as_asked_and_stop_everything() {
        let mut config = Profile::MIDBAND_DRIVING.config(Way::Downlink);
        let handover = config.handover.as_mut().unwrap();
        handover.every = Duration::from_secs(10);
        let surroundings = Surroundings::new(&config);
        for part in 0..50 {
            let (begin, end) = surroundings.gap(part).unwrap();
            assert!(begin.as_nanos() / 10_000_000_000 == part);
            let length = config.slots.length;
            let first = surroundings.next_slot(begin).unwrap();
            assert!(surroundings.start(first).unwrap() >= end);
            let before = begin.saturating_sub(length);
            assert_eq!(surroundings.site_at(before) + 1, surroundings.site_at(end));
        }
    }

    #[test]
    fn time_ends_without_a_handover_or_a_slot_beyond_it() {
        let mut config = Profile::MIDBAND_DRIVING.config(Way::Downlink);
        config.slots.length = Duration::from_nanos(1);
        config.slots.symbols = vec![0, 14]; // the last slot is not for this direction
        config.handover.as_mut().unwrap().every = Duration::from_nanos(u64::MAX / 3 * 2);
        let ends = |seed| {
            let seed = crate::random::Seed(seed);
            let surroundings = Surroundings::new(&RadioConfig {
                seed,
                ..config.clone()
            });
            let last = Duration::from_nanos(u64::MAX - 1);
            (
                surroundings.gap(1).is_none(),
                surroundings.next_slot(last),
                surroundings.site_at(last),
            )
        };
        let all: Vec<_> = (0..50).map(ends).collect();
        assert!(all.iter().any(|(beyond, ..)| *beyond) && all.iter().any(|(beyond, ..)| !beyond));
        assert!(
            all.iter()
                .all(|(_, slot, site)| slot.is_none_or(|slot| slot % 2 == 1) && *site < 3)
        );
    }

    #[test]
    fn a_pattern_of_nothing_never_has_a_slot() {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        config.slots.symbols = vec![0, 0];
        assert_eq!(Surroundings::new(&config).next_slot(Duration::ZERO), None);
        assert_eq!(
            Surroundings::new(&Profile::LOWBAND_GOOD.config(Way::Downlink))
                .next_slot(Duration::MAX),
            None
        );
    }
}

#[cfg(test)]
mod route_tests {
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
