//! The configuration line: a graph of vertices and directions, as JSON.
//!
//! Everything but the stages is judged in [`Config::parse`]; those are in [`stages::build`](crate::stages::build).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;

use cellbed_link::{CellConfig, Duration, Scheduler, Visit};
use cellbed_netdev::Prefix;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result, one_line};

/// How network namespaces come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Namespaces {
    /// Directly where the process is privileged, else inside a user namespace.
    Auto,
    /// Always inside a user namespace.
    User,
}

/// The network namespace of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// A new one.
    New,
}

/// A device with super-packets that the network helper has created and configured; see `cellbed-nethelper`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attached {
    /// Its name.
    pub name: String,
    /// Number of the inherited descriptor of the device.
    pub descriptor: i32,
    /// Number of an inherited netlink socket in the device's namespace.
    pub netlink: i32,
}

/// A place in the graph: a node with a device, or an internal one such as a tower.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vertex {
    /// Its unique name.
    pub name: String,
    /// Where to create its device; `None` for an attached device, and for an internal vertex, which has none.
    #[serde(default)]
    pub namespace: Option<Placement>,
    /// The device, where another program has created it.
    #[serde(default)]
    pub device: Option<Attached>,
    /// Addresses of its device. What is sent to one of them goes to this vertex.
    #[serde(default)]
    pub addresses: Vec<Prefix>,
    /// Further addresses of its device, which other vertices may have, too. What is sent to one of them goes to the
    /// nearest of these, counted in directions.
    #[serde(default)]
    pub shared: Vec<Prefix>,
    /// Addresses of a machine behind its namespace, which routes between that machine and its device.
    #[serde(default)]
    pub behind: Vec<Prefix>,
    /// Prefixes that its namespace reaches through its device.
    #[serde(default)]
    pub routes: Vec<Prefix>,
    /// Kernel settings of its namespace, such as `net.ipv4.tcp_congestion_control`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// The name of its device in a separate namespace, if not `cellbed0`.
    #[serde(default)]
    pub interface: Option<String>,
}

impl Vertex {
    /// All addresses of its device.
    pub fn at_device(&self) -> impl Iterator<Item = &Prefix> {
        self.addresses.iter().chain(&self.shared)
    }

    /// All addresses that lead to it alone.
    pub fn reached_at(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let prefixes = self.addresses.iter().chain(&self.behind);
        prefixes.map(|prefix| prefix.address)
    }

    /// Whether it takes and sends packets itself.
    pub fn has_device(&self) -> bool {
        self.namespace.is_some() || self.device.is_some()
    }
}

/// One way from a vertex to the next.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Its unique name, such as `mobile-0.uplink`.
    pub name: String,
    /// Name of the vertex it leaves.
    pub from: String,
    /// Name of the vertex it reaches.
    pub to: String,
    /// What a packet passes, in order: tables as [`cellbed_link::language`] reads them.
    pub stages: Vec<Value>,
    /// What changes after every start.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// When it joins other vertices, in order of time. A packet arrives at the end of the time at which it left the bottleneck.
    #[serde(default)]
    pub moves: Vec<Move>,
    /// A log in the format of Mahimahi's mm-link.
    #[serde(default)]
    pub mahimahi_log: Option<MahimahiLog>,
}

/// A log in the format of Mahimahi's mm-link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MahimahiLog {
    /// Its file: a FIFO is opened as soon as it has a reader.
    pub path: PathBuf,
    /// Descriptor that the caller has opened for it, in place of a file at that path.
    #[serde(default)]
    pub descriptor: Option<RawFd>,
    /// Lines of the header in front of the two time stamps, without `# `.
    pub heading: Vec<String>,
    /// Lines of the header behind them.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// A change of a stage, known beforehand.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When, ns after time zero.
    pub at_ns: u64,
    /// Number of the stage, from 0.
    pub stage: usize,
    /// What it is from then on, of the same kind.
    pub to: Value,
}

/// A direction that joins other vertices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// When, ns after time zero.
    pub at_ns: u64,
    /// Name of the vertex it leaves from then on.
    pub from: String,
    /// Name of the vertex it reaches from then on.
    pub to: String,
}

