//! Two operators in five conditions, modelled on the two operators of a paper.
//!
//! Values from a source cite it. **All others are ours, chosen to reproduce the effects** that Sentosa et
//! al. ("CellReplay", NSDI 2025, §3.1 and §3.2) publish for a good signal; the paper does not state their causes.
//! `cargo run --release -p cellbed-link --example radio_effects` prints our effects with the published ones.

use super::config::{
    Carrier, Cell, Channel, Grant, Handover, Harq, Path, RadioConfig, Ramp, Sleep, Slots, Way,
};
use crate::queue::{Discipline, Limit};
use crate::random::{Probability, Seed};
use crate::time::Duration;

/// The operator's carrier and scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Band {
    /// Mid-band 5G with time division, 100 MHz at 30 kHz spacing: a scheduler that warms up with time, for any load.
    /// Except at its beginning, a train's delivery rate is independent of its length.
    Midband,
    /// Low-band 5G with frequency division, 10 MHz at 15 kHz spacing: a scheduler that warms up to the queue. Long
    /// trains are delivered faster than short ones.
    Lowband,
}

/// Place and movement of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// At rest with a good signal.
    Good,
    /// At rest with a weak signal, as in a basement.
    Weak,
    /// At rest among many users, as in a full library.
    Crowded,
    /// Carried by a pedestrian.
    Walking,
    /// In a car.
    Driving,
}

/// A radio link with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// Carrier and scheduler.
    pub band: Band,
    /// Surroundings.
    pub condition: Condition,
}

impl Profile {
    /// `midband-good`
    pub const MIDBAND_GOOD: Self = Self::new(Band::Midband, Condition::Good);
    /// `midband-driving`
    pub const MIDBAND_DRIVING: Self = Self::new(Band::Midband, Condition::Driving);
    /// `lowband-good`
    pub const LOWBAND_GOOD: Self = Self::new(Band::Lowband, Condition::Good);
    /// `lowband-driving`
    pub const LOWBAND_DRIVING: Self = Self::new(Band::Lowband, Condition::Driving);

    const fn new(band: Band, condition: Condition) -> Self {
        Self { band, condition }
    }

    /// Return all profiles.
    pub fn all() -> impl Iterator<Item = Self> {
        use Condition::{Crowded, Driving, Good, Walking, Weak};
        [Band::Midband, Band::Lowband].into_iter().flat_map(|band| {
            [Good, Weak, Crowded, Walking, Driving].map(|condition| Self::new(band, condition))
        })
    }

