//! Arrivals of flows: Poisson arrivals with sizes from a distribution, or a list.

use super::flow::Flow;
use super::topology::{HEADER, Topology};
use crate::random::{Purpose, Stream, stream};
use crate::units::{HostId, Picos};

/// Bytes of a flow per full packet.
pub const FULL_PAYLOAD: u16 = 1460;
/// Bytes on the wire of a full packet.
pub const FULL_PACKET: u16 = FULL_PAYLOAD + HEADER;

/// A distribution of flow sizes: pairs of a size in bytes and the share of flows up to this size, linear in between.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    points: Vec<(f64, f64)>,
    /// Number of bytes of which each size is a multiple; at least one.
    multiple: u64,
}

impl Sizes {
    /// Return a distribution from sorted points, the last share 1. Sizes are rounded to multiples of `multiple` bytes.
    pub fn new(points: &[(f64, f64)], multiple: u64) -> Self {
        Self {
            points: points.to_vec(),
            multiple,
        }
    }

    /// Draw a size.
    pub fn draw(&self, random: &mut Stream) -> u64 {
        let share = random.unit();
        let above = self.points.partition_point(|point| point.1 < share);
        let (bytes, to) = self.points[above.min(self.points.len() - 1)];
        let size = match above.checked_sub(1) {
            Some(below) => {
                let (low, from) = self.points[below];
                low + (share - from) * (bytes - low) / (to - from)
            }
            None => bytes,
        };
        let multiples = (size / self.multiple as f64).round() as u64;
        multiples.max(1) * self.multiple
    }

    /// Return the mean before rounding, in bytes.
    pub fn mean(&self) -> f64 {
        let first = self.points[0].0 * self.points[0].1;
        let pairs = self.points.windows(2);
        first
            + pairs
                .map(|pair| (pair[1].1 - pair[0].1) * (pair[0].0 + pair[1].0) / 2.0)
                .sum::<f64>()
    }
}

/// Choice of senders and receivers.
#[derive(Clone, Copy, Debug, PartialEq, Default, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pattern {
    /// From any host to any other.
    #[default]
    AllToAll,
    /// From every host to one other; each host receives from one.
    Permutation,
    /// Each arrival is a number of flows of equal size that start at once, from different hosts to one other host.
    Incast {
        /// Number of senders.
        senders: u32,
    },
    /// A share of the flows goes from any other host to one host; the rest goes from any host to any other.
    ToOne {
        /// The host.
        host: u32,
        /// The share, 0 to 1.
        share: f64,
    },
}

/// The flows of a run, sorted by start.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Random flows.
    Poisson(Box<Poisson>),
    /// Given flows.
    List(std::vec::IntoIter<Flow>),
}

impl Traffic {
    /// Return the given flows, in any order, as traffic.
    pub fn list(mut flows: Vec<Flow>) -> Self {
        flows.sort_by_key(|flow| flow.start);
        Self::List(flows.into_iter())
    }
}

impl Iterator for Traffic {
    type Item = Flow;

    fn next(&mut self) -> Option<Flow> {
        match self {
            Self::Poisson(poisson) => poisson.next(),
            Self::List(flows) => flows.next(),
        }
    }
}

/// Flows that arrive as a Poisson process.
#[derive(Clone, Debug)]
pub struct Poisson {
    remaining: u64,
    hosts: u32,
    /// Mean time between arrivals, in picoseconds.
    gap: f64,
    now: f64,
    sizes: Sizes,
    pattern: Pattern,
    arrivals: Stream,
    lengths: Stream,
    pairs: Stream,
    /// Destination by source, for a permutation.
    destinations: Vec<u32>,
    /// Remaining flows of an incast: the flow, and its senders.
    batch: (Option<Flow>, Vec<u32>),
    /// Users, each with its host, which replace the host of [`Pattern::ToOne`].
    users: Option<(Vec<(u32, u32)>, Stream)>,
}

