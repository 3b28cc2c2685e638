//! A run as data, which `cellbed simulate` writes as JSON. Keys end in their units.

use crate::error::DescriptionError;
use crate::ran::{LoadOf, RanConfig};
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
    /// Mobile users behind one of the hosts. With random traffic the flows go to them.
    #[serde(default)]
    pub radio: Option<RanConfig>,
    /// When the run ends at the latest. Flows that live then have no record.
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
    /// Most bytes that wait at a switch's port.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: u64,
    /// The same at a host's card, if different.
    #[serde(default)]
    pub card_buffer_bytes: Option<u64>,
    /// The ports' discipline, if not the one that the transport was made for.
    #[serde(default)]
    pub discipline: Option<Discipline>,
    /// ECN: a packet is marked if it finds more bytes than this waiting at a switch.
    #[serde(default)]
    pub mark_above_bytes: Option<u64>,
    /// When switches send packets on.
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
        /// Racks.
        racks: u32,
        /// Hosts in each.
        hosts_per_rack: u32,
        /// Spines.
        spines: u32,
        /// Rate of hosts' links.
        host_bps: f64,
        /// Rate of links between racks and spines.
        core_bps: f64,
        /// Propagation and switching, for each link.
        hop_ps: Picos,
    },
    /// Any: hosts are nodes 0 to `hosts` − 1, the switches follow.
    Graph {
        /// Hosts.
        hosts: u32,
        /// Switches.
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
    /// Given ones.
    Trace {
        /// The flows.
        trace: Vec<TraceFlow>,
    },
    /// Poisson arrivals.
    Random {
        /// Number of flows.
        flows: u64,
        /// Relative to the rates of all hosts' cards, headers included.
        load: f64,
        /// Size in bytes, share of flows of at most this size.
        sizes: Vec<(f64, f64)>,
        /// Sizes are rounded to a multiple of this.
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

/// A given flow: bytes, source, destination, start, and the user behind the destination if there is one.
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
    /// Returns the run, at time 0.
    pub fn simulation(&self) -> Result<Simulation<AnyTransport>, DescriptionError> {
        self.run(|net| {
            let transport = self.transport.transport(net);
            match &self.radio {
                None => Ok(transport),
                Some(radio) => transport.with_ran(radio.clone(), self.seed),
            }
        })
    }

    /// Returns the run, at time 0, of hosts with another transport.
    pub fn run<T: Transport>(
        &self,
        hosts: impl FnOnce(&Fabric) -> Result<T, DescriptionError>,
    ) -> Result<Simulation<T>, DescriptionError> {
        let shape = &self.topology;
        let topology = shape.shape.build();
        if let Some(radio) = &self.radio {
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
        let net = Fabric::new(topology, &ports, self.seed);
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
        let poisson = match &self.radio {
            None => poisson(load, pattern),
            Some(radio) => {
                let (pattern, load) = radio_pattern(radio, load, topology, self.seed);
                poisson(load, pattern).with_users(radio.users, self.seed)
            }
        };
        Traffic::Poisson(Box::new(poisson))
    }
}

/// Returns the pattern of flows to the users of a radio access network, and the load of all hosts at which theirs is
/// `load`.
fn radio_pattern(radio: &RanConfig, load: f64, topology: &Topology, seed: u64) -> (Pattern, f64) {
    let cards = &topology.edges()[..topology.hosts() as usize];
    let all: f64 = cards.iter().map(|card| card.rate.bps()).sum();
    let capacity = match radio.load_of {
        LoadOf::CuLink => cards[radio.host as usize].rate.bps(),
        LoadOf::Cell => radio.capacity_bps(seed),
    };
    let pattern = Pattern::ToOne {
        host: radio.host,
        share: radio.share,
    };
    (pattern, load * capacity / (radio.share * all))
}
