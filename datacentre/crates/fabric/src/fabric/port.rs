//! Ports, in which packets wait for a link and are dropped or marked.

use super::Ports;
use super::packet::{Arena, List, Place};
use super::topology::{Edge, HEADER, Node, Switching};
use crate::units::{FlowId, Rate};

/// Number of priorities of [`Discipline::Priority`].
pub const PRIORITIES: usize = 8;

/// Queueing discipline of a port: the buffered packets and the order of sending. The packet in transmission does not
/// count against the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Discipline {
    /// First in, first out; a packet that does not fit is dropped.
    #[default]
    DropTail,
    /// Strict [`priorities`](super::Packet::priority), first in, first out in each; if the buffer overflows, the latest
    /// packet of the worst priority is dropped, possibly the arriving one.
    Priority,
    /// The flow with the smallest [`rank`](super::Packet::rank) first, by its oldest packet; if the buffer overflows,
    /// the latest packet of the largest rank is dropped (Alizadeh et al., "pFabric", SIGCOMM 2013, §4.2).
    Smallest,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(align(64))]
pub struct PortCounters {
    /// Number of packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Number of packets dropped.
    pub dropped: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
    /// Number of packets marked.
    pub marked: u64,
    /// Maximum bytes waiting at once.
    pub most_bytes: u64,
    /// Sum over sent packets of bytes · waiting time: divided by the duration of the run, the mean occupancy.
    pub byte_picos: u128,
}

/// Time of an event that never happens.
pub(super) const NEVER: u64 = u64::MAX;

/// A port: the queue and the transmitter of one direction of a link, and the packets in transit to its other end.
///
/// The caller adds packets by [`accept`](Self::accept), and removes them at the other end by [`take`](Self::take) at
/// [`next_event`](Self::next_event). A packet costs one event: the next packet is selected late, among the packets that
/// waited at the end of the transmission.
///
/// A packet that does not wait touches two cache lines: the fields before `counters`, and the counters.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Port {
    /// The earliest event of the port in the event wheel.
    pub(super) event_at: u64,
    /// When the last packet of `line` will have been sent.
    pub(super) busy_until: u64,
    /// Waiting bytes.
    bytes: u64,
    pub(super) rate: Rate,
    /// Time from the beginning of a transmission, or its end if `whole`, until the next node can process the packet.
    lead: u64,
    /// Packets, in order, whose transmission has begun or whose time is known because no packet overtakes.
    line: List,
    pub(super) to: Node,
    /// Index of the next of the equal paths at the node behind the port.
    pub(super) spray: u32,
    /// True if the next node needs the whole packet, not only its header.
    whole: bool,
    /// True if the host's transport is asked for a packet whenever the port is idle.
    pub(super) pulls: bool,
    pub(super) counters: PortCounters,
    queue: Queue,
    buffer: u64,
    mark_above: u64,
}

/// The waiting packets.
#[derive(Debug)]
enum Queue {
    /// The waiting packets are already in the port's line, as their times are known. `first` is the first of them.
    DropTail {
        first: Option<Place>,
    },
    Priority(Box<Levels>),
    Smallest(Ranked),
}

impl Port {
    /// Return the port of an edge. spray: index of the first of the equal paths.
    pub(super) fn new(edge: &Edge, config: &Ports, spray: u32) -> Self {
        let queue = match config.discipline {
            Discipline::DropTail => Queue::DropTail { first: None },
            Discipline::Priority => Queue::Priority(Box::default()),
            Discipline::Smallest => Queue::Smallest(Ranked::default()),
        };
        let (buffer, mark_above) = match edge.from {
            Node::Host(_) => (config.card_buffer, None),
            Node::Switch(_) => (config.buffer, config.mark_above),
        };
        let cut_through = config.switching == Switching::CutThrough;
        let whole = !cut_through || matches!(edge.to, Node::Host(_));
        let header = if whole { 0 } else { edge.rate.time(HEADER).0 };
        Self {
            event_at: NEVER,
            busy_until: 0,
            bytes: 0,
            rate: edge.rate,
            lead: header + edge.delay.0,
            line: List::default(),
            to: edge.to,
            spray,
            whole,
            pulls: false,
            counters: PortCounters::default(),
            queue,
            buffer,
            mark_above: mark_above.unwrap_or(u64::MAX),
        }
    }

