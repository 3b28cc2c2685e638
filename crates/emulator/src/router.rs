//! Which direction a packet takes next.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::config::Config;

/// No direction leads there.
const NONE: u16 = u16::MAX;

/// Shortest paths over the graph, counted in directions; of equally short ones the direction listed first.
pub struct Router {
    owners: HashMap<IpAddr, u16>,
    default: Option<u16>,
    vertices: usize,
    /// `next[from * vertices + to]`
    next: Vec<u16>,
}

impl Router {
    /// Works out all paths of a checked configuration.
    pub fn new(config: &Config) -> Self {
        let index = |name: &String| config.vertex(name).expect("the configuration was checked");
        let ends: Vec<(usize, usize)> = config
            .directions
            .iter()
            .map(|way| (index(&way.from), index(&way.to)))
            .collect();
        let owners = config
            .vertices
            .iter()
            .enumerate()
            .flat_map(|(vertex, it)| it.reached_at().map(move |address| (address, vertex as u16)))
            .collect();
        let default = config
            .default_vertex
            .as_ref()
            .map(|name| index(name) as u16);
        let vertices = config.vertices.len();
        Self {
            owners,
            default,
            vertices,
            next: shortest(vertices, &ends),
        }
    }

    /// The vertex that owns `address`, else the way out, if there is one.
    pub fn owner(&self, address: &IpAddr) -> Option<usize> {
        self.owners
            .get(address)
            .copied()
            .or(self.default)
            .map(usize::from)
    }

    /// The direction that leads from vertex `from` towards vertex `to`; `None` if there is no path, or none is needed.
    pub fn next(&self, from: usize, to: usize) -> Option<usize> {
        match self.next[from * self.vertices + to] {
            NONE => None,
            direction => Some(usize::from(direction)),
        }
    }
}

/// A breadth-first search backwards from each vertex.
fn shortest(vertices: usize, ends: &[(usize, usize)]) -> Vec<u16> {
    let mut into = vec![Vec::new(); vertices];
    for (direction, &(from, to)) in ends.iter().enumerate() {
        into[to].push((direction, from));
    }
    let mut next = vec![NONE; vertices * vertices];
    for target in 0..vertices {
        let mut distance = vec![usize::MAX; vertices];
        distance[target] = 0;
        let mut queue = VecDeque::from([target]);
        while let Some(at) = queue.pop_front() {
            for &(direction, from) in &into[at] {
                let entry = &mut next[from * vertices + target];
                if distance[from] == usize::MAX {
                    distance[from] = distance[at] + 1;
                    *entry = direction as u16;
                    queue.push_back(from);
                } else if distance[from] == distance[at] + 1 {
                    *entry = (*entry).min(direction as u16);
                }
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn router(directions: &[(&str, &str)]) -> Router {
        let ways: Vec<String> = directions
            .iter()
            .enumerate()
            .map(|(i, (from, to))| {
                format!(r#"{{"name":"d{i}","from":"{from}","to":"{to}","stages":[]}}"#)
            })
            .collect();
        Router::new(
            &Config::parse(&format!(
                r#"{{"namespaces":"auto","vertices":[
                    {{"name":"endpoint","namespace":"new","addresses":["100.64.0.2/32","fd63::2/128"]}},
                    {{"name":"tower","namespace":null}},
                    {{"name":"edge","namespace":"new","addresses":["100.64.64.2/32"],"behind":["100.64.64.3/32"]}},
                    {{"name":"cloud","namespace":"new","addresses":["100.64.128.2/32"]}}],
                    "default_vertex":"cloud","directions":[{}],"series":null,"packet_log":null}}"#,
                ways.join(",")
            ))
            .unwrap(),
        )
    }

    #[test]
    fn packets_go_by_the_shortest_path_to_the_owner() {
        let router = router(&[
            ("endpoint", "tower"),
            ("tower", "edge"),
            ("edge", "cloud"),
            ("tower", "cloud"),
            ("cloud", "tower"),
        ]);
        assert_eq!(router.owner(&"100.64.64.2".parse().unwrap()), Some(2));
        assert_eq!(router.owner(&"100.64.64.3".parse().unwrap()), Some(2));
        assert_eq!(router.owner(&"fd63::2".parse().unwrap()), Some(0));
        assert_eq!(router.next(0, 2), Some(0));
        assert_eq!(router.next(1, 2), Some(1));
        assert_eq!(router.next(1, 3), Some(3));
        assert_eq!(router.next(3, 0), None); // no direction leads back to the endpoint
        assert_eq!(router.next(2, 2), None);
    }

    #[test]
    fn unowned_addresses_leave_by_the_default_vertex() {
        assert_eq!(router(&[]).owner(&"192.0.2.1".parse().unwrap()), Some(3));
    }

    proptest! {
        #[test]
        fn following_the_table_arrives(ends in proptest::collection::vec((0usize..8, 0usize..8), 0..30)) {
            let next = shortest(8, &ends);
            for from in 0..8 {
                for to in 0..8 {
                    let (mut at, mut hops) = (from, 0);
                    while at != to && next[at * 8 + to] != NONE {
                        let (leaves, reaches) = ends[usize::from(next[at * 8 + to])];
                        prop_assert_eq!(leaves, at);
                        at = reaches;
                        hops += 1;
                        prop_assert!(hops < 8, "a loop");
                    }
                    prop_assert!(at == to || hops == 0, "a dead end");
                }
            }
        }
    }
}