/// Directions that share the time of a radio cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Its unique name, such as `macro.uplink`.
    pub name: String,
    /// Who gets a slot.
    pub scheduler: Scheduler,
    /// How long a slot is, ns.
    #[serde(default = "slot")]
    pub slot_ns: u64,
    /// Its users.
    pub users: Vec<CellUser>,
}

/// A direction that is a user of a cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellUser {
    /// Its name.
    pub direction: String,
    /// 0 is the highest.
    #[serde(default)]
    pub priority: u32,
    /// When it enters the cell, ns after time zero.
    #[serde(default)]
    pub from_ns: u64,
    /// When it leaves, if it does; it enters another cell, or this one again, later only.
    #[serde(default)]
    pub until_ns: Option<u64>,
}

impl CellUser {
    /// Whether the same direction would be in two cells at the same time.
    pub fn meets(&self, other: &Self) -> bool {
        let ends = |it: &Self| it.until_ns.unwrap_or(u64::MAX);
        self.direction == other.direction
            && self.from_ns <= ends(other)
            && other.from_ns <= ends(self)
    }
}

impl Cell {
    /// The same for the path model.
    pub fn model(&self) -> CellConfig {
        let visit = |user: &CellUser| Visit {
            priority: user.priority,
            from: Duration::from_nanos(user.from_ns),
            until: user.until_ns.map(Duration::from_nanos),
        };
        CellConfig {
            scheduler: self.scheduler,
            slot: Duration::from_nanos(self.slot_ns),
            users: self.users.iter().map(visit).collect(),
        }
    }
}

/// The whole configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How namespaces come about.
    pub namespaces: Namespaces,
    /// The vertices; records name them by their place in this list.
    pub vertices: Vec<Vertex>,
    /// Vertex that gets what no vertex owns: the way out.
    pub default_vertex: Option<String>,
    /// The directions; records name them by their place in this list.
    pub directions: Vec<Way>,
    /// Cells that directions share, each direction at most one at a time.
    #[serde(default)]
    pub cells: Vec<Cell>,
    /// File for the 10 ms series.
    pub series: Option<PathBuf>,
    /// File for the record of every packet.
    pub packet_log: Option<PathBuf>,
    /// Keep only the latest records of the packet log, in files of at most so many bytes together.
    #[serde(default)]
    pub packet_log_bytes: Option<u64>,
    /// File for the emulator's own lateness, by the second.
    #[serde(default)]
    pub lateness: Option<PathBuf>,
    /// File for the changes by command, a line of JSON for each.
    #[serde(default)]
    pub change_log: Option<PathBuf>,
    /// Where the emulator listens for commands beside its standard input: the path of a socket that only its user may use.
    #[serde(default)]
    pub control: Option<PathBuf>,
    /// Whether the devices hand over super-packets and take them back. The path model decides for each segment all the same.
    #[serde(default = "yes")]
    pub offload: bool,
    /// How long after a writing the next departure may wake the emulator, ns: so fewer wake-ups carry more packets. No
    /// packet is later than this on that account, and one that comes alone is not late at all.
    #[serde(default = "release_batch")]
    pub release_batch_ns: u64,
    /// How long before a departure the emulator stops sleeping and watches the clock, ns.
    #[serde(default)]
    pub spin_ns: u64,
}

fn slot() -> u64 {
    1_000_000
}

fn yes() -> bool {
    true
}

fn release_batch() -> u64 {
    100_000
}

impl Config {
    /// Reads and checks a configuration line.
    pub fn parse(line: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(line)
            .map_err(|error| Error::ConfigurationSyntax(one_line(&error)))?;
        config.check()?;
        Ok(config)
    }

    /// The place of the vertex called `name`.
    pub fn vertex(&self, name: &str) -> Option<usize> {
        self.vertices.iter().position(|vertex| vertex.name == name)
    }

    /// The number of the direction called `name`.
    pub fn direction(&self, name: &str) -> Option<usize> {
        self.directions.iter().position(|way| way.name == name)
    }

    /// How errors name the direction at `index`.
    pub fn direction_place(&self, index: usize) -> String {
        format!("directions[{index}] ({})", self.directions[index].name)
    }
}