    /// Accept a packet now; packets dropped for it go to `dropped`. Return whether [`next_event`](Self::next_event)
    /// may now be earlier.
    #[inline]
    pub(super) fn accept(
        &mut self,
        now: u64,
        place: Place,
        arena: &mut Arena,
        dropped: &mut Vec<Place>,
    ) -> bool {
        self.catch_up(now, arena);
        let alone = self.line.first.is_none();
        let slot = &mut arena[place];
        slot.since = now;
        if self.bytes == 0 && self.busy_until <= now {
            self.send(place, now, arena);
            return alone;
        }
        let size = u64::from(slot.packet.size);
        if self.bytes > self.mark_above && slot.packet.ecn_capable && !slot.packet.ecn {
            slot.packet.ecn = true;
            self.counters.marked += 1;
        }
        match &mut self.queue {
            Queue::DropTail { .. } if self.bytes + size > self.buffer => {
                self.drop(place, arena, dropped);
                return false;
            }
            Queue::DropTail { first } => {
                first.get_or_insert(place);
                self.send(place, self.busy_until, arena);
            }
            Queue::Priority(levels) => levels.push(place, arena),
            Queue::Smallest(ranked) => ranked.push(place, arena),
        }
        self.bytes += size;
        while self.bytes > self.buffer
            && let Some(shed) = self.shed(arena)
        {
            self.bytes -= u64::from(arena[shed].packet.size);
            self.drop(shed, arena, dropped);
        }
        self.counters.most_bytes = self.counters.most_bytes.max(self.bytes);
        alone
    }

    /// Take the packet that arrives at the other end now.
    #[inline]
    pub(super) fn take(&mut self, now: u64, arena: &mut Arena) -> Option<Place> {
        if self.line.first.is_none() {
            self.begin(arena);
        }
        let place = self.line.first?;
        if arena[place].reaches > now {
            return None; // a longer packet has been sent instead of the expected one
        }
        self.line.pop_front(arena);
        if self.bytes > 0
            && let Queue::DropTail { first } = &mut self.queue
            && *first == Some(place)
        {
            *first = self.line.first;
            self.bytes -= u64::from(arena[place].packet.size);
        }
        Some(place)
    }

    /// Return the time of the next call of [`take`](Self::take).
    #[inline]
    pub(super) fn next_event(&self, arena: &Arena) -> u64 {
        let reaches = self.line.first.map_or(NEVER, |place| arena[place].reaches);
        if reaches != NEVER || self.bytes == 0 {
            return reaches;
        }
        if !self.whole {
            return self.busy_until + self.lead; // for any packet
        }
        // Assumes that no better packet arrives.
        let next = match &self.queue {
            Queue::Priority(levels) => levels.best(),
            Queue::Smallest(ranked) => ranked.best(),
            Queue::DropTail { .. } => None,
        };
        next.map_or(NEVER, |place| {
            self.busy_until + self.rate.time(arena[place].packet.size).0 + self.lead
        })
    }

    /// Return the waiting bytes, without the packet in transmission.
    pub(super) fn waiting(&mut self, now: u64, arena: &mut Arena) -> u64 {
        self.catch_up(now, arena);
        self.bytes
    }

    /// Return whether the port can send another packet now. Makes the decisions that are due by `now`.
    #[inline]
    pub(super) fn is_idle(&mut self, now: u64, arena: &mut Arena) -> bool {
        self.catch_up(now + 1, arena);
        self.busy_until <= now && self.waiting(now, arena) == 0
    }

    /// Make the decisions that were due before `now`.
    #[inline]
    fn catch_up(&mut self, now: u64, arena: &mut Arena) {
        while self.bytes > 0 {
            if let Queue::DropTail { first } = &mut self.queue {
                let Some(slot) = first
                    .map(|place| &arena[place])
                    .filter(|slot| slot.since < now)
                else {
                    return;
                };
                self.bytes -= u64::from(slot.packet.size);
                *first = slot.next;
            } else if self.busy_until < now {
                self.begin(arena);
            } else {
                return;
            }
        }
    }

    /// Select the packet that follows the one in transmission, if any.
    #[inline]
    fn begin(&mut self, arena: &mut Arena) {
        let next = match &mut self.queue {
            Queue::Priority(levels) => levels.pop(arena),
            Queue::Smallest(ranked) => ranked.pop(),
            Queue::DropTail { .. } => None,
        };
        if let Some(place) = next {
            self.bytes -= u64::from(arena[place].packet.size);
            self.send(place, self.busy_until, arena);
        }
    }

    /// Begin to send a packet at `start`.
    #[inline]
    fn send(&mut self, place: Place, start: u64, arena: &mut Arena) {
        let slot = &mut arena[place];
        let size = slot.packet.size;
        self.busy_until = start + self.rate.time(size).0;
        self.counters.packets += 1;
        self.counters.bytes += u64::from(size);
        if start > slot.since {
            self.counters.byte_picos += u128::from(start - slot.since) * u128::from(size);
        }
        slot.since = start;
        let from = if self.whole { self.busy_until } else { start };
        slot.reaches = from + self.lead;
        self.line.push_back(place, arena);
    }

