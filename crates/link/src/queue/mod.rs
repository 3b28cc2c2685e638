//! The bottleneck queue: which packets may wait, their order, and which are dropped or marked.
//!
//! Each discipline has an entry in `disciplines!` and a file here: its configuration and a [`Control`](fifo::Control)
//! of one line of packets, or a [`QueueDiscipline`] of several.

mod classes;
mod codel;
mod dualpi2;
mod fifo;
mod fq_codel;
mod mahimahi;
mod pie;
mod red;

use std::collections::VecDeque;

pub use classes::{ClassConfig, ClassesConfig};
pub use codel::CoDelConfig;
pub use dualpi2::DualPi2Config;
pub use fq_codel::FqCoDelConfig;
pub use mahimahi::{MahimahiCoDelConfig, MahimahiPieConfig};
pub use pie::PieConfig;
pub use red::RedConfig;

use crate::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use fifo::Managed;

use crate::packet::{DropReason, Item};
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Defines [`Discipline`] and [`Queue`] from a list: documentation, `KIND NAME(CONFIGURATION) => QUEUE`, where `KIND`
/// is the name in serialised tables.
macro_rules! disciplines {
    ($($(#[$doc:meta])* $kind:literal $name:ident($config:ty) => $queue:ty,)*) => {
        /// The discipline of a queue: what it does when packets arrive faster than they leave.
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
            /// Return each discipline with its default parameters.
            pub fn all() -> Vec<Self> {
                vec![Self::Infinite, $(Self::$name(<$config>::default()),)*]
            }

            /// Refuse parameters that do not fit each other.
            pub(crate) fn check(&self) -> Result<(), String> {
                type P = ();
                match self {
                    Self::Infinite => Ok(()),
                    $(Self::$name(config) => <$queue as QueueDiscipline<P>>::check(config),)*
                }
            }
        }

        /// The waiting packets, without the one in service. Memory grows to the longest queue and stays allocated.
        #[derive(Clone, Debug)]
        pub(crate) enum Queue<P> { $($name($queue),)* }

        impl<P> Queue<P> {
            /// packet: transmission time at the link's mean rate, if any.
            pub(crate) fn new(discipline: &Discipline, packet: Option<Duration>, zero: Time) -> Self {
                match discipline {
                    Discipline::Infinite => Self::new(&Discipline::DropTail(Limit::default()), packet, zero),
                    $(Discipline::$name(config) => Self::$name(QueueDiscipline::new(config.clone(), packet, zero)),)*
                }
            }
        }

        /// Calls a method of the variant's queue.
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
    "droptail" DropTail(Limit) => Managed<P, fifo::DropTail>,
    /// A queue that drops its oldest packets when it is full.
    ///
    /// Every packet enters, and those that have waited longest are dropped until the limits hold. The packet in service
    /// counts, but is not dropped.
    #[schemars(title = "drop-head")]
    "drophead" DropHead(Limit) => Managed<P, fifo::DropHead>,
    /// Controlled delay (RFC 8289): drops packets that leave after too long a wait, until the queue is short.
    #[schemars(title = "CoDel")]
    "codel" CoDel(CoDelConfig) => Managed<P, codel::Control>,
    /// FQ-CoDel (RFC 8290): one queue per flow, served in turn, each under CoDel.
    #[schemars(title = "FQ-CoDel", extend("limit" = "10240 packets"))]
    "fqcodel" FqCoDel(FqCoDelConfig) => fq_codel::FqCoDel<P>,
    /// PIE (RFC 8033): drops arriving packets with a probability that follows the queueing delay.
    #[schemars(title = "PIE")]
    "pie" Pie(PieConfig) => Managed<P, pie::Pie>,
    /// RED (Floyd and Jacobson, 1993) or Adaptive RED (Floyd, Gummadi and Shenker, 2001): drops by the mean queue.
    #[schemars(title = "RED")]
    "red" Red(RedConfig) => Managed<P, red::Red>,
    /// DualPI2 (RFC 9332): a queue of low latency for L4S beside a classic one, under one controller.
    #[schemars(title = "DualPI2")]
    "dualpi2" DualPi2(DualPi2Config) => dualpi2::DualPi2<P>,
    /// Classes by DSCP: strict priority, then shares by weight.
    #[schemars(title = "class-based")]
    "classes" Classes(ClassesConfig) => classes::Classes<P>,
    /// CoDel as in Mahimahi.
    #[schemars(title = "CoDel (Mahimahi's)", extend("table" = false))]
    "mahimahi-codel" MahimahiCoDel(MahimahiCoDelConfig) => Managed<P, mahimahi::CoDel>,
    /// PIE as in Mahimahi.
    #[schemars(title = "PIE (Mahimahi's)", extend("table" = false))]
    "mahimahi-pie" MahimahiPie(MahimahiPieConfig) => Managed<P, mahimahi::Pie>,
}

/// Read a queue whose parameters fit each other.
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

    /// Refuse parameters that do not fit each other.
    fn check(_config: &Self::Config) -> Result<(), String> {
        Ok(())
    }

    /// Return an empty queue whose generators and timers start at `zero`. packet: transmission time at the link's mean
    /// rate, if any.
    fn new(config: Self::Config, packet: Option<Duration>, zero: Time) -> Self
    where
        Self: Sized;

    /// Admit a packet by the limits alone, or return it with the reason. Nothing is drawn, because the packet has
    /// waited in another queue. Packets dropped for it go to `dropped`.
    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>>;

    /// Take in a packet that arrives at `now`, or give it back with the reason.
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

    /// Take out the packet to be served from `now` on; packets dropped before it go to `dropped`.
    fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>>;

    /// Take out a packet without any decision, to move it to another queue.
    fn remove(&mut self) -> Option<Item<P>>;

    /// Return how much waits.
    fn level(&self) -> QueueLevel;

    /// Return whether nothing waits.
    #[inline]
    fn is_empty(&self) -> bool {
        self.level().packets.0 == 0
    }

    /// Return the rank of the most urgent class, also of the packet in service; 0 is the highest.
    #[inline]
    fn rank(&self, _serving: Option<&Item<P>>) -> u32 {
        0
    }

    /// Reset the control loop, the generators and the timers, which start at `zero`; the packets stay.
    fn restart(&mut self, zero: Time);

    /// Return whether the next packet to be served can change while the server waits for the schedule. If not, the
    /// head is committed when the previous packet leaves, which saves an event per packet.
    #[inline]
    fn decides_late(&self) -> bool {
        true
    }

    /// Return whether an empty queue without late decisions admits a packet.
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

    #[inline]
    pub(crate) fn rank(&self, serving: Option<&Item<P>>) -> u32 {
        dispatch!(self, queue => queue.rank(serving))
    }

    pub(crate) fn restart(&mut self, zero: Time) {
        dispatch!(self, queue => queue.restart(zero));
    }

    pub(crate) fn remove(&mut self) -> Option<Item<P>> {
        dispatch!(self, queue => queue.remove())
    }

    /// Drop the packet in service and the waiting ones, at a handover.
    pub(crate) fn flush(&mut self, serving: Option<Item<P>>, dropped: &mut Dropped<P>) {
        let waiting = std::iter::from_fn(|| self.remove());
        let all = serving.into_iter().chain(waiting);
        dropped.extend(all.map(|item| (item, DropReason::Handover)));
    }

    /// Hand the packets over to another queue, which drops those without room.
    pub(crate) fn replace(&mut self, next: Self, surcharge: Surcharge, dropped: &mut Dropped<P>) {
        let mut before = std::mem::replace(self, next);
        while let Some(item) = before.remove() {
            let refused = dispatch!(self, queue => queue.adopt(item, surcharge, dropped));
            dropped.extend(refused.err());
        }
    }
}

/// Maximum length of a queue. The packet in service counts as with [`Discipline::DropTail`]; `None` does not limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    /// Most packets held.
    pub packets: Option<Packets>,
    /// Most bytes held. A single packet larger than this never passes.
    pub bytes: Option<Bytes>,
}

