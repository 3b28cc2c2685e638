//! Ports: where packets wait for a link, and what is dropped or marked there.

use std::collections::VecDeque;

use cellbed_link as link;

use super::packet::{Arena, Place};
use super::units::{FlowId, Picos, Rate};

/// Priorities of [`Discipline::Priority`].
pub const PRIORITIES: usize = 8;

/// Which packets a port holds, and in what order it sends them. The packet in transmission does not count against the
/// buffer.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Discipline {
    /// First in, first out; a packet that does not fit is dropped.
    #[default]
    DropTail,
    /// Strict [`priorities`](super::Packet::priority), first in, first out in each; where the buffer overflows, the latest
    /// of the worst priority is dropped, which may be the packet that has just come.
    Priority,
    /// The smallest [`rank`](super::Packet::rank) first, of its flow the oldest packet; where the buffer overflows, the
    /// latest of the largest rank is dropped (Alizadeh et al., "pFabric", SIGCOMM 2013, §4.2).
    Smallest,
    /// A discipline of `cellbed_link` with limits and marks of its configuration, on its clock of nanoseconds. It sends whole
    /// packets on: a port with it is store-and-forward.
    Link {
        /// Which.
        queue: link::Discipline,
    },
}

/// What has passed a port.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PortCounters {
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Most bytes that have waited at once.
    pub most_bytes: u64,
    /// Sum over the packets sent of bytes · time waited: the mean occupancy is this divided by the time of the run.
    pub byte_picos: u128,
}

/// A port: the queue and the transmitter of one direction of a link.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) rate: Rate,
    /// Propagation and switching up to the next node.
    pub(super) delay: u64,
    pub(super) busy_until: u64,
    /// When the port is to be served next, `u64::MAX` for never.
    pub(super) wake: u64,
    /// Whether its host's transport is asked for a packet whenever it is idle.
    pub(super) pulls: bool,
    /// Next of the equal paths at the node to which the port leads.
    pub(super) spray: u32,
    pub(super) buffer: u64,
    pub(super) mark_above: u64,
    pub(super) queue: Queue,
    pub(super) counters: PortCounters,
}

impl Port {
    /// Bytes that wait, without the packet in transmission.
    pub(super) fn waiting(&mut self, now: u64) -> u64 {
        match &mut self.queue {
            Queue::Line(line) => line.waiting(now),
            Queue::Priority(levels) => levels.bytes,
            Queue::Smallest(ranked) => ranked.bytes,
            Queue::Link(direction) => direction.held().bytes.0,
        }
    }
}

#[derive(Debug)]
pub(super) enum Queue {
    Line(Line),
    Priority(Box<Levels>),
    Smallest(Ranked),
    Link(Box<link::Direction<Place>>),
}

impl Queue {
    pub(super) fn new(discipline: &Discipline, bps: f64) -> Self {
        match discipline {
            Discipline::DropTail => Self::Line(Line::default()),
            Discipline::Priority => Self::Priority(Box::default()),
            Discipline::Smallest => Self::Smallest(Ranked::default()),
            Discipline::Link { queue } => {
                let schedule = link::Schedule::Constant(link::BitRate(bps as u64));
                let bottleneck = link::BottleneckConfig::new(schedule).with_queue(queue.clone());
                Self::Link(Box::new(link::Direction::new(
                    vec![bottleneck.into()],
                    link::Time::ZERO,
                )))
            }
        }
    }
}

/// A queue in which nothing overtakes: when a packet will be sent is known when it comes, so it needs no event until it
/// reaches the next node. Only how much waits must be known.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// When the transmission of each begins, and its size.
    starts: VecDeque<(u64, u16)>,
    bytes: u64,
}

impl Line {
    /// Bytes whose transmission has not begun before `now`.
    #[inline]
    pub(super) fn waiting(&mut self, now: u64) -> u64 {
        while let Some(&(start, size)) = self.starts.front()
            && start < now
        {
            self.bytes -= u64::from(size);
            self.starts.pop_front();
        }
        self.bytes
    }

    #[inline]
    pub(super) fn push(&mut self, start: u64, size: u16) {
        self.starts.push_back((start, size));
        self.bytes += u64::from(size);
    }
}

/// Strict priorities.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// A bit for each level that has packets.
    occupied: u32,
    bytes: u64,
    levels: [VecDeque<Place>; PRIORITIES],
}

