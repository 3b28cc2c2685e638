//! A radio access network, as the configuration tells it.

use cellbed_link::{Discipline, Duration, Profile, RadioConfig, Seed, Way};
use serde::Deserialize;

use crate::config::Queue;

/// One direction of a radio link: a profile by its name, and what is different from it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    profile: String,
    way: Direction,
    /// The same for both directions of a link.
    seed: u64,
    /// Where in the generated weather time zero lies.
    #[serde(default)]
    offset_ns: u64,
    /// In place of the profile's.
    pub(crate) queue: Option<Queue>,
    /// Mean signal to noise ratio, dB, in place of the profile's.
    signal_db: Option<f64>,
    /// Mean share of the cell, in place of the profile's.
    share: Option<f64>,
    /// Mean one-way delay behind the base station, in place of the profile's.
    delay_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Uplink,
    Downlink,
}

impl Radio {
    /// The stage with the queue that the configuration has for it, if it has one.
    pub(crate) fn build(&self, queue: Option<Discipline>) -> Result<RadioConfig, String> {
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
        if let Some(delay) = self.delay_ns {
            config.path.delay = Duration::from_nanos(delay);
        }
        Ok(config)
    }
}
