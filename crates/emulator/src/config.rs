//! The configuration line: a graph of vertices and directions, as JSON.
//!
//! What users can get wrong is refused by the schema of scenarios: names are unique, and addresses have one owner.

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
    /// Directly where the process is privileged, else inside a user namespace.
    #[default]
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
    /// Namespace for its device; `None` for an attached device, and for an internal vertex, which has
    /// none.
    pub namespace: Option<Placement>,
    /// The device, where another program has created it.
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
    /// The initial window of its TCP, segments, if not the kernel's.
    pub initial_window: Option<u32>,
    /// Kernel settings of its namespace, such as `net.ipv4.tcp_congestion_control`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// The name of its device in a separate namespace, if not `cellbed0`.
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
}

/// A direction from a vertex to the next.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Its part of the graph.
    #[serde(flatten)]
    pub table: DirectionTable,
    /// A log in the format of Mahimahi's mm-link.
    pub mahimahi_log: Option<MahimahiLog>,
}

/// A log in the format of Mahimahi's mm-link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MahimahiLog {
    /// Its file: a FIFO is opened as soon as it has a reader.
    pub path: PathBuf,
    /// Descriptor that the caller has opened for it, in place of a file at that path.
    pub descriptor: Option<RawFd>,
    /// Lines of the header in front of the two time stamps, without `# `.
    pub heading: Vec<String>,
    /// Lines of the header behind them.
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
    /// The vertices; records name them by their place in this list.
    pub vertices: Vec<Vertex>,
    /// Vertex that gets what no vertex owns: the way out.
    pub default_vertex: Option<String>,
    /// The directions; records name them by their place in this list.
    pub directions: Vec<Direction>,
    /// Cells that directions share, each direction at most one at a time.
    #[serde(default)]
    pub cells: Vec<CellTable>,
    /// Proxies at towers.
    #[serde(default)]
    pub proxies: Vec<ProxyTable>,
    /// File for the 10 ms series.
    pub series: Option<PathBuf>,
    /// File for the record of every packet.
    pub packet_log: Option<PathBuf>,
    /// Keep only the latest records of the packet log, in files of at most so many bytes together.
    pub packet_log_bytes: Option<u64>,
    /// File for the emulator's own lateness, by the second.
    pub lateness: Option<PathBuf>,
    /// File for the changes by command, a line of JSON for each.
    pub change_log: Option<PathBuf>,
    /// Socket at which the emulator accepts commands beside its standard input: a path that only its user may use.
    pub control: Option<PathBuf>,
    /// File for samples of the senders, which a network in virtual time writes.
    pub flows: Option<PathBuf>,
}

impl Config {
    /// Reads a configuration line.
    pub fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).map_err(|error| {
            Error::input(format!("the configuration line cannot be read: {error}"))
        })
    }

    /// The tables of the graph.
    pub fn graph(&self) -> GraphTables<'_> {
        GraphTables {
            vertices: self.vertices.iter().map(|it| it.name.as_str()).collect(),
            directions: self.directions.iter().map(|it| &it.table).collect(),
            cells: &self.cells,
        }
    }

    /// The graph with the stages of all directions.
    pub fn build<F: Read>(&self, open: impl FnMut(&Path) -> io::Result<F>) -> Result<GraphConfig> {
        Ok(self.graph().build(open)?)
    }

    /// The proxies with their places.
    pub fn places(&self) -> Result<Vec<(Place, &ProxyTable)>> {
        let tables = self.graph();
        let placed = self.proxies.iter().map(|table| {
            let place = table.place(&tables);
            let wrong = |problem| Error::input(format!("configuration, proxies: {problem}"));
            Ok((place.map_err(wrong)?, table))
        });
        placed.collect()
    }

    /// The place of the vertex called `name`.
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
