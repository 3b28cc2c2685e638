//! A run as data, which `cellbed simulate` writes as JSON. Keys end in the unit.

use crate::error::DescriptionError;
use crate::ran::{LoadOf, RanConfig};
use crate::random::nth_seed;
use crate::transport::{AnyTransport, TransportConfig};
use crate::units::{HostId, Picos};
use crate::{
    Balancing, Discipline, FULL_PAYLOAD, Fabric, Flow, Pattern, Poisson, Ports, Sampling,
    Simulation, Sizes, Switching, Topology, Traffic, Transport,
};

/// A run.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Nodes, links and ports.
    pub topology: TopologyDescription,
    /// Transport protocol of the hosts.
    pub transport: TransportConfig,
    /// Flows of the hosts.
    pub traffic: TrafficDescription,
    /// Radio access networks, each behind one of the hosts. Random traffic includes flows to their users, by `share`
    /// and `load_of` of the first.
    #[serde(default)]
    pub radio: Vec<RanConfig>,
    /// Latest end of the run. Flows that are open then have no record.
    #[serde(default)]
    pub until_ps: Option<Picos>,
    /// Samples of the queues.
    #[serde(default)]
    pub sampling: Option<Sampling>,
}

/// Nodes, links and ports.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct TopologyDescription {
    /// Nodes and links.
    #[serde(flatten)]
    pub shape: Shape,
    /// Maximum bytes waiting at a switch's port.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: u64,
    /// Maximum bytes waiting at a host's card, if different.
    #[serde(default)]
    pub card_buffer_bytes: Option<u64>,
    /// Discipline of the ports, if not the default of the transport.
    #[serde(default)]
    pub discipline: Option<Discipline>,
    /// ECN: a packet is marked if more bytes than this wait at a switch when it arrives.
    #[serde(default)]
    pub mark_above_bytes: Option<u64>,
    /// When switches forward packets.
    #[serde(default)]
    pub switching: Switching,
    /// Choice among equal paths.
    #[serde(default)]
    pub balancing: Balancing,
}

fn buffer_bytes() -> u64 {
    36_864
}

/// Nodes and links.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Shape {
    /// Racks of hosts below spines.
    LeafSpine {
        /// Number of racks.
        racks: u32,
        /// Hosts per rack.
        hosts_per_rack: u32,
        /// Number of spines.
        spines: u32,
        /// Rate of hosts' links.
        host_bps: f64,
        /// Rate of links between racks and spines.
        core_bps: f64,
        /// Propagation and switching delay per link.
        hop_ps: Picos,
    },
    /// Any network: hosts are nodes 0 to `hosts` − 1, the switches follow.
    Graph {
        /// Number of hosts.
        hosts: u32,
        /// Number of switches.
        switches: u32,
        /// Links: two nodes, rate in bits per second, delay in picoseconds.
        links: Vec<(u32, u32, f64, Picos)>,
    },
}

impl Shape {
    fn build(&self) -> Topology {
        match self {
            &Self::LeafSpine {
                racks,
                hosts_per_rack,
                spines,
                host_bps,
                core_bps,
                hop_ps,
            } => Topology::leaf_spine(racks, hosts_per_rack, spines, host_bps, core_bps, hop_ps),
            Self::Graph {
                hosts,
                switches,
                links,
            } => Topology::graph(*hosts, *switches, links),
        }
    }
}

/// Source of the flows.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum TrafficDescription {
    /// Given flows.
    Trace {
        /// The flows.
        trace: Vec<TraceFlow>,
    },
    /// Poisson arrivals.
    Random {
        /// Number of flows.
        flows: u64,
        /// Load relative to the total rate of all hosts' cards, headers included.
        load: f64,
        /// Sizes in bytes, each with the share of flows up to this size.
        sizes: Vec<(f64, f64)>,
        /// Number of bytes of which each size is a multiple.
        #[serde(default = "size_multiple_bytes")]
        size_multiple_bytes: u64,
        /// Choice of senders and receivers.
        #[serde(default)]
        pattern: Pattern,
    },
}

fn size_multiple_bytes() -> u64 {
    u64::from(FULL_PAYLOAD)
}