    fn drop(&mut self, place: Place, arena: &Arena, dropped: &mut Vec<Place>) {
        self.counters.dropped += 1;
        self.counters.dropped_bytes += u64::from(arena[place].packet.size);
        dropped.push(place);
    }

    /// Remove the least important packet.
    fn shed(&mut self, arena: &mut Arena) -> Option<Place> {
        match &mut self.queue {
            Queue::Priority(levels) => levels.shed(arena),
            Queue::Smallest(ranked) => ranked.shed(),
            Queue::DropTail { .. } => None,
        }
    }

    /// Return the bytes of all packets in the port, counted packet by packet.
    pub(super) fn audit(&self, arena: &Arena) -> u64 {
        let mut bytes = match &self.queue {
            Queue::DropTail { .. } => 0, // already in the line
            Queue::Priority(_) | Queue::Smallest(_) => self.bytes,
        };
        let mut next = self.line.first;
        while let Some(place) = next {
            bytes += u64::from(arena[place].packet.size);
            next = arena[place].next;
        }
        bytes
    }
}

/// Strict priorities.
#[derive(Debug, Default)]
struct Levels {
    /// One bit per level: whether the level has packets.
    occupied: u32,
    levels: [List; PRIORITIES],
}

impl Levels {
    /// Return the packet that would be sent now.
    #[inline]
    fn best(&self) -> Option<Place> {
        self.levels
            .get(self.occupied.trailing_zeros() as usize)?
            .first
    }

    #[inline]
    fn push(&mut self, place: Place, arena: &mut Arena) {
        let level = usize::from(arena[place].packet.priority).min(PRIORITIES - 1);
        self.occupied |= 1 << level;
        self.levels[level].push_back(place, arena);
    }

    /// Remove the latest packet of the worst level.
    fn shed(&mut self, arena: &mut Arena) -> Option<Place> {
        let level = self.occupied.checked_ilog2()? as usize;
        let place = self.levels[level].pop_back(arena);
        self.check(level);
        place
    }

    #[inline]
    fn pop(&mut self, arena: &mut Arena) -> Option<Place> {
        let level = self.occupied.trailing_zeros() as usize;
        let place = self.levels.get_mut(level)?.pop_front(arena);
        self.check(level);
        place
    }

    #[inline]
    fn check(&mut self, level: usize) {
        if self.levels[level].first.is_none() {
            self.occupied &= !(1 << level);
        }
    }
}

/// pFabric's order. Its queues are short by design, so a scan of all packets is faster than any index.
#[derive(Debug, Default)]
struct Ranked {
    /// Packets in order of arrival, with rank and flow.
    packets: Vec<(u64, FlowId, Place)>,
}

impl Ranked {
    /// Return the packet that would be sent now: the oldest of the flow with the smallest rank.
    fn best(&self) -> Option<Place> {
        self.best_index().map(|index| self.packets[index].2)
    }

    #[inline]
    fn best_index(&self) -> Option<usize> {
        let &(_, flow, _) = self.packets.iter().min_by_key(|packet| packet.0)?;
        self.packets.iter().position(|packet| packet.1 == flow)
    }

    fn push(&mut self, place: Place, arena: &Arena) {
        let packet = &arena[place].packet;
        self.packets.push((packet.rank, packet.flow, place));
    }

    /// Remove the latest packet of the largest rank.
    fn shed(&mut self) -> Option<Place> {
        let ranks = self.packets.iter().enumerate();
        let (worst, _) = ranks.max_by_key(|(_, packet)| packet.0)?;
        Some(self.packets.remove(worst).2)
    }

