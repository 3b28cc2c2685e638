//! Links that replay a recording of a light and of a heavy workload, as the configuration tells them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cellbed_link::{
    Anchor, Bytes, Compensation, Discipline, Duration, IdleAt, LightRows, RecordingError, Repeat,
    Trace, WorkloadDependentConfig,
};
use serde::Deserialize;

use crate::error::{Error, Result, Trying};
use crate::queues::Queue;

/// One direction of such a recording, and how it is played.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadDependent {
    /// File of the light rows.
    pub light: PathBuf,
    /// Trace of the delivery opportunities under saturation.
    pub heavy: PathBuf,
    /// File of the latency offsets by packet size.
    latency_offset: Option<PathBuf>,
    /// What waits, and what does not find room.
    pub queue: Queue,
    /// Whether the recording begins again at the heavy trace's end.
    looped: bool,
    /// Where in the recording time zero lies, ns.
    #[serde(default)]
    offset_ns: u64,
    /// How long the link must be empty to be inactive, ns.
    #[serde(default)]
    idle_ns: u64,
    /// Where that time is counted.
    #[serde(default)]
    idle_at: At,
    /// What the light opportunities count from.
    #[serde(default)]
    anchor: From,
    /// Bytes that one opportunity carries.
    pub opportunity_bytes: Option<u64>,
    /// Bytes that a packet is charged beyond its size.
    #[serde(default)]
    overhead_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum At {
    Link,
    #[default]
    Queue,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum From {
    BaseDelay,
    #[default]
    FirstPacket,
}

impl WorkloadDependent {
    /// The link of the path model, with its heavy trace and its queue; the other files are read here.
    pub(crate) fn build(
        &self,
        heavy: Arc<Trace>,
        queue: Discipline,
    ) -> Result<WorkloadDependentConfig> {
        let compensation = match &self.latency_offset {
            Some(path) => read(path, "latency offsets", Compensation::parse)?,
            None => Compensation::default(),
        };
        let light = Arc::new(read(&self.light, "light rows", LightRows::parse)?);
        Ok(WorkloadDependentConfig {
            repeat: if self.looped {
                Repeat::Looped
            } else {
                Repeat::Once
            },
            offset: Duration::from_nanos(self.offset_ns),
            compensation,
            idle: Duration::from_nanos(self.idle_ns),
            idle_at: match self.idle_at {
                At::Link => IdleAt::Link,
                At::Queue => IdleAt::Queue,
            },
            anchor: match self.anchor {
                From::BaseDelay => Anchor::BaseDelay,
                From::FirstPacket => Anchor::FirstPacket,
            },
            queue,
            opportunity: self
                .opportunity_bytes
                .map_or(WorkloadDependentConfig::OPPORTUNITY, Bytes),
            overhead: Bytes(self.overhead_bytes),
            ..WorkloadDependentConfig::new(light, heavy)
        })
    }
}

/// Reads a file of a recording; errors name file, line and reason.
fn read<T>(
    path: &Path,
    what: &str,
    parse: impl FnOnce(File) -> std::result::Result<T, RecordingError>,
) -> Result<T> {
    let file = File::open(path).trying(|| format!("open the {what} {}", path.display()))?;
    parse(file).map_err(|error| Error::Trace(error.in_file(path.display())))
}
