//! Which direction a packet takes next.

use std::collections::HashMap;
use std::net::IpAddr;

use cellbed_link::routes::Routes;

use crate::config::Config;

/// The vertices that own addresses, and the paths between vertices.
pub struct Router {
    owners: HashMap<IpAddr, u16>,
    default: Option<u16>,
    routes: Routes,
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
        Self {
            owners,
            default,
            routes: Routes::new(config.vertices.len(), &ends),
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
        self.routes.next(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
