//! Results of a calibration.

use serde::{Deserialize, Serialize};

use crate::plan::Both;

/// Response of a network to packet trains and saturation, by the procedures of Sentosa et al. ("CellReplay: Towards
/// accurate record-and-replay for cellular networks", NSDI 2025, §4.4): the parameters of a recording of this network
/// and of its replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Trains, gaps, rate and queue.
    pub directions: Both<DirectionCalibration>,
    /// comp(s): packet size s in bytes, and extra delay compared with packets of 1400 bytes, ns (negative: arrives
    /// sooner).
    pub compensation: Both<Vec<(u16, i64)>>,
    /// Standard errors of `compensation`, ns, in the same order.
    pub compensation_error_ns: Both<Vec<u64>>,
    /// Round trips of packets of 1400 bytes, answered by equal packets.
    pub round_trip_ns: RoundTrips,
    /// The results in sentences.
    pub verdict: Vec<String>,
    /// Facts that could not be established, in sentences.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// Duration of the calibration, ns.
    #[serde(default)]
    pub span_ns: u64,
    /// Bytes that the calibration sent in both directions, by IP lengths.
    #[serde(default)]
    pub bytes: u64,
}

/// Results of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionCalibration {
    /// U or D: the train length with the best prediction of the others.
    pub train: u16,
    /// G_min: the minimum gap between starts of two equally delivered trains.
    pub least_gap_ns: u64,
    /// F = G_min − r_last(G_min): idle time after which the link is as if never used; 0 if trains of this length and
    /// gap follow each other without a pause.
    pub idle_ns: u64,
    /// B: bytes in the bottleneck queue at overflow; `None` without an overflow.
    pub queue_bytes: Option<u64>,
    /// Bytes queued without a loss, if the queue did not overflow.
    pub queue_at_least_bytes: Option<u64>,
    /// Rate under saturation, by IP lengths.
    pub saturated_bps: u64,
    /// Standard error of this rate.
    pub saturated_error_bps: u64,
    /// Rate of the slowest second; `None` in results of earlier versions.
    #[serde(default)]
    pub slowest_bps: Option<u64>,
    /// Duration of the search for the slowest second, ns.
    #[serde(default)]
    pub watched_ns: u64,
    /// Profiles of the trains of each length, by length.
    pub lengths: Vec<LengthProfile>,
    /// Prediction errors of the trains of each length, by length; only of candidate lengths.
    pub errors: Vec<PredictionError>,
    /// Profiles of trains of the chosen length after each gap, in descending order of gaps.
    pub gaps: Vec<GapProfile>,
}

/// R_N: the rate of trains of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthProfile {
    /// N, packets.
    pub length: u16,
    /// Number of trains measured.
    pub trials: u32,
    /// R_N(i): mean arrival of each packet after the first.
    pub mean_arrival_ns: Vec<i64>,
    /// Standard error of the last arrival.
    pub last_error_ns: u64,
}

/// Error of the trains of one length in predicting the completion of all others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictionError {
    /// L, packets.
    pub length: u16,
    /// Mean of |R*_L(N) − R_N(N)| / R_N(N) over all other lengths N.
    pub mean_error: f64,
}

/// Profile of the trains of the chosen length after gaps of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapProfile {
    /// Time from one train's start to the next.
    pub gap_ns: u64,
    /// Number of trains measured.
    pub trials: u32,
    /// r_last: mean arrival of the last packet after the first.
    pub last_ns: i64,
    /// Standard error of r_last.
    pub last_error_ns: u64,
}

/// Quantiles of round-trip times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// 5 % are shorter.
    pub p5: i64,
    /// 50 % are shorter.
    pub median: i64,
    /// 5 % are longer.
    pub p95: i64,
}

impl LengthProfile {
    /// R_N(N): arrival of the last packet.
    pub fn last_ns(&self) -> i64 {
        self.mean_arrival_ns.last().copied().unwrap_or(0)
    }

    /// Relative standard error of R_N(N), and of the rate.
    pub fn relative_error(&self) -> f64 {
        self.last_error_ns as f64 / self.last_ns().max(1) as f64
    }

    /// Rate of delivery after the first packet, bit/s; `None` for a single packet.
    pub fn rate_bps(&self) -> Option<f64> {
        let bits = f64::from(self.length.saturating_sub(1)) * super::PACKET_BITS;
        (self.last_ns() > 0).then(|| bits / (self.last_ns() as f64 / 1e9))
    }
}

/// Maximum share of the slowest second's capacity for a light workload.
pub(super) const LIGHT_SHARE: f64 = 0.1;
/// Share of the mean rate below which a second counts as a pause, and shares that are expected of the slowest second:
/// at least, and after a pause.
pub(super) const PAUSE_SHARE: f64 = 0.02;
const SLOWEST_SHARE: f64 = 0.05;
const PAUSED_SHARE: f64 = 0.1;
/// Share of the expected slowest second for which a light workload is planned.
const MARGIN: f64 = 0.8;
/// Gap for which trains are shortened, and their minimum length.
const LIGHT_GAP_NS: f64 = 250e6;
const LIGHT_TRAIN: u16 = 2;

impl DirectionCalibration {
    /// Length of trains in a light workload: [the best](Self::train), but limited to a gap of 250 ms.
    pub fn light_train(&self) -> u16 {
        let most = self.light_bps() * LIGHT_GAP_NS / 1e9 / super::PACKET_BITS;
        self.train.min((most as u16).max(LIGHT_TRAIN))
    }

    /// Maximum rate of a light workload, bit/s: less than a tenth of the [expected](Self::expected_slowest_bps) slowest
    /// second.
    pub fn light_bps(&self) -> f64 {
        MARGIN * LIGHT_SHARE * self.expected_slowest_bps()
    }

    /// Rate of the slowest second expected in a recording, bit/s. A recording is longer than the search, so its slowest
    /// second is expected to be as far below the [slowest](Self::slowest_bps) one found as that one is below the mean.
    /// Pauses of a second or more are no capacity: they are expected to interrupt trains, not to slow them down.
    pub fn expected_slowest_bps(&self) -> f64 {
        let mean = (self.saturated_bps as f64).max(1.0);
        let Some(slowest) = self.slowest_bps.map(|slowest| slowest as f64) else {
            return mean;
        };
        if slowest < PAUSE_SHARE * mean {
            return PAUSED_SHARE * mean;
        }
        (slowest.powi(2) / mean).clamp(SLOWEST_SHARE * mean, mean)
    }

    /// Arrival of the last of `packets` packets sent at once to a cold link, ns after the first: R_N(N), interpolated
    /// between lengths; beyond the longest, at the saturated rate.
    pub fn completion_ns(&self, packets: u16) -> f64 {
        let (mut below_length, mut below) = (1.0, 0.0);
        for profile in &self.lengths {
            let (length, last) = (f64::from(profile.length), profile.last_ns() as f64);
            if profile.length >= packets {
                let share = (f64::from(packets) - below_length) / (length - below_length);
                return below + (last - below) * share;
            }
            (below_length, below) = (length, last);
        }
        below + self.heavy_ns(f64::from(packets) - below_length)
    }

    /// heavy(x): time of `packets` packets at the saturated rate, ns.
    pub fn heavy_ns(&self, packets: f64) -> f64 {
        packets * super::PACKET_BITS * 1e9 / self.saturated_bps as f64
    }
}
