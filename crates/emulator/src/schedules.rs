//! When a bottleneck releases bytes, as the configuration tells it. Traces are read here.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cellbed_link::{BitRate, Bytes, Duration, RateSeries, Repeat, Trace};
use serde::Deserialize;

use crate::error::{Error, Refusal, Result, Trying};

/// When a bottleneck releases bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Schedule {
    /// The delivery opportunities of a trace.
    Trace {
        /// The trace's file.
        path: PathBuf,
        /// Whether it begins again at its end.
        looped: bool,
        /// Where in the trace time zero lies, ns.
        #[serde(default)]
        offset_ns: u64,
    },
    /// A constant rate.
    Constant {
        /// bit/s.
        bit_rate: u64,
    },
    /// A rate in steps.
    Series(Series),
    /// A token bucket.
    #[serde(rename = "token-bucket")]
    TokenBucket {
        /// How fast it fills, bit/s.
        bit_rate: u64,
        /// How much it holds.
        burst_bytes: u64,
    },
    /// No limit.
    Unlimited,
}

impl Schedule {
    /// `refused` names the place.
    pub(crate) fn build<'a>(
        &'a self,
        traces: &mut Traces<'a>,
        refused: impl Fn(Refusal) -> Error,
    ) -> Result<cellbed_link::Schedule> {
        Ok(match self {
            Self::Unlimited => cellbed_link::Schedule::Unlimited,
            Self::Constant { bit_rate } => cellbed_link::Schedule::Constant(BitRate(*bit_rate)),
            Self::Series(series) => series.build().map_err(refused)?,
            Self::TokenBucket {
                bit_rate,
                burst_bytes,
            } => cellbed_link::Schedule::TokenBucket {
                rate: BitRate(*bit_rate),
                burst: Bytes(*burst_bytes),
            },
            Self::Trace {
                path,
                looped,
                offset_ns,
            } => cellbed_link::Schedule::Trace {
                trace: traces.read(path)?,
                repeat: if *looped {
                    Repeat::Looped
                } else {
                    Repeat::Once
                },
                offset: Duration::from_nanos(*offset_ns),
            },
        })
    }
}

/// Rate steps: pairs of time (ns, the first 0) and rate (bit/s), from the start again after `period_ns`, if given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    steps: Vec<(u64, u64)>,
    period_ns: Option<u64>,
    #[serde(default)]
    offset_ns: u64,
}

impl Series {
    fn build(&self) -> Result<cellbed_link::Schedule, Refusal> {
        let steps = self
            .steps
            .iter()
            .map(|&(at, rate)| (Duration::from_nanos(at), BitRate(rate)));
        let period = self.period_ns.map(Duration::from_nanos);
        let series = RateSeries::new(steps.collect(), period)
            .ok_or("the times of a rate series must begin at 0 and rise up to its period")?;
        Ok(cellbed_link::Schedule::Series {
            series: Arc::new(series),
            offset: Duration::from_nanos(self.offset_ns),
        })
    }
}

/// Traces by their files, each read once and shared.
#[derive(Default)]
pub(crate) struct Traces<'a>(HashMap<&'a Path, Arc<Trace>>);

impl<'a> Traces<'a> {
    pub(crate) fn read(&mut self, path: &'a Path) -> Result<Arc<Trace>> {
        if let Some(trace) = self.0.get(path) {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(read_trace(path)?);
        self.0.insert(path, Arc::clone(&trace));
        Ok(trace)
    }
}

/// Reads a trace file; errors name file, line and reason.
pub fn read_trace(path: &Path) -> Result<Trace> {
    let file = File::open(path).trying(|| format!("open the trace {}", path.display()))?;
    Trace::parse(file).map_err(|error| Error::Trace(error.in_file(path.display())))
}
