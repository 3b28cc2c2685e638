//! The schema of serialised stages, the source of the tables of scenario files and of their reference.
//!
//! JSON Schema with further keywords. Of a value, `format` names its type (this module has the list) and `least` and
//! `most` are its limits as text. Of a kind, `text` describes a stage in one line, with the values of its keys in
//! braces; `table` is the kind of a scenario's table, if it is another one, or `false` where scenarios have none.

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use serde_json::{Value, json};

use crate::damage::{CorruptionConfig, DuplicationConfig};
use crate::delay::{DelayConfig, DelaySeries, Observed};
use crate::flow_limit::FlowLimitConfig;
use crate::loss::{LossConfig, LossSeries};
use crate::queue::Discipline;
use crate::random::{Probability, Seed};
use crate::schedule::ScheduleTable;
use crate::time::Duration;
use crate::trace::Repeat;
use crate::units::{BitRate, Bytes, Packets};

/// Schemas of stages by their place in a direction, in the order in which packets meet them, and of the schedules and
/// queues of a bottleneck. A stage can change into any other of its place.
pub static STAGES: LazyLock<Value> = LazyLock::new(|| {
    let kind = |kind, text| json!({ "properties": { "kind": { "const": kind } }, "text": text });
    json!([
        ["loss", schema_for!(LossConfig)],
        ["duplication", schema_for!(DuplicationConfig)],
        ["corruption", schema_for!(CorruptionConfig)],
        ["flow-limit", schema_for!(FlowLimitConfig)],
        ["gate", {}],
        ["bottleneck", { "oneOf": [
            kind("bottleneck", "{schedule}, {queue}"),
            kind("workload-dependent", ""),
            kind("conditional", ""),
            kind("radio", "radio {profile} (synthetic){offset_ns: from %}{queue:, %}"),
        ] }],
        ["delay", schema_for!(DelayConfig)],
        ["schedule", schema_for!(ScheduleTable)],
        ["queue", schema_for!(Discipline)],
    ])
});

/// Kinds of stages, of all or of one place.
pub(crate) fn kinds(place: Option<&str>) -> impl Iterator<Item = &str> {
    let places = STAGES.as_array().into_iter().flatten();
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

macro_rules! formats {
    ($($value:ty: $format:literal,)*) => {$(
        impl JsonSchema for $value {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $format.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "format": $format })
            }
        }
    )*};
}

formats! {
    Duration: "duration",
    Bytes: "size",
    BitRate: "bit rate",
    Packets: "packets",
    Probability: "probability",
    Seed: "seed",
    Repeat: "looped",
    LossSeries: "steps of probability",
    DelaySeries: "points of delay",
    Observed: "delays",
}