    fn pop(&mut self) -> Option<Place> {
        let best = self.best_index()?;
        Some(self.packets.remove(best).2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Balancing, Kind, Packet};
    use super::*;
    use crate::units::{HostId, Picos};

    /// A port of 10 Gbit/s to a switch at a distance of 200 ns, with the dropped packets.
    struct Bench {
        port: Port,
        arena: Arena,
        dropped: Vec<Place>,
    }

    impl Bench {
        fn new(discipline: Discipline, buffer: u64, mark_above: u64) -> Self {
            let edge = Edge {
                from: Node::Switch(1),
                to: Node::Switch(0),
                rate: Rate::from_bps(10e9),
                delay: Picos(200_000),
            };
            let config = Ports {
                discipline,
                buffer,
                card_buffer: u64::MAX,
                mark_above: Some(mark_above),
                switching: Switching::CutThrough,
                balancing: Balancing::Spray,
            };
            Self {
                port: Port::new(&edge, &config, 0),
                arena: Arena::default(),
                dropped: Vec::new(),
            }
        }

        /// Offer a packet of 1500 bytes.
        fn accept(&mut self, now: u64, flow: u32, sequence: u32, priority: u8, rank: u64) {
            let packet = Packet::new(FlowId(flow), HostId(0), Kind(0), 1500);
            let place = self.arena.insert(Packet {
                sequence,
                priority,
                rank,
                ecn_capable: true,
                ..packet
            });
            self.port
                .accept(now, place, &mut self.arena, &mut self.dropped);
        }

        /// Return arrival times at the other end with the packets' numbers.
        fn reached(&mut self) -> Vec<(u64, u32)> {
            let mut reached = Vec::new();
            loop {
                let now = self.port.next_event(&self.arena);
                if now == NEVER {
                    return reached;
                }
                if let Some(place) = self.port.take(now, &mut self.arena) {
                    reached.push((now, self.arena[place].packet.sequence));
                }
            }
        }

        fn dropped(&self) -> Vec<u32> {
            self.dropped
                .iter()
                .map(|&place| self.arena[place].packet.sequence)
                .collect()
        }
    }

    /// Return when the packets of a burst from time 0 reach a cut-through switch: 40 bytes and 200 ns after their
    /// transmission begins.
    fn at(number: u64) -> u64 {
        number * 1_200_000 + 232_000
    }

    #[test]
    fn a_full_drop_tail_port_drops_what_comes() {
        let mut bench = Bench::new(Discipline::DropTail, 3_000, 1_500);
        (0..4).for_each(|sequence| bench.accept(0, 0, sequence, 0, 0)); // one in transmission, two wait
        bench.accept(1_200_001, 0, 4, 0, 0); // another transmission has begun meanwhile
        assert_eq!(bench.dropped(), [3]);
        assert_eq!(bench.port.counters.marked, 1); // packet 3: 3,000 bytes waited; the others found at most 1,500
        assert_eq!(
            bench.reached(),
            [(at(0), 0), (at(1), 1), (at(2), 2), (at(3), 4)]
        );
        assert_eq!(
            bench.port.counters.byte_picos,
            1500 * (1_200_000 + 2_400_000 + 2_399_999)
        );
    }

    #[test]
    fn the_best_priority_is_first_and_the_latest_of_the_worst_is_dropped() {
        let mut bench = Bench::new(Discipline::Priority, 4_500, u64::MAX);
        for (sequence, priority) in [(0, 2), (1, 2), (2, 1), (3, 2), (4, 0)] {
            bench.accept(0, 0, sequence, priority, 0);
        }
        assert_eq!(bench.dropped(), [3]);
        bench.accept(0, 0, 5, 7, 0);
        assert_eq!(bench.dropped(), [3, 5]); // the arriving packet
        assert_eq!(
            bench.reached(),
            [(at(0), 0), (at(1), 4), (at(2), 2), (at(3), 1)]
        );
    }

    #[test]
    fn a_packet_that_comes_after_a_start_does_not_change_what_was_sent() {
        let mut bench = Bench::new(Discipline::Priority, 1 << 20, u64::MAX);
        bench.accept(0, 0, 0, 1, 0);
        bench.accept(0, 0, 1, 1, 0);
        bench.accept(1_200_001, 0, 2, 0, 0); // packet 1 began at 1,200,000, although no call came since
        assert_eq!(bench.reached(), [(at(0), 0), (at(1), 1), (at(2), 2)]);
        bench.accept(10_000_000, 0, 3, 1, 0);
        bench.accept(10_000_000, 0, 4, 1, 0);
        bench.accept(11_200_000, 0, 5, 0, 0); // at that very instant: in time
        let order: Vec<u32> = bench.reached().iter().map(|it| it.1).collect();
        assert_eq!(order, [3, 5, 4]);
    }

    #[test]
    fn pfabric_sends_the_oldest_of_the_flow_with_the_smallest_rank_and_drops_the_largest() {
        let mut bench = Bench::new(Discipline::Smallest, 6_000, u64::MAX);
        bench.accept(0, 9, 0, 0, 50); // in transmission
        for (sequence, flow, rank) in [(1, 1, 7), (2, 2, 9), (3, 1, 3), (4, 2, 9), (5, 3, 8)] {
            bench.accept(0, flow, sequence, 0, rank);
        }
        assert_eq!(bench.dropped(), [4]);
        assert_eq!(
            bench.reached(),
            [(at(0), 0), (at(1), 1), (at(2), 3), (at(3), 5), (at(4), 2)]
        );
    }
}