    /// Return the profile called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|profile| profile.name() == name)
    }

    /// Return the name, such as `lowband-driving`.
    pub fn name(self) -> String {
        format!("{:?}-{:?}", self.band, self.condition).to_lowercase()
    }

    /// Return one direction with seed 0. Give both directions of a link the same [seed](RadioConfig::seed).
    pub fn config(self, way: Way) -> RadioConfig {
        let mut config = match self.band {
            Band::Midband => midband(way),
            Band::Lowband => lowband(way),
        };
        self.condition.apply(&mut config);
        config
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Return a constant as a probability.
fn chance(value: f64) -> Probability {
    Probability::new(value).unwrap_or(Probability::NEVER)
}

/// T-Mobile's mid-band of the paper.
fn midband(way: Way) -> RadioConfig {
    let down = way == Way::Downlink;
    // 7 downlink slots, a special one of 6 downlink, 4 guard and 4 uplink symbols, 2 uplink slots: FR1.30-1 of
    // TS 38.521-4, table A.1.2-2.
    let symbols = if down {
        [14, 14, 14, 14, 14, 14, 14, 6, 0, 0]
    } else {
        [0, 0, 0, 0, 0, 0, 0, 4, 14, 14]
    };
    RadioConfig {
        way,
        slots: Slots {
            length: us(500),
            symbols: symbols.into(),
        },
        carrier: Carrier {
            blocks: 273,
            layers: if down { 4 } else { 1 },
            overhead: if down { 0.14 } else { 0.08 },
        },
        channel: Channel {
            mean_db: if down { 21.0 } else { 12.0 },
            deviation_db: 2.0,
            memory: ms(500),
            report: ms(10),
        },
        cell: Cell {
            share: if down { 0.17 } else { 0.5 },
            deviation: if down { 0.02 } else { 0.05 },
            memory: ms(1000),
            turn: Probability::ALWAYS,
            users: None,
        },
        ramp: if down {
            Ramp {
                cold: 0.2,
                rise: us(3_400),
                full: 0,
                bend: 1.0,
                memory: ms(10),
            }
        } else {
            Ramp::NONE // §3.2 of the paper: the uplink's rate does not depend on the load
        },
        harq: Harq {
            first: chance(0.1),
            again: chance(0.05),
            round_trip: ms(5),
            attempts: 4,
            recovery: ms(40),
            decode: us(500),
            unacknowledged: false,
            fade: None,
        },
        grant: (!down).then_some(Grant {
            period: ms(8),
            delay: ms(3),
            first: 1500,
            tail: ms(5),
        }),
        sleep: down.then_some(SLEEP),
        release: None,
        second: None,
        handover: None,
        path: Path {
            delay: us(6_800),
            deviation: us(600),
            memory: ms(2000),
            every: ms(20_000),
            step: ms(1),
            per_byte_ps: 500_000,
        },
        queue: Discipline::DropTail(Limit::bytes(if down { 4_000_000 } else { 1_000_000 })),
        seed: Seed(0),
        device: 0,
        coupled: false,
        offset: Duration::ZERO,
    }
}

/// Verizon's low-band of the paper, about 60 Mbit/s (§3.2).
fn lowband(way: Way) -> RadioConfig {
    let down = way == Way::Downlink;
    let midband = midband(way);
    RadioConfig {
        slots: Slots {
            length: ms(1),
            symbols: vec![14],
        },
        carrier: Carrier {
            blocks: 52,
            layers: if down { 2 } else { 1 },
            ..midband.carrier
        },
        channel: Channel {
            mean_db: if down { 21.0 } else { 11.0 },
            ..midband.channel
        },
        cell: Cell {
            share: 0.9,
            deviation: 0.05,
            ..midband.cell
        },
        ramp: if down {
            Ramp {
                cold: 0.15,
                rise: us(5_400),
                full: 520_000,
                bend: 0.5,
                ..midband.ramp
            }
        } else {
            Ramp::NONE
        },
        harq: Harq {
            round_trip: ms(8),
            decode: ms(1),
            ..midband.harq
        },
        grant: midband.grant.map(|grant| Grant {
            delay: ms(4),
            first: 300,
            ..grant
        }),
        path: Path {
            delay: us(7_000),
            deviation: us(1_050),
            per_byte_ps: 1_830_000,
            ..midband.path
        },
        queue: Discipline::DropTail(Limit::bytes(if down { 2_000_000 } else { 500_000 })),
        ..midband
    }
}

/// Values that TS 38.331 allows for `drx-InactivityTimer`, the long cycle and the on-duration; the operators' values
/// are not published. The cycle is short because the directions are separate: the downlink here does not see that a
/// sending device is awake.
const SLEEP: Sleep = Sleep {
    after: ms(200),
    cycle: ms(40),
    awake: ms(10),
    short: Duration::ZERO,
    short_for: Duration::ZERO,
};

impl Condition {
    /// Apply the condition to the profile of a device at rest with a good signal.
    fn apply(self, config: &mut RadioConfig) {
        match self {
            Self::Good => {}
            Self::Weak => {
                config.channel.mean_db -= 12.0;
                config.channel.deviation_db = 3.0;
                config.harq.first = chance(0.2);
                config.harq.again = chance(0.1);
                config.path.deviation += us(400);
            }
            Self::Crowded => {
                config.cell.share *= 0.8;
                config.cell.turn = chance(0.5);
                config.cell.deviation = 0.3 * config.cell.share;
                config.path.deviation += us(700);
            }
            Self::Walking => {
                config.channel.mean_db -= 4.0;
                config.channel.deviation_db = 4.0;
                config.channel.memory = ms(300);
                config.handover = Some(Handover {
                    every: ms(60_000),
                    ..HANDOVER
                });
                config.path.every = ms(10_000);
                config.path.step = ms(2);
            }
            Self::Driving => {
                config.channel.mean_db -= 6.0;
                config.channel.deviation_db = 6.0;
                config.channel.memory = ms(100);
                config.channel.report = ms(5);
                config.handover = Some(HANDOVER);
                config.path.every = ms(5_000);
                config.path.step = ms(3);
            }
        }
    }
}

/// Handovers while driving: every 33.3 s (Lim et al., "An Empirical Study of 5G: Effect of Edge on Transport Protocol
/// and Application Performance", IEEE Transactions on Mobile Computing, 2024, §VI-B; every 14 s in a subway). The gap
/// is ours.
const HANDOVER: Handover = Handover {
    every: ms(33_300),
    least: ms(40),
    most: ms(150),
    spread_db: 3.0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_found_by_its_name() {
        for profile in Profile::all() {
            assert_eq!(Profile::named(&profile.name()), Some(profile));
        }
        assert_eq!(Profile::named("lowband"), None);
        assert_eq!(Profile::LOWBAND_DRIVING.name(), "lowband-driving");
    }
}
