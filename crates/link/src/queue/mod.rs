//! The bottleneck queue: which packets may wait, their order, and which are dropped or marked.
//!
//! A discipline is a file here with a [`QueueDiscipline`] and its configuration, and a line in the list `disciplines!`.

mod codel;
mod dualpi2;
mod fifo;
mod fq_codel;
mod mahimahi;
mod pie;
mod red;
mod timer;

use std::collections::VecDeque;

pub use codel::CoDelConfig;
pub use dualpi2::DualPi2Config;
pub use fq_codel::FqCoDelConfig;
pub use mahimahi::{MahimahiCoDelConfig, MahimahiPieConfig};
pub use pie::PieConfig;
pub use red::RedConfig;

use crate::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::DropReason;
use crate::packet::Item;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Defines [`Discipline`] and [`Queue`] from a list: documentation, `KIND NAME(CONFIGURATION) => QUEUE`, where `KIND`
/// is the name in serialised tables.
macro_rules! disciplines {
    ($($(#[$doc:meta])* $kind:literal $name:ident($config:ty) => $queue:ty,)*) => {
        /// The discipline of a queue: what it does when packets arrive faster than they leave.
        ///
        /// ```
        /// use cellbed_link::{BitRate, BottleneckConfig, Bytes, CoDelConfig, Direction, Discipline, DropReason, Fate,
        /// Schedule, Time};
        ///
        /// let queue = Discipline::CoDel(CoDelConfig::default());
        /// let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))).with_queue(queue);
        /// let mut link = Direction::new(vec![bottleneck.into()], Time::ZERO);
        /// for packet in 0..1000 {
        ///     link.accept(Time::from_micros(500 * packet), packet, Bytes(1500)); // twice what the link carries
        /// }
        /// let congestion = Fate::Dropped(DropReason::Congestion);
        /// let dropped = std::iter::from_fn(|| link.poll(Time::from_millis(1000))).filter(|it| it.fate ==
        /// congestion).count(); assert!(dropped > 0);
        /// ```
        #[derive(Clone, Debug, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
        #[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
        pub enum Discipline {
            /// A queue that never drops.
            #[default]
            #[schemars(title = "infinite")]
            Infinite,
            $($(#[$doc])* #[serde(rename = $kind)] $name($config),)*
        }

        impl Discipline {
            /// Returns each discipline with its default parameters.
            pub fn all() -> Vec<Self> {
                vec![Self::Infinite, $(Self::$name(<$config>::default()),)*]
            }

            /// Refuses parameters that do not fit each other.
            pub(crate) fn check(&self) -> Result<(), String> {
                type P = ();
                match self {
                    Self::Infinite => Ok(()),
                    $(Self::$name(config) => <$queue as QueueDiscipline<P>>::check(config),)*
                }
            }
        }

        /// The packets that wait, without the one in service. Its memory grows to the longest queue seen and stays.
        #[derive(Clone, Debug)]
        pub(crate) enum Queue<P> { $($name($queue),)* }

        impl<P> Queue<P> {
            /// packet: time that one takes at the link's mean rate, where it has one.
            pub(crate) fn new(discipline: &Discipline, packet: Option<Duration>, zero: Time) -> Self {
                match discipline {
                    Discipline::Infinite => Self::new(&Discipline::DropTail(Limit::default()), packet, zero),
                    $(Discipline::$name(config) => Self::$name(QueueDiscipline::new(config.clone(), packet, zero)),)*
                }
            }
        }

        /// Calls a method of the queue that it is.
        macro_rules! dispatch {
            ($on:expr, $it:ident => $call:expr) => {
                match $on { $(Queue::$name($it) => $call,)* }
            };
        }
    };
}

disciplines! {
    /// A queue that drops arriving packets when it is full.
    ///
    /// A packet that would exceed a limit is dropped on arrival. The limits count every packet that has not left the
    /// bottleneck, the one in service included (but see [`Clock::Milliseconds`](crate::bottleneck::Clock)).
    #[schemars(title = "drop-tail")]
    "droptail" DropTail(Limit) => fifo::DropTail<P>,
    /// A queue that drops its oldest packets when it is full.
    ///
    /// Every packet enters, and those that have waited longest are dropped until the limits hold. The packet in service
    /// counts, but is not dropped.
    #[schemars(title = "drop-head")]
    "drophead" DropHead(Limit) => fifo::DropHead<P>,
    /// Controlled delay (RFC 8289): drops packets that leave after too long a wait, until the queue is short.
    #[schemars(title = "CoDel")]
    "codel" CoDel(CoDelConfig) => codel::CoDel<P>,
    /// FQ-CoDel (RFC 8290): one queue per flow, served in turn, each under CoDel.
    #[schemars(title = "FQ-CoDel", extend("limit" = "10240 packets"))]
    "fqcodel" FqCoDel(FqCoDelConfig) => fq_codel::FqCoDel<P>,
    /// PIE (RFC 8033): drops arriving packets with a probability that follows the queueing delay.
    #[schemars(title = "PIE")]
    "pie" Pie(PieConfig) => pie::Pie<P>,
    /// RED (Floyd and Jacobson, 1993) or Adaptive RED (Floyd, Gummadi and Shenker, 2001): drops by the mean queue.
    #[schemars(title = "RED")]
    "red" Red(RedConfig) => red::Red<P>,
    /// DualPI2 (RFC 9332): a queue of low latency for L4S beside a classic one, under one controller.
    #[schemars(title = "DualPI2")]
    "dualpi2" DualPi2(DualPi2Config) => dualpi2::DualPi2<P>,
    /// CoDel as in Mahimahi.
    #[schemars(title = "CoDel (Mahimahi's)", extend("table" = false))]
    "mahimahi-codel" MahimahiCoDel(MahimahiCoDelConfig) => mahimahi::CoDel<P>,
    /// PIE as in Mahimahi.
    #[schemars(title = "PIE (Mahimahi's)", extend("table" = false))]
    "mahimahi-pie" MahimahiPie(MahimahiPieConfig) => mahimahi::Pie<P>,
}

/// Reads a queue whose parameters fit each other.
pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
    table: D,
) -> Result<Discipline, D::Error> {
    let queue = <Discipline as serde::Deserialize>::deserialize(table)?;
    queue.check().map_err(serde::de::Error::custom)?;
    Ok(queue)
}

/// A packet that a queue does not take in, with the reason.
pub(crate) type Refused<P> = (Item<P>, DropReason);

/// Packets that a queue has dropped, with the reason.
pub(crate) type Dropped<P> = VecDeque<(Item<P>, DropReason)>;

/// A queue discipline with the packets that wait. All that [`Queue`] does is defined here.
pub(crate) trait QueueDiscipline<P> {
    /// Its parameters; their fields are the keys of the serialised table.
    type Config;

    /// Refuses parameters that do not fit each other.
    fn check(_config: &Self::Config) -> Result<(), String> {
        Ok(())
    }

    /// Returns an empty queue whose generators and timers start at `zero`. packet: time that one takes at the link's
    /// mean rate, where it has one.
    fn new(config: Self::Config, packet: Option<Duration>, zero: Time) -> Self
    where
        Self: Sized;

    /// Takes a packet in by the limits alone, or gives it back with the reason: nothing is drawn, as it has waited in
    /// another queue. Others that are given up for it go to `dropped`.
    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>>;

    /// Takes in a packet that arrives at `now`, or gives it back with the reason.
    #[inline]
    fn push(
        &mut self,
        _now: Time,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        self.adopt(item, surcharge, dropped)
    }

    /// Takes out the packet to be served from `now` on; those dropped on the way to it go to `dropped`.
    fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>>;

    /// Takes out a packet without any decision, to move it to another queue.
    fn remove(&mut self) -> Option<Item<P>>;

    /// Returns how much waits.
    fn level(&self) -> QueueLevel;

    /// Returns whether nothing waits.
    #[inline]
    fn is_empty(&self) -> bool {
        self.level().packets.0 == 0
    }

    /// Resets the control loop, the generators and the timers, which start at `zero`; the packets stay.
    fn restart(&mut self, zero: Time);

    /// Returns whether the packet that is served next can still change while the server waits for the schedule. If not,
    /// the head is committed as soon as the one before has left, which spares an event per packet.
    #[inline]
    fn decides_late(&self) -> bool {
        true
    }

    /// Returns whether an empty queue that does not decide late takes a packet in.
    #[inline]
    fn admits(&self, _size: Bytes) -> bool {
        false
    }
}

impl<P> Queue<P> {
    #[inline]
    pub(crate) fn decides_late(&self) -> bool {
        dispatch!(self, queue => queue.decides_late())
    }

    #[inline]
    pub(crate) fn admits(&self, size: Bytes) -> bool {
        dispatch!(self, queue => queue.admits(size))
    }

    #[inline]
    pub(crate) fn push(
        &mut self,
        now: Time,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        dispatch!(self, queue => queue.push(now, item, surcharge, dropped))
    }

    #[inline]
    pub(crate) fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>> {
        dispatch!(self, queue => queue.pop(now, dropped))
    }

    #[inline]
    pub(crate) fn level(&self) -> QueueLevel {
        dispatch!(self, queue => queue.level())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        dispatch!(self, queue => queue.is_empty())
    }

    pub(crate) fn restart(&mut self, zero: Time) {
        dispatch!(self, queue => queue.restart(zero));
    }

    pub(crate) fn remove(&mut self) -> Option<Item<P>> {
        dispatch!(self, queue => queue.remove())
    }

    /// Takes over a packet that waited in another queue.
    pub(crate) fn adopt(&mut self, item: Item<P>, surcharge: Surcharge, dropped: &mut Dropped<P>) {
        let refused = dispatch!(self, queue => queue.adopt(item, surcharge, dropped));
        dropped.extend(refused.err());
    }
}

/// Maximum length of a queue. The packet in service counts as with [`Discipline::DropTail`]; `None` does not limit.
///
/// ```
/// use cellbed_link::{Bytes, Limit, PieConfig};
///
/// let short = PieConfig { limit: Limit { packets: None, bytes: Some(Bytes(64_000)) }, ..PieConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    /// Most packets held.
    pub packets: Option<Packets>,
    /// Most bytes held. A single packet larger than this never passes.
    pub bytes: Option<Bytes>,
}

impl Limit {
    pub(crate) fn holds(&self, level: QueueLevel) -> bool {
        self.packets.is_none_or(|limit| level.packets <= limit)
            && self.bytes.is_none_or(|limit| level.bytes <= limit)
    }
}

/// Level of a queue, the packet in service included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueLevel {
    /// Packets held.
    pub packets: Packets,
    /// Bytes held.
    pub bytes: Bytes,
}

impl QueueLevel {
    pub(crate) fn plus(self, size: Bytes) -> Self {
        Self {
            packets: Packets(self.packets.0.saturating_add(1)),
            bytes: self.bytes + size,
        }
    }

    /// With the packet in service, which is not in the queue any more.
    #[inline]
    pub(crate) fn and_serving<P>(self, serving: Option<&Item<P>>) -> Self {
        serving.map_or(self, |item| self.plus(item.size))
    }

    pub(crate) fn less(self, size: Bytes) -> Self {
        Self {
            packets: Packets(self.packets.0.saturating_sub(1)),
            bytes: Bytes(self.bytes.0.saturating_sub(size.0)),
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            packets: Packets(self.packets.0.saturating_add(other.packets.0)),
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Data that counts against the limits beside the packets that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surcharge {
    /// The packet in service, where it counts.
    pub(crate) serving: QueueLevel,
    /// Bytes per packet beyond its size.
    pub(crate) overhead: Bytes,
}

impl Surcharge {
    /// The level that the limits apply to.
    pub(crate) fn on(&self, waiting: QueueLevel) -> QueueLevel {
        let mut level = waiting.and(self.serving);
        level.bytes += Bytes(self.overhead.0.saturating_mul(waiting.packets.0));
        level
    }
}
