//! Replay conditional on the state that a packet meets: idle time of the link, waiting bytes, and time of arrival.

mod loss;
mod opportunities;
mod saturated;
mod stage;
mod states;

pub use loss::LossChain;
pub use saturated::Saturated;
pub(crate) use saturated::SaturatedPlayback;
pub(crate) use stage::Conditional;
pub use states::{DelayState, Delays, SizeSamples, TrainGroup, TrainSet};

use std::io::{BufReader, Read};
use std::sync::Arc;

use serde::Deserialize;

use crate::queue::{Discipline, Queue};
use crate::random::Seed;
use crate::replay::Compensation;
use crate::time::{Duration, Time};
use crate::trace::{Repeat, TraceError};
use crate::units::{BitRate, Bytes, MTU, Opportunities};

/// A link that treats each packet as the recorded network treated packets in the same situation.
///
/// A packet that finds an idle link takes the delay of a recorded packet at about the same time, after about the same
/// idle time: one recorded value, drawn, no mean. Packets behind others arrive like the
/// packets of a recorded train, and then take the opportunities of the saturation.
///
/// The method goes beyond CellReplay ([`WorkloadDependentConfig`](super::WorkloadDependentConfig)), which has
/// one schedule for each activation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionalConfig {
    /// Model learnt from the recording.
    pub model: Arc<ConditionalModel>,
    /// Continuation after the end of the recording.
    pub repeat: Repeat,
    /// Start position in the recording.
    pub offset: Duration,
    /// Discipline of the queue before the opportunities; packets on the way to them do not count.
    pub queue: Discipline,
    /// Seed of the draws.
    pub seed: Seed,
}

/// Model of one direction from a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionalModel {
    /// Delays of packets that find an idle link.
    pub delays: Delays,
    /// True if packets that find an idle link wait for an opportunity of the saturated link.
    pub aligned: bool,
    /// Trains of a cold link, in order of the idle time before them. Without trains for an idle time, bursts get the
    /// opportunities under saturation.
    pub trains: Vec<TrainGroup>,
    /// Number of trains of a set around an instant to draw from.
    pub train_neighbours: usize,
    /// Maximum length of the trains that continue a played train, in multiples of the backlog's maximum.
    pub reach: f64,
    /// Opportunities under saturation.
    pub saturated: Saturated,
    /// Maximum of the bytes ahead of these opportunities behind which a single packet or a train continues.
    pub ahead: Bytes,
    /// Losses before the queue, if any.
    pub loss: Option<LossChain>,
}

impl ConditionalConfig {
    /// Return the looped recording, with an infinite queue.
    pub fn new(model: Arc<ConditionalModel>) -> Self {
        Self {
            model,
            repeat: Repeat::Looped,
            offset: Duration::ZERO,
            queue: Discipline::Infinite,
            seed: Seed(0),
        }
    }

    /// Return the seed for a playback from `offset` after the start position: other positions get other draws.
    fn seed_at(&self, offset: Duration) -> Seed {
        Seed(self.seed.0 ^ (self.offset + offset).as_nanos())
    }

    fn new_queue<P>(&self, zero: Time) -> Queue<P> {
        let saturated = &self.model.saturated;
        let carried = Opportunities(saturated.count() as u64).carrying(saturated.size());
        let packet = BitRate::of(carried, saturated.period()).time_for(MTU);
        Queue::new(&self.queue, packet, zero)
    }
}

const FORMAT: &str = "cellbed-conditional-model";
const VERSION: u32 = 5;
/// Maximum size of a model's file, bytes: an hour at 400 Mbit/s.
const LARGEST: u64 = 1 << 29;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    format: String,
    version: u32,
    duration_ns: Duration,
    opportunity_bytes: Bytes,
    /// Times between opportunities; the first from the start.
    opportunity_gaps_us: Vec<u32>,
    ahead_bytes: Bytes,
    /// Time and delay.
    trend_ns: Vec<(Duration, Duration)>,
    floor: Compensation,
    neighbours: usize,
    reach: f64,
    aligned: bool,
    states: Vec<DelayState>,
    trains: Vec<Group>,
    train_neighbours: usize,
    loss: Option<LossChain>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    idle_ns: Duration,
    anchored: bool,
    sets: Vec<Trains>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trains {
    packet_bytes: Bytes,
    /// Send times of trains, and the arrivals of their packets.
    sent_ns: Vec<Duration>,
    arrivals_us: Vec<Vec<u64>>,
}

impl ConditionalModel {
    /// Read the file of a model.
    pub fn parse(file: impl Read) -> Result<Self, TraceError> {
        Self::read(file).map_err(TraceError::whole)
    }

    fn read(file: impl Read) -> Result<Self, String> {
        let model: Model = serde_json::from_reader(BufReader::new(file.take(LARGEST)))
            .map_err(|error| format!("not a model of a recording: {error}"))?;
        if model.format != FORMAT || model.version != VERSION {
            let (format, version) = (model.format, model.version);
            return Err(format!(
                "this is {format:?} in version {version}; it must be {FORMAT:?} in version {VERSION}, derive it again"
            ));
        }
        let mut at = 0;
        let arrivals = model.opportunity_gaps_us.iter().map(|&gap| {
            at += u64::from(gap);
            Duration::from_micros(at)
        });
        let saturated = Saturated::new(arrivals, model.duration_ns, model.opportunity_bytes).ok_or(
            "opportunity_gaps_us: there must be opportunities, before duration_ns, that carry bytes",
        )?;
        let delays = Delays::new(model.trend_ns, model.floor, model.states, model.neighbours).ok_or(
            "trend_ns, states: both need entries, in order, and states begin with an idleness of 0",
        )?;
        let trains = model.trains.into_iter().map(Group::build);
        let trains: Vec<TrainGroup> = trains.collect::<Option<_>>().ok_or(
            "trains: a set needs trains of one length, in order of time, each with its arrivals in order, and a group \
             its sets in order of the size of their packets, and then of their length",
        )?;
        if !trains.is_sorted_by(|a, b| a.idle() < b.idle()) {
            return Err("trains: the groups must be in order of their idle time".into());
        }
        Ok(Self {
            delays,
            aligned: model.aligned,
            trains,
            train_neighbours: model.train_neighbours,
            reach: model.reach,
            saturated,
            ahead: model.ahead_bytes,
            loss: model.loss,
        })
    }
}

impl Group {
    fn build(self) -> Option<TrainGroup> {
        let set = |set: Trains| {
            let micros =
                |arrivals: Vec<u64>| arrivals.into_iter().map(Duration::from_micros).collect();
            let arrivals = set.arrivals_us.into_iter().map(micros);
            TrainSet::new(
                set.packet_bytes,
                set.sent_ns.into_iter().zip(arrivals).collect(),
            )
        };
        let sets = self.sets.into_iter().map(set).collect::<Option<_>>()?;
        TrainGroup::new(self.idle_ns, self.anchored, sets)
    }
}
