//! The stages of a direction: an enum, since the set is fixed.

use crate::bottleneck::{Bottleneck, BottleneckConfig};
use crate::damage::{CorruptionConfig, Damage, DuplicationConfig};
use crate::delay::{Delay, DelayConfig};
use crate::flow_limit::{FlowLimit, FlowLimitConfig};
use crate::gate::GateConfig;
use crate::loss::{Loss, LossConfig};
use crate::packet::{Item, Step};
use crate::queue::{Discipline, Dropped, QueueLevel};
use crate::radio::{Radio, RadioConfig};
use crate::replay::{Conditional, ConditionalConfig, WorkloadDependent, WorkloadDependentConfig};
use crate::schedule::Offer;
use crate::time::{Duration, Time};
use crate::units::Share;

/// A stage made of a configuration of type `C`.
pub(crate) trait Configured<C> {
    fn new(config: &C, zero: Time) -> Self;

    /// Apply `config` from `now` on. Packets stay, generators keep their state.
    ///
    /// Events before `now` must have been taken.
    fn change(&mut self, config: &C, zero: Time, now: Time, offset: Duration);
}

/// A stage that moves packets of type `P`. The defaults suit a stage that holds no packets.
#[allow(unused_variables)]
pub(crate) trait Behaviour<P> {
    /// Restart the schedule at `zero`, as of `now`; packets stay.
    ///
    /// Events before `now` must have been taken.
    fn restart(&mut self, zero: Time, now: Time, offset: Duration) {}

    /// Close or open the stage where packets queue, as of `now`. It sends nothing while a gate closes it, or while it
    /// is barred because a [cell](crate::cell) serves another user. When it is no longer barred, `share` of its
    /// capacity at `now` is left.
    ///
    /// Events before `now` must have been taken.
    fn set_closed(&mut self, closed: bool, barred: bool, share: Share, now: Time) {}

    /// Drop the waiting packets and the partly sent one, while the stage is closed.
    fn flush(&mut self) {}

    /// Return whether bytes leave in a steady flow, not at instants.
    fn is_steady(&self) -> bool {
        false
    }

    /// Return the earliest time at which waiting packets can be sent.
    fn ready(&self) -> Time {
        Time::ZERO
    }

    /// Return the next time at which the queue may become shorter.
    fn queue_event(&self) -> Option<Time> {
        self.next_event()
    }

    /// Return the unused share of the capacity at `now`.
    fn left(&self, now: Time) -> Share {
        Share::WHOLE
    }

    /// Return the bytes that the stage can send from `from` up to but excluding `to`, fractions included.
    fn potential(&self, from: Time, to: Time) -> f64 {
        0.0
    }

    /// Return the time of the next event in the stage, mostly a departure.
    fn next_event(&self) -> Option<Time> {
        None
    }

    /// Return the earliest instant at which a packet may leave the stage, if no other enters it.
    fn next_delivery(&self) -> Option<Time> {
        self.next_event()
    }

    /// Return the level of the stage's queue, if it has one; a packet in service counts.
    fn level(&self) -> Option<QueueLevel> {
        None
    }

    /// Return the rank of the most urgent class that waits; 0 is the highest.
    fn rank(&self) -> u32 {
        0
    }

    /// Return the capacity of a stage with a queue, used or not.
    fn offer(&self) -> Option<Offer> {
        None
    }

    /// Return the dropped packets of a queue that were not taken yet.
    fn dropped(&mut self) -> Option<&mut Dropped<P>> {
        None
    }

    /// Process the [event](Self::next_event) due at `now`.
    fn step(&mut self, now: Time) -> Option<Step<P>> {
        None
    }
}

/// A configuration or state that is stored in the enum; a large one is stored in a [`Box`].
type Plain<T> = T;

