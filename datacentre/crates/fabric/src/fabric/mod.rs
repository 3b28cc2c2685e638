//! The data centre: hosts and switches in virtual time.
//!
//! A [`Simulation`] joins a [`Fabric`], the network, with a [`Transport`], which acts for all
//! hosts, and a [`Traffic`], which starts flows. A packet costs one event for each port that it passes:
//!
//! 1. [`Fabric::send`] puts a packet into the port of its host's card;
//! 2. at the event at which it reaches the other end of the link, a switch puts it into the next port;
//! 3. a host gives it to the transport, which may send others, and has its wakes and pulls.

mod flow;
mod packet;
mod port;
mod sampling;
mod simulation;
mod topology;
mod traffic;

pub use flow::{Flow, FlowMap, Multiply, Record};
pub use packet::{Kind, Packet};
pub use port::{Discipline, PRIORITIES, PortCounters};
pub use sampling::{Sample, Sampling};
pub use simulation::{Simulation, Transport};
pub use topology::{Balancing, Edge, HEADER, Node, Switching, Topology};
pub use traffic::{FULL_PACKET, FULL_PAYLOAD, Pattern, Poisson, Sizes, Traffic};

use crate::random::{Purpose, mix, stream};
use crate::units::{FlowId, HostId, Picos, Rate};
use crate::wheel::{Turn, Wheel};
use packet::{Arena, Place};
use port::{NEVER, Port, PortConfig};
use topology::forwarded_bytes;

/// Slots of the event wheel: 2^10 ps.
const SLOT: u32 = 10;
/// Debug builds count the bytes of all packets after each event, and search for every packet after as many events.
const AUDIT: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet of a port reaches the node at the other end.
    Reach { port: u32 },
    /// The card of a host may be idle: its transport is asked for a packet.
    Card { host: HostId },
    /// A transport asked for this time.
    Wake { token: u64 },
    /// The next flow starts.
    Start,
    /// A sample of the queues is due.
    Sample,
    /// The run ends.
    End,
}

impl Event {
    /// Bits of the number below the kind.
    const KIND: u32 = 62;

    /// As one number, which is still in a register when the wheel stores it.
    #[inline]
    fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Reach { port } => (0, u64::from(port)),
            Self::Card { host } => (1, u64::from(host.0)),
            Self::Wake { token } => (2, token),
            Self::Start => (3, 0),
            Self::Sample => (3, 1),
            Self::End => (3, 2),
        };
        debug_assert!(number >> Self::KIND == 0, "{self:?}");
        kind << Self::KIND | number
    }

    #[inline]
    fn unpack(packed: u64) -> Self {
        let number = packed & ((1 << Self::KIND) - 1);
        match (packed >> Self::KIND, number) {
            (0, _) => Self::Reach {
                port: number as u32,
            },
            (1, _) => Self::Card {
                host: HostId(number as u32),
            },
            (2, token) => Self::Wake { token },
            (_, 0) => Self::Start,
            (_, 1) => Self::Sample,
            _ => Self::End,
        }
    }
}

/// Queueing of packets at the ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// Their discipline.
    pub discipline: Discipline,
    /// Most bytes that wait at a port, without the packet in transmission.
    pub buffer: u64,
    /// The same at the cards of hosts.
    pub card_buffer: u64,
    /// ECN: a packet is marked if it finds more bytes than this waiting at a switch.
    pub mark_above: Option<u64>,
    /// When switches send packets on.
    pub switching: Switching,
    /// Choice among equal paths.
    pub balancing: Balancing,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            discipline: Discipline::DropTail,
            buffer: 36_864,
            card_buffer: u64::MAX,
            mark_above: None,
            switching: Switching::CutThrough,
            balancing: Balancing::Spray,
        }
    }
}

