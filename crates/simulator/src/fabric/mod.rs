//! The data centre: hosts and switches in virtual time.
//!
//! A [`Simulation`] joins a [`Fabric`], the network, with a [`Transport`](crate::transport::Transport), which acts for all
//! hosts, and a [`Traffic`], which starts flows. A packet costs one event for each port that it passes, and a second one
//! only where it waits in a queue whose order can still change:
//!
//! 1. [`Fabric::send`] puts a packet into the queue of its host's card;
//! 2. a port that begins to send it sets `busy_until` and the event at which the next node has it;
//! 3. at that event a switch picks the next port, or a host gives it to the transport.

mod description;
mod flow;
mod packet;
mod port;
mod topology;
mod traffic;
mod units;

pub use description::{Description, DescriptionError};
pub use flow::{Flow, FlowMap, Multiply, Record};
pub use packet::{Kind, Packet};
pub use port::{Discipline, PRIORITIES, PortCounters};
pub use topology::{Balancing, Edge, HEADER, Link, Node, Switching, Topology, TopologyError};
pub use traffic::{FULL_PACKET, Pattern, Poisson, SEGMENT, Sizes, Traffic, TrafficError};
pub use units::{FlowId, HostId, Picos, Rate};

use cellbed_link as link;

use crate::random::{Purpose, Stream, stream};
use crate::transport::Transport;
use crate::wheel::{Turn, Wheel};
use packet::{Arena, Place};
use port::{Port, Queue, from_link, to_link};
use topology::forwarded;

/// Slots of the event wheel: 2^10 ps.
const SLOT: u32 = 10;
const NEVER: u64 = u64::MAX;
/// Debug builds count the bytes of all packets after each event, and search for every packet after as many events.
const AUDIT: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The node to which a port leads has a packet of it.
    Reach { port: u32, place: Place },
    /// A port may send.
    Serve { port: u32 },
    /// A transport asked for this time.
    Wake { token: u64 },
    /// The next flow starts.
    Start,
}

/// How ports hold packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// Their discipline.
    pub discipline: Discipline,
    /// Most bytes that wait at a port, without the packet in transmission.
    pub buffer: u64,
    /// The same at the cards of hosts.
    pub card_buffer: u64,
    /// ECN: a packet is marked if it finds more bytes than this waiting.
    pub mark_above: Option<u64>,
    /// When switches send packets on.
    pub switching: Switching,
    /// Which of equal paths packets take.
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
}

/// The network, as a transport sees it: packets, times and flows.
#[derive(Debug)]
pub struct Fabric {
    now: Picos,
    seed: u64,
    topology: Topology,
    switching: Switching,
    balancing: Balancing,
    ports: Vec<Port>,
    arena: Arena,
    wheel: Wheel<Event>,
    flows: FlowMap<Live>,
    counters: Counters,
    /// What callbacks have left for the loop: hosts whose transport is to be asked for a packet, packets dropped, records.
    kicked: Vec<HostId>,
    dropped: Vec<Packet>,
    records: Vec<Record>,
}

