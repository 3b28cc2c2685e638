//! A radio access network, as the configuration tells it.

use cellbed_link::radio::{Carrier, Handover, Slots};
use cellbed_link::{Duration, Profile, RadioConfig, Seed, Way};
use serde::Deserialize;

use crate::error::Refusal;
use crate::queues::Queue;

/// One direction of a radio link: a profile by its name, and what is different from it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    profile: String,
    way: Direction,
    /// The same for both directions of a link.
    seed: u64,
    /// Which of the devices at one place: each has its own fading, turns and failed blocks.
    #[serde(default)]
    device: u16,
    /// Where in the generated weather time zero lies.
    #[serde(default)]
    offset_ns: u64,
    /// In place of the profile's.
    pub(crate) queue: Option<Queue>,
    /// Mean signal to noise ratio, dB, in place of the profile's.
    signal_db: Option<f64>,
    /// Mean share of the cell, in place of the profile's.
    share: Option<f64>,
    /// Standard deviation of that share, in place of one in proportion to the profile's.
    share_deviation: Option<f64>,
    /// Mean one-way delay behind the base station, in place of the profile's.
    delay_ns: Option<u64>,
    /// In place of the profile's, which may have none.
    handover: Option<HandoverKeys>,
    /// Carrier and slots in place of the profile's.
    carrier: Option<CarrierKeys>,
    /// How the signal wanders, in place of the profile's.
    fading: Option<Fading>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Uplink,
    Downlink,
}

/// The mean time between changes of the cell, the shortest and the longest gap, and how different cells are.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandoverKeys {
    every_ns: u64,
    least_ns: u64,
    most_ns: u64,
    spread_db: f64,
}

/// Resource blocks, layers, overhead; length of a slot, and symbols of this direction in each slot of the pattern.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CarrierKeys {
    blocks: u32,
    layers: u32,
    overhead: f64,
    slot_ns: u64,
    symbols: Vec<u8>,
}

/// Standard deviation of the signal to noise ratio, and the time constant with which it forgets.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fading {
    deviation_db: f64,
    memory_ns: u64,
}

impl HandoverKeys {
    fn build(self) -> Result<Handover, String> {
        // The cell and its gap are looked up slot by slot: less than a slot between changes makes no sense.
        if self.every_ns < 1_000_000
            || self.least_ns > self.most_ns
            || self.most_ns > self.every_ns / 2
        {
            return Err(
                "a handover needs at least 1 ms between two, and gaps of at most half of that"
                    .into(),
            );
        }
        if !(0.0..=30.0).contains(&self.spread_db) {
            return Err(format!(
                "cells {} dB apart are outside 0 to 30",
                self.spread_db
            ));
        }
        Ok(Handover {
            every: Duration::from_nanos(self.every_ns),
            least: Duration::from_nanos(self.least_ns),
            most: Duration::from_nanos(self.most_ns),
            spread_db: self.spread_db,
        })
    }
}

impl CarrierKeys {
    fn build(&self) -> Result<(Carrier, Slots), String> {
        if self.blocks == 0 || self.blocks > 10_000 || self.layers == 0 || self.layers > 64 {
            return Err("a carrier has 1 to 10000 resource blocks and 1 to 64 layers".into());
        }
        if !(0.0..1.0).contains(&self.overhead) {
            return Err(format!(
                "an overhead of {} is outside 0 to 1",
                self.overhead
            ));
        }
        if self.slot_ns < 10_000 || self.symbols.iter().all(|&symbols| symbols == 0) {
            return Err("slots have at least 10 µs, and a pattern at least one symbol".into());
        }
        let carrier = Carrier {
            blocks: self.blocks,
            layers: self.layers,
            overhead: self.overhead,
        };
        let slots = Slots {
            length: Duration::from_nanos(self.slot_ns),
            symbols: self.symbols.clone(),
        };
        Ok((carrier, slots))
    }
}

impl Radio {
    pub(crate) fn build(&self) -> Result<RadioConfig, Refusal> {
        let queue = self.queue.as_ref().map(Queue::build).transpose()?;
        let profile = Profile::named(&self.profile).ok_or_else(|| {
            let known = Profile::ALL.map(Profile::name).join(", ");
            format!(
                "there is no radio profile {:?}; known are {known}",
                self.profile
            )
        })?;
        let way = match self.way {
            Direction::Uplink => Way::Uplink,
            Direction::Downlink => Way::Downlink,
        };
        let mut config = profile.config(way);
        config.seed = Seed(self.seed);
        config.device = self.device;
        config.offset = Duration::from_nanos(self.offset_ns);
        if let Some(queue) = queue {
            config.queue = queue;
        }
        if let Some(db) = self.signal_db {
            if !(-50.0..=100.0).contains(&db) {
                return Err(format!("a signal of {db} dB is outside -50 to 100"));
            }
            config.channel.mean_db = db;
        }
        if let Some(share) = self.share {
            if !(0.001..=1.0).contains(&share) {
                return Err(format!("a share of {share} is outside 0.001 to 1"));
            }
            config.cell.deviation *= share / config.cell.share;
            config.cell.share = share;
        }
        if let Some(deviation) = self.share_deviation {
            if !(0.0..=1.0).contains(&deviation) {
                return Err(format!(
                    "a deviation of the share of {deviation} is outside 0 to 1"
                ));
            }
            config.cell.deviation = deviation;
        }
        if let Some(delay) = self.delay_ns {
            config.path.delay = Duration::from_nanos(delay);
        }
        if let Some(handover) = self.handover {
            config.handover = Some(handover.build()?);
        }
        if let Some(carrier) = &self.carrier {
            (config.carrier, config.slots) = carrier.build()?;
        }
        if let Some(fading) = self.fading {
            if !(0.0..=30.0).contains(&fading.deviation_db) {
                return Err(format!(
                    "a deviation of {} dB is outside 0 to 30",
                    fading.deviation_db
                ));
            }
            config.channel.deviation_db = fading.deviation_db;
            config.channel.memory = Duration::from_nanos(fading.memory_ns);
        }
        Ok(config)
    }
}
