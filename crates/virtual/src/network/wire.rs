//! The directions between the hosts, and the packets in them.

use std::collections::VecDeque;

use cellbed_link::records::PacketRecord;
use cellbed_link::{Bytes, Duration, Fate, Graph, Outcome, Tag, Time};
use cellbed_tcp::slab::Slab;
use cellbed_tcp::{Segment, SegmentKind};

use super::outside::Edge;
use crate::event::{DatagramKind, End, Ends};

/// First number of packets that proxies create.
const FIRST_MADE: u64 = 1 << 63;

/// The graph of directions with its packets.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    /// The directions; packets are slots of the pool.
    pub graph: Graph<u32>,
    pub pool: Pool,
    pub now: Time,
    /// Time from a host's sending until the packet is on the path.
    pub turnaround: Duration,
    /// Number of packets so far.
    sent: u64,
    /// Packets on their way out of the hosts, in order.
    leaving: VecDeque<(Time, u32, Bytes)>,
    /// The network that carries the packets before the graph, if any.
    pub edge: Option<Edge>,
}

impl Wire {
    pub fn new(graph: Graph<u32>) -> Self {
        Self {
            graph,
            pool: Pool::default(),
            now: Time::ZERO,
            turnaround: Duration::ZERO,
            sent: 0,
            leaving: VecDeque::new(),
            edge: None,
        }
    }

    /// Return the number of packets on the path or on their way to it.
    pub fn held(&self) -> u64 {
        let directions = self.graph.directions().iter();
        let held = directions.map(|direction| direction.held().packets.0);
        self.leaving.len() as u64 + held.sum::<u64>()
    }

    pub fn next_event(&self) -> Option<Time> {
        let leaving = self.leaving.front().map(|packet| packet.0);
        [self.graph.next_event(), leaving]
            .into_iter()
            .flatten()
            .min()
    }

    /// Send a packet from an end of a connection.
    pub fn dispatch(&mut self, ends: Ends, from: End, content: Content, size: Bytes) {
        self.sent += 1;
        let slot = self.insert(self.sent, ends, from, content);
        let source = ends.of(from).0;
        if self.turnaround.is_zero() {
            return self.enter(source, slot, self.now, size);
        }
        let at = self.now + self.turnaround;
        self.leaving.push_back((at, slot, size));
    }

    /// Add a packet of a proxy. number: of the host's packet that the proxy repeats, if any.
    pub fn insert_made(
        &mut self,
        number: Option<u64>,
        ends: Ends,
        from: End,
        content: Content,
    ) -> u32 {
        self.sent += u64::from(number.is_none());
        let number = number.unwrap_or(FIRST_MADE | self.sent);
        self.insert(number, ends, from, content)
    }

    fn insert(&mut self, number: u64, ends: Ends, from: End, content: Content) -> u32 {
        let (source, destination) = (ends.of(from), ends.of(from.peer()));
        self.pool.insert(Packet {
            number,
            from: source.0,
            to: destination.0,
            ports: (source.1, destination.1),
            corrupt: false,
            content,
        })
    }

    /// Pass packets that leave the hosts by `until` to the path.
    pub fn leave(&mut self, until: Time) {
        while let Some(&(at, slot, size)) = self.leaving.front().filter(|it| it.0 <= until) {
            self.leaving.pop_front();
            self.enter(self.pool.get(slot).from, slot, at, size);
        }
    }

    /// Send a packet from a host to its destination; without a path it is lost.
    pub fn enter(&mut self, host: u16, slot: u32, at: Time, size: Bytes) {
        let destination = self.pool.get(slot).to;
        match self.graph.paths(at).next(host.into(), destination.into()) {
            Some(direction) => self.accept(direction, slot, at, size),
            None => self.pool.release(slot),
        }
    }

    /// Advance the outside network to its first departures, at the latest to `until`, and pass these packets to their
    /// directions. Return the time of departures or losses.
    pub fn advance_outside(&mut self, until: Time) -> Option<Time> {
        let (now, departed, lost) = self.edge.as_mut()?.advance(until)?;
        self.now = self.now.max(now);
        for packet in &lost {
            self.pool.release(packet.slot);
        }
        for packet in &departed {
            self.pass(packet.direction, packet.slot, now, packet.size);
        }
        (departed.len() + lost.len() > 0).then_some(now)
    }

