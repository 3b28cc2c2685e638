//! An ideal Fastpass: an arbiter decides when each packet leaves and by which path (Perry et al., "Fastpass: A centralized
//! zero-queue datacenter network", SIGCOMM 2014).
//!
//! Time is divided into slots of one packet. In each slot a source sends to one destination at most and a destination
//! receives from one source at most: a maximal matching of what is requested, taken greedily in the order of the objective
//! (§3). The paths of a slot are an edge colouring of it, so that no link carries more than its share (§4). Ideal means that
//! requests and allotments take a fixed delay, 0 unless configured, and no bandwidth.

use std::collections::BTreeSet;

use super::arrivals::Arrivals;
use super::{Constants, MobileUsers, Transport, packets, wire_size};
use crate::units::{FlowId, HostId, Picos};
use crate::{FULL_PACKET, Fabric, FlowMap, HEADER, Kind, Node, Packet};

const DATA: Kind = Kind(0);
const ACKNOWLEDGEMENT: Kind = Kind(1);
/// The token of the arbiter's slots; others are numbers of flows.
const SLOT: u64 = 1 << 33;
/// The bit of a token by which packets that have not arrived are requested again.
const AGAIN: u64 = 1 << 32;

/// Objective of the arbiter (§3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The flow with the fewest packets left.
    #[default]
    Shortest,
    /// The flow that has waited longest since its last packet.
    Fair,
}

/// Constants.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FastpassConfig {
    /// Objective of the arbiter.
    pub objective: Objective,
    /// From a host to the arbiter, and the same back.
    pub arbiter_delay_ps: Picos,
    /// Packets that are missing are requested again so long after the last one's acknowledgement would have come.
    pub repeat_ps: Picos,
}

impl Default for FastpassConfig {
    fn default() -> Self {
        Self {
            objective: Objective::Shortest,
            arbiter_delay_ps: Picos::ZERO,
            repeat_ps: Picos::from_millis(1),
        }
    }
}

impl Constants for FastpassConfig {
    type Hosts = FastpassHosts;
    const MOBILE: MobileUsers = MobileUsers::CentralUnit;

    fn hosts(self, net: &Fabric) -> FastpassHosts {
        FastpassHosts::new(self, net)
    }
}

/// The arbiter and all hosts.
#[derive(Debug)]
pub struct FastpassHosts {
    constants: FastpassConfig,
    /// Room for a full packet and an acknowledgement at the rate of the hosts' links.
    slot: Picos,
    /// Requests in the order in which they are served.
    requests: BTreeSet<(u64, FlowId)>,
    /// True if the next slot is scheduled.
    ticking: bool,
    flows: FlowMap<State>,
    colours: Colours,
    /// Slot in which a host last sent, and last received.
    sent: Vec<u64>,
    received: Vec<u64>,
}

#[derive(Debug)]
struct State {
    source: HostId,
    destination: HostId,
    bytes: u64,
    /// Packets that wait for a slot, the first last.
    waiting: Vec<u32>,
    arrived: Arrivals,
}

impl FastpassHosts {
    pub(super) fn new(constants: FastpassConfig, net: &Fabric) -> Self {
        let hosts = net.topology().hosts();
        let slowest = (0..hosts).map(|host| net.card_rate(HostId(host)).time(FULL_PACKET + HEADER));
        Self {
            constants,
            slot: slowest.max().unwrap_or(Picos(1)),
            requests: BTreeSet::new(),
            ticking: false,
            flows: FlowMap::default(),
            colours: Colours::new(net),
            sent: vec![u64::MAX; hosts as usize],
            received: vec![u64::MAX; hosts as usize],
        }
    }

    fn key(&self, slot: u64, state: &State) -> u64 {
        match self.constants.objective {
            Objective::Shortest => state.waiting.len() as u64,
            Objective::Fair => slot,
        }
    }

    /// The arbiter learns of packets that wait.
    fn request(&mut self, net: &mut Fabric, id: FlowId) {
        let now = net.now().0.div_ceil(self.slot.0);
        let Some(state) = self.flows.get(&id).filter(|it| !it.waiting.is_empty()) else {
            return;
        };
        self.requests.insert((self.key(now, state), id));
        if !std::mem::replace(&mut self.ticking, true) {
            net.wake(Picos(now * self.slot.0), SLOT);
        }
    }

