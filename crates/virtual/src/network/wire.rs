//! The directions between the hosts, and the packets in them.

use std::collections::VecDeque;

use cellbed_link::{Bytes, Duration, Graph, Tag, Time};

use crate::event::{End, Ends};
use crate::pool::{Content, Packet, Pool};

/// The first number of packets that come from no host.
const FIRST_MADE: u64 = 1 << 63;

/// The graph of directions with its packets.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    /// The directions; packets are slots of the pool.
    pub graph: Graph<u32>,
    pub pool: Pool,
    pub now: Time,
    /// The time from a host's sending until a packet is on the path.
    pub turnaround: Duration,
    /// Packets so far.
    sent: u64,
    /// Packets on their way out of the hosts, in order.
    leaving: VecDeque<(Time, u32, Bytes)>,
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

    /// Sends a packet from an end of a connection.
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

    /// Adds a packet that a proxy has made. number: of the host's packet that it repeats, if it does.
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

    /// Puts the packets on the path that leave the hosts by `until`.
    pub fn leave(&mut self, until: Time) {
        while let Some(&(at, slot, size)) = self.leaving.front().filter(|it| it.0 <= until) {
            self.leaving.pop_front();
            self.enter(self.pool.get(slot).from, slot, at, size);
        }
    }

    /// Sends a packet from a host to its destination; without a path it is lost.
    pub fn enter(&mut self, host: u16, slot: u32, at: Time, size: Bytes) {
        let destination = self.pool.get(slot).to;
        match self.graph.paths(at).next(host.into(), destination.into()) {
            Some(direction) => self.accept(direction, slot, at, size),
            None => self.pool.release(slot),
        }
    }

    /// Passes a packet to a direction.
    pub fn accept(&mut self, direction: usize, slot: u32, at: Time, size: Bytes) {
        let packet = self.pool.get(slot);
        let flow = match packet.content {
            Content::Segment { connection, .. } | Content::Reset { connection, .. } => {
                1 + connection
            }
            Content::Datagram { .. } => {
                // Those with the same ports are one flow, apart from all connections.
                (u64::from(packet.ports.0) << 16 | u64::from(packet.ports.1)).wrapping_neg()
            }
        };
        let tag = Tag {
            flow,
            ..Tag::default()
        };
        self.graph
            .accept_tagged(at, direction, slot, size, tag, None);
    }
}