impl Levels {
    /// Takes the packet in.
    #[inline]
    pub(super) fn push(&mut self, place: Place, arena: &Arena) {
        let packet = &arena[place].packet;
        let level = usize::from(packet.priority).min(PRIORITIES - 1);
        self.levels[level].push_back(place);
        self.occupied |= 1 << level;
        self.bytes += u64::from(packet.size);
    }

    /// Gives up the latest packet of the worst level.
    pub(super) fn shed(&mut self, arena: &Arena) -> Option<Place> {
        let level = self.occupied.checked_ilog2()? as usize;
        let place = self.levels[level].pop_back()?;
        self.left(level, place, arena);
        Some(place)
    }

    #[inline]
    pub(super) fn pop(&mut self, arena: &Arena) -> Option<Place> {
        if self.occupied == 0 {
            return None;
        }
        let level = self.occupied.trailing_zeros() as usize;
        let place = self.levels[level].pop_front()?;
        self.left(level, place, arena);
        Some(place)
    }

    #[inline]
    fn left(&mut self, level: usize, place: Place, arena: &Arena) {
        self.bytes -= u64::from(arena[place].packet.size);
        if self.levels[level].is_empty() {
            self.occupied &= !(1 << level);
        }
    }
}

/// pFabric's order. Its queues are short by design, so that a look through all packets is quicker than any index.
#[derive(Debug, Default)]
pub(super) struct Ranked {
    bytes: u64,
    /// In order of arrival.
    packets: Vec<(u64, FlowId, Place)>,
}

impl Ranked {
    pub(super) fn push(&mut self, place: Place, arena: &Arena) {
        let packet = &arena[place].packet;
        self.packets.push((packet.rank, packet.flow, place));
        self.bytes += u64::from(packet.size);
    }

    /// Gives up the latest packet of the largest rank.
    pub(super) fn shed(&mut self, arena: &Arena) -> Option<Place> {
        let ranks = self.packets.iter().enumerate();
        let (worst, _) = ranks.max_by_key(|(_, packet)| packet.0)?;
        Some(self.remove(worst, arena))
    }

    pub(super) fn pop(&mut self, arena: &Arena) -> Option<Place> {
        let &(_, flow, _) = self.packets.iter().min_by_key(|packet| packet.0)?;
        let oldest = self.packets.iter().position(|packet| packet.1 == flow)?;
        Some(self.remove(oldest, arena))
    }

    fn remove(&mut self, index: usize, arena: &Arena) -> Place {
        let (_, _, place) = self.packets.remove(index);
        self.bytes -= u64::from(arena[place].packet.size);
        place
    }
}

impl Queue {
    /// Takes a packet into a queue that decides when it sends. Returns whether it then holds more than `buffer`.
    #[inline]
    pub(super) fn push(&mut self, place: Place, arena: &Arena, buffer: u64) -> bool {
        match self {
            Self::Priority(levels) => {
                levels.push(place, arena);
                levels.bytes > buffer
            }
            Self::Smallest(ranked) => {
                ranked.push(place, arena);
                ranked.bytes > buffer
            }
            Self::Line(_) | Self::Link(_) => unreachable!("these decide when a packet comes"),
        }
    }

    /// Gives up the packet that matters least.
    pub(super) fn shed(&mut self, arena: &Arena) -> Option<Place> {
        match self {
            Self::Priority(levels) => levels.shed(arena),
            Self::Smallest(ranked) => ranked.shed(arena),
            Self::Line(_) | Self::Link(_) => None,
        }
    }

    /// The packet to be sent now.
    #[inline]
    pub(super) fn pop(&mut self, arena: &Arena) -> Option<Place> {
        match self {
            Self::Priority(levels) => levels.pop(arena),
            Self::Smallest(ranked) => ranked.pop(arena),
            Self::Line(_) | Self::Link(_) => None,
        }
    }

    /// Bytes that wait for the port to decide.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Priority(levels) => levels.bytes,
            Self::Smallest(ranked) => ranked.bytes,
            Self::Line(_) | Self::Link(_) => 0,
        }
    }

    /// Whether no packet waits for the port to decide.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Priority(levels) => levels.occupied == 0,
            Self::Smallest(ranked) => ranked.packets.is_empty(),
            Self::Line(_) | Self::Link(_) => true,
        }
    }
}

/// A time on the clock of `cellbed_link`, at or after this one.
pub(super) fn to_link(now: Picos) -> link::Time {
    link::Time::from_nanos(now.0.div_ceil(1_000))
}

/// And back.
pub(super) fn from_link(time: link::Time) -> Picos {
    Picos::from_nanos(time.as_nanos())
}
