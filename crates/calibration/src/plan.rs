//! Traffic that measures a network, packet trains and saturation, and the records of its packets.

use cellbed_link::BitRate;
use serde::{Deserialize, Serialize};

pub use cellbed_link::Way;

/// A value per direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Both<T> {
    /// From the client to the server.
    pub uplink: T,
    /// From the server to the client.
    pub downlink: T,
}

impl<T> Both<T> {
    /// Make a value for each direction.
    pub fn from_fn(mut make: impl FnMut(Way) -> T) -> Self {
        Self {
            uplink: make(Way::Uplink),
            downlink: make(Way::Downlink),
        }
    }

    /// Return the value of a direction.
    pub fn of(&self, way: Way) -> &T {
        match way {
            Way::Uplink => &self.uplink,
            Way::Downlink => &self.downlink,
        }
    }

    /// Return the value of a direction, to change it.
    pub fn of_mut(&mut self, way: Way) -> &mut T {
        match way {
            Way::Uplink => &mut self.uplink,
            Way::Downlink => &mut self.downlink,
        }
    }
}

/// A packet train and its answer (Sentosa et al., "CellReplay", NSDI 2025, §4.2). The client sends `up` packets back to
/// back. At the arrival of the first one, the server sends `down` packets back to back.
///
/// All probing consists of trains: a round trip is one packet answered by one, a downlink train one small packet
/// answered by many, a measurement of sizes one packet of varying size answered by one of 100 bytes.
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
    /// Time from the train's first packet to the next train's, ns, in place of the plan's `gap_ns`, for idle times of
    /// several lengths. The jitter also applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ns: Option<u64>,
}

impl Train {
    /// A train of packets with lengths in bytes, without a separate gap.
    pub fn new((up, up_bytes): (u16, u16), (down, down_bytes): (u16, u16)) -> Self {
        Self {
            up,
            down,
            up_bytes,
            down_bytes,
            gap_ns: None,
        }
    }

    /// Return number and IP length (bytes) of a direction's packets.
    pub fn packets(&self, way: Way) -> (u16, u16) {
        match way {
            Way::Uplink => (self.up, self.up_bytes),
            Way::Downlink => (self.down, self.down_bytes),
        }
    }
}

/// Trains in rotation, or shuffled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainPlan {
    /// Trains in order, repeated.
    pub rotation: Vec<Train>,
    /// From the first packet of one train to the next train's first, ns.
    pub gap_ns: u64,
    /// Each gap is drawn evenly from `gap` · (1 ± `jitter`), so that trains do not keep meeting the same phase of the
    /// radio's frames; 0 ≤ `jitter` < 1.
    pub jitter: f64,
    /// Total number of trains; `None` until stopped.
    pub count: Option<u32>,
    /// Seed of the jitter.
    pub seed: u64,
}

impl TrainPlan {
    /// Return the mean rate of a direction's packets, bit/s.
    pub fn rate_bps(&self, way: Way) -> f64 {
        let bits = |train: &Train| {
            let (packets, bytes) = train.packets(way);
            8.0 * f64::from(packets) * f64::from(bytes)
        };
        let mean = self.rotation.iter().map(bits).sum::<f64>() / self.rotation.len().max(1) as f64;
        mean * self.trains_per_second()
    }

    /// Return the mean number of trains per second.
    pub fn trains_per_second(&self) -> f64 {
        let gaps = self
            .rotation
            .iter()
            .map(|it| it.gap_ns.unwrap_or(self.gap_ns));
        self.rotation.len() as f64 / (gaps.sum::<u64>().max(1) as f64 / 1e9)
    }
}

/// Saturation of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case")]
pub enum Saturation {
    /// Packets at a fixed rate, which should be 25 % over the measured maximum (CellReplay §4.2).
    Fixed {
        /// Rate of IP lengths, bit/s.
        rate_bps: u64,
    },
    /// A number of packets in flight that keeps the queue between two delays, reported over a second device (Winstein
    /// et al., "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks", NSDI 2013, §4.1:
    /// 0.75 and 3 s).
    Adaptive {
        /// Minimum queueing delay, ns; below it the rate grows.
        least_delay_ns: u64,
        /// Maximum queueing delay, ns; above it the rate falls.
        most_delay_ns: u64,
    },
}

/// Traffic of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Workload {
    /// Trains in rotation.
    Trains(TrainPlan),
    /// Saturation of one direction or both.
    Saturation {
        /// Saturation from the client, and from the server.
        ways: Both<Option<Saturation>>,
        /// IP length of the packets.
        bytes: u16,
    },
}

impl Workload {
    /// Return whether the workload sends trains.
    pub fn is_trains(&self) -> bool {
        !matches!(self, Self::Saturation { .. })
    }

    /// Return the saturation of each direction.
    pub fn saturation(&self) -> Both<Option<Saturation>> {
        match self {
            Self::Saturation { ways, .. } => *ways,
            _ => Both::default(),
        }
    }

    /// Return the fixed rate of a direction's saturation.
    pub fn rate(&self, way: Way) -> Option<BitRate> {
        match self.saturation().of(way) {
            Some(Saturation::Fixed { rate_bps }) => Some(BitRate(*rate_bps)),
            _ => None,
        }
    }

    /// Return the minimum queueing delay of each adaptive saturation, ns.
    pub fn least_waits_ns(&self) -> Both<Option<u64>> {
        let ways = self.saturation();
        Both::from_fn(|way| match ways.of(way) {
            Some(Saturation::Adaptive { least_delay_ns, .. }) => Some(*least_delay_ns),
            _ => None,
        })
    }

    /// Return whether the traffic depends on the length of the queue.
    pub fn is_adaptive(&self) -> bool {
        self.least_waits_ns() != Both::default()
    }
}

/// A packet of a train or of a saturation, and its fate. Times are ns since the recording's time zero on the client's
/// clock; stamps of the server are converted to that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// Number of the train; 0 for saturation.
    pub train: u32,
    /// Position in the train, or in the saturation.
    pub index: u32,
    /// IP length, bytes.
    pub bytes: u16,
    /// Time of sending; unknown for a lost packet of the server.
    pub sent_ns: Option<i64>,
    /// Arrival of the first copy; `None` if lost.
    pub arrived_ns: Option<i64>,
    /// Number of copies that arrived.
    pub copies: u8,
}

impl PacketRecord {
    /// Return the one-way delay, ns; `None` for a lost packet.
    pub fn delay_ns(&self) -> Option<i64> {
        Some(self.arrived_ns? - self.sent_ns?)
    }
}
