//! The stages of a direction: an enum, since the set is fixed.

use crate::bottleneck::{Bottleneck, BottleneckConfig};
use crate::damage::{CorruptionConfig, Damage, DuplicationConfig};
use crate::delay::{Delay, DelayConfig};
use crate::flow_limit::{FlowLimit, FlowLimitConfig};
use crate::gate::GateConfig;
use crate::loss::{Loss, LossConfig};
use crate::outcome::DropReason;
use crate::packet::{Item, Step};
use crate::queue::{Discipline, QueueLevel};
use crate::radio::{Potential, Radio, RadioConfig};
use crate::replay::{
    Conditional, ConditionalConfig, SaturatedPlayback, WorkloadDependent, WorkloadDependentConfig,
};
use crate::schedule;
use crate::share::Share;
use crate::time::{Duration, Time};
use crate::units::{BitRate, Bytes};

/// Configuration of one stage of a direction.
#[derive(Clone, Debug, PartialEq)]
pub enum StageConfig {
    /// Packets are lost.
    Loss(LossConfig),
    /// Each flow has a rate limit.
    FlowLimit(FlowLimitConfig),
    /// The stage in which packets queue is closed at times.
    Gate(GateConfig),
    /// Packets queue for their turn.
    Bottleneck(BottleneckConfig),
    /// Packets are delayed.
    Delay(DelayConfig),
    /// Packets are delayed, then queue for their turn; both depend on the load.
    WorkloadDependent(Box<WorkloadDependentConfig>),
    /// Packets are duplicated.
    Duplication(DuplicationConfig),
    /// A bit of a packet is flipped.
    Corruption(CorruptionConfig),
    /// Packets cross a radio access network.
    Radio(Box<RadioConfig>),
    /// Packets are served as packets in the same situation were in a recording.
    Conditional(Box<ConditionalConfig>),
}

impl StageConfig {
    /// Return the discipline of the stage's queue, if it has one.
    pub fn queue(&self) -> Option<&Discipline> {
        match self {
            Self::Bottleneck(config) => Some(&config.queue),
            Self::WorkloadDependent(config) => Some(&config.queue),
            Self::Radio(config) => Some(&config.queue),
            Self::Conditional(config) => Some(&config.queue),
            _ => None,
        }
    }

    /// The same, to change it.
    pub fn queue_mut(&mut self) -> Option<&mut Discipline> {
        match self {
            Self::Bottleneck(config) => Some(&mut config.queue),
            Self::WorkloadDependent(config) => Some(&mut config.queue),
            Self::Radio(config) => Some(&mut config.queue),
            Self::Conditional(config) => Some(&mut config.queue),
            _ => None,
        }
    }
}

macro_rules! stages {
    ($($config:ty => $variant:expr,)*) => {$(
        impl From<$config> for StageConfig {
            fn from(config: $config) -> Self {
                $variant(config.into())
            }
        }
    )*};
}

stages! {
    LossConfig => Self::Loss,
    FlowLimitConfig => Self::FlowLimit,
    GateConfig => Self::Gate,
    BottleneckConfig => Self::Bottleneck,
    DelayConfig => Self::Delay,
    WorkloadDependentConfig => Self::WorkloadDependent,
    DuplicationConfig => Self::Duplication,
    CorruptionConfig => Self::Corruption,
    RadioConfig => Self::Radio,
    ConditionalConfig => Self::Conditional,
}

#[derive(Clone, Debug)]
pub(crate) enum Stage<P> {
    Loss(Loss),
    FlowLimit(Box<FlowLimit<P>>),
    Gate(GateConfig),
    Bottleneck(Box<Bottleneck<P>>),
    Delay(Delay<Item<P>>),
    WorkloadDependent(Box<WorkloadDependent<P>>),
    Duplication(Damage),
    Corruption(Damage),
    Radio(Box<Radio<P>>),
    Conditional(Box<Conditional<P>>),
}

/// Capacity of a stage with a queue, on the clock.
#[derive(Clone, Debug)]
pub(crate) enum Offer {
    Schedule(schedule::Offer),
    Radio(Box<Potential>),
    Saturated(Box<SaturatedPlayback>),
}

impl Offer {
    /// During an outage.
    pub(crate) const NOTHING: Self = Self::Schedule(schedule::Offer::Constant(BitRate(0)));

    /// Bytes offered from `from` up to but excluding `to`; `None` without limit.
    pub(crate) fn capacity(&self, from: Time, to: Time) -> Option<Bytes> {
        match self {
            Self::Schedule(schedule) => schedule.capacity(from, to),
            Self::Radio(potential) => Some(potential.capacity(from, to)),
            Self::Saturated(clock) => Some(clock.capacity(from, to)),
        }
    }
}

