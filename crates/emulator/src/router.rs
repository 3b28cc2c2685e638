//! Which direction a packet takes next.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use cellbed_link::routes::Routes;
use cellbed_link::{Duration, Time};

use crate::config::Config;

/// The vertices that a direction leaves and reaches.
type Ends = (usize, usize);

/// The vertices that own addresses, and the paths between vertices; they change when directions move.
pub struct Router {
    zero: Time,
    /// Whose each address is, of shared ones in the configuration's order.
    owners: HashMap<IpAddr, Vec<u16>>,
    default: Option<u16>,
    /// From when on, after time zero. The first is from the beginning on.
    graphs: Vec<(Duration, Graph)>,
}

struct Graph {
    /// The vertex that each direction reaches.
    ends: Vec<u16>,
    routes: Routes,
}

/// The paths at one time.
#[derive(Clone, Copy)]
pub struct Paths<'a> {
    router: &'a Router,
    graph: &'a Graph,
}

impl Router {
    /// Computes all paths of a checked configuration. zero: from when moves count.
    pub fn new(config: &Config, zero: Time) -> Self {
        let index = |name: &String| config.vertex(name).expect("the configuration was checked");
        let vertices = config.vertices.len();
        let mut ends: Vec<Ends> = Vec::new();
        let mut moves: BTreeMap<u64, Vec<(usize, Ends)>> = BTreeMap::new();
        for (lane, way) in config.directions.iter().enumerate() {
            ends.push((index(&way.from), index(&way.to)));
            for it in &way.moves {
                let ends = (index(&it.from), index(&it.to));
                moves.entry(it.at_ns).or_default().push((lane, ends));
            }
        }
        let mut graphs = vec![(Duration::ZERO, Graph::new(vertices, &ends))];
        for (at, moved) in moves {
            for (lane, joined) in moved {
                ends[lane] = joined;
            }
            graphs.push((Duration::from_nanos(at), Graph::new(vertices, &ends)));
        }
        let mut owners: HashMap<IpAddr, Vec<u16>> = HashMap::new();
        for (vertex, it) in config.vertices.iter().enumerate() {
            let shared = it.shared.iter().map(|prefix| prefix.address);
            for address in it.reached_at().chain(shared) {
                owners.entry(address).or_default().push(vertex as u16);
            }
        }
        let default = config.default_vertex.as_ref();
        Self {
            zero,
            owners,
            default: default.map(|name| index(name) as u16),
            graphs,
        }
    }

    /// Lets moves count from `zero` on.
    pub fn restart(&mut self, zero: Time) {
        self.zero = zero;
    }

    /// The paths at `time`.
    #[inline]
    pub fn at(&self, time: Time) -> Paths<'_> {
        let since = time.since(self.zero);
        let begun = self.graphs.partition_point(|&(from, _)| from <= since);
        let (_, graph) = &self.graphs[begun - 1];
        Paths {
            router: self,
            graph,
        }
    }
}

impl Paths<'_> {
    /// The vertex that owns `address`, of several the nearest to vertex `from`; else the way out, if there is one.
    pub fn owner(&self, from: usize, address: &IpAddr) -> Option<usize> {
        let owner = match self.router.owners.get(address).map(Vec::as_slice) {
            Some(&[owner]) => Some(owner),
            Some(owners) => owners
                .iter()
                .copied()
                .filter_map(|owner| Some((self.length(from, owner.into())?, owner)))
                .min_by_key(|&(length, _)| length)
                .map(|(_, owner)| owner),
            None => self.router.default,
        };
        owner.map(usize::from)
    }

    /// The direction that leads from vertex `from` towards vertex `to`; `None` if there is no path, or none is needed.
    pub fn next(&self, from: usize, to: usize) -> Option<usize> {
        self.graph.routes.next(from, to)
    }

    /// The vertex that a direction reaches.
    pub fn end(&self, direction: usize) -> usize {
        self.graph.ends[direction].into()
    }

    /// Directions between two vertices, if there is a path.
    fn length(&self, from: usize, to: usize) -> Option<usize> {
        let (mut at, mut length) = (from, 0);
        while at != to {
            at = self.end(self.next(at, to)?);
            length += 1;
        }
        Some(length)
    }
}

impl Graph {
    fn new(vertices: usize, ends: &[Ends]) -> Self {
        Self {
            ends: ends.iter().map(|&(_, to)| to as u16).collect(),
            routes: Routes::new(vertices, ends),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directions, each with its moves: when, from and to.
    fn router(directions: &[(&str, &str, &str)]) -> Router {
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
        Router::new(&config.unwrap(), Time::from_millis(100))
    }

    #[test]
    fn packets_go_by_the_shortest_path_to_the_owner() {
        let router = router(&[
            ("endpoint", "tower", ""),
            ("tower", "edge", ""),
            ("edge", "cloud", ""),
            ("tower", "cloud", ""),
            ("cloud", "tower", ""),
        ]);
        let routes = router.at(Time::ZERO);
        let owner = |address: &str| routes.owner(0, &address.parse().unwrap());
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
        let mut router = router(&[
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
        let ways = |router: &Router, millis| {
            let routes = router.at(Time::from_millis(millis));
            let edge = routes.next(routes.end(0), 2);
            let shared = routes.owner(0, &"100.65.0.2".parse().unwrap());
            (routes.end(0), edge, shared)
        };
        let (before, after) = ((1, Some(1), Some(2)), (4, Some(4), Some(3)));
        assert_eq!(ways(&router, 0), before);
        assert_eq!(ways(&router, 104), before);
        assert_eq!(ways(&router, 105), after);
        router.restart(Time::from_millis(200));
        assert_eq!(ways(&router, 204), before);
        assert_eq!(ways(&router, 205), after);
        // No direction leads from the edge.
        let stuck = router.at(Time::ZERO);
        assert_eq!(stuck.owner(2, &"100.65.0.2".parse().unwrap()), Some(2));
        assert_eq!(stuck.owner(3, &"100.64.0.2".parse().unwrap()), Some(0));
        assert_eq!(stuck.next(3, 0), None);
    }
}
