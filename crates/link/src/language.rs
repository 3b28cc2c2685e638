//! The serialised form of stages: a table with the stage's `kind`, as in the emulator's configuration and
//! `cellbed.Link`.
//!
//! The configurations themselves are deserialised (keys in nanoseconds end in `_ns`). This module has the kinds, and
//! the tables that differ from their configuration: tables that name files, and radio links, which are a profile with
//! changes.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Error as Fault, Value, from_value};
use thiserror::Error;

use crate::bottleneck::BottleneckConfig;
use crate::damage::{CorruptionConfig, DuplicationConfig};
use crate::delay::{DelayConfig, DelaySeries};
use crate::flow_limit::FlowLimitConfig;
use crate::gate::GateConfig;
use crate::loss::LossConfig;
use crate::queue::Discipline;
use crate::radio::RadioTable;
use crate::random::Seed;
use crate::replay::{
    Anchor, Compensation, ConditionalConfig, ConditionalModel, IdleAt, WorkloadDependentConfig,
};
use crate::schedule::{LightRows, ScheduleTable};
use crate::schema::{self, JsonSchema};
use crate::stage::StageConfig;
use crate::time::Duration;
use crate::trace::{Repeat, Trace, TraceError};
use crate::units::Bytes;

/// Error of a table without a valid stage.
#[derive(Debug, Error)]
pub enum LanguageError {
    /// The table is malformed.
    #[error("{0}")]
    Table(#[from] Fault),
    /// A file that the table names is malformed, `FILE:LINE: reason`, or cannot be opened.
    #[error("{0}")]
    File(String),
}

/// Reads stages from their tables. Stages that name the same trace share it.
///
/// ```
/// use cellbed_link::language::Reader;
/// use serde_json::json;
///
/// let mut reader = Reader::new(|_path| Ok(&b"2\n5\n"[..])); // any file has these two lines
/// let schedule = json!({"kind": "trace", "path": "some.up", "looped": true});
/// let queue = json!({"kind": "codel", "target_ns": 10_000_000, "packets": 100});
/// let stage = reader.stage(json!({"kind": "bottleneck", "schedule": schedule, "queue": queue}));
/// assert!(stage.is_ok());
/// let error = reader.stage(json!({"kind": "delay", "fixed": 5})).unwrap_err();
/// assert!(error.to_string().starts_with("unknown field `fixed`"));
/// ```
pub struct Reader<Open> {
    open: Open,
    traces: HashMap<PathBuf, Arc<Trace>>,
}

impl<Open, File> Reader<Open>
where
    Open: FnMut(&Path) -> io::Result<File>,
    File: Read,
{
    /// Return a reader that gets the content of files from `open`.
    pub fn new(open: Open) -> Self {
        Self {
            open,
            traces: HashMap::new(),
        }
    }

    /// Return the stage of a table.
    pub fn stage(&mut self, mut table: Value) -> Result<StageConfig, LanguageError> {
        let kind = table
            .get("kind")
            .ok_or_else(|| Fault::missing_field("kind"))?;
        let kind = String::deserialize(kind)?;
        if schema::kinds(Some("loss")).any(|loss| loss == kind) {
            return Ok(from_value::<LossConfig>(table)?.into());
        }
        if schema::kinds(Some("bottleneck")).any(|queueing| queueing == kind) {
            return Ok(match from_value(table)? {
                QueueingTable::Bottleneck(table) => self.bottleneck(table)?.into(),
                QueueingTable::WorkloadDependent(table) => self.workload_dependent(table)?.into(),
                QueueingTable::Conditional(table) => self.conditional(table)?.into(),
                QueueingTable::Radio(table) => table.build()?.into(),
            });
        }
        if let Some(fields) = table.as_object_mut() {
            fields.remove("kind");
        }
        Ok(match &*kind {
            "flow-limit" => from_value::<FlowLimitConfig>(table)?.into(),
            "gate" => from_value::<GateConfig>(table)?
                .check()
                .map_err(Fault::custom)?
                .into(),
            "duplication" => from_value::<DuplicationConfig>(table)?.into(),
            "corruption" => from_value::<CorruptionConfig>(table)?.into(),
            "delay" => from_value::<DelayTable>(table)?.build()?.into(),
            "jitter" => DelayConfig::Random(from_value(table)?).into(),
            _ => {
                let known: Vec<_> = schema::kinds(None).map(|it| format!("`{it}`")).collect();
                let known = known.join(", ");
                let text = format!("unknown variant `{kind}`, expected one of {known}");
                return Err(Fault::custom(text).into());
            }
        })
    }

    fn bottleneck(&mut self, table: BottleneckTable) -> Result<BottleneckConfig, LanguageError> {
        let schedule = table.schedule.build(|path| self.trace(path))?;
        let bottleneck = match table.mahimahi {
            true => BottleneckConfig::mahimahi(schedule),
            false => BottleneckConfig::new(schedule),
        };
        Ok(bottleneck.with_queue(table.queue))
    }

    fn workload_dependent(
        &mut self,
        table: WorkloadDependentTable,
    ) -> Result<WorkloadDependentConfig, LanguageError> {
        let compensation = match &table.latency_offset {
            Some(path) => self.file("latency offsets", path, Compensation::parse)?,
            None => Compensation::default(),
        };
        let light = self.file("light rows", &table.light, LightRows::parse)?;
        Ok(WorkloadDependentConfig {
            repeat: table.looped,
            offset: table.offset,
            compensation,
            idle: table.idle,
            idle_at: table.idle_at,
            anchor: table.anchor,
            queue: table.queue,
            opportunity: table.opportunity,
            overhead: table.overhead,
            ..WorkloadDependentConfig::new(Arc::new(light), self.trace(table.heavy)?)
        })
    }

    fn conditional(&mut self, table: ConditionalTable) -> Result<ConditionalConfig, LanguageError> {
        let model = self.file("model", &table.model, ConditionalModel::parse)?;
        Ok(ConditionalConfig {
            repeat: table.looped,
            offset: table.offset,
            queue: table.queue,
            seed: table.seed,
            ..ConditionalConfig::new(Arc::new(model))
        })
    }

    fn trace(&mut self, path: PathBuf) -> Result<Arc<Trace>, LanguageError> {
        if let Some(trace) = self.traces.get(&path) {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(self.file("trace", &path, Trace::parse)?);
        self.traces.insert(path, Arc::clone(&trace));
        Ok(trace)
    }

    /// Return the content of a file.
    fn file<T>(
        &mut self,
        what: &'static str,
        path: &Path,
        parse: impl FnOnce(File) -> Result<T, TraceError>,
    ) -> Result<T, LanguageError> {
        let shown = path.display().to_string();
        let file = (self.open)(path).map_err(|source| {
            LanguageError::File(format!("cannot open the {what} {shown}: {source}"))
        })?;
        parse(file).map_err(|error| LanguageError::File(error.in_file(shown)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelayTable {
    fixed_ns: Option<Duration>,
    series: Option<Arc<DelaySeries>>,
}

impl DelayTable {
    fn build(self) -> Result<DelayConfig, Fault> {
        match (self.fixed_ns, self.series) {
            (Some(delay), None) => Ok(DelayConfig::Fixed(delay)),
            (None, Some(series)) => Ok(DelayConfig::Series(series)),
            _ => Err(Fault::custom(
                "a delay needs either \"fixed_ns\" or \"series\"",
            )),
        }
    }
}

/// A stage where packets queue. Its queue and schedule have schemas apart.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum QueueingTable {
    /// A queue served by a schedule.
    #[schemars(extend(
        "table" = false,
        "idle" = "schedule",
        "partial" = true,
        "text" = "{schedule:%{queue:, %}|{queue}}"
    ))]
    Bottleneck(BottleneckTable),
    /// Delay and delivery opportunities of a light and of a heavy workload, by the method of CellReplay.
    #[schemars(
        title = "cellreplay recording",
        extend(
            "table" = "cellreplay",
            "text" = "{heavy.source:|light {light} and heavy }{heavy}{offset_ns: from %}, {looped:looped|once}, idle \
                      after {idle_ns.rounded}{idle_at=link: at the link}, {queue}"
        )
    )]
    WorkloadDependent(WorkloadDependentTable),
    /// A model learnt from a recording, whose replay depends on each packet's situation.
    #[schemars(
        title = "recording",
        extend(
            "text" = "{model.source:|conditional }{model}{offset_ns: from %}, {looped:looped|once}, {queue}"
        )
    )]
    Conditional(ConditionalTable),
    /// One direction of a radio link.
    #[schemars(
        title = "radio link",
        extend("text" = "radio {profile} (synthetic){offset_ns: from %}{queue:, %}")
    )]
    Radio(Box<RadioTable>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BottleneckTable {
    #[schemars(skip)]
    schedule: ScheduleTable,
    #[serde(deserialize_with = "crate::queue::deserialize")]
    #[schemars(skip)]
    queue: Discipline,
    #[serde(default)]
    mahimahi: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadDependentTable {
    /// Base delay and delivery opportunities of packet trains: lines `TIME BASE_DELAY PDO PDO …`, in ms.
    #[schemars(example = "recordings/up-delay-light-pdo", extend("format" = "light rows"))]
    light: PathBuf,
    /// Trace of the delivery opportunities under saturation, by its name or path.
    #[schemars(example = "recordings/up-heavy-pdo", extend("format" = "trace"))]
    heavy: PathBuf,
    /// Additional delay of packets of other sizes than the recorder's: lines `BYTES MS`.
    #[schemars(example = "recordings/latency-offset-up", extend("format" = "latency offsets"))]
    latency_offset: Option<PathBuf>,
    #[serde(deserialize_with = "crate::queue::deserialize")]
    #[schemars(skip)]
    queue: Discipline,
    looped: Repeat,
    #[serde(rename = "offset_ns", default)]
    offset: Duration,
    /// F: time for which the link must be empty to become inactive.
    #[serde(rename = "idle_ns", default)]
    #[schemars(extend("least" = "0 s", "most" = "1 h"))]
    idle: Duration,
    /// Place where the idle time F is counted: the queue (as calibrated), or the link, from a packet's departure to the
    /// next arrival.
    #[serde(default)]
    idle_at: IdleAt,
    /// Origin of light opportunities: the base delay, without or with the offset of the first packet.
    #[serde(default)]
    anchor: Anchor,
    /// Capacity of a delivery opportunity: the size of the recorder's packets.
    #[serde(
        rename = "opportunity_bytes",
        default = "default_opportunity",
        deserialize_with = "opportunity"
    )]
    #[schemars(extend("least" = "64 B", "most" = "64 KiB"))]
    opportunity: Bytes,
    /// Charge of a packet in addition to its IP length.
    #[serde(rename = "overhead_bytes", default)]
    #[schemars(extend("least" = "0 B", "most" = "1 KiB"))]
    overhead: Bytes,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConditionalTable {
    /// Model that cellbed derives from a recording.
    #[schemars(example = "walk.uplink.conditional-model", extend("format" = "model"))]
    model: PathBuf,
    #[serde(deserialize_with = "crate::queue::deserialize")]
    #[schemars(skip)]
    queue: Discipline,
    looped: Repeat,
    #[serde(rename = "offset_ns", default)]
    offset: Duration,
    #[serde(default)]
    seed: Seed,
}

const fn default_opportunity() -> Bytes {
    WorkloadDependentConfig::OPPORTUNITY
}

fn opportunity<'de, D: Deserializer<'de>>(bytes: D) -> Result<Bytes, D::Error> {
    match Bytes::deserialize(bytes)? {
        Bytes(0) => Err(D::Error::custom(
            "opportunities of 0 bytes let nothing pass; use what the recorder sent",
        )),
        bytes => Ok(bytes),
    }
}
