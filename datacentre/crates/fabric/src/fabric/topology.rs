//! Hosts, switches, the links between them, and the shortest paths.

use std::collections::VecDeque;

use crate::units::{HostId, Picos, Rate};

/// When a switch forwards a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switching {
    /// As soon as the header of [`HEADER`] bytes has arrived.
    #[default]
    CutThrough,
    /// When the whole packet has arrived.
    StoreAndForward,
}

/// Bytes of a packet that a cut-through switch needs.
pub const HEADER: u16 = 40;

/// Choice among several equal paths of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balancing {
    /// Each path in turn: a counter per incoming link of a switch.
    #[default]
    Spray,
    /// The same path for all packets of a flow in a direction, by a hash.
    Ecmp,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A host.
    Host(HostId),
    /// A switch, by number from 0.
    Switch(u32),
}

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Node of the port.
    pub from: Node,
    /// Node at the other end.
    pub to: Node,
    /// Rate of the link.
    pub rate: Rate,
    /// Time from the end of a bit's transmission to the next node's queue.
    pub delay: Picos,
}

/// A network: hosts with one link each, switches, and all shortest paths.
#[derive(Clone, Debug)]
pub struct Topology {
    hosts: u32,
    /// Port h belongs to host h; the switches' ports follow.
    edges: Vec<Edge>,
    /// The last hop to each host, unused if two hosts share a cable.
    last_hops: Vec<LastHop>,
    /// For `leaf` · switches + switch: the first of the equal next ports in `choices`, and their number.
    routes: Vec<(u32, u16)>,
    choices: Vec<u32>,
    switches: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct LastHop {
    switch: u32,
    port: u32,
    /// Number of the switch among the switches with hosts.
    leaf: u32,
}

impl Topology {
    /// Return racks of hosts, each with a switch linked to every spine. Host h is in rack h / `hosts_per_rack`.
    pub fn leaf_spine(
        racks: u32,
        hosts_per_rack: u32,
        spines: u32,
        host_bps: f64,
        core_bps: f64,
        hop: Picos,
    ) -> Self {
        let hosts = racks.saturating_mul(hosts_per_rack);
        let switches = racks.saturating_add(spines);
        let mut links = Vec::new();
        for host in 0..hosts {
            links.push((host, hosts + host / hosts_per_rack, host_bps, hop));
        }
        for rack in 0..racks {
            for spine in 0..spines {
                links.push((hosts + rack, hosts + racks + spine, core_bps, hop));
            }
        }
        Self::graph(hosts, switches, &links)
    }

    /// Return any network: nodes 0 to `hosts` − 1 are hosts, the `switches` follow. links: two nodes, rate in bits per
    /// second, delay.
    pub fn graph(hosts: u32, switches: u32, links: &[(u32, u32, f64, Picos)]) -> Self {
        let mut by_host = vec![None; hosts as usize];
        let mut inner = Vec::new();
        for &(a, b, bps, delay) in links {
            for (from, to) in [(a, b), (b, a)] {
                let node = |number: u32| {
                    number
                        .checked_sub(hosts)
                        .map_or(Node::Host(HostId(number)), Node::Switch)
                };
                let edge = Edge {
                    from: node(from),
                    to: node(to),
                    rate: Rate::from_bps(bps),
                    delay,
                };
                if let Node::Host(host) = edge.from {
                    by_host[host.index()] = Some(edge);
                } else {
                    inner.push(edge);
                }
            }
        }
        let mut edges: Vec<Edge> = by_host.into_iter().flatten().collect();
        edges.extend(inner);
        let mut topology = Self {
            hosts,
            edges,
            last_hops: vec![LastHop::default(); hosts as usize],
            routes: Vec::new(),
            choices: Vec::new(),
            switches,
        };
        topology.route();
        topology
    }

    /// Find all shortest paths, by breadth-first search from each node with attached hosts.
    fn route(&mut self) {
        let switches = self.switches as usize;
        let mut out: Vec<Vec<u32>> = vec![Vec::new(); switches];
        for (port, edge) in self.edges.iter().enumerate() {
            if let Node::Switch(switch) = edge.from {
                out[switch as usize].push(port as u32);
            }
        }
        let mut attached: Vec<Vec<u32>> = vec![Vec::new(); switches];
        for host in 0..self.hosts {
            // Otherwise a cable joins two hosts.
            if let Node::Switch(switch) = self.edges[host as usize].to {
                attached[switch as usize].push(host);
            }
        }
        let leaves = (0..switches).filter(|&switch| !attached[switch].is_empty());
        for (leaf, root) in leaves.enumerate() {
            self.routes.resize((leaf + 1) * switches, (0, 0));
            let mut distance = vec![u32::MAX; switches];
            distance[root] = 0;
            let mut queue = VecDeque::from([root]);
            while let Some(switch) = queue.pop_front() {
                // Links are bidirectional: a switch has the same neighbours for sending and receiving.
                for &port in &out[switch] {
                    if let Node::Switch(next) = self.edges[port as usize].to
                        && distance[next as usize] == u32::MAX
                    {
                        distance[next as usize] = distance[switch] + 1;
                        queue.push_back(next as usize);
                    }
                }
            }
            for switch in 0..switches {
                if switch == root {
                    continue;
                }
                let nearer = |port: &&u32| match self.edges[**port as usize].to {
                    Node::Switch(next) => {
                        distance[switch] != u32::MAX
                            && distance[next as usize] + 1 == distance[switch]
                    }
                    Node::Host(_) => false,
                };
                let first = self.choices.len();
                self.choices.extend(out[switch].iter().filter(nearer));
                let group = (first as u32, (self.choices.len() - first) as u16);
                self.routes[leaf * switches + switch] = group;
            }
            for &port in &out[root] {
                if let Node::Host(host) = self.edges[port as usize].to {
                    self.last_hops[host.index()] = LastHop {
                        switch: root as u32,
                        port,
                        leaf: leaf as u32,
                    };
                }
            }
        }
    }

