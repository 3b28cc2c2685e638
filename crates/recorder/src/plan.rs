//! Traffic plans of a recorder: packet trains in rotation, and saturation.

use cellbed_link::{BitRate, Duration};
use serde::{Deserialize, Serialize};

/// One packet train and its answer (Sentosa et al., "CellReplay", NSDI 2025, §4.2): the client sends `up` packets back
/// to back; when the first of them to arrive is there, the server sends `down` packets back to back.
///
/// All probing is made of it: a round trip is a train of one packet answered by one, a downlink train is one small
/// packet answered by many, a measurement of sizes is one packet of varying size answered by one of 100 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Train {
    /// Packets of the client; at least 1.
    pub up: u16,
    /// Packets of the server; 0 for none.
    pub down: u16,
    /// IP length of each packet of the client, bytes.
    pub up_bytes: u16,
    /// IP length of each packet of the server, bytes.
    pub down_bytes: u16,
    /// From its first packet to the next train's first, ns, in place of the plan's `gap_ns`: idle times of several
    /// lengths need it. The jitter applies to it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ns: Option<u64>,
}

/// Trains in rotation, or shuffled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainPlan {
    /// Taken in this order, over and over.
    pub rotation: Vec<Train>,
    /// From the first packet of one train to the next train's first, ns.
    pub gap_ns: u64,
    /// Each gap is drawn evenly from `gap` · (1 ± `jitter`), so that trains do not keep meeting the same phase of the
    /// radio's frames; 0 ≤ `jitter` < 1.
    pub jitter: f64,
    /// Total number of trains; `None` until stopped.
    pub count: Option<u32>,
    /// Of the jitter.
    pub seed: u64,
}

impl TrainPlan {
    /// The time from one train to the next, on average.
    pub fn gap(&self) -> Duration {
        Duration::from_nanos(self.gap_ns)
    }
}

/// Saturation of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case")]
pub enum Saturation {
    /// Packets at a fixed rate, which should be 25 % over the measured maximum (CellReplay §4.2).
    Fixed {
        /// Counting IP lengths, bit/s.
        rate_bps: u64,
    },
    /// A number of packets in flight that keeps the queue between two delays, reported over a second device (Winstein
    /// et al., "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks", NSDI 2013, §4.1:
    /// 0.75 and 3 s).
    Adaptive {
        /// Below it more is sent, ns.
        least_delay_ns: u64,
        /// Above it less is sent, ns.
        most_delay_ns: u64,
    },
}

impl Saturation {
    /// Return whether the rate follows the state of the queue.
    pub fn is_adaptive(&self) -> bool {
        matches!(self, Self::Adaptive { .. })
    }

    /// The fixed rate, if there is one.
    pub fn rate(&self) -> Option<BitRate> {
        match self {
            Self::Fixed { rate_bps } => Some(BitRate(*rate_bps)),
            Self::Adaptive { .. } => None,
        }
    }
}