    /// Allots the slot that begins now.
    fn allot(&mut self, net: &mut Fabric) {
        let number = net.now().0 / self.slot.0;
        let mut free = self.sent.len();
        let mut chosen = Vec::new();
        for &(key, id) in &self.requests {
            let state = &self.flows[&id];
            let (source, destination) = (state.source.index(), state.destination.index());
            if self.sent[source] != number && self.received[destination] != number {
                (self.sent[source], self.received[destination]) = (number, number);
                chosen.push((key, id));
                free -= 1;
                if free == 0 {
                    break;
                }
            }
        }
        self.colours.clear();
        for &(key, id) in &chosen {
            let state = self.flows.get_mut(&id).expect("it has a request");
            let sequence = state.waiting.pop().expect("it waits");
            self.colours.add(state.source, state.destination);
            let size = wire_size(state.bytes, sequence);
            let data = Packet::new(id, state.destination, DATA, size);
            let data = Packet {
                sequence,
                priority: 1,
                ..data
            };
            self.colours.packets.push((state.source, data));
            self.requests.remove(&(key, id));
            let state = &self.flows[&id];
            if state.waiting.is_empty() {
                let (there, back) = (state.source, state.destination);
                let (topology, switching) = (net.topology(), net.switching());
                let answered = net.now()
                    + topology.latency(there, back, FULL_PACKET, switching)
                    + topology.latency(back, there, HEADER, switching);
                net.wake(answered + self.constants.repeat_ps, AGAIN | u64::from(id.0));
            } else {
                self.requests.insert((self.key(number + 1, state), id));
            }
        }
        self.colours.send(net);
        self.ticking = !self.requests.is_empty();
        if self.ticking {
            net.wake(net.now() + self.slot, SLOT);
        }
    }
}

impl Transport for FastpassHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let state = State {
            source: flow.source,
            destination: flow.destination,
            bytes: flow.bytes,
            waiting: (0..packets(flow.bytes)).rev().collect(),
            arrived: Arrivals::default(),
        };
        self.flows.insert(id, state);
        if self.constants.arbiter_delay_ps == Picos::ZERO {
            return self.request(net, id);
        }
        // The request goes to the arbiter, the allotment comes back.
        let delay = 2 * self.constants.arbiter_delay_ps.0;
        net.wake(net.now() + Picos(delay), u64::from(id.0));
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let id = packet.flow;
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        if packet.kind == ACKNOWLEDGEMENT {
            let state = self.flows.remove(&id);
            if state.is_some_and(|it| !it.waiting.is_empty()) {
                self.requests.retain(|&(_, it)| it != id); // to send again what was on its way
            }
            return net.acknowledged(id);
        }
        state.arrived.insert(packet.sequence);
        if state.arrived.count() == packets(state.bytes) {
            net.finish(id);
            net.send(at, Packet::new(id, state.source, ACKNOWLEDGEMENT, HEADER));
        }
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        if token == SLOT {
            return self.allot(net);
        }
        let id = FlowId(token as u32);
        if token & AGAIN != 0
            && let Some(state) = self.flows.get_mut(&id).filter(|it| it.waiting.is_empty())
        {
            let all = packets(state.bytes);
            let missing = |packet: &u32| !state.arrived.contains(*packet);
            state.waiting = (0..all).rev().filter(missing).collect();
            if state.waiting.is_empty() {
                state.waiting.push(all - 1); // the acknowledgement is missing
            }
        }
        self.request(net, id);
    }
}

/// The paths of a slot. Its packets are edges between racks; a colour is a share of a path, and the edges at a rack have
/// different ones (§4). A bipartite graph needs no more colours than a rack has edges (Kőnig): where the two racks of an edge
/// have no free colour in common, the colours of a chain of edges are exchanged.
#[derive(Debug)]
struct Colours {
    /// Of each host, the switch at its link.
    rack: Vec<u32>,
    /// Hosts of the largest rack: that many colours are enough.
    most: usize,
    /// Equal paths between racks.
    paths: usize,
    packets: Vec<(HostId, Packet)>,
    edges: Vec<Edge>,
    /// By rack and colour, the edge that leaves it, and the one that comes to it.
    out: Vec<Option<u32>>,
    into: Vec<Option<u32>>,
    chain: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    colour: usize,
}

