//! The schema of serialised stages, the source of the tables of scenario files and of their reference.
//!
//! JSON Schema with more keywords. For a value, `format` names its type (`made.rs` has the list), or the content of a
//! file, and `least` and `most` are its limits as text. For a kind, `text` describes a stage in one line, with the
//! values of its keys in braces, or a change of a stage by the changed keys alone if `partial`; a stage without any of
//! the keys `idle` has no effect; `table` is the kind of the scenario's table, if different, or `false` if scenarios
//! have none.
//!
//! A test generates the schema from the types by `schemars` and compares it with `stages.json`, the file in use.

#[cfg(not(test))]
pub(crate) use cellbed_no_schema::JsonSchema;
#[cfg(test)]
pub(crate) use schemars::JsonSchema;

use std::sync::LazyLock;

use serde_json::Value;

#[cfg(test)]
mod made;

/// Schemas of stages by their place in a direction, in the order of packets, and of the schedules and queues of a
/// bottleneck, as JSON. A stage can change into any other of its place.
pub const STAGES: &str = include_str!("stages.json");

static PLACES: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(STAGES).expect("a test made it"));

/// Return the kinds of stages, of all places or of one.
pub(crate) fn kinds(place: Option<&str>) -> impl Iterator<Item = &str> {
    let places = PLACES.as_array().into_iter().flatten();
    let stages = places.filter(|stage| stage[0] != "schedule" && stage[0] != "queue");
    let asked = stages.filter(move |stage| place.is_none_or(|place| stage[0] == place));
    asked.flat_map(|stage| match stage[1]["oneOf"].as_array() {
        Some(kinds) => kinds
            .iter()
            .filter_map(|it| it["properties"]["kind"]["const"].as_str())
            .collect(),
        None => Vec::from_iter(stage[0].as_str()),
    })
}
