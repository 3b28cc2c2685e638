//! The data centre: hosts and switches in virtual time.
//!
//! A [`Simulation`] combines a [`Fabric`], the network, a [`Transport`], which acts for all hosts, and a [`Traffic`],
//! which starts flows. A packet costs one event for each port on its path:
//!
//! 1. [`Fabric::send`] puts a packet into the port of its host's card;
//! 2. at the event of its arrival at the other end of the link, a switch puts the packet into the next port;
//! 3. a host passes the packet to the transport, which may send others, and has wake-ups and pulls.

mod flow;
mod packet;
mod passage;
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
use passage::Passage;
use port::{NEVER, Port};
use topology::forwarded_bytes;

/// Size of the event wheel's slots: 2^10 ps.
const SLOT: u32 = 10;
/// Interval in events between searches for every packet in debug builds, which also count all bytes after each event.
const AUDIT: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet of a port arrives at the node at the other end.
    Reach { port: u32 },
    /// The card of a host may be idle: ask its transport for a packet.
    Card { host: HostId },
    /// A wake-up that a transport requested.
    Wake { token: u64 },
    /// The next flow starts.
    Start,
    /// A packet leaves a stop on the way to a user.
    Pass { number: u32 },
    /// A sample of the queues is due.
    Sample,
    /// The run ends.
    End,
}

/// Queueing of packets at the ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// Discipline of the ports.
    pub discipline: Discipline,
    /// Maximum bytes waiting at a port, without the packet in transmission.
    pub buffer: u64,
    /// Maximum bytes waiting at the card of a host.
    pub card_buffer: u64,
    /// ECN: a packet is marked if more bytes than this wait at a switch when it arrives.
    pub mark_above: Option<u64>,
    /// When switches forward packets.
    pub switching: Switching,
    /// Choice among equal paths.
    pub balancing: Balancing,
}

/// Bytes and packets since the start. At any time, `sent` = `delivered` + `dropped` + bytes in transit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events processed.
    pub events: u64,
    /// Number of transmissions by ports that have begun.
    pub packet_hops: u64,
    /// Bytes passed to hosts' cards.
    pub sent: u64,
    /// Bytes that have arrived at their host.
    pub delivered: u64,
    /// Bytes dropped at ports.
    pub dropped: u64,
    /// Number of flows that have started.
    pub started: u64,
    /// Number of flows that are over for both ends.
    pub finished: u64,
}

/// An open flow.
#[derive(Clone, Copy, Debug)]
struct Live {
    flow: Flow,
    end: Option<Picos>,
    /// True if its bytes continue beyond its destination.
    held: bool,
    acknowledged: bool,
}

/// The network as seen by a transport: packets, times and flows.
#[derive(Debug)]
pub struct Fabric {
    now: Picos,
    topology: Topology,
    switching: Switching,
    balancing: Balancing,
    ports: Vec<Port>,
    arena: Arena,
    wheel: Wheel<Event>,
    flows: FlowMap<Live>,
    passages: Vec<Passage>,
    counters: Counters,
    /// Work that callbacks leave to the loop: hosts whose transport is asked for a packet, dropped packets, records.
    kicked: Vec<HostId>,
    dropped: Vec<Place>,
    records: Vec<Record>,
}

