//! A radio access network in its serialised form: a profile by its name, and what is different from it.

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Error as Fault;

use super::config::{Carrier, Handover, RadioConfig, Slots, Way};
use super::profile::Profile;
use crate::queue::Discipline;
use crate::random::Seed;
use crate::time::Duration;

/// One direction of a radio link. What is left out is the profile's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RadioTable {
    profile: String,
    way: Way,
    /// The same for both directions of a link.
    seed: Seed,
    #[serde(default)]
    device: u16,
    #[serde(default, rename = "offset_ns")]
    offset: Duration,
    queue: Option<Queue>,
    /// Mean signal to noise ratio, dB.
    signal_db: Option<f64>,
    /// Mean share of the cell.
    share: Option<f64>,
    /// Standard deviation of that share; left out, in proportion to the profile's.
    share_deviation: Option<f64>,
    /// Mean one-way delay behind the base station.
    delay_ns: Option<Duration>,
    handover: Option<Handover>,
    carrier: Option<CarrierTable>,
    /// Fading of the signal.
    fading: Option<Fading>,
}

#[derive(Deserialize)]
struct Queue(#[serde(deserialize_with = "crate::queue::deserialize")] Discipline);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CarrierTable {
    #[serde(flatten)]
    carrier: Carrier,
    #[serde(flatten)]
    slots: Slots,
}

/// Standard deviation of the signal to noise ratio, and its time constant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fading {
    deviation_db: f64,
    memory_ns: Duration,
}

fn check_handover(handover: &Handover) -> Result<(), Fault> {
    // The cell and its gap are looked up slot by slot: less than a slot between changes makes no sense.
    if handover.every < Duration::from_millis(1)
        || handover.least > handover.most
        || handover.most.as_nanos() > handover.every.as_nanos() / 2
    {
        let text = "a handover needs at least 1 ms between two, and gaps of at most half of that";
        return Err(Fault::custom(text));
    }
    within(handover.spread_db, 0.0, 30.0, "a spread of cells in dB")?;
    Ok(())
}

fn check_carrier(CarrierTable { carrier, slots }: &CarrierTable) -> Result<(), Fault> {
    if !(1..=10_000).contains(&carrier.blocks) || !(1..=64).contains(&carrier.layers) {
        let text = "a carrier has 1 to 10000 resource blocks and 1 to 64 layers";
        return Err(Fault::custom(text));
    }
    if !(0.0..1.0).contains(&carrier.overhead) {
        let text = format!("an overhead of {} is outside 0 to 1", carrier.overhead);
        return Err(Fault::custom(text));
    }
    if slots.length < Duration::from_micros(10) || slots.symbols.iter().all(|&it| it == 0) {
        let text = "slots have at least 10 µs, and a pattern at least one symbol";
        return Err(Fault::custom(text));
    }
    Ok(())
}

fn within(value: f64, low: f64, high: f64, what: &str) -> Result<f64, Fault> {
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(Fault::custom(format!(
            "{what} of {value} is outside {low} to {high}"
        ))),
    }
}

impl RadioTable {
    pub(crate) fn build(self) -> Result<RadioConfig, Fault> {
        let profile = Profile::named(&self.profile).ok_or_else(|| {
            let known = Profile::ALL.map(Profile::name).join(", ");
            let name = &self.profile;
            Fault::custom(format!(
                "there is no radio profile {name:?}; known are {known}"
            ))
        })?;
        let mut config = RadioConfig {
            seed: self.seed,
            device: self.device,
            offset: self.offset,
            ..profile.config(self.way)
        };
        if let Some(Queue(queue)) = self.queue {
            config.queue = queue;
        }
        if let Some(db) = self.signal_db {
            config.channel.mean_db = within(db, -50.0, 100.0, "a signal in dB")?;
        }
        if let Some(share) = self.share {
            config.cell.deviation *= within(share, 0.001, 1.0, "a share")? / config.cell.share;
            config.cell.share = share;
        }
        if let Some(deviation) = self.share_deviation {
            config.cell.deviation = within(deviation, 0.0, 1.0, "a deviation of the share")?;
        }
        if let Some(delay) = self.delay_ns {
            config.path.delay = delay;
        }
        if let Some(handover) = self.handover {
            check_handover(&handover)?;
            config.handover = Some(handover);
        }
        if let Some(table) = self.carrier {
            check_carrier(&table)?;
            (config.carrier, config.slots) = (table.carrier, table.slots);
        }
        if let Some(fading) = self.fading {
            config.channel.deviation_db =
                within(fading.deviation_db, 0.0, 30.0, "a deviation in dB")?;
            config.channel.memory = fading.memory_ns;
        }
        Ok(config)
    }
}