/// Bytes and packets since the start. At every time, `sent` = `delivered` + `dropped` + what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events processed.
    pub events: u64,
    /// Packets that a port has begun to send, counted at every port.
    pub packet_hops: u64,
    /// Bytes given to hosts' cards.
    pub sent: u64,
    /// Bytes that have reached their host.
    pub delivered: u64,
    /// Bytes dropped at ports.
    pub dropped: u64,
    /// Flows that have started.
    pub started: u64,
    /// Flows that are over for both ends.
    pub finished: u64,
}

/// A flow that lives.
#[derive(Clone, Copy, Debug)]
struct Live {
    flow: Flow,
    end: Option<Picos>,
    /// Its bytes go beyond its destination.
    held: bool,
    acknowledged: bool,
}

/// The network, as a transport sees it: packets, times and flows.
#[derive(Debug)]
pub struct Fabric {
    now: Picos,
    topology: Topology,
    switching: Switching,
    balancing: Balancing,
    ports: Vec<Port>,
    arena: Arena,
    /// Packed events.
    wheel: Wheel<u64>,
    flows: FlowMap<Live>,
    counters: Counters,
    /// Work of callbacks for the loop: hosts whose transport must be asked for a packet, packets dropped, records.
    kicked: Vec<HostId>,
    dropped: Vec<Place>,
    records: Vec<Record>,
}

impl Fabric {
    /// An empty network at time 0.
    pub fn new(topology: Topology, config: &Ports, seed: u64) -> Self {
        let mut spraying = stream(seed, Purpose::Spraying, 0);
        let ports = topology.edges().iter().map(|edge| {
            Port::new(&PortConfig {
                to: edge.to,
                rate: edge.rate,
                delay: edge.delay,
                cut_through: config.switching == Switching::CutThrough,
                discipline: config.discipline,
                buffer: match edge.from {
                    Node::Host(_) => config.card_buffer,
                    Node::Switch(_) => config.buffer,
                },
                mark_above: match edge.from {
                    Node::Host(_) => u64::MAX,
                    Node::Switch(_) => config.mark_above.unwrap_or(u64::MAX),
                },
                spray: match edge.to {
                    Node::Switch(switch) => {
                        spraying.below(topology.most_ways(switch) as u64) as u32
                    }
                    Node::Host(_) => 0,
                },
            })
        });
        Self {
            now: Picos::ZERO,
            ports: ports.collect(),
            switching: config.switching,
            balancing: config.balancing,
            topology,
            arena: Arena::default(),
            wheel: Wheel::new(SLOT),
            flows: FlowMap::default(),
            counters: Counters::default(),
            kicked: Vec::new(),
            dropped: Vec::new(),
            records: Vec::new(),
        }
    }

    /// The time of the event that is being processed.
    #[inline]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// The network's nodes and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// When switches send packets on.
    pub fn switching(&self) -> Switching {
        self.switching
    }

    /// Rate of a host's card.
    #[inline]
    pub fn card_rate(&self, host: HostId) -> Rate {
        self.ports[host.index()].rate
    }

    /// A flow that lives.
    ///
    /// # Panics
    /// If it is [closed](Self::close), or has not started.
    #[inline]
    pub fn flow(&self, flow: FlowId) -> &Flow {
        &self.flows[&flow].flow
    }

    /// Return whether a flow has started and is not acknowledged.
    pub fn is_live(&self, flow: FlowId) -> bool {
        self.flows.contains_key(&flow)
    }

    /// The flows that live, in any order, with the times at which their last bytes arrived.
    pub fn live(&self) -> impl Iterator<Item = (FlowId, &Flow, Option<Picos>)> {
        self.flows
            .iter()
            .map(|(&id, live)| (id, &live.flow, live.end))
    }

    /// Puts a packet of at least [`HEADER`] bytes into the queue of a host's card.
    #[inline]
    pub fn send(&mut self, from: HostId, packet: Packet) {
        assert!(packet.size >= HEADER, "a packet without a header");
        debug_assert!(
            from != packet.to && packet.to.0 < self.topology.hosts(),
            "{packet:?} from {from:?}"
        );
        self.counters.sent += u64::from(packet.size);
        let place = self.arena.insert(packet);
        self.offer(from.0, place);
    }

