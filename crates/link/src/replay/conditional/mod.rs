//! Replay conditional on the state that a packet meets: how long the link was idle, how much waits, and when it comes.

mod file;
mod opportunities;
mod saturated;
mod stage;
mod states;
mod trains;
mod warmup;

use std::sync::Arc;

pub use saturated::Saturated;
pub(crate) use saturated::SaturatedPlayback;
pub(crate) use stage::Conditional;
pub use states::{DelayState, Delays, SizeSamples};
pub use trains::TrainSet;
pub use warmup::{WarmUp, WarmUpCurve};

use crate::queue::{Discipline, Queue};
use crate::random::Seed;
use crate::time::{Duration, Time};
use crate::trace::Repeat;
use crate::units::{BitRate, MTU, Opportunities};

/// A link that treats each packet as the recorded network treated packets in the same situation.
///
/// A packet that finds nothing before it takes a delay that a packet took in the recording at about the same time,
/// after an idleness of about the same length: one recorded value, drawn, no mean. Packets behind others wait for the
/// opportunities of the saturation; the link gets a share of them that depends on how long it has been busy and how
/// much has waited.
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
    /// Of the draws.
    pub seed: Seed,
}

/// Model of one direction from a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionalModel {
    /// Delays of packets that find nothing before them.
    pub delays: Delays,
    /// Trains of a cold link, in order of the size of their packets, and then of their length.
    pub trains: Vec<TrainSet>,
    /// Trains up to so many times as long as what has waited show how the link continues after a train.
    pub reach: f64,
    /// Opportunities under saturation.
    pub saturated: Saturated,
    /// Share of the opportunities that a link gets which is not saturated.
    pub warm_up: WarmUp,
}

impl ConditionalConfig {
    /// The recording in a loop, with an infinite queue.
    pub fn new(model: Arc<ConditionalModel>) -> Self {
        Self {
            model,
            repeat: Repeat::Looped,
            offset: Duration::ZERO,
            queue: Discipline::Infinite,
            seed: Seed(0),
        }
    }

    fn new_queue<P>(&self, zero: Time) -> Queue<P> {
        let saturated = &self.model.saturated;
        let carried = Opportunities(saturated.count() as u64).carrying(saturated.size());
        let packet = BitRate::of(carried, saturated.period()).time_for(MTU);
        Queue::new(&self.queue, packet, zero)
    }
}
