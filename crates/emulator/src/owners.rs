//! The vertices that own addresses.

use std::collections::HashMap;
use std::net::IpAddr;

use cellbed_link::graph::Paths;

use crate::config::Config;

/// The vertices that own addresses.
pub struct Owners {
    /// Vertices by address, of shared addresses in the configuration's order.
    vertices: HashMap<IpAddr, Vec<u16>>,
    default: Option<u16>,
}

impl Owners {
    /// Return the owners of a checked configuration.
    pub fn new(config: &Config) -> Self {
        let mut vertices: HashMap<IpAddr, Vec<u16>> = HashMap::new();
        for (vertex, it) in config.vertices.iter().enumerate() {
            let shared = it.shared.iter().map(|prefix| prefix.address);
            for address in it.reached_at().chain(shared) {
                vertices.entry(address).or_default().push(vertex as u16);
            }
        }
        let default = config.default_vertex.as_deref();
        let default = default
            .and_then(|name| config.vertex(name))
            .map(|it| it as u16);
        Self { vertices, default }
    }

    /// Return the vertex that owns `address`; among several, the nearest to vertex `from`. Otherwise the default
    /// vertex, if there is one.
    pub fn owner(&self, paths: Paths<'_>, from: usize, address: &IpAddr) -> Option<usize> {
        let owner = match self.vertices.get(address).map(Vec::as_slice) {
            Some(&[owner]) => Some(owner),
            Some(owners) => owners
                .iter()
                .copied()
                .filter_map(|owner| Some((paths.length(from, owner.into())?, owner)))
                .min_by_key(|&(length, _)| length)
                .map(|(_, owner)| owner),
            None => self.default,
        };
        owner.map(usize::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use cellbed_link::Time;
    use cellbed_link::graph::Topology;

    use super::*;

    /// A graph of directions, each with its moves: time, from, to.
    fn graph(directions: &[(&str, &str, &str)]) -> (Owners, Topology) {
        let ways: Vec<String> = directions
            .iter()
            .enumerate()
            .map(|(i, (from, to, moves))| {
                format!(
                    r#"{{"name":"d{i}","from":"{from}","to":"{to}","stages":[],"moves":[{moves}]}}"#
                )
            })
            .collect();
        let config = Config::parse(&format!(
            r#"{{"namespaces":"auto","vertices":[
                {{"name":"endpoint","namespace":"new","addresses":["100.64.0.2/32","fd63::2/128"]}},
                {{"name":"tower","namespace":null}},
                {{"name":"edge","namespace":"new","addresses":["100.64.64.2/32"],"behind":["100.64.64.3/32"],"shared":["100.65.0.2/32"]}},
                {{"name":"cloud","namespace":"new","addresses":["100.64.128.2/32"],"shared":["100.65.0.2/32"]}},
                {{"name":"core","namespace":null}}],
                "default_vertex":"cloud","directions":[{}],"series":null,"packet_log":null}}"#,
            ways.join(",")
        ));
        let config = config.unwrap();
        let graph = config.build(|_| Err::<&[u8], _>(ErrorKind::NotFound.into()));
        let (graph, zero) = (graph.unwrap(), Time::from_millis(100));
        let topology = Topology::new(graph.vertices, &graph.directions, zero);
        (Owners::new(&config), topology)
    }

    #[test]
    fn packets_go_by_the_shortest_path_to_the_owner() {
        let (owners, topology) = graph(&[
            ("endpoint", "tower", ""),
            ("tower", "edge", ""),
            ("edge", "cloud", ""),
            ("tower", "cloud", ""),
            ("cloud", "tower", ""),
        ]);
        let routes = topology.at(Time::ZERO);
        let owner = |address: &str| owners.owner(routes, 0, &address.parse().unwrap());
        assert_eq!(owner("100.64.64.2"), Some(2));
        assert_eq!(owner("100.64.64.3"), Some(2));
        assert_eq!(owner("fd63::2"), Some(0));
        assert_eq!(routes.next(0, 2), Some(0));
        assert_eq!(routes.next(1, 2), Some(1));
        assert_eq!(routes.next(1, 3), Some(3));
        assert_eq!(routes.next(3, 0), None); // no direction leads back to the endpoint
        assert_eq!(routes.next(2, 2), None);
        assert_eq!(owner("192.0.2.1"), Some(3)); // by the default vertex
    }

    #[test]
    fn a_shared_address_is_the_nearest_at_that_time() {
        let (owners, mut topology) = graph(&[
            (
                "endpoint",
                "tower",
                r#"{"at_ns":5000000,"from":"endpoint","to":"core"}"#,
            ),
            ("tower", "edge", ""),
            ("core", "cloud", ""),
            ("tower", "core", ""),
            ("core", "tower", ""),
        ]);
        let ways = |topology: &Topology, millis| {
            let routes = topology.at(Time::from_millis(millis));
            let edge = routes.next(routes.end(0), 2);
            let shared = owners.owner(routes, 0, &"100.65.0.2".parse().unwrap());
            (routes.end(0), edge, shared)
        };
        let (before, after) = ((1, Some(1), Some(2)), (4, Some(4), Some(3)));
        assert_eq!(ways(&topology, 0), before);
        assert_eq!(ways(&topology, 104), before);
        assert_eq!(ways(&topology, 105), after);
        topology.restart(Time::from_millis(200));
        assert_eq!(ways(&topology, 204), before);
        assert_eq!(ways(&topology, 205), after);
        // No direction leads away from the edge.
        let stuck = topology.at(Time::ZERO);
        assert_eq!(
            owners.owner(stuck, 2, &"100.65.0.2".parse().unwrap()),
            Some(2)
        );
        assert_eq!(
            owners.owner(stuck, 3, &"100.64.0.2".parse().unwrap()),
            Some(0)
        );
        assert_eq!(stuck.next(3, 0), None);
    }
}