impl<P> Stage<P> {
    pub(crate) fn new(config: StageConfig, zero: Time) -> Self {
        match config {
            StageConfig::Loss(config) => Self::Loss(Loss::new(config, zero)),
            StageConfig::FlowLimit(config) => Self::FlowLimit(Box::new(FlowLimit::new(config))),
            StageConfig::Gate(config) => Self::Gate(config),
            StageConfig::Bottleneck(config) => {
                Self::Bottleneck(Box::new(Bottleneck::new(&config, zero)))
            }
            StageConfig::Delay(config) => Self::Delay(Delay::new(config, zero)),
            StageConfig::WorkloadDependent(config) => {
                Self::WorkloadDependent(Box::new(WorkloadDependent::new(*config, zero)))
            }
            StageConfig::Duplication(DuplicationConfig { probability, seed }) => {
                Self::Duplication(Damage::new(probability, seed))
            }
            StageConfig::Corruption(CorruptionConfig { probability, seed }) => {
                Self::Corruption(Damage::new(probability, seed))
            }
            StageConfig::Radio(config) => Self::Radio(Box::new(Radio::new(&config, zero))),
            StageConfig::Conditional(config) => {
                Self::Conditional(Box::new(Conditional::new(*config, zero)))
            }
        }
    }

    /// Plays what it plays from `zero` on, as of `now`; packets stay.
    pub(crate) fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        match self {
            Self::Loss(loss) => loss.restart(zero, offset),
            Self::Bottleneck(bottleneck) => bottleneck.restart(zero, now, offset),
            Self::Delay(delay) => delay.restart(zero, offset),
            Self::WorkloadDependent(link) => link.restart(zero, now, offset),
            Self::Duplication(damage) | Self::Corruption(damage) => damage.restart(),
            Self::Gate(_) => {}      // its instants are those of the direction
            Self::FlowLimit(_) => {} // buckets stay, as packets do
            Self::Radio(radio) => radio.restart(zero, now, offset),
            Self::Conditional(link) => link.restart(zero, now, offset),
        }
    }

    /// Applies `config`, which is of the stage's kind, from `now` on. Packets stay, generators keep their state.
    pub(crate) fn change(&mut self, config: &StageConfig, zero: Time, now: Time, offset: Duration) {
        match (self, config) {
            (Self::Loss(loss), StageConfig::Loss(config)) => {
                loss.change(config.clone(), zero, offset);
            }
            (Self::FlowLimit(limit), StageConfig::FlowLimit(config)) => limit.change(*config, now),
            (Self::Gate(gate), StageConfig::Gate(config)) => *gate = config.clone(),
            (Self::Bottleneck(bottleneck), StageConfig::Bottleneck(config)) => {
                bottleneck.change(config, now, offset);
            }
            (Self::Delay(delay), StageConfig::Delay(config)) => delay.change(config.clone()),
            (Self::WorkloadDependent(link), StageConfig::WorkloadDependent(config)) => {
                link.change(config, now, offset);
            }
            (Self::Duplication(damage), StageConfig::Duplication(config)) => {
                damage.change(config.probability, config.seed);
            }
            (Self::Corruption(damage), StageConfig::Corruption(config)) => {
                damage.change(config.probability, config.seed);
            }
            (Self::Radio(radio), StageConfig::Radio(config)) => radio.change(config, now),
            (Self::Conditional(link), StageConfig::Conditional(config)) => {
                link.change(config, zero, now, offset);
            }
            _ => {} // refused before
        }
    }

    /// Closes or opens the stage in which packets queue, as of `now`: nothing is sent while it is closed by a gate, or
    /// barred because a [cell](crate::cell) serves another user. When it is no longer barred, `share` of what it offers
    /// at `now` is left.
    ///
    /// Events before `now` must have been taken.
    pub(crate) fn set_closed(&mut self, closed: bool, barred: bool, share: Share, now: Time) {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.set_closed(closed || barred, share, now),
            Self::WorkloadDependent(link) => link.set_closed(closed, now),
            Self::Radio(radio) => {
                radio.set_barred(barred, share, now);
                radio.set_closed(closed, now);
            }
            Self::Conditional(link) => link.set_closed(closed, now),
            _ => {}
        }
    }

    /// Drops what waits for its turn, or is sent in part, while the stage is closed.
    pub(crate) fn flush(&mut self) {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.flush(),
            Self::Radio(radio) => radio.flush(),
            _ => {} // refused before
        }
    }

    /// Return whether bytes leave in a steady flow, not at instants.
    pub(crate) fn is_steady(&self) -> bool {
        matches!(self, Self::Bottleneck(bottleneck) if bottleneck.service().is_steady())
    }

    /// From when on what waits can be sent.
    pub(crate) fn ready(&self) -> Time {
        match self {
            Self::Radio(radio) => radio.ready(),
            _ => Time::ZERO,
        }
    }

    /// When the queue of a stage may become shorter next.
    pub(crate) fn queue_event(&self) -> Option<Time> {
        match self {
            Self::Radio(radio) => radio.next_slot(),
            _ => self.next_event(),
        }
    }

    /// The share of what the stage offers at `now` that was not used.
    pub(crate) fn left(&self, now: Time) -> Share {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.service().left(now),
            Self::Radio(radio) => radio.left(now),
            _ => Share::WHOLE,
        }
    }

    /// Bytes that the stage can send from `from` up to but excluding `to`, fractions included.
    pub(crate) fn potential(&self, from: Time, to: Time) -> f64 {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.offer().potential(from, to),
            Self::Radio(radio) => radio.offered(from, to) as f64,
            _ => 0.0,
        }
    }

    /// When something happens in the stage next: mostly, a packet leaves.
    #[inline]
    pub(crate) fn next_event(&self) -> Option<Time> {
        // Called for every stage at every event: a few comparisons are faster than a jump.
        if let Self::Delay(delay) = self {
            delay.next_departure()
        } else if let Self::Bottleneck(bottleneck) = self {
            bottleneck.next_event()
        } else if let Self::WorkloadDependent(link) = self {
            link.next_event()
        } else if let Self::Radio(radio) = self {
            radio.next_event()
        } else if let Self::Conditional(link) = self {
            link.next_event()
        } else if let Self::FlowLimit(limit) = self {
            limit.next_departure()
        } else {
            None // delays nothing
        }
    }

    /// The earliest instant at which a packet may leave the stage, if no other enters it.
    pub(crate) fn next_delivery(&self) -> Option<Time> {
        match self {
            Self::Radio(radio) => radio.next_delivery(),
            _ => self.next_event(),
        }
    }

    /// Return the level of the stage's queue, if it has one.
    #[inline]
    pub(crate) fn level(&self) -> Option<QueueLevel> {
        match self {
            Self::Bottleneck(bottleneck) => Some(bottleneck.level()),
            Self::WorkloadDependent(link) => Some(link.bottleneck().level()),
            Self::Radio(radio) => Some(radio.level()),
            Self::Conditional(link) => Some(link.level()),
            _ => None,
        }
    }

    /// Return the capacity of a stage with a queue.
    pub(crate) fn offer(&self) -> Option<Offer> {
        match self {
            Self::Bottleneck(bottleneck) => Some(Offer::Schedule(bottleneck.offer())),
            Self::WorkloadDependent(link) => Some(Offer::Schedule(link.bottleneck().offer())),
            Self::Radio(radio) => Some(Offer::Radio(Box::new(radio.potential()))),
            Self::Conditional(link) => Some(Offer::Saturated(Box::new(link.saturated()))),
            _ => None,
        }
    }

    /// Return whether a queue has dropped packets that were not taken yet.
    #[inline]
    pub(crate) fn has_dropped(&self) -> bool {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.has_dropped(),
            Self::WorkloadDependent(link) => link.bottleneck().has_dropped(),
            Self::Radio(radio) => radio.has_dropped(),
            Self::Conditional(link) => link.has_dropped(),
            _ => false,
        }
    }

    /// Takes a packet that a queue has dropped.
    pub(crate) fn next_dropped(&mut self) -> Option<(Item<P>, DropReason)> {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.next_dropped(),
            Self::WorkloadDependent(link) => link.next_dropped(),
            Self::Radio(radio) => radio.next_dropped(),
            Self::Conditional(link) => link.next_dropped(),
            _ => None,
        }
    }

    /// Processes the event due at `now`.
    #[inline]
    pub(crate) fn step(&mut self, now: Time) -> Option<Step<P>> {
        match self {
            Self::Bottleneck(bottleneck) => bottleneck.step(now),
            Self::Delay(delay) => delay.take().map(Step::Left),
            Self::FlowLimit(limit) => limit.take(now).map(Step::Left),
            Self::WorkloadDependent(link) => link.step(now),
            Self::Radio(radio) => radio.step(now),
            Self::Conditional(link) => link.step(now),
            Self::Loss(_) | Self::Gate(_) | Self::Duplication(_) | Self::Corruption(_) => None,
        }
    }
}