    /// Return the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Return the directions of links, in order of their ports: port h is the card of host h.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Return the ports of a switch on shortest paths to a host.
    #[inline]
    pub fn next_ports(&self, switch: u32, to: HostId) -> &[u32] {
        let last_hop = &self.last_hops[to.index()];
        if last_hop.switch == switch {
            return std::slice::from_ref(&last_hop.port);
        }
        let route = last_hop.leaf as usize * self.switches as usize + switch as usize;
        let (first, count) = self.routes[route];
        &self.choices[first as usize..first as usize + usize::from(count)]
    }

    /// Return the maximum number of ports from which a switch can choose for a packet, at least 1.
    pub fn most_ways(&self, switch: u32) -> usize {
        let ways = (0..self.hosts).map(|to| self.next_ports(switch, HostId(to)).len());
        ways.max().unwrap_or(1).max(1)
    }

    /// Return the ports of a shortest path, the first of each choice.
    pub fn path(&self, from: HostId, to: HostId) -> impl Iterator<Item = u32> + '_ {
        let mut port = Some(from.0);
        std::iter::from_fn(move || {
            let this = port?;
            port = match self.edges[this as usize].to {
                Node::Host(_) => None,
                Node::Switch(switch) => self.next_ports(switch, to).first().copied(),
            };
            Some(this)
        })
    }

    /// Return the time from the first bit at `from` until the last bit of a packet at `to`, on an empty path.
    pub fn latency(&self, from: HostId, to: HostId, bytes: u16, switching: Switching) -> Picos {
        self.path(from, to)
            .map(|port| {
                let edge = &self.edges[port as usize];
                edge.delay + edge.rate.time(forwarded_bytes(edge.to, bytes, switching))
            })
            .fold(Picos::ZERO, |sum, part| sum + part)
    }
}

/// Return the bytes of a packet that must be sent before the node at the other end processes it.
#[inline]
pub(super) fn forwarded_bytes(to: Node, bytes: u16, switching: Switching) -> u16 {
    match (to, switching) {
        (Node::Switch(_), Switching::CutThrough) => bytes.min(HEADER),
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> Topology {
        Topology::leaf_spine(9, 16, 4, 10e9, 40e9, Picos(200_000))
    }

    #[test]
    fn a_leaf_spine_has_one_path_in_a_rack_and_one_by_each_spine_beyond() {
        let topology = paper();
        assert_eq!(
            (topology.hosts(), topology.edges().len()),
            (144, 2 * (144 + 36))
        );
        assert_eq!(topology.path(HostId(0), HostId(15)).count(), 2);
        assert_eq!(topology.path(HostId(0), HostId(16)).count(), 4);
        assert_eq!(topology.next_ports(0, HostId(16)).len(), 4);
        assert_eq!(topology.next_ports(0, HostId(3)).len(), 1);
        for spine in 9..13 {
            assert_eq!(topology.next_ports(spine, HostId(143)).len(), 1);
        }
    }

    #[test]
    fn latency_of_an_empty_path() {
        // 1500 B in a rack: 40 B at 10 Gbit/s, 1500 B at 10 Gbit/s, two hops of 200 ns; across racks additionally two
        // times 40 B at 40 Gbit/s.
        let topology = paper();
        let in_rack = 32_000 + 1_200_000 + 400_000;
        assert_eq!(
            topology.latency(HostId(0), HostId(1), 1500, Switching::CutThrough),
            Picos(in_rack)
        );
        assert_eq!(
            topology.latency(HostId(0), HostId(99), 1500, Switching::CutThrough),
            Picos(in_rack + 2 * 8_000 + 400_000)
        );
        assert_eq!(
            topology.latency(HostId(0), HostId(99), 1500, Switching::StoreAndForward),
            Picos(2 * 1_200_000 + 2 * 300_000 + 800_000)
        );
    }

    #[test]
    fn a_graph_finds_the_shortest_of_its_paths() {
        // A ring of four switches with one host each: two paths lead to the opposite host.
        let hop = Picos(1000);
        let mut links: Vec<_> = (0..4).map(|host| (host, 4 + host, 1e9, hop)).collect();
        links.extend((0..4).map(|switch| (4 + switch, 4 + (switch + 1) % 4, 1e9, hop)));
        let ring = Topology::graph(4, 4, &links);
        assert_eq!(ring.next_ports(0, HostId(2)).len(), 2);
        assert_eq!(ring.next_ports(0, HostId(1)).len(), 1);
        assert_eq!(ring.path(HostId(0), HostId(2)).count(), 4);
    }
}
