//! Validation of a well-formed configuration, before any change.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::config::Config;
use crate::error::{Error, Result};

impl Config {
    /// Refuses what cannot work, with the place and what would be right.
    pub(crate) fn check(&self) -> Result<()> {
        self.graph().check()?;
        self.check_vertices()?;
        let default = self.default_vertex.as_deref();
        match default.map(|name| (name, self.vertex(name))) {
            Some((name, None)) => Err(Error::configuration(
                "default_vertex",
                format!("there is no vertex {name:?}"),
            )),
            Some((name, Some(index))) if !self.vertices[index].has_device() => {
                Err(Error::configuration(
                    "default_vertex",
                    format!(
                        "the vertex {name:?} has no device that could take packets; give it a namespace"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_vertices(&self) -> Result<()> {
        let mut owners: HashMap<IpAddr, &str> = HashMap::new();
        let mut shared: HashMap<IpAddr, &str> = HashMap::new();
        for (index, vertex) in self.vertices.iter().enumerate() {
            let place = format!("vertices[{index}] ({})", vertex.name);
            let needs_device = !(vertex.addresses.is_empty()
                && vertex.shared.is_empty()
                && vertex.behind.is_empty()
                && vertex.routes.is_empty()
                && vertex.sysctls.is_empty());
            if let Some(device) = &vertex.device {
                let furnished = vertex.namespace.is_some()
                    || vertex.interface.is_some()
                    || !(vertex.shared.is_empty()
                        && vertex.behind.is_empty()
                        && vertex.routes.is_empty()
                        && vertex.sysctls.is_empty());
                let problem = if furnished {
                    "an attached device is configured already: only addresses may stand beside it"
                } else if !self.offload {
                    "an attached device has super-packets: \"offload\" must be true"
                } else if device.descriptor < 3 || device.netlink < 3 {
                    "a descriptor below 3 is a standard stream"
                } else {
                    ""
                };
                if !problem.is_empty() {
                    return Err(Error::configuration(place, problem));
                }
            } else if vertex.namespace.is_none() && needs_device {
                let problem = "an internal vertex (\"namespace\": null) can have no addresses, routes or sysctls";
                return Err(Error::configuration(place, problem));
            }
            for address in vertex.reached_at() {
                if let Some(owner) = owners.insert(address, &vertex.name) {
                    let problem =
                        format!("the address {address} already belongs to the vertex {owner:?}");
                    return Err(Error::configuration(place, problem));
                }
            }
            for prefix in &vertex.shared {
                if shared.insert(prefix.address, &vertex.name) == Some(&vertex.name) {
                    let problem = format!("the address {} is listed twice", prefix.address);
                    return Err(Error::configuration(place, problem));
                }
            }
            // The kernel takes up to 15 bytes, and "%" for a place to count in (netdevice(7)).
            if let Some(name) = &vertex.interface
                && (name.is_empty()
                    || name.len() > 15
                    || !name
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)))
            {
                let problem = format!(
                    "{name:?} is not a valid name of a network device: use up to 15 letters and digits"
                );
                return Err(Error::configuration(place, problem));
            }
            if let Some(key) = vertex
                .sysctls
                .keys()
                .find(|key| key.split(['.', '/']).any(|part| matches!(part, "" | "..")))
            {
                return Err(Error::configuration(
                    place,
                    format!("{key:?} is not a valid name of a kernel setting"),
                ));
            }
        }
        match shared.iter().find(|(it, _)| owners.contains_key(it)) {
            Some((address, name)) => Err(Error::configuration(
                format!("vertices ({name})"),
                format!(
                    "the shared address {address} belongs to the vertex {:?} alone",
                    owners[address]
                ),
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(vertices: &str, directions: &str, default: &str) -> String {
        format!(
            r#"{{"namespaces":"auto","vertices":[{vertices}],"default_vertex":{default},"directions":[{directions}],"series":null,"packet_log":null}}"#
        )
    }

    const TWO: &str = r#"{"name":"a","namespace":"new","addresses":["100.64.0.2/32"]},{"name":"t","namespace":null}"#;

    fn direction(stage: &str) -> String {
        format!(r#"{{"name":"up","from":"a","to":"t","stages":[{stage}]}}"#)
    }

    /// A line with one direction, `up`, and a cell.
    fn cells(cell: &str) -> String {
        let line = line(TWO, &direction(""), "null");
        line.replacen('{', &format!(r#"{{"cells":[{cell}],"#), 1)
    }

    #[test]
    fn a_good_line_is_read() {
        let stages = r#"{"kind":"loss","probability":0.01,"seed":7},
            {"kind":"bottleneck","schedule":{"kind":"trace","path":"/x.up","looped":true,"offset_ns":5},"queue":{"kind":"droptail","packets":null,"bytes":1000000}},
            {"kind":"delay","fixed_ns":10000000},{"kind":"delay","series":[[0,1],[5,2]]}"#;
        let config = Config::parse(&line(TWO, &direction(stages), "\"a\"")).unwrap();
        assert_eq!(config.directions[0].table.stages.len(), 4);
        assert_eq!(config.vertices[0].addresses[0].to_string(), "100.64.0.2/32");
    }

    #[test]
    fn errors_name_place_and_problem() {
        let cases = [
            (
                line(TWO, "", "\"b\""),
                "default_vertex: there is no vertex \"b\"",
            ),
            (
                line(TWO, "", "\"t\""),
                "default_vertex: the vertex \"t\" has no device",
            ),
            (
                line(&format!("{TWO},{TWO}"), "", "null"),
                "vertices[2] (a): another vertex has this name",
            ),
            (
                line(
                    r#"{"name":"t","namespace":null,"addresses":["::1/128"]}"#,
                    "",
                    "null",
                ),
                "an internal vertex",
            ),
            (
                line(
                    &format!(
                        r#"{TWO},{{"name":"b","namespace":"new","addresses":["100.64.0.2/24"]}}"#
                    ),
                    "",
                    "null",
                ),
                "already belongs to the vertex \"a\"",
            ),
            (
                line(
                    r#"{"name":"a","namespace":"new","addresses":["100.64.0.2"]}"#,
                    "",
                    "null",
                ),
                "is not a prefix",
            ),
            (
                line(
                    r#"{"name":"a","namespace":"new","addresses":["100.64.0.2/33"]}"#,
                    "",
                    "null",
                ),
                "is above 32",
            ),
            (
                line(
                    r#"{"name":"a","namespace":"new","sysctls":{"net/../kernel":"1"}}"#,
                    "",
                    "null",
                ),
                "not a valid name of a kernel setting",
            ),
            (
                line(r#"{"name":"a","namespace":"old"}"#, "", "null"),
                "unknown variant `old`",
            ),
            (
                line(
                    r#"{"name":"a","namespace":"new","adresses":[]}"#,
                    "",
                    "null",
                ),
                "unknown field `adresses`",
            ),
            (
                line(
                    TWO,
                    r#"{"name":"up","from":"a","to":"x","stages":[]}"#,
                    "null",
                ),
                "directions[0] (up): there is no vertex \"x\"",
            ),
            (
                line(
                    r#"{"name":"a","namespace":"new","interface":"ten%d"}"#,
                    "",
                    "null",
                ),
                "\"ten%d\" is not a valid name of a network device",
            ),
            (
                line(
                    TWO,
                    r#"{"name":"up","from":"a","to":"a","stages":[]}"#,
                    "null",
                ),
                "from \"a\" to itself",
            ),
            (
                line(
                    TWO,
                    r#"{"name":"up","from":"a","to":"t","stages":[],"moves":[{"at_ns":5,"from":"a","to":"x"}]}"#,
                    "null",
                ),
                "directions[0] (up): there is no vertex \"x\"",
            ),
            (
                line(
                    TWO,
                    r#"{"name":"up","from":"a","to":"t","stages":[],"moves":[{"at_ns":5,"from":"a","to":"t"},{"at_ns":5,"from":"a","to":"t"}]}"#,
                    "null",
                ),
                "its moves must be in order of time",
            ),
            (
                line(
                    r#"{"name":"a","namespace":"new","addresses":["100.64.0.2/32"]},{"name":"b","namespace":"new","shared":["100.64.0.2/32"]}"#,
                    "",
                    "null",
                ),
                "vertices (b): the shared address 100.64.0.2 belongs to the vertex \"a\" alone",
            ),
            (
                line(TWO, &format!("{},{}", direction(""), direction("")), "null"),
                "directions[1] (up): another direction",
            ),
            (
                cells(r#"{"name":"c","scheduler":{"kind":"max-rate"},"users":[]}"#),
                "cells[0] (c): a cell needs at least one user",
            ),
            (
                cells(
                    r#"{"name":"c","scheduler":{"kind":"max-rate"},"users":[{"direction":"down"}]}"#,
                ),
                "there is no direction \"down\"",
            ),
            (
                cells(
                    r#"{"name":"c","scheduler":{"kind":"priority"},"users":[{"direction":"up"},{"direction":"up"}]}"#,
                ),
                "\"up\" is already a user of the cell \"c\"",
            ),
            (
                cells(
                    r#"{"name":"c","scheduler":{"kind":"round-robin"},"slot_ns":5,"users":[{"direction":"up"}]}"#,
                ),
                "too short",
            ),
            (
                cells(
                    r#"{"name":"c","scheduler":{"kind":"proportional-fair","window_ns":0},"users":[{"direction":"up"}]}"#,
                ),
                "the averaging window",
            ),
            (
                cells(
                    r#"{"name":"c","scheduler":{"kind":"max-rate"},"users":[{"direction":"up","until_ns":5},{"direction":"up","from_ns":5}]}"#,
                ),
                "at this time, or has not left it before",
            ),
            (
                cells(
                    r#"{"name":"c","scheduler":{"kind":"max-rate"},"users":[{"direction":"up","from_ns":6,"until_ns":5}]}"#,
                ),
                "must leave the cell after it enters it",
            ),
            (
                cells(r#"{"name":"c","scheduler":{"kind":"fair"},"users":[{"direction":"up"}]}"#),
                "unknown variant `fair`",
            ),
            ("{\"namespaces\":".into(), "cannot be read: EOF"),
        ];
        for (line, expected) in cases {
            let message = Config::parse(&line).unwrap_err().to_string();
            assert!(
                message.contains(expected),
                "{message:?} should contain {expected:?}"
            );
            assert!(!message.contains('\n'));
        }
    }
}