impl Fabric {
    /// Return an empty network at time 0.
    pub fn new(topology: Topology, config: &Ports, seed: u64) -> Self {
        let mut spraying = stream(seed, Purpose::Spraying, 0);
        let ports = topology.edges().iter().map(|edge| {
            let spray = match edge.to {
                Node::Switch(switch) => spraying.below(topology.most_ways(switch) as u64) as u32,
                Node::Host(_) => 0,
            };
            Port::new(edge, config, spray)
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
            passages: Vec::new(),
            counters: Counters::default(),
            kicked: Vec::new(),
            dropped: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Return the time of the current event.
    #[inline]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Return the network's nodes and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Return when switches forward packets.
    pub fn switching(&self) -> Switching {
        self.switching
    }

    /// Return the rate of a host's card.
    #[inline]
    pub fn card_rate(&self, host: HostId) -> Rate {
        self.ports[host.index()].rate
    }

    /// Return an open flow.
    ///
    /// # Panics
    /// If the flow is [closed](Self::close), or has not started.
    #[inline]
    pub fn flow(&self, flow: FlowId) -> &Flow {
        &self.flows[&flow].flow
    }

    /// Return whether a flow has started and is not acknowledged.
    pub fn is_live(&self, flow: FlowId) -> bool {
        self.flows.contains_key(&flow)
    }

    /// Return the open flows in any order, with the arrival times of their last bytes.
    pub fn live(&self) -> impl Iterator<Item = (FlowId, &Flow, Option<Picos>)> {
        self.flows
            .iter()
            .map(|(&id, live)| (id, &live.flow, live.end))
    }

    /// Put a packet of at least [`HEADER`] bytes into the queue of a host's card.
    #[inline]
    pub fn send(&mut self, from: HostId, packet: Packet) {
        if self.passages.is_empty() {
            self.transmit(from, packet);
        } else {
            self.send_by_stops(from, packet);
        }
    }

    #[inline(always)] // into `send`, which most packets call
    fn transmit(&mut self, from: HostId, packet: Packet) {
        assert!(packet.size >= HEADER, "a packet without a header");
        debug_assert!(
            from != packet.to && packet.to.0 < self.topology.hosts(),
            "{packet:?} from {from:?}"
        );
        self.counters.sent += u64::from(packet.size);
        let place = self.arena.insert(packet);
        self.offer(from.0, place);
    }

    /// Ask the transport for packets of this host by [`pull`](Transport::pull), now and whenever the host's card is
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

    /// Return the bytes waiting at a host's card, without the packet in transmission.
    pub fn card_backlog(&mut self, host: HostId) -> u64 {
        self.ports[host.index()].waiting(self.now.0, &mut self.arena)
    }

    /// Return whether a host's card has no packets and is not sending.
    pub fn card_is_idle(&mut self, host: HostId) -> bool {
        self.ports[host.index()].is_idle(self.now.0, &mut self.arena)
    }

    /// Wake the transport ([`wake`](Transport::wake)) at a time that is not before now.
    #[inline]
    pub fn wake(&mut self, at: Picos, token: u64) {
        self.wheel.push(at.0.max(self.now.0), Event::Wake { token });
    }

    /// Hold a flow whose bytes continue beyond its destination: it neither ends nor is freed before its
    /// [release](Self::release).
    pub fn hold(&mut self, flow: FlowId) {
        if let Some(live) = self.flows.get_mut(&flow) {
            live.held = true;
        }
    }

    /// End a held flow: its last byte has arrived.
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

    /// Records that the last byte of a flow has arrived at its destination. Only the first call counts.
    pub fn finish(&mut self, flow: FlowId) {
        let now = self.now;
        if let Some(live) = self.flows.get_mut(&flow).filter(|live| !live.held) {
            live.end.get_or_insert(now);
        }
    }

    /// Close a flow after its source knows that all has arrived: frees its state and emits its record.
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

    /// Return the duration of a flow of full packets and a shorter last one on an empty path, including an
    /// acknowledgement of 40 bytes. Under spraying, the last packet may take another path than the others.
    pub fn ideal(&self, flow: &Flow) -> Picos {
        let full = (flow.bytes - 1) / u64::from(FULL_PAYLOAD);
        let last = (flow.bytes - full * u64::from(FULL_PAYLOAD)) as u16 + HEADER;
        // Arrival at each port of the first full, the last full and the last packet; interval between full packets.
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

    /// Return the bytes and packets since the start.
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

    /// Put a packet into a port.
    #[inline]
    fn offer(&mut self, number: u32, place: Place) {
        let port = &mut self.ports[number as usize];
        if port.accept(self.now.0, place, &mut self.arena, &mut self.dropped) {
            self.schedule(number);
        }
    }

    /// Set the next event of a port. Lots order packets that reach switches at the same picosecond: in any fixed
    /// order, some flows lose every packet for which a queue has one free place (Floyd and Jacobson, "On traffic phase
    /// effects in packet-switched gateways", Internetworking: Research and Experience 3(3), 1992).
    #[inline]
    fn schedule(&mut self, number: u32) {
        let port = &mut self.ports[number as usize];
        let next = port.next_event(&self.arena);
        if next < port.event_at {
            port.event_at = next;
            let lot = mix(next ^ u64::from(number) << 40);
            self.wheel
                .push_turn(next, Turn::Lot(lot), Event::Reach { port: number });
        }
    }

    /// Ask the transport for a packet when the card is idle, after all other events of the same instant.
    #[inline]
    fn pull_later(&mut self, host: HostId) {
        let at = self.ports[host.index()].busy_until;
        self.wheel.push_turn(at, Turn::Last, Event::Card { host });
    }

    /// Take the packet of a port that arrives at the other end now, and return it with that node. An event that the
    /// port has replaced returns none.
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

    /// Return the outgoing port of a switch for a packet received at another port.
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