/// A given flow: bytes, source, destination, start, and the user behind the destination, if any.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
pub struct TraceFlow(u64, u32, u32, Picos, #[serde(default)] Option<u32>);

impl TraceFlow {
    fn flow(&self) -> Flow {
        let Self(bytes, source, destination, start, user) = *self;
        Flow {
            source: HostId(source),
            destination: HostId(destination),
            user,
            bytes,
            start,
        }
    }
}

impl Description {
    /// Return the run, at time 0.
    pub fn simulation(&self) -> Result<Simulation<AnyTransport>, DescriptionError> {
        self.run(|net| {
            let transport = self.transport.transport(net, self.seed);
            match &self.radio[..] {
                [] => Ok(transport),
                radio => {
                    transport.with_rans(self.transport.mobile_users(), radio.to_vec(), self.seed)
                }
            }
        })
    }

    /// Return the run, at time 0, with another transport of the hosts.
    pub fn run<T: Transport>(
        &self,
        hosts: impl FnOnce(&Fabric) -> Result<T, DescriptionError>,
    ) -> Result<Simulation<T>, DescriptionError> {
        let shape = &self.topology;
        let topology = shape.shape.build();
        for radio in &self.radio {
            radio.check().map_err(|it| it.within("radio"))?;
        }
        let traffic = self.flows(&topology);
        let ports = Ports {
            discipline: shape.discipline.unwrap_or(self.transport.discipline()),
            buffer: shape.buffer_bytes,
            card_buffer: shape.card_buffer_bytes.unwrap_or(shape.buffer_bytes),
            mark_above: shape.mark_above_bytes.or(self.transport.mark_above()),
            switching: shape.switching,
            balancing: shape.balancing,
        };
        let mut net = Fabric::new(topology, &ports, self.seed);
        for radio in self.radio.iter().filter(|it| !it.through.is_empty()) {
            let stops = radio.through.iter().map(|&it| HostId(it)).collect();
            net.add_passage(HostId(radio.host), stops, radio.through_ps);
        }
        let transport = hosts(&net).map_err(|it| it.within("radio"))?;
        let mut simulation = Simulation::new(net, transport, traffic);
        if let Some(end) = self.until_ps {
            simulation = simulation.with_end(end);
        }
        if let Some(sampling) = &self.sampling {
            simulation = simulation.with_sampling(sampling);
        }
        Ok(simulation)
    }

    fn flows(&self, topology: &Topology) -> Traffic {
        let (count, load, sizes, multiple, pattern) = match &self.traffic {
            TrafficDescription::Trace { trace } => {
                return Traffic::list(trace.iter().map(TraceFlow::flow).collect());
            }
            TrafficDescription::Random {
                flows,
                load,
                sizes,
                size_multiple_bytes,
                pattern,
            } => (*flows, *load, sizes, *size_multiple_bytes, *pattern),
        };
        let sizes = Sizes::new(sizes, multiple);
        let poisson =
            |load, pattern| Poisson::new(count, load, sizes, pattern, topology, self.seed);
        let poisson = match &self.radio[..] {
            [] => poisson(load, pattern),
            radio => {
                let (pattern, load) = radio_pattern(radio, load, topology, self.seed);
                let users = radio
                    .iter()
                    .flat_map(|it| (0..it.users).map(|user| (it.host, user)));
                poisson(load, pattern).with_users(users.collect(), self.seed)
            }
        };
        Traffic::Poisson(Box::new(poisson))
    }
}

/// Return the pattern of flows to the users of radio access networks, and the load of all hosts that corresponds to
/// `load` of the users.
fn radio_pattern(radio: &[RanConfig], load: f64, topology: &Topology, seed: u64) -> (Pattern, f64) {
    let cards = &topology.edges()[..topology.hosts() as usize];
    let all: f64 = cards.iter().map(|card| card.rate.bps()).sum();
    let RanConfig {
        host,
        share,
        load_of,
        ..
    } = radio[0];
    let capacity = |(number, it): (u64, &RanConfig)| match load_of {
        LoadOf::CuLink => cards[it.host as usize].rate.bps(),
        LoadOf::Cell => it.mean_bps(nth_seed(seed, number)),
    };
    let capacity: f64 = (0..).zip(radio).map(capacity).sum();
    let pattern = Pattern::ToOne { host, share };
    (pattern, load * capacity / (share * all))
}