impl Limit {
    /// A limit of packets alone.
    pub const fn packets(most: u64) -> Self {
        Self {
            packets: Some(Packets(most)),
            bytes: None,
        }
    }

    /// A limit of bytes alone.
    pub const fn bytes(most: u64) -> Self {
        Self {
            packets: None,
            bytes: Some(Bytes(most)),
        }
    }

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

    /// Add the packet in service, which has left the queue.
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

/// Data that counts against the limits besides the waiting packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surcharge {
    /// The packet in service, where it counts.
    pub(crate) serving: QueueLevel,
    /// Bytes per packet beyond its size.
    pub(crate) overhead: Bytes,
}

impl Surcharge {
    /// Return the surcharge of the packet in service.
    pub(crate) fn of_serving<P>(serving: Option<&Item<P>>) -> Self {
        Self {
            serving: QueueLevel::default().and_serving(serving),
            ..Self::default()
        }
    }

    /// The level that the limits apply to.
    pub(crate) fn on(&self, waiting: QueueLevel) -> QueueLevel {
        let mut level = waiting.and(self.serving);
        level.bytes += Bytes(self.overhead.0.saturating_mul(waiting.packets.0));
        level
    }
}

/// The instants of a periodic update: zero + period, zero + 2 periods, …
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    next: Time,
    period: Duration,
}

impl Timer {
    /// Periods below 1 µs are rounded up to 1 µs.
    pub(crate) fn new(zero: Time, period: Duration) -> Self {
        let period = period.max(Duration::from_nanos(1000));
        Self {
            next: zero + period,
            period,
        }
    }

    /// Return the next instant if before `now`. An update at the instant of a packet follows the packet.
    ///
    /// Only the last ten thousand missed instants count: by then any controller has settled.
    pub(crate) fn due(&mut self, now: Time) -> Option<Time> {
        let backlog = Duration::from_nanos(self.period.as_nanos().saturating_mul(10_000));
        self.skip_to(now - backlog);
        let due = self.next;
        if due >= now {
            return None;
        }
        self.next += self.period;
        Some(due)
    }

    /// Leave out all instants before `now`.
    pub(crate) fn skip_to(&mut self, now: Time) {
        if self.next < now {
            let missed = now
                .since(self.next)
                .as_nanos()
                .div_ceil(self.period.as_nanos());
            self.next += Duration::from_nanos(missed.saturating_mul(self.period.as_nanos()));
        }
    }
}