/// Declares the stages: name, type of the configuration and type of the state.
macro_rules! stages {
    ($d:tt $($(#[$doc:meta])* $stage:ident($config_in:ident<$config:ty>) => $state_in:ident<$state:ty>;)*) => {
        /// Configuration of one stage of a direction.
        #[derive(Clone, Debug, PartialEq)]
        pub enum StageConfig {
            $($(#[$doc])* $stage($config_in<$config>),)*
        }

        $(impl From<$config> for StageConfig {
            fn from(config: $config) -> Self {
                Self::$stage(config.into())
            }
        })*

        #[derive(Clone, Debug)]
        pub(crate) enum Stage<P> {
            $($stage($state_in<$state>),)*
        }

        impl<P> Configured<StageConfig> for Stage<P> {
            fn new(config: &StageConfig, zero: Time) -> Self {
                match config {
                    $(StageConfig::$stage(config) => {
                        Self::$stage(<$state as Configured<$config>>::new(config, zero).into())
                    })*
                }
            }

            fn change(&mut self, config: &StageConfig, zero: Time, now: Time, offset: Duration) {
                match (self, config) {
                    $((Self::$stage(stage), StageConfig::$stage(config)) => {
                        <$state as Configured<$config>>::change(stage, config, zero, now, offset);
                    })*
                    _ => {} // other kinds were refused before
                }
            }
        }

        impl<P> Stage<P> {
            /// Return the state, for rare calls.
            pub(crate) fn behaviour(&self) -> &(dyn Behaviour<P> + '_) {
                match self {
                    $(Self::$stage(stage) => {
                        let stage: &$state = stage;
                        stage
                    })*
                }
            }

            /// Return the mutable state, for rare calls.
            pub(crate) fn behaviour_mut(&mut self) -> &mut (dyn Behaviour<P> + '_) {
                match self {
                    $(Self::$stage(stage) => {
                        let stage: &mut $state = stage;
                        stage
                    })*
                }
            }
        }

        /// Calls a method of the stage's state, on the packet path.
        macro_rules! call {
            ($d self:ident.$d method:ident($d($d argument:ident),*)) => {
                match $d self {
                    $(Self::$stage(stage) => <$state as Behaviour<P>>::$d method(stage $d(, $d argument)*),)*
                }
            };
        }

        /// Calls a method by comparisons in the order of the declaration.
        macro_rules! try_each {
            ($d self:ident.$d method:ident()) => {
                $(if let Self::$stage(stage) = $d self {
                    return <$state as Behaviour<P>>::$d method(stage);
                })*
            };
        }
    };
}

stages! { $
    /// Packets are delayed.
    Delay(Plain<DelayConfig>) => Plain<Delay<Item<P>>>;
    /// Packets queue for their turn.
    Bottleneck(Plain<BottleneckConfig>) => Box<Bottleneck<P>>;
    /// Packets are delayed, then queue for their turn; both depend on the load.
    WorkloadDependent(Box<WorkloadDependentConfig>) => Box<WorkloadDependent<P>>;
    /// Packets cross a radio access network.
    Radio(Box<RadioConfig>) => Box<Radio<P>>;
    /// Packets are served like packets in the same situation in a recording.
    Conditional(Box<ConditionalConfig>) => Box<Conditional<P>>;
    /// Each flow has a rate limit.
    FlowLimit(Plain<FlowLimitConfig>) => Box<FlowLimit<P>>;
    /// Packets are lost.
    Loss(Plain<LossConfig>) => Plain<Loss>;
    /// The queueing stage is closed at times.
    Gate(Plain<GateConfig>) => Plain<GateConfig>;
    /// Packets are duplicated.
    Duplication(Plain<DuplicationConfig>) => Plain<Damage>;
    /// A bit of a packet is flipped.
    Corruption(Plain<CorruptionConfig>) => Plain<Damage>;
}

macro_rules! queue {
    ($config:ident $(, $mutable:tt)?) => {
        match $config {
            Self::Bottleneck(config) => Some(&$($mutable)? config.queue),
            Self::WorkloadDependent(config) => Some(&$($mutable)? config.queue),
            Self::Radio(config) => Some(&$($mutable)? config.queue),
            Self::Conditional(config) => Some(&$($mutable)? config.queue),
            _ => None,
        }
    };
}

impl StageConfig {
    /// Return the discipline of the stage's queue, if it has one.
    pub fn queue(&self) -> Option<&Discipline> {
        queue!(self)
    }

    /// Return the mutable discipline.
    pub fn queue_mut(&mut self) -> Option<&mut Discipline> {
        queue!(self, mut)
    }
}

impl<P> Stage<P> {
    #[inline]
    pub(crate) fn next_event(&self) -> Option<Time> {
        // Called for every stage at every event: a few comparisons are faster than a jump.
        try_each!(self.next_event());
        None
    }

    #[inline]
    pub(crate) fn next_delivery(&self) -> Option<Time> {
        call!(self.next_delivery())
    }

    #[inline]
    pub(crate) fn level(&self) -> Option<QueueLevel> {
        call!(self.level())
    }

    #[inline]
    pub(crate) fn dropped(&mut self) -> Option<&mut Dropped<P>> {
        call!(self.dropped())
    }

    #[inline]
    pub(crate) fn step(&mut self, now: Time) -> Option<Step<P>> {
        call!(self.step(now))
    }
}