    /// Asks the transport for packets of this host, [`pull`](Transport::pull), now and whenever the host's card is
    /// idle, until it returns none.
    #[inline]
    pub fn kick(&mut self, host: HostId) {
        let card = &mut self.ports[host.index()];
        if std::mem::replace(&mut card.pulls, true) {
            return;
        }
        if card.is_idle(self.now.0, &mut self.arena) {
            self.kicked.push(host);
        } else {
            self.pull_later(host);
        }
    }

    /// Bytes that wait at a host's card, without the packet in transmission.
    pub fn card_backlog(&mut self, host: HostId) -> u64 {
        self.ports[host.index()].waiting(self.now.0, &mut self.arena)
    }

    /// Return whether a host's card is neither sending nor has packets.
    pub fn card_is_idle(&mut self, host: HostId) -> bool {
        self.ports[host.index()].is_idle(self.now.0, &mut self.arena)
    }

    /// Wakes the transport ([`wake`](Transport::wake)) at a time, not before now. token: less than 2^62.
    #[inline]
    pub fn wake(&mut self, at: Picos, token: u64) {
        self.wheel
            .push(at.0.max(self.now.0), Event::Wake { token }.pack());
    }

    /// Keeps a flow whose bytes go beyond its destination: until its [release](Self::release) it neither ends nor is
    /// freed.
    pub fn hold(&mut self, flow: FlowId) {
        if let Some(live) = self.flows.get_mut(&flow) {
            live.held = true;
        }
    }

    /// Ends a held flow: its last byte has arrived.
    pub fn release(&mut self, flow: FlowId) {
        if let Some(live) = self.flows.get_mut(&flow) {
            live.held = false;
            let acknowledged = live.acknowledged;
            self.finish(flow);
            if acknowledged {
                self.close(flow);
            }
        }
    }

    /// Records that the last byte of a flow has reached its destination. The first call counts.
    pub fn finish(&mut self, flow: FlowId) {
        let now = self.now;
        if let Some(live) = self.flows.get_mut(&flow).filter(|live| !live.held) {
            live.end.get_or_insert(now);
        }
    }

    /// Closes a flow whose source knows that all of it has arrived: frees its state and emits its record.
    pub fn close(&mut self, id: FlowId) {
        if let Some(live) = self.flows.get_mut(&id).filter(|live| live.held) {
            live.acknowledged = true;
            return;
        }
        if let Some(Live { flow, end, .. }) = self.flows.remove(&id) {
            self.counters.finished += 1;
            let ideal = self.ideal(&flow);
            self.records.push(Record {
                id,
                flow,
                end: end.unwrap_or(self.now),
                acknowledged: self.now,
                ideal,
            });
        }
    }

    /// Returns the time that a flow of full packets and a shorter last one takes on an empty path, with an
    /// acknowledgement of 40 bytes back. Where packets are sprayed, the last one may take another path than those
    /// before it.
    pub fn ideal(&self, flow: &Flow) -> Picos {
        let full = (flow.bytes - 1) / u64::from(FULL_PAYLOAD);
        let last = (flow.bytes - full * u64::from(FULL_PAYLOAD)) as u16 + HEADER;
        // When the first full packet, the last full one and the last one come to each port; the time between full ones.
        let (mut first, mut before, mut at, mut spacing) = (0, 0, 0, 0);
        let mut sprayed = false;
        for port in self.topology.path(flow.source, flow.destination) {
            let edge = &self.topology.edges()[port as usize];
            let on = |bytes| {
                edge.delay.0
                    + edge
                        .rate
                        .time(forwarded_bytes(edge.to, bytes, self.switching))
                        .0
            };
            let time = edge.rate.time(FULL_PACKET).0;
            spacing = time.max(spacing);
            if let Some(others) = full.checked_sub(1) {
                let start = first + others * spacing;
                if !sprayed {
                    at = at.max(start + time);
                }
                before = start + on(FULL_PACKET);
            }
            first += on(FULL_PACKET);
            at += on(last);
            if let Node::Switch(switch) = edge.to {
                let choices = self.topology.next_ports(switch, flow.destination).len();
                sprayed |= self.balancing == Balancing::Spray && choices > 1;
            }
        }
        let back = self
            .topology
            .latency(flow.destination, flow.source, HEADER, self.switching);
        Picos(at.max(before)) + back
    }