impl Poisson {
    /// Return `flows` flows at a load relative to the total rate of all cards, including headers.
    pub fn new(
        flows: u64,
        load: f64,
        sizes: Sizes,
        pattern: Pattern,
        topology: &Topology,
        seed: u64,
    ) -> Self {
        let hosts = topology.hosts();
        let bps: f64 = topology.edges()[..hosts as usize]
            .iter()
            .map(|card| card.rate.bps())
            .sum();
        let wire = sizes.mean() * f64::from(FULL_PACKET) / f64::from(FULL_PAYLOAD);
        let at_once = if let Pattern::Incast { senders } = pattern {
            f64::from(senders)
        } else {
            1.0
        };
        let mut pairs = stream(seed, Purpose::Pairs, 0);
        let destinations = match pattern {
            Pattern::Permutation => cycle(hosts, &mut pairs),
            _ => Vec::new(),
        };
        Self {
            remaining: flows,
            hosts,
            gap: 1e12 * wire * 8.0 * at_once / (load * bps),
            now: 0.0,
            sizes,
            pattern,
            arrivals: stream(seed, Purpose::Arrivals, 0),
            lengths: stream(seed, Purpose::Sizes, 0),
            pairs,
            destinations,
            batch: (None, Vec::new()),
            users: None,
        }
    }

    /// Distributes the flows of [`Pattern::ToOne`] uniformly among users: pairs of a host, and of a number there.
    pub fn with_users(self, users: Vec<(u32, u32)>, seed: u64) -> Self {
        let users = Some((users, stream(seed, Purpose::Users, 0)));
        Self { users, ..self }
    }

    /// Draw a host other than `host`.
    fn draw_other(&mut self, host: u32) -> u32 {
        let other = self.pairs.below(u64::from(self.hosts) - 1) as u32;
        other + u32::from(other >= host)
    }

    /// Draw a host.
    fn draw_host(&mut self) -> u32 {
        self.pairs.below(u64::from(self.hosts)) as u32
    }
}

/// Return a permutation without a fixed point: a single cycle (Sattolo, Information Processing Letters 22, 1986).
fn cycle(hosts: u32, random: &mut Stream) -> Vec<u32> {
    let mut all: Vec<u32> = (0..hosts).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u64) as usize);
    }
    all
}

impl Iterator for Poisson {
    type Item = Flow;

    fn next(&mut self) -> Option<Flow> {
        self.remaining = self.remaining.checked_sub(1)?;
        if let (Some(flow), senders) = &mut self.batch
            && let Some(sender) = senders.pop()
        {
            return Some(Flow {
                source: HostId(sender),
                ..*flow
            });
        }
        self.now += self.gap * self.arrivals.exponential();
        let mut user = None;
        let (source, destination) = match self.pattern {
            Pattern::AllToAll => {
                let source = self.draw_host();
                (source, self.draw_other(source))
            }
            Pattern::Permutation => {
                let source = self.draw_host();
                (source, self.destinations[source as usize])
            }
            Pattern::ToOne { host, share } => {
                let destination = if self.pairs.unit() < share {
                    match self.users.as_mut() {
                        Some((users, random)) => {
                            let place = random.below(users.len() as u64);
                            let (host, number) = users[place as usize];
                            user = Some(number);
                            host
                        }
                        None => host,
                    }
                } else {
                    self.draw_host()
                };
                (self.draw_other(destination), destination)
            }
            Pattern::Incast { senders } => {
                let destination = self.draw_host();
                let mut chosen: Vec<u32> = (0..self.hosts)
                    .filter(|&host| host != destination)
                    .collect();
                for place in 0..senders as usize {
                    let from = place as u64 + self.pairs.below((chosen.len() - place) as u64);
                    chosen.swap(place, from as usize);
                }
                chosen.truncate(senders as usize);
                self.batch.1 = chosen;
                (self.batch.1.pop()?, destination)
            }
        };
        let flow = Flow {
            source: HostId(source),
            destination: HostId(destination),
            user,
            bytes: self.sizes.draw(&mut self.lengths),
            start: Picos(self.now.round() as u64),
        };
        self.batch.0 = Some(flow);
        Some(flow)
    }
}
