//! Queue lengths over time.

use super::{Node, Topology};
use crate::units::Picos;

/// Maximum instants kept; beyond it, every other one is dropped and the interval doubled.
const MOST: usize = 1 << 16;

/// Samples of waiting bytes, over the ports that join nodes of the same two kinds.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Initial interval between two samples.
    pub interval_ps: Picos,
    /// Number of each node's kind: first of hosts, then of switches.
    pub kinds: Vec<u16>,
}

/// Bytes waiting at the ports from nodes of one kind to nodes of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Picos,
    /// Kind of the nodes with the ports.
    pub from: u16,
    /// Kind of the nodes behind the ports.
    pub to: u16,
    /// Mean bytes over the ports.
    pub mean_bytes: f64,
    /// Bytes at the port with the longest queue.
    pub most_bytes: u64,
}

/// Takes samples.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) interval: Picos,
    /// Group of each port; kinds and number of ports of each group.
    group_of: Vec<usize>,
    groups: Vec<(u16, u16, u32)>,
    pub(super) samples: Vec<Sample>,
}

impl Sampler {
    pub(super) fn new(config: &Sampling, topology: &Topology) -> Self {
        let kind = |node: Node| {
            let number = match node {
                Node::Host(host) => host.0,
                Node::Switch(switch) => topology.hosts() + switch,
            };
            config.kinds.get(number as usize).copied().unwrap_or(0)
        };
        let mut groups: Vec<(u16, u16, u32)> = Vec::new();
        let group_of = topology.edges().iter().map(|edge| {
            let (from, to) = (kind(edge.from), kind(edge.to));
            let known = groups.iter().position(|it| (it.0, it.1) == (from, to));
            let group = known.unwrap_or_else(|| {
                groups.push((from, to, 0));
                groups.len() - 1
            });
            groups[group].2 += 1;
            group
        });
        Self {
            interval: Picos(config.interval_ps.0.max(1)),
            group_of: group_of.collect(),
            groups,
            samples: Vec::new(),
        }
    }

    /// Take a sample of each group. waiting: bytes at each port.
    pub(super) fn take(&mut self, at: Picos, waiting: impl Iterator<Item = u64>) {
        let mut found = vec![(0, 0); self.groups.len()];
        for (&group, bytes) in self.group_of.iter().zip(waiting) {
            let (sum, most): &mut (u64, u64) = &mut found[group];
            *sum += bytes;
            *most = bytes.max(*most);
        }
        let groups = self.groups.iter().zip(found);
        self.samples.extend(
            groups.map(|(&(from, to, ports), (sum, most_bytes))| Sample {
                at,
                from,
                to,
                mean_bytes: sum as f64 / f64::from(ports),
                most_bytes,
            }),
        );
        if self.samples.len() > MOST * self.groups.len() {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                ((place - 1) / self.groups.len()).is_multiple_of(2)
            });
            self.interval = self.interval + self.interval;
        }
    }
}
