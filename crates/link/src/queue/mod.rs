//! The bottleneck queue: which packets may wait, in what order, and which are dropped or marked.

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

use crate::outcome::DropReason;
use crate::packet::Item;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};
use codel::CoDel;
use dualpi2::DualPi2;
use fifo::Fifo;
use fq_codel::FqCoDel;
use pie::Pie;
use red::Red;

/// What a queue does when packets come faster than they leave.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, Bytes, CoDelConfig, Direction, Discipline, DropReason, Fate, Schedule, Time};
///
/// let queue = Discipline::CoDel(CoDelConfig::default());
/// let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(12_000_000))).with_queue(queue);
/// let mut link = Direction::new(vec![bottleneck.into()], Time::ZERO);
/// for packet in 0..1000 {
///     link.accept(Time::from_micros(500 * packet), packet, Bytes(1500)); // twice what the link carries
/// }
/// let congestion = Fate::Dropped(DropReason::Congestion);
/// let dropped = std::iter::from_fn(|| link.poll(Time::from_millis(1000))).filter(|it| it.fate == congestion).count();
/// assert!(dropped > 0);
/// ```
#[derive(Clone, Debug, PartialEq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)
)]
pub enum Discipline {
    /// Every packet waits.
    #[default]
    Infinite,
    /// A packet that would exceed a limit is dropped on arrival. The limits count every packet that has not left the
    /// bottleneck, the one in service included (but see [`Clock::Milliseconds`](crate::bottleneck::Clock)); `None`
    /// does not limit.
    DropTail {
        /// Most packets held.
        packets: Option<Packets>,
        /// Most bytes held. A single packet larger than this never passes.
        bytes: Option<Bytes>,
    },
    /// Every packet enters, and those that have waited longest are dropped until the limits hold. The packet in service
    /// counts, but is not dropped.
    DropHead {
        /// Most packets held.
        packets: Option<Packets>,
        /// Most bytes held. A single packet larger than this never passes.
        bytes: Option<Bytes>,
    },
    /// Controlled delay (RFC 8289).
    CoDel(CoDelConfig),
    /// Flow queueing with CoDel in each flow (RFC 8290).
    FqCoDel(FqCoDelConfig),
    /// Proportional integral controller enhanced (RFC 8033).
    Pie(PieConfig),
    /// Random early detection, plain or adaptive.
    Red(RedConfig),
    /// The coupled dual queue of L4S (RFC 9332).
    DualPi2(DualPi2Config),
    /// What Mahimahi calls CoDel.
    #[cfg_attr(feature = "serde", serde(rename = "mahimahi-codel"))]
    MahimahiCoDel(MahimahiCoDelConfig),
    /// What Mahimahi calls PIE.
    #[cfg_attr(feature = "serde", serde(rename = "mahimahi-pie"))]
    MahimahiPie(MahimahiPieConfig),
}

#[cfg(feature = "serde")]
impl Discipline {
    /// Refuses parameters that do not fit each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::DropTail {
                packets: None,
                bytes: None,
            } => Err("a drop-tail queue needs a limit in \"packets\" or \"bytes\"".to_owned()),
            Self::Red(config) => config.check(),
            Self::MahimahiCoDel(config) => {
                mahimahi::at_least_a_millisecond("target_ns", config.target)?;
                mahimahi::at_least_a_millisecond("interval_ns", config.interval)
            }
            Self::MahimahiPie(config) => {
                mahimahi::at_least_a_millisecond("qdelay_ref_ns", config.target)?;
                mahimahi::at_least_a_millisecond("max_burst_ns", config.burst)
            }
            _ => Ok(()),
        }
    }
}

/// How much a queue with active management holds at most. The packet in service counts as with
/// [`Discipline::DropTail`]; `None` does not limit.
///
/// ```
/// use cellbed_link::{Bytes, Limit, PieConfig};
///
/// let short = PieConfig { limit: Limit { packets: None, bytes: Some(Bytes(64_000)) }, ..PieConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
pub struct Limit {
    /// Most packets held.
    pub packets: Option<Packets>,
    /// Most bytes held.
    pub bytes: Option<Bytes>,
}

