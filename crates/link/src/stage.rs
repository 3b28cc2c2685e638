//! The stages that a direction is made of: an enum of concrete ones, since the set is ours.

use crate::bottleneck::{Bottleneck, BottleneckConfig};
use crate::delay::{Delay, DelayConfig};
use crate::loss::{Loss, LossConfig};
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// What one stage of a direction does.
#[derive(Clone, Debug, PartialEq)]
pub enum StageConfig {
    /// Packets vanish.
    Loss(LossConfig),
    /// Packets queue for their turn.
    Bottleneck(BottleneckConfig),
    /// Packets travel.
    Delay(DelayConfig),
}

impl From<LossConfig> for StageConfig {
    fn from(config: LossConfig) -> Self {
        Self::Loss(config)
    }
}

impl From<BottleneckConfig> for StageConfig {
    fn from(config: BottleneckConfig) -> Self {
        Self::Bottleneck(config)
    }
}

impl From<DelayConfig> for StageConfig {
    fn from(config: DelayConfig) -> Self {
        Self::Delay(config)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Stage<P> {
    Loss(Loss),
    Bottleneck(Bottleneck<Item<P>>),
    Delay(Delay<Item<P>>),
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Item<P> {
    pub(crate) packet: P,
    pub(crate) size: Bytes,
    pub(crate) arrived: Time,
    pub(crate) released: Time,
}

impl<P> Stage<P> {
    pub(crate) fn new(config: StageConfig, zero: Time) -> Self {
        match config {
            StageConfig::Loss(config) => Self::Loss(Loss::new(config)),
            StageConfig::Bottleneck(config) => Self::Bottleneck(Bottleneck::new(&config, zero)),
            StageConfig::Delay(config) => Self::Delay(Delay::new(config, zero)),
        }
    }

    /// Plays what it plays from `zero` on, as of `now`; packets stay.
    pub(crate) fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        match self {
            Self::Loss(loss) => loss.restart(),
            Self::Bottleneck(bottleneck) => bottleneck.restart(zero, now, offset),
            Self::Delay(delay) => delay.restart(zero, offset),
        }
    }

    /// When the next packet leaves.
    pub(crate) fn next_departure(&self) -> Option<Time> {
        match self {
            Self::Loss(_) => None, // holds nothing back
            Self::Bottleneck(bottleneck) => bottleneck.next_departure(),
            Self::Delay(delay) => delay.next_departure(),
        }
    }
    /// Takes the packet that leaves at `now`, its next departure.
    pub(crate) fn take(&mut self, now: Time) -> Option<Item<P>> {
        match self {
            Self::Loss(_) => None,
            Self::Bottleneck(bottleneck) => bottleneck.take().map(|item| Item {
                released: now,
                ..item
            }),
            Self::Delay(delay) => delay.take(),
        }
    }
}