    /// Pass a packet to a direction, or before to the outside network.
    pub fn accept(&mut self, direction: usize, slot: u32, at: Time, size: Bytes) {
        match &mut self.edge {
            Some(edge) => edge.send(direction, at, slot, size),
            None => self.pass(direction, slot, at, size),
        }
    }

    fn pass(&mut self, direction: usize, slot: u32, at: Time, size: Bytes) {
        let packet = self.pool.get(slot);
        let flow = match packet.content {
            Content::Segment { connection, .. } | Content::Reset { connection, .. } => {
                1 + connection
            }
            Content::Datagram { .. } => {
                // Datagrams with the same ports are one flow, separate from all connections.
                (u64::from(packet.ports.0) << 16 | u64::from(packet.ports.1)).wrapping_neg()
            }
        };
        let tag = Tag {
            flow,
            ..Tag::default()
        };
        let tag = self.graph.mark(packet.from, packet.to, tag);
        self.graph
            .accept_tagged(at, direction, slot, size, tag, None);
    }
}

/// Content of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Datagram {
        run: u64,
        kind: DatagramKind,
        label: u64,
        at: End,
    },
    Segment {
        connection: u64,
        segment: Segment,
        at: End,
    },
    /// The answer of a closed end to a segment.
    Reset {
        connection: u64,
        sequence: u32,
        at: End,
    },
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// Number of the packet in the network.
    pub number: u64,
    pub from: u16,
    pub to: u16,
    /// Source and destination.
    pub ports: (u16, u16),
    /// True if a bit has changed, which a checksum will detect.
    pub corrupt: bool,
    pub content: Content,
}

/// The packets in flight. A packet that a link has duplicated stays until both copies have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    slots: Slab<(Packet, u32)>,
}

impl Pool {
    pub fn insert(&mut self, packet: Packet) -> u32 {
        self.slots.insert((packet, 1))
    }

    pub fn get(&self, slot: u32) -> &Packet {
        &self.slots[slot].0
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.slots[slot].0
    }

    pub fn double(&mut self, slot: u32) {
        self.slots[slot].1 += 1;
    }

    pub fn release(&mut self, slot: u32) {
        let references = &mut self.slots[slot].1;
        *references -= 1;
        if *references == 0 {
            self.slots.remove(slot);
        }
    }
}

/// Transport protocols (IANA numbers).
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Length of the headers of IPv4 and of UDP or an ICMP echo.
const DATAGRAM_HEADERS: u32 = 28;

/// Return the record of a packet that came out of a direction, or was dropped in it.
pub(crate) fn record(packet: &Packet, direction: usize, outcome: &Outcome<u32>) -> PacketRecord {
    let (protocol, tcp_sequence, payload) = match packet.content {
        Content::Segment { segment, .. } => {
            let opening = segment.kind != SegmentKind::Data;
            // A SYN takes the number before the first byte.
            let sequence = segment.start as u32 + u32::from(!opening);
            (TCP, sequence, segment.length as u32)
        }
        Content::Reset { sequence, .. } => (TCP, sequence, 0),
        Content::Datagram { kind, .. } => {
            let protocol = match kind {
                DatagramKind::Icmp => ICMP,
                DatagramKind::Udp => UDP,
            };
            let payload = (outcome.size.0 as u32).saturating_sub(DATAGRAM_HEADERS);
            (protocol, 0, payload)
        }
    };
    PacketRecord {
        packet: packet.number,
        arrived: outcome.arrived,
        released: outcome.released,
        departed: outcome.departed,
        observed: outcome.departed,
        direction: direction as u16,
        drop: match outcome.fate {
            Fate::Delivered | Fate::Doubled => 0,
            Fate::Dropped(reason) => reason as u8,
        },
        protocol,
        bytes: outcome.size.0 as u32,
        source_port: packet.ports.0,
        destination_port: packet.ports.1,
        tcp_sequence,
        payload,
        source_vertex: packet.from,
        destination_vertex: packet.to,
    }
}