impl Limit {
    pub(crate) fn holds(&self, level: QueueLevel) -> bool {
        self.packets.is_none_or(|limit| level.packets <= limit)
            && self.bytes.is_none_or(|limit| level.bytes <= limit)
    }
}

/// How full a queue is, the packet in service included.
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

/// Packets that a queue has given up, with the reason.
pub(crate) type Dropped<P> = VecDeque<(Item<P>, DropReason)>;

/// What counts against the limits beside the packets that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surcharge {
    /// The packet in service, where it counts.
    pub(crate) serving: QueueLevel,
    /// Bytes per packet beyond its size.
    pub(crate) overhead: Bytes,
}

impl Surcharge {
    /// The level to which the limits apply.
    pub(crate) fn on(&self, waiting: QueueLevel) -> QueueLevel {
        let mut level = waiting.and(self.serving);
        level.bytes += Bytes(self.overhead.0.saturating_mul(waiting.packets.0));
        level
    }
}

/// The packets that wait, without the one in service. Its memory grows to the longest queue seen and stays.
#[derive(Clone, Debug)]
pub(crate) enum Queue<P> {
    Fifo(Fifo<P>),
    CoDel(CoDel<P>),
    FqCoDel(Box<FqCoDel<P>>),
    Pie(Pie<P>),
    Red(Red<P>),
    DualPi2(DualPi2<P>),
    MahimahiCoDel(mahimahi::CoDel<P>),
    MahimahiPie(mahimahi::Pie<P>),
}

impl<P> Queue<P> {
    /// packet: time that one takes at the link's mean rate, where it has one.
    pub(crate) fn new(discipline: &Discipline, packet: Option<Duration>, zero: Time) -> Self {
        match discipline {
            Discipline::Infinite => Self::Fifo(Fifo::drop_tail(Limit::default())),
            Discipline::DropTail { packets, bytes } => Self::Fifo(Fifo::drop_tail(Limit {
                packets: *packets,
                bytes: *bytes,
            })),
            Discipline::DropHead { packets, bytes } => Self::Fifo(Fifo::drop_head(Limit {
                packets: *packets,
                bytes: *bytes,
            })),
            Discipline::CoDel(config) => Self::CoDel(CoDel::new(config.clone())),
            Discipline::FqCoDel(config) => Self::FqCoDel(Box::new(FqCoDel::new(config.clone()))),
            Discipline::Pie(config) => Self::Pie(Pie::new(config.clone(), zero)),
            Discipline::Red(config) => Self::Red(Red::new(config.clone(), packet, zero)),
            Discipline::DualPi2(config) => Self::DualPi2(DualPi2::new(config.clone(), zero)),
            Discipline::MahimahiCoDel(config) => {
                Self::MahimahiCoDel(mahimahi::CoDel::new(config.clone(), zero))
            }
            Discipline::MahimahiPie(config) => {
                Self::MahimahiPie(mahimahi::Pie::new(config.clone(), zero))
            }
        }
    }

    /// Whether the packet that is served next can still change while the server waits for the schedule. If not, the
    /// head is committed as soon as the one before has left, which spares an event per packet.
    #[inline]
    pub(crate) fn decides_late(&self) -> bool {
        match self {
            Self::Fifo(queue) => queue.drops_head(),
            _ => true,
        }
    }

    /// Whether an empty queue that does not decide late takes a packet in.
    #[inline]
    pub(crate) fn admits(&self, size: Bytes) -> bool {
        match self {
            Self::Fifo(queue) => queue.admits(size),
            _ => false,
        }
    }

