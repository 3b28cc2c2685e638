//! The file of a model, as it is derived from a recording.

use std::io::{BufReader, Read};

use serde::Deserialize;

use super::{ConditionalModel, DelayState, Delays, Saturated, TrainSet, WarmUp, WarmUpCurve};
use crate::replay::Compensation;
use crate::time::Duration;
use crate::units::Bytes;

const FORMAT: &str = "cellbed-conditional-model";
const VERSION: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    format: String,
    version: u32,
    duration_ns: Duration,
    opportunity_bytes: Bytes,
    /// From each opportunity to the next one, the first from the start.
    opportunity_gaps_us: Vec<u32>,
    /// Time and delay.
    trend_ns: Vec<(Duration, Duration)>,
    floor: Compensation,
    neighbours: usize,
    reach: f64,
    states: Vec<DelayState>,
    trains: Vec<Trains>,
    warm_up: Warm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trains {
    packet_bytes: Bytes,
    /// When each was sent, and the arrivals of its packets.
    sent_ns: Vec<Duration>,
    arrivals_us: Vec<Vec<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Warm {
    edges_ns: Vec<Duration>,
    memory_ns: Duration,
    curves: Vec<WarmUpCurve>,
}

impl ConditionalModel {
    /// Reads the file of a model. Errors are the reason why it was refused.
    pub fn parse(file: impl Read) -> Result<Self, String> {
        let model: Model = serde_json::from_reader(BufReader::new(file))
            .map_err(|error| format!("not a model of a recording: {error}"))?;
        if model.format != FORMAT || model.version != VERSION {
            let (format, version) = (model.format, model.version);
            return Err(format!(
                "this is {format:?} in version {version}; it must be {FORMAT:?} in version {VERSION}, derive it anew"
            ));
        }
        Ok(model.build()?)
    }
}

impl Model {
    fn build(self) -> Result<ConditionalModel, &'static str> {
        let mut at = 0;
        let arrivals = self.opportunity_gaps_us.iter().map(|&gap| {
            at += u64::from(gap);
            Duration::from_micros(at)
        });
        let saturated = Saturated::new(arrivals, self.duration_ns, self.opportunity_bytes).ok_or(
            "opportunity_gaps_us: there must be opportunities, before duration_ns, that carry bytes",
        )?;
        let delays = Delays::new(self.trend_ns, self.floor, self.states, self.neighbours).ok_or(
            "trend_ns, states: both need entries, in order, and states begin with an idleness of 0",
        )?;
        let Warm {
            edges_ns,
            memory_ns,
            curves,
        } = self.warm_up;
        let warm_up = WarmUp::new(edges_ns, curves, memory_ns)
            .ok_or("warm_up: edges begin at 0 and increase, and so do the bytes of the curves, each with a share for every edge")?;
        let trains = self.trains.into_iter().map(|set| {
            let micros = |arrivals: Vec<u64>| arrivals.into_iter().map(Duration::from_micros).collect();
            let arrivals = set.arrivals_us.into_iter().map(micros);
            TrainSet::new(set.packet_bytes, set.sent_ns.into_iter().zip(arrivals).collect())
                .ok_or("trains: a set needs trains of one length, in order of time, each with its arrivals in order")
        });
        let trains: Vec<TrainSet> = trains.collect::<Result<_, _>>()?;
        if !trains.is_sorted_by(|a, b| (a.packet(), a.bytes()) < (b.packet(), b.bytes())) {
            return Err(
                "trains: the sets must be in order of the size of their packets, and then of their length",
            );
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