impl Colours {
    fn new(net: &Fabric) -> Self {
        let topology = net.topology();
        let cards = &topology.edges()[..topology.hosts() as usize];
        let switch = |node| match node {
            Node::Switch(switch) => switch,
            Node::Host(_) => 0, // a cable between two hosts
        };
        let rack: Vec<u32> = cards.iter().map(|card| switch(card.to)).collect();
        let mut sizes = vec![0; rack.iter().max().map_or(0, |&last| last as usize + 1)];
        rack.iter().for_each(|&rack| sizes[rack as usize] += 1);
        let most = sizes.iter().copied().max().unwrap_or(0);
        let paths = (0..topology.hosts()).map(|to| match cards[0].to {
            Node::Switch(switch) => topology.next_ports(switch, HostId(to)).len(),
            Node::Host(_) => 1,
        });
        Self {
            paths: paths.max().unwrap_or(1),
            out: vec![None; sizes.len() * most],
            into: vec![None; sizes.len() * most],
            rack,
            most,
            packets: Vec::new(),
            edges: Vec::new(),
            chain: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.packets.clear();
        self.edges.clear();
        self.out.fill(None);
        self.into.fill(None);
    }

    /// Adds the path of a packet.
    fn add(&mut self, source: HostId, destination: HostId) {
        let (from, to) = (self.rack[source.index()], self.rack[destination.index()]);
        let colour = if from == to {
            0
        } else {
            self.free_colour(from, to)
        };
        self.edges.push(Edge { from, to, colour });
        if from != to {
            self.mark(self.edges.len() as u32 - 1);
        }
    }

    /// A colour that neither an edge from one rack nor an edge to the other has.
    fn free_colour(&mut self, from: u32, to: u32) -> usize {
        let most = self.most;
        let free = |taken: &[Option<u32>], rack: u32| {
            let taken = &taken[rack as usize * most..][..most];
            taken.iter().position(Option::is_none).unwrap_or(0)
        };
        let (one, other) = (free(&self.out, from), free(&self.into, to));
        // The chain of edges with these colours in turn that begins at the destination's rack; it never comes to the source's.
        let (mut rack, mut colour, mut inwards) = (to, one, true);
        self.chain.clear();
        loop {
            let taken = if inwards { &self.into } else { &self.out };
            let Some(edge) = taken[rack as usize * most + colour] else {
                break;
            };
            self.chain.push(edge);
            let Edge { from, to, .. } = self.edges[edge as usize];
            rack = if inwards { from } else { to };
            colour = one + other - colour;
            inwards = !inwards;
        }
        for &edge in &self.chain {
            let Edge { from, to, colour } = self.edges[edge as usize];
            self.out[from as usize * most + colour] = None;
            self.into[to as usize * most + colour] = None;
        }
        for index in 0..self.chain.len() {
            let edge = self.chain[index];
            let colour = &mut self.edges[edge as usize].colour;
            *colour = one + other - *colour;
            self.mark(edge);
        }
        one
    }

    fn mark(&mut self, index: u32) {
        let Edge { from, to, colour } = self.edges[index as usize];
        self.out[from as usize * self.most + colour] = Some(index);
        self.into[to as usize * self.most + colour] = Some(index);
    }

    fn send(&mut self, net: &mut Fabric) {
        for (&(source, packet), edge) in self.packets.iter().zip(&self.edges) {
            let path = 1 + (edge.colour % self.paths) as u8;
            net.send(source, Packet { path, ..packet });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};
    use crate::{Ports, Topology};

    #[test]
    fn each_rack_has_a_colour_once_in_each_direction() {
        let topology = Topology::leaf_spine(9, 16, 4, 10e9, 40e9, Picos(200_000)).unwrap();
        let mut colours = Colours::new(&Fabric::new(topology, &Ports::default(), 1));
        let mut random = stream(1, Purpose::Pairs, 0);
        for _ in 0..100 {
            // A permutation of all hosts: every link of the racks is full.
            let mut to: Vec<u32> = (0..144).collect();
            for last in (1..to.len()).rev() {
                to.swap(last, random.below(last as u64 + 1) as usize);
            }
            colours.clear();
            for (from, &to) in to.iter().enumerate() {
                colours.add(HostId(from as u32), HostId(to));
            }
            let mut up = [[0; 4]; 9];
            let mut down = [[0; 4]; 9];
            for edge in colours.edges.iter().filter(|edge| edge.from != edge.to) {
                up[edge.from as usize][edge.colour % 4] += 1;
                down[edge.to as usize][edge.colour % 4] += 1;
            }
            // Four packets of 10 Gbit/s hosts are what a link of 40 Gbit/s carries in a slot.
            assert!(
                up.iter()
                    .chain(&down)
                    .flatten()
                    .all(|&packets| packets <= 4)
            );
        }
    }
}
