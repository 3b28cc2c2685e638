//! The configuration line: a graph of vertices and directions, as JSON.
//!
//! The schema of scenarios has checked the input: names are unique, and addresses have one owner.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use cellbed_link::GraphConfig;
use cellbed_link::graph::table::{CellTable, DirectionTable, GraphTables};
use cellbed_netdev::Prefix;
use cellbed_tcp::proxy::{Place, ProxyTable};
use serde::Deserialize;

use crate::error::{Error, Result};

/// Origin of the network namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Namespaces {
    /// In the user namespace of the process if privileged, otherwise inside a new one.
    #[default]
    Auto,
    /// Always inside a user namespace.
    User,
}

/// The network namespace of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// A new namespace.
    New,
}

/// A device with super-packets, created and configured by the network helper (see `cellbed-nethelper`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attached {
    /// Name of the device.
    pub name: String,
    /// Number of the inherited descriptor of the device.
    pub descriptor: i32,
    /// Number of an inherited netlink socket in the device's namespace.
    pub netlink: i32,
}

/// The node of a tower: the packets of radio links pass its device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tower {
    /// File for the state of the links.
    pub page: Option<PathBuf>,
    /// Uplink and downlink of each radio link, also of those at other towers.
    pub links: Vec<[String; 2]>,
}

/// A place in the graph: a node with a device, or an internal place such as a tower.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vertex {
    /// Unique name.
    pub name: String,
    /// Namespace of the device; `None` for an attached device and for an internal vertex.
    pub namespace: Option<Placement>,
    /// The device, if another program has created it.
    pub device: Option<Attached>,
    /// Addresses of the device. Packets to them go to this vertex.
    #[serde(default)]
    pub addresses: Vec<Prefix>,
    /// Further addresses of the device, possibly shared with other vertices. Packets to them go to the nearest of these
    /// vertices, counted in directions.
    #[serde(default)]
    pub shared: Vec<Prefix>,
    /// Addresses of a machine behind the namespace, which routes between machine and device.
    #[serde(default)]
    pub behind: Vec<Prefix>,
    /// Prefixes that the namespace reaches through the device.
    #[serde(default)]
    pub routes: Vec<Prefix>,
    /// DSCP of packets from and to the vertex in queues and cells; default: as sent.
    pub dscp: Option<u8>,
    /// Initial window of TCP in the namespace, segments; default: the kernel's.
    pub initial_window: Option<u32>,
    /// Kernel settings of the namespace, such as `net.ipv4.tcp_congestion_control`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Name of the device in a separate namespace; default: `cellbed0`.
    pub interface: Option<String>,
    /// Present if the vertex is the node of a tower.
    pub tower: Option<Tower>,
}

impl Vertex {
    /// Return all addresses of the device.
    pub fn at_device(&self) -> impl Iterator<Item = &Prefix> {
        self.addresses.iter().chain(&self.shared)
    }

    /// Return all addresses that lead to this vertex alone.
    pub fn reached_at(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let prefixes = self.addresses.iter().chain(&self.behind);
        prefixes.map(|prefix| prefix.address)
    }
}

/// A direction from a vertex to the next.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// The direction in the graph.
    #[serde(flatten)]
    pub table: DirectionTable,
    /// A log in the format of Mahimahi's mm-link.
    pub mahimahi_log: Option<MahimahiLog>,
}

/// A log in the format of Mahimahi's mm-link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MahimahiLog {
    /// File of the log. A FIFO is opened as soon as it has a reader.
    pub path: PathBuf,
    /// Descriptor opened by the caller for the log, in place of `path`.
    pub descriptor: Option<RawFd>,
    /// Lines of the header before the two time stamps, without `# `.
    pub heading: Vec<String>,
    /// Lines of the header after the time stamps.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// The whole configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Origin of the network namespaces.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// The vertices. Records refer to them by index.
    pub vertices: Vec<Vertex>,
    /// Vertex for packets to addresses without an owner, such as the host's network.
    pub default_vertex: Option<String>,
    /// The directions. Records refer to them by index.
    pub directions: Vec<Direction>,
    /// Cells that directions share; each direction is in at most one at a time.
    #[serde(default)]
    pub cells: Vec<CellTable>,
    /// Proxies at towers.
    #[serde(default)]
    pub proxies: Vec<ProxyTable>,
    /// File for the 10 ms series.
    pub series: Option<PathBuf>,
    /// File for the record of all packets.
    pub packet_log: Option<PathBuf>,
    /// Maximum bytes of the packet log, to keep only the latest records.
    pub packet_log_bytes: Option<u64>,
    /// File for the emulator's lateness, per second.
    pub lateness: Option<PathBuf>,
    /// File for changes by command, one line of JSON each.
    pub change_log: Option<PathBuf>,
    /// Socket for commands in addition to standard input: a path that only its user may use.
    pub control: Option<PathBuf>,
    /// File for samples of senders, written by a network in virtual time.
    pub flows: Option<PathBuf>,
}

impl Config {
    /// Read a configuration line.
    pub fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).map_err(|error| {
            Error::input(format!("the configuration line cannot be read: {error}"))
        })
    }

    /// Return the tables of the graph.
    pub fn graph(&self) -> GraphTables<'_> {
        GraphTables {
            vertices: self.vertices.iter().map(|it| it.name.as_str()).collect(),
            directions: self.directions.iter().map(|it| &it.table).collect(),
            cells: &self.cells,
        }
    }

    /// Build the graph with the stages of all directions.
    pub fn build<F: Read>(&self, open: impl FnMut(&Path) -> io::Result<F>) -> Result<GraphConfig> {
        Ok(self.graph().build(open)?)
    }

    /// Return the DSCPs that vertices set, by vertex.
    pub fn marks(&self) -> Vec<Option<u8>> {
        self.vertices.iter().map(|vertex| vertex.dscp).collect()
    }

    /// Return the proxies with their places.
    pub fn places(&self) -> Result<Vec<(Place, &ProxyTable)>> {
        let tables = self.graph();
        let placed = self.proxies.iter().map(|table| {
            let place = table.place(&tables);
            let wrong = |problem| Error::input(format!("configuration, proxies: {problem}"));
            Ok((place.map_err(wrong)?, table))
        });
        placed.collect()
    }

    /// Return the index of the vertex called `name`.
    pub fn vertex(&self, name: &str) -> Option<usize> {
        self.vertices.iter().position(|vertex| vertex.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nowhere_is_refused() {
        let refusal = |to: &str, moves: &str, cells: &str| {
            let line = format!(
                r#"{{"namespaces":"auto","vertices":[{{"name":"a","namespace":"new"}},{{"name":"t"}}],
                "default_vertex":null,"series":null,"packet_log":null,"cells":[{cells}],
                "directions":[{{"name":"up","from":"a","to":"{to}","stages":[],"moves":[{moves}]}}]}}"#
            );
            let config = Config::parse(&line).unwrap();
            let built = config.build(|_| Err::<&[u8], _>(io::ErrorKind::NotFound.into()));
            built.unwrap_err().to_string()
        };
        let moves = r#"{"at_ns":5,"from":"a","to":"y"}"#;
        let cell = r#"{"name":"c","scheduler":{"kind":"max-rate"},"users":[{"direction":"down"}]}"#;
        for (message, expected) in [
            (refusal("x", "", ""), "x: there is no vertex"),
            (refusal("t", moves, ""), "y: there is no vertex"),
            (refusal("t", "", cell), "down: there is no direction"),
        ] {
            assert!(message.contains(expected), "{message}");
        }
    }
}