    /// Takes the packet in, or gives it back with the reason; what else it costs goes to `dropped`.
    #[inline]
    pub(crate) fn push(
        &mut self,
        now: Time,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), (Item<P>, DropReason)> {
        match self {
            Self::Fifo(queue) => queue.push(item, surcharge, dropped),
            Self::CoDel(queue) => queue.push(item, surcharge),
            Self::FqCoDel(queue) => {
                queue.push(item, surcharge, dropped);
                Ok(())
            }
            Self::Pie(queue) => queue.push(now, item, surcharge),
            Self::Red(queue) => queue.push(now, item, surcharge),
            Self::DualPi2(queue) => queue.push(now, item, surcharge),
            Self::MahimahiCoDel(queue) => queue.push(item),
            Self::MahimahiPie(queue) => queue.push(now, item),
        }
    }

    /// The packet to be served from `now` on; those dropped on the way to it go to `dropped`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>> {
        match self {
            Self::Fifo(queue) => queue.pop(),
            Self::CoDel(queue) => queue.pop(now, dropped),
            Self::FqCoDel(queue) => queue.pop(now, dropped),
            Self::Pie(queue) => queue.pop(now),
            Self::Red(queue) => queue.pop(now),
            Self::DualPi2(queue) => queue.pop(now, dropped),
            Self::MahimahiCoDel(queue) => queue.pop(now, dropped),
            Self::MahimahiPie(queue) => queue.pop(now),
        }
    }

    #[inline]
    pub(crate) fn level(&self) -> QueueLevel {
        match self {
            Self::Fifo(queue) => queue.level(),
            Self::CoDel(queue) => queue.level(),
            Self::FqCoDel(queue) => queue.level(),
            Self::Pie(queue) => queue.level(),
            Self::Red(queue) => queue.level(),
            Self::DualPi2(queue) => queue.level(),
            Self::MahimahiCoDel(queue) => queue.level(),
            Self::MahimahiPie(queue) => queue.level(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Fifo(queue) => queue.is_empty(), // asked most often
            _ => self.level().packets.0 == 0,
        }
    }

    /// Forgets what the discipline has learnt and starts its generators and timers anew; the packets stay.
    pub(crate) fn restart(&mut self, zero: Time) {
        match self {
            Self::Fifo(_) => {}
            Self::CoDel(queue) => queue.restart(),
            Self::FqCoDel(queue) => queue.restart(),
            Self::Pie(queue) => queue.restart(zero),
            Self::Red(queue) => queue.restart(zero),
            Self::DualPi2(queue) => queue.restart(zero),
            Self::MahimahiCoDel(queue) => queue.restart(zero),
            Self::MahimahiPie(queue) => queue.restart(zero),
        }
    }

    /// Takes out a packet without any decision, to move it to another queue.
    pub(crate) fn remove(&mut self) -> Option<Item<P>> {
        match self {
            Self::Fifo(queue) => queue.pop(),
            Self::CoDel(queue) => queue.remove(),
            Self::FqCoDel(queue) => queue.remove(),
            Self::Pie(queue) => queue.remove(),
            Self::Red(queue) => queue.remove(),
            Self::DualPi2(queue) => queue.remove(),
            Self::MahimahiCoDel(queue) => queue.remove(),
            Self::MahimahiPie(queue) => queue.remove(),
        }
    }

    /// Takes over a packet that waited in another queue: only the limit is applied, nothing is drawn.
    pub(crate) fn adopt(&mut self, item: Item<P>, surcharge: Surcharge, dropped: &mut Dropped<P>) {
        let refused = match self {
            Self::Fifo(queue) => queue.push(item, surcharge, dropped),
            Self::CoDel(queue) => queue.push(item, surcharge),
            Self::FqCoDel(queue) => {
                queue.push(item, surcharge, dropped);
                Ok(())
            }
            Self::Pie(queue) => queue.adopt(item, surcharge),
            Self::Red(queue) => queue.adopt(item, surcharge),
            Self::DualPi2(queue) => queue.adopt(item, surcharge),
            Self::MahimahiCoDel(queue) => queue.push(item),
            Self::MahimahiPie(queue) => queue.adopt(item),
        };
        dropped.extend(refused.err());
    }
}
