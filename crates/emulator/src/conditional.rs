//! Links that replay a recording conditional on what a packet meets, as the configuration tells them.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cellbed_link::{
    Bytes, Compensation, ConditionalConfig, ConditionalModel, DelayState, Delays, Discipline,
    Duration, Repeat, Saturated, Seed, Shift, SizeSamples, TrainSet, WarmUp, WarmUpCurve,
};
use serde::Deserialize;

use crate::error::{Error, Result, Trying};
use crate::queues::Queue;

/// One direction of such a recording, and how it is played.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditional {
    /// File of the model that was learnt from the recording.
    pub model: PathBuf,
    /// What waits, and what does not find room.
    pub queue: Queue,
    /// Whether the recording begins again at its end.
    looped: bool,
    /// Where in the recording time zero lies, ns.
    #[serde(default)]
    offset_ns: u64,
    /// Of the draws.
    #[serde(default)]
    seed: u64,
}

impl Conditional {
    /// The link of the path model with its queue; the model is read here.
    pub(crate) fn build(&self, queue: Discipline) -> Result<ConditionalConfig> {
        let model = Arc::new(read_model(&self.model)?);
        Ok(ConditionalConfig {
            repeat: if self.looped {
                Repeat::Looped
            } else {
                Repeat::Once
            },
            offset: Duration::from_nanos(self.offset_ns),
            queue,
            seed: Seed(self.seed),
            ..ConditionalConfig::new(model)
        })
    }
}

/// What stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    format: String,
    version: u32,
    duration_ns: u64,
    opportunity_bytes: u64,
    /// From each opportunity to the next one, the first from the start.
    opportunity_gaps_us: Vec<u32>,
    /// Time and delay.
    trend_ns: Vec<(u64, u64)>,
    /// Bytes, and ns.
    floor: Vec<(u64, i64)>,
    neighbours: usize,
    reach: f64,
    states: Vec<State>,
    trains: Vec<Trains>,
    warm_up: Warm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    idle_ns: u64,
    /// Bytes, and ns.
    compensation: Vec<(u64, i64)>,
    sizes: Vec<Samples>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Samples {
    bytes: u64,
    usual_ns: i64,
    /// Time, and what is over the trend.
    samples_ns: Vec<(u64, i64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trains {
    packet_bytes: u64,
    /// When each was sent, and the arrivals of its packets.
    sent_ns: Vec<u64>,
    arrivals_us: Vec<Vec<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Warm {
    edges_ns: Vec<u64>,
    memory_ns: u64,
    curves: Vec<Curve>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Curve {
    waiting_bytes: u64,
    shares: Vec<f64>,
}

const FORMAT: &str = "cellbed-conditional-model";
const VERSION: u32 = 1;

/// Reads a model; errors name the file and the reason.
fn read_model(path: &Path) -> Result<ConditionalModel> {
    let wrong = |reason: String| Error::Trace(format!("{}: {reason}", path.display()));
    let file = File::open(path).trying(|| format!("open the model {}", path.display()))?;
    let model: Model = serde_json::from_reader(BufReader::new(file))
        .map_err(|error| wrong(format!("not a model of a recording: {error}")))?;
    if model.format != FORMAT || model.version != VERSION {
        let (format, version) = (model.format, model.version);
        return Err(wrong(format!(
            "this is {format:?} in version {version}; it must be {FORMAT:?} in version {VERSION}, derive it anew"
        )));
    }
    model.build().map_err(wrong)
}

impl Model {
    fn build(self) -> std::result::Result<ConditionalModel, String> {
        let ns = Duration::from_nanos;
        let mut at = 0;
        let arrivals = self.opportunity_gaps_us.iter().map(|&gap| {
            at += u64::from(gap) * 1000;
            ns(at)
        });
        let saturated = Saturated::new(
            arrivals,
            ns(self.duration_ns),
            Bytes(self.opportunity_bytes),
        )
        .ok_or("opportunity_gaps_us: there must be opportunities, before duration_ns, that carry bytes")?;
        let states = self.states.into_iter().map(|state| {
            let compensation = compensation(&state.compensation)
                .ok_or("states: the sizes of a compensation must increase")?;
            let sizes = state.sizes.iter().map(|size| SizeSamples {
                bytes: Bytes(size.bytes),
                usual: Shift::from_nanos(size.usual_ns),
                samples: size
                    .samples_ns
                    .iter()
                    .map(|&(time, nanos)| (ns(time), Shift::from_nanos(nanos)))
                    .collect(),
            });
            Ok(DelayState {
                idle: ns(state.idle_ns),
                compensation,
                sizes: sizes.collect(),
            })
        });
        let floor = compensation(&self.floor).ok_or("floor: its sizes must increase")?;
        let delays = Delays::new(
            self.trend_ns
                .iter()
                .map(|&(time, delay)| (ns(time), ns(delay)))
                .collect(),
            floor,
            states.collect::<std::result::Result<_, &str>>()?,
            self.neighbours,
        )
        .ok_or(
            "trend_ns, states: both need entries, in order, and states begin with an idleness of 0",
        )?;
        let curves = self.warm_up.curves.into_iter().map(|curve| WarmUpCurve {
            waiting: Bytes(curve.waiting_bytes),
            shares: curve.shares,
        });
        let warm_up = WarmUp::new(
            self.warm_up.edges_ns.into_iter().map(ns).collect(),
            curves.collect(),
            ns(self.warm_up.memory_ns),
        )
        .ok_or("warm_up: edges begin at 0 and increase, and so do the bytes of the curves, each with a share for every edge")?;
        let trains = self.trains.into_iter().map(|set| {
            let micros = |arrivals: Vec<u64>| arrivals.into_iter().map(Duration::from_micros).collect();
            let arrivals = set.arrivals_us.into_iter().map(micros);
            TrainSet::new(Bytes(set.packet_bytes), set.sent_ns.into_iter().map(ns).zip(arrivals).collect())
                .ok_or("trains: a set needs trains of one length, in order of time, each with its arrivals in order")
        });
        let trains: Vec<TrainSet> = trains.collect::<std::result::Result<_, _>>()?;
        if !trains.is_sorted_by(|a, b| (a.packet(), a.bytes()) < (b.packet(), b.bytes())) {
            return Err("trains: the sets must be in order of the size of their packets, and then of their length".to_owned());
        }
        Ok(ConditionalModel {
            delays,
            trains,
            reach: self.reach,
            saturated,
            warm_up,
        })
    }
}

fn compensation(points: &[(u64, i64)]) -> Option<Compensation> {
    let point = |&(bytes, nanos): &(u64, i64)| (Bytes(bytes), Shift::from_nanos(nanos));
    Compensation::new(points.iter().map(point))
}