    /// Bytes and packets since the start.
    pub fn counters(&self) -> Counters {
        let packet_hops = self.port_counters().map(|port| port.packets).sum();
        Counters {
            packet_hops,
            ..self.counters
        }
    }

    /// Return the counters of each port, in the order of [`Topology::edges`].
    pub fn port_counters(&self) -> impl Iterator<Item = &PortCounters> {
        self.ports.iter().map(|port| &port.counters)
    }

    /// Puts a packet into a port.
    #[inline]
    fn offer(&mut self, number: u32, place: Place) {
        let port = &mut self.ports[number as usize];
        if port.accept(self.now.0, place, &mut self.arena, &mut self.dropped) {
            self.schedule(number);
        }
    }

    /// Sets the next event of a port. Lots decide between packets that reach switches at the same picosecond: with any
    /// fixed order some flows lose every packet for which a queue has one place left (Floyd and Jacobson, "On traffic
    /// phase effects in packet-switched gateways", Internetworking: Research and Experience 3(3), 1992).
    #[inline]
    fn schedule(&mut self, number: u32) {
        let port = &mut self.ports[number as usize];
        let next = port.next_event(&self.arena);
        if next < port.event_at {
            port.event_at = next;
            let lot = mix(next ^ u64::from(number) << 40);
            self.wheel
                .push_turn(next, Turn::Lot(lot), Event::Reach { port: number }.pack());
        }
    }

    /// Asks the transport for a packet when the card is idle, after all other events of that instant.
    #[inline]
    fn pull_later(&mut self, host: HostId) {
        let at = self.ports[host.index()].busy_until;
        self.wheel
            .push_turn(at, Turn::Last, Event::Card { host }.pack());
    }

    /// Takes the packet of a port that reaches the other end now, and returns it with the node there. An event that the
    /// port has replaced by another one returns none.
    #[inline]
    fn reach(&mut self, number: u32) -> Option<(Node, Place)> {
        let port = &mut self.ports[number as usize];
        if port.event_at != self.now.0 {
            return None;
        }
        port.event_at = NEVER;
        let to = port.to;
        let place = port.take(self.now.0, &mut self.arena);
        self.schedule(number);
        Some((to, place?))
    }

    /// The outgoing port of a switch for a packet received at another port.
    #[inline]
    fn next_port(&mut self, by: u32, switch: u32, place: Place) -> u32 {
        let packet = &self.arena[place].packet;
        let choices = self.topology.next_ports(switch, packet.to);
        let choice = match (choices.len(), self.balancing) {
            (1, _) => 0,
            (count, Balancing::Spray) => {
                let spray = &mut self.ports[by as usize].spray;
                let choice = if *spray as usize >= count {
                    0
                } else {
                    *spray as usize
                };
                *spray = choice as u32 + 1;
                choice
            }
            (count, Balancing::Ecmp) => {
                let index = u64::from(packet.flow.0) << 32 | u64::from(packet.to.0);
                stream(u64::from(switch), Purpose::Spraying, index).below(count as u64) as usize
            }
        };
        choices[choice]
    }

    /// Checks in debug builds that bytes are conserved.
    fn audit(&self) {
        let Counters {
            sent,
            delivered,
            dropped,
            events,
            ..
        } = self.counters;
        debug_assert_eq!(
            sent,
            delivered + dropped + self.arena.bytes(),
            "bytes of packets at {:?}",
            self.now
        );
        if cfg!(debug_assertions) && events % AUDIT == 0 {
            let found: u64 = self.ports.iter().map(|port| port.audit(&self.arena)).sum();
            debug_assert_eq!(
                found,
                self.arena.bytes(),
                "bytes in ports at {:?}",
                self.now
            );
        }
    }
}
