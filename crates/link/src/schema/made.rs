//! Generates the schema of the types of stages.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use serde_json::{Value, json};

use crate::damage::{CorruptionConfig, DuplicationConfig};
use crate::delay::{DelayConfig, DelaySeries, Observed};
use crate::flow_limit::FlowLimitConfig;
use crate::gate::GateConfig;
use crate::language::QueueingTable;
use crate::loss::{LossConfig, LossSeries};
use crate::queue::Discipline;
use crate::random::{Probability, Seed};
use crate::schedule::ScheduleTable;
use crate::time::Duration;
use crate::trace::Repeat;
use crate::units::{BitRate, Bytes, Packets};

fn make_schemas() -> Value {
    json!([
        ["loss", schema_for!(LossConfig)],
        ["duplication", schema_for!(DuplicationConfig)],
        ["corruption", schema_for!(CorruptionConfig)],
        ["flow-limit", schema_for!(FlowLimitConfig)],
        ["gate", schema_for!(GateConfig)],
        ["bottleneck", schema_for!(QueueingTable)],
        ["delay", schema_for!(DelayConfig)],
        ["schedule", schema_for!(ScheduleTable)],
        ["queue", schema_for!(Discipline)],
    ])
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

#[test]
fn the_file_has_the_schema_of_the_types() {
    let made = serde_json::to_string_pretty(&make_schemas()).unwrap() + "\n";
    if std::env::var_os("WRITE_SCHEMA").is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema/stages.json"),
            &made,
        )
        .unwrap();
    } else {
        assert!(
            made == super::STAGES,
            "run: WRITE_SCHEMA=1 cargo test -p cellbed-link schema"
        );
    }
}
