//! Experiments that a calibration requests.

use std::fmt;

use cellbed_link::Duration;

use crate::packet::Way;
use crate::plan::{Saturation, Train};

/// One experiment of a calibration: the packets to send, and the time to listen afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Purpose of the experiment.
    pub purpose: Purpose,
    /// Traffic that the experiment sends.
    pub workload: Workload,
    /// The experiment is over when everything has been sent and nothing has arrived for so long.
    pub quiet: Duration,
}

/// The purpose of an experiment; as text in words for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To find out roughly what each direction carries.
    Search,
    /// To measure what each direction carries under saturation.
    Saturation,
    /// To fill each direction's queue until it overflows.
    Queue,
    /// To measure round trips.
    RoundTrips,
    /// To measure trains of many lengths.
    Trains(Way),
    /// To measure trains of the chosen length after gaps of many lengths.
    Gaps(Way),
    /// To measure packets of many sizes.
    Sizes(Way),
}

/// Traffic of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Trains, each at its time. A packet's [`train`](crate::packet::PacketRecord::train) is the train's place in this
    /// list.
    Trains(Vec<TimedTrain>),
    /// Saturation of either direction or both at once, with packets of [`PACKET_BYTES`](super::PACKET_BYTES).
    Saturation {
        /// From the client.
        uplink: Option<Saturation>,
        /// From the server.
        downlink: Option<Saturation>,
        /// Duration of each direction's saturation.
        span: Duration,
    },
}

/// A train and when its first packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedTrain {
    /// Since the experiment's start; never less than the time of the train before.
    pub at: Duration,
    /// Train to send at that time.
    pub train: Train,
}

impl Purpose {
    /// All, as they follow each other. The first two may be repeated.
    pub const ORDER: [Self; 10] = [
        Self::Search,
        Self::Saturation,
        Self::Queue,
        Self::RoundTrips,
        Self::Trains(Way::Uplink),
        Self::Trains(Way::Downlink),
        Self::Gaps(Way::Uplink),
        Self::Gaps(Way::Downlink),
        Self::Sizes(Way::Uplink),
        Self::Sizes(Way::Downlink),
    ];
}

impl Workload {
    /// At what rate a direction is saturated, bit/s; `None` if it is not.
    pub(super) fn rate_bps(&self, way: Way) -> Option<f64> {
        let Self::Saturation {
            uplink, downlink, ..
        } = self
        else {
            return None;
        };
        let saturation = match way {
            Way::Uplink => uplink,
            Way::Downlink => downlink,
        };
        saturation.as_ref()?.rate().map(|rate| rate.0 as f64)
    }

    /// From the first packet to the last, about.
    pub fn span(&self) -> Duration {
        match self {
            Self::Trains(trains) => trains.last().map_or(Duration::ZERO, |last| last.at),
            Self::Saturation { span, .. } => *span,
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Search => f.write_str("what each direction carries, roughly"),
            Self::Saturation => f.write_str("saturated rates"),
            Self::Queue => f.write_str("bottleneck queues"),
            Self::RoundTrips => f.write_str("round trips"),
            Self::Trains(way) => write!(f, "{way} trains by length"),
            Self::Gaps(way) => write!(f, "{way} trains by gap"),
            Self::Sizes(way) => write!(f, "{way} packets by size"),
        }
    }
}