impl Fabric {
    /// An empty network at time 0.
    pub fn new(topology: Topology, config: &Ports, seed: u64) -> Self {
        let mut spraying = stream(seed, Purpose::Spraying, 0);
        let ports = topology.edges().iter().map(|edge| {
            let card = matches!(edge.from, Node::Host(_));
            Port {
                rate: edge.rate,
                delay: edge.delay.0,
                busy_until: 0,
                wake: NEVER,
                pulls: false,
                spray: match edge.to {
                    Node::Switch(switch) => {
                        let widest = (0..topology.hosts())
                            .map(|to| topology.next_ports(switch, HostId(to)).len())
                            .max();
                        spraying.below(widest.unwrap_or(1).max(1) as u64) as u32
                    }
                    Node::Host(_) => 0,
                },
                buffer: if card {
                    config.card_buffer
                } else {
                    config.buffer
                },
                mark_above: config.mark_above.unwrap_or(u64::MAX),
                queue: Queue::new(&config.discipline, edge.rate.bps()),
                counters: PortCounters::default(),
            }
        });
        Self {
            now: Picos::ZERO,
            seed,
            ports: ports.collect(),
            switching: config.switching,
            balancing: config.balancing,
            topology,
            arena: Arena::new(),
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
    /// If it has been [acknowledged](Self::acknowledged), or has not started.
    #[inline]
    pub fn flow(&self, flow: FlowId) -> &Flow {
        &self.flows[&flow].flow
    }

    /// Whether a flow has started and is not acknowledged.
    pub fn is_live(&self, flow: FlowId) -> bool {
        self.flows.contains_key(&flow)
    }

    /// Puts a packet into the queue of a host's card.
    #[inline]
    pub fn send(&mut self, from: HostId, packet: Packet) {
        debug_assert!(
            from != packet.to && packet.to.0 < self.topology.hosts(),
            "{packet:?} from {from:?}"
        );
        self.counters.sent += u64::from(packet.size);
        let place = self.arena.insert(packet);
        self.offer(from.0, place);
    }

    /// Asks the transport for packets of this host, [`pull`](Transport::pull), now and whenever the host's card is idle,
    /// until it gives none.
    #[inline]
    pub fn kick(&mut self, host: HostId) {
        let now = self.now.0;
        let card = &mut self.ports[host.index()];
        if card.pulls {
            return;
        }
        card.pulls = true;
        if card.busy_until > now || card.wake != NEVER {
            self.serve_later(host.0);
        } else {
            self.kicked.push(host);
        }
    }

    /// Bytes that wait at a host's card, without the packet in transmission.
    pub fn card_backlog(&mut self, host: HostId) -> u64 {
        self.ports[host.index()].waiting(self.now.0)
    }

    /// Whether a host's card is neither sending nor has packets.
    pub fn card_is_idle(&mut self, host: HostId) -> bool {
        self.ports[host.index()].busy_until <= self.now.0 && self.card_backlog(host) == 0
    }

    /// Has the transport [woken](Transport::wake) at a time, not before now.
    #[inline]
    pub fn wake(&mut self, at: Picos, token: u64) {
        self.wheel.push(at.0.max(self.now.0), Event::Wake { token });
    }

    /// The last byte of a flow has reached its destination. The first call counts.
    pub fn finish(&mut self, flow: FlowId) {
        let now = self.now;
        if let Some(live) = self.flows.get_mut(&flow) {
            live.end.get_or_insert(now);
        }
    }

    /// The source of a flow has been told that all of it has arrived: its state is freed, its record goes out.
    pub fn acknowledged(&mut self, id: FlowId) {
        if let Some(Live { flow, end }) = self.flows.remove(&id) {
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

    /// A stream of random numbers for a transport.
    pub fn random(&self, purpose: Purpose, index: u64) -> Stream {
        stream(self.seed, purpose, index)
    }

    /// Time that a flow of full packets and a shorter last one takes on an empty path, and an acknowledgement of 40 bytes
    /// back. Where packets are sprayed, the last one may take another path than those before it.
    pub fn ideal(&self, flow: &Flow) -> Picos {
        let full = (flow.bytes - 1) / u64::from(SEGMENT);
        let last = (flow.bytes - full * u64::from(SEGMENT)) as u16 + (FULL_PACKET - SEGMENT);
        // When the first full packet, the last full one and the last one come to each port; the time between full ones.
        let (mut first, mut before, mut at, mut spacing) = (0, 0, 0, 0);
        let mut sprayed = false;
        for port in self.topology.path(flow.source, flow.destination) {
            let edge = &self.topology.edges()[port as usize];
            let on =
                |bytes| edge.delay.0 + edge.rate.time(forwarded(edge.to, bytes, self.switching)).0;
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
        self.counters
    }

    /// What has passed each port, in the order of [`Topology::edges`].
    pub fn port_counters(&self) -> impl Iterator<Item = &PortCounters> {
        self.ports.iter().map(|port| &port.counters)
    }

    /// A packet comes to a port.
    #[inline]
    fn offer(&mut self, number: u32, place: Place) {
        let now = self.now.0;
        let port = &mut self.ports[number as usize];
        let slot = &mut self.arena[place];
        slot.queued = now;
        let size = slot.packet.size;
        let waiting = port.waiting(now);
        if waiting > port.mark_above && slot.packet.ecn_capable {
            slot.packet.ecn = true;
            port.counters.marked += 1;
        }
        match &mut port.queue {
            Queue::Line(line) => {
                if waiting + u64::from(size) > port.buffer {
                    return self.drop(number, place);
                }
                let start = port.busy_until.max(now);
                if start > now {
                    line.push(start, size);
                    port.counters.most_bytes =
                        port.counters.most_bytes.max(waiting + u64::from(size));
                }
                self.transmit(number, place, start);
            }
            Queue::Link(direction) => {
                let packet = &slot.packet;
                let ecn = match (packet.ecn_capable, packet.ecn) {
                    (false, _) => link::Ecn::NotEct,
                    (true, false) => link::Ecn::Ect0,
                    (true, true) => link::Ecn::Ce,
                };
                let tag = link::Tag {
                    flow: u64::from(packet.flow.0),
                    ecn,
                };
                direction.accept_tagged(
                    to_link(self.now),
                    place,
                    link::Bytes(u64::from(size)),
                    tag,
                );
                let held = direction.held().bytes.0;
                port.counters.most_bytes = port.counters.most_bytes.max(held);
                self.poll(number, to_link(self.now));
            }
            queue => {
                if port.busy_until <= now && port.wake == NEVER && queue.is_empty() {
                    return self.transmit(number, place, now);
                }
                let mut full = queue.push(place, &self.arena, port.buffer);
                while full {
                    let Some(shed) = self.ports[number as usize].queue.shed(&self.arena) else {
                        break;
                    };
                    self.drop(number, shed);
                    let port = &mut self.ports[number as usize];
                    full = port.waiting(now) > port.buffer;
                }
                let port = &mut self.ports[number as usize];
                let waiting = port.waiting(now);
                port.counters.most_bytes = port.counters.most_bytes.max(waiting);
                self.serve_later(number);
            }
        }
    }

    /// A port begins to send a packet at `start`.
    #[inline]
    fn transmit(&mut self, number: u32, place: Place, start: u64) {
        let port = &mut self.ports[number as usize];
        let slot = &self.arena[place];
        let size = slot.packet.size;
        port.counters.packets += 1;
        port.counters.bytes += u64::from(size);
        port.counters.byte_picos += u128::from(start - slot.queued) * u128::from(size);
        self.counters.packet_hops += 1;
        port.busy_until = start + port.rate.time(size).0;
        let to = self.topology.edges()[number as usize].to;
        let needed = forwarded(to, size, self.switching);
        let reached = start + port.rate.time(needed).0 + port.delay;
        self.wheel.push(
            reached,
            Event::Reach {
                port: number,
                place,
            },
        );
    }

    /// Has a port served when it has sent what it is sending.
    #[inline]
    fn serve_later(&mut self, number: u32) {
        let port = &mut self.ports[number as usize];
        if port.wake == NEVER {
            port.wake = port.busy_until.max(self.now.0);
            self.wheel
                .push_turn(port.wake, Turn::Last, Event::Serve { port: number });
        }
    }

    fn drop(&mut self, number: u32, place: Place) {
        let packet = self.arena.remove(place);
        let counters = &mut self.ports[number as usize].counters;
        counters.dropped += 1;
        counters.dropped_bytes += u64::from(packet.size);
        self.counters.dropped += u64::from(packet.size);
        self.dropped.push(packet);
    }

    /// Sends on what a port with a discipline of `cellbed_link` has sent.
    fn poll(&mut self, number: u32, now: link::Time) {
        let next = loop {
            let Queue::Link(direction) = &mut self.ports[number as usize].queue else {
                return;
            };
            let Some(outcome) = direction.poll(now) else {
                break direction
                    .next_event()
                    .map_or(NEVER, |time| from_link(time).0);
            };
            let place = outcome.packet;
            if outcome.fate != link::Fate::Delivered {
                self.drop(number, place);
                continue;
            }
            let port = &mut self.ports[number as usize];
            let slot = &mut self.arena[place];
            slot.packet.ecn |= outcome.marked;
            port.counters.marked += u64::from(outcome.marked);
            let size = slot.packet.size;
            let left = from_link(outcome.departed).0;
            let start = left.saturating_sub(port.rate.time(size).0);
            port.counters.packets += 1;
            port.counters.bytes += u64::from(size);
            port.counters.byte_picos +=
                u128::from(start.saturating_sub(slot.queued)) * u128::from(size);
            self.counters.packet_hops += 1;
            self.wheel.push(
                left + port.delay,
                Event::Reach {
                    port: number,
                    place,
                },
            );
        };
        let port = &mut self.ports[number as usize];
        if next < port.wake {
            port.wake = next;
            self.wheel
                .push_turn(next, Turn::Last, Event::Serve { port: number });
        }
    }

    /// A port may send: begins with its next packet. Returns the host to be asked for one, if its card has none.
    #[inline]
    fn serve(&mut self, number: u32) -> Option<HostId> {
        let now = self.now.0;
        let port = &mut self.ports[number as usize];
        if port.wake != now {
            return None; // it has been served meanwhile
        }
        port.wake = NEVER;
        if let Queue::Link(_) = port.queue {
            self.poll(number, link::Time::from_nanos(now / 1_000));
            let port = &mut self.ports[number as usize];
            return (port.pulls && port.waiting(now) == 0).then_some(HostId(number));
        }
        if port.busy_until > now {
            self.serve_later(number);
            return None;
        }
        if let Some(place) = port.queue.pop(&self.arena) {
            let more = !port.queue.is_empty() || port.pulls;
            self.transmit(number, place, now);
            if more {
                self.serve_later(number);
            }
            return None;
        }
        port.pulls.then_some(HostId(number))
    }

    /// The port by which a packet that has come by another goes on from a switch.
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

    /// Debug builds: bytes are conserved.
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
            let reaching = self.wheel.iter().filter_map(|event| match event {
                Event::Reach { place, .. } => Some(u64::from(self.arena[*place].packet.size)),
                _ => None,
            });
            let waiting = self.ports.iter().map(|port| match &port.queue {
                Queue::Line(_) => 0, // its packets have their events
                Queue::Link(direction) => direction.held().bytes.0,
                queue => queue.bytes(),
            });
            let found = reaching.sum::<u64>() + waiting.sum::<u64>();
            debug_assert_eq!(
                found,
                self.arena.bytes(),
                "bytes in queues and on links at {:?}",
                self.now
            );
        }
    }
}

/// A run: a network, a transport and its flows.
#[derive(Debug)]
pub struct Simulation<T> {
    net: Fabric,
    transport: T,
    traffic: Traffic,
    /// The next flow.
    next: Option<Flow>,
}

impl<T: Transport> Simulation<T> {
    /// At time 0.
    pub fn new(mut net: Fabric, transport: T, mut traffic: Traffic) -> Self {
        let next = traffic.next();
        if let Some(flow) = &next {
            net.wheel.push(flow.start.0, Event::Start);
        }
        Self {
            net,
            transport,
            traffic,
            next,
        }
    }

    /// The network.
    pub fn fabric(&self) -> &Fabric {
        &self.net
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Runs to the end; see [`advance`](Self::advance).
    pub fn run(&mut self, mut sink: impl FnMut(Record)) {
        while self.advance(u64::MAX, &mut sink) {}
    }

    /// Processes at most `events` events; the records of flows that end go to `sink` in order. Returns whether more is to
    /// come: the run ends when all flows are over, or nothing can happen any more.
    pub fn advance(&mut self, events: u64, sink: &mut impl FnMut(Record)) -> bool {
        let until = self.net.counters.events.saturating_add(events);
        while self.net.counters.events < until {
            if self.next.is_none() && self.net.flows.is_empty() {
                return false;
            }
            let Some((at, event)) = self.net.wheel.pop() else {
                return false;
            };
            debug_assert!(at >= self.net.now.0);
            self.net.now = Picos(at);
            self.net.counters.events += 1;
            self.process(event);
            self.settle(sink);
            self.net.audit();
        }
        true
    }

    #[inline]
    fn process(&mut self, event: Event) {
        let Self { net, transport, .. } = self;
        match event {
            Event::Reach { port, place } => match net.topology.edges()[port as usize].to {
                Node::Switch(switch) => {
                    let next = net.next_port(port, switch, place);
                    net.offer(next, place);
                }
                Node::Host(host) => {
                    let packet = net.arena.remove(place);
                    net.counters.delivered += u64::from(packet.size);
                    transport.receive(net, host, packet);
                }
            },
            Event::Serve { port } => {
                if let Some(host) = net.serve(port) {
                    self.pull(host);
                }
            }
            Event::Wake { token } => transport.wake(net, token),
            Event::Start => {
                if let Some(flow) = std::mem::replace(&mut self.next, self.traffic.next()) {
                    let id = FlowId(net.counters.started as u32);
                    net.counters.started += 1;
                    net.flows.insert(id, Live { flow, end: None });
                    transport.start(net, id);
                }
                if let Some(next) = &self.next {
                    net.wheel.push(next.start.0, Event::Start);
                }
            }
        }
    }

    /// Asks the transport for the next packet of a host whose card is idle.
    fn pull(&mut self, host: HostId) {
        let Self { net, transport, .. } = self;
        match transport.pull(net, host) {
            Some(packet) => {
                net.send(host, packet);
                net.serve_later(host.0);
            }
            None => net.ports[host.index()].pulls = false,
        }
    }

    /// Does what callbacks have left to the loop.
    #[inline]
    fn settle(&mut self, sink: &mut impl FnMut(Record)) {
        while let Some(host) = self.net.kicked.pop() {
            if self.net.card_is_idle(host) {
                self.pull(host);
            } else {
                self.net.serve_later(host.0);
            }
        }
        while let Some(packet) = self.net.dropped.pop() {
            self.transport.dropped(&mut self.net, packet);
        }
        if !self.net.records.is_empty() {
            self.net.records.drain(..).for_each(sink);
        }
    }
}
