//! Metadata of a recording.

use cellbed_link::Time;
use chrono::{DateTime, SecondsFormat};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::clock::ClockEstimate;
use cellbed_calibration::calibration::Calibration;
use cellbed_calibration::plan::{Both, Saturation, TrainPlan};

/// Workload of a recording, made of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Packet trains.
    Light,
    /// Saturation.
    Heavy,
    /// Files fetched by TCP between and after the runs of the light workload.
    #[value(skip)]
    Downloads,
}

/// Arrangement of the workloads on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrangement {
    /// Both at the same time on two devices, or only one workload.
    Together,
    /// In turn, on one device.
    Alternating,
}

/// Information on the network from the user; each `None` if unknown.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[command(next_help_heading = "Description of the network, stored in the recording")]
pub struct Signal {
    /// Name of the operator.
    #[arg(long, value_name = "TEXT")]
    pub operator: Option<String>,
    /// Technology, such as lte, 5g-nsa, 5g-sa.
    #[arg(long, value_name = "TEXT")]
    pub technology: Option<String>,
    /// Identity of the cell.
    #[arg(long, value_name = "TEXT")]
    pub cell: Option<String>,
    /// Reference signal received power, dBm.
    #[arg(long = "rsrp", value_name = "DBM", allow_negative_numbers = true)]
    pub rsrp_dbm: Option<f64>,
    /// Place of the recording.
    #[arg(long, value_name = "TEXT")]
    pub place: Option<String>,
    /// Mobility, such as stationary, walking, driving.
    #[arg(long, value_name = "TEXT")]
    pub mobility: Option<String>,
    /// Further notes.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// Metadata known when a recording begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Random identifier, hexadecimal.
    pub id: String,
    /// Wall-clock time, RFC 3339.
    pub started: String,
    /// IP length of packets of trains and saturation, bytes.
    pub packet_bytes: u16,
    pub arrangement: Arrangement,
    pub light: Option<Light>,
    pub heavy: Option<Heavy>,
    pub calibration: Option<Calibration>,
    pub signal: Signal,
}

/// Configuration of the light workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Light {
    /// Interface; `None`: by the routing table.
    pub interface: Option<String>,
    pub plan: Option<TrainPlan>,
}

/// Configuration of the heavy workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heavy {
    /// Interface; `None`: by the routing table.
    pub interface: Option<String>,
    #[serde(flatten)]
    pub ways: Both<Option<Saturation>>,
}

/// Times of activity of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Span {
    pub(super) workload: Role,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// Numbers of packets of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub sent: u64,
    pub lost: u64,
    /// Packets with more than one arrival.
    pub duplicated: u64,
    /// Packets that arrived after a packet of the same train with a higher index (RFC 4737, §3).
    pub reordered: u64,
}

/// `recording.json`.
#[derive(Debug, Serialize)]
pub(super) struct Description<'a> {
    pub(super) format: &'static str,
    pub(super) version: u32,
    #[serde(flatten)]
    pub(super) head: &'a Head,
    pub(super) duration_ns: i64,
    pub(super) synthetic: bool,
    pub(super) tool: String,
    pub(super) spans: Vec<Span>,
    pub(super) clock: Clocks,
    pub(super) counts: std::collections::BTreeMap<&'static str, Counts>,
    /// Warnings for users of the recording, in sentences.
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Clocks {
    pub(super) light: Option<ClockEstimate>,
    pub(super) heavy: Option<ClockEstimate>,
}

/// Format a wall-clock time, ns since 1970, as RFC 3339 in UTC.
pub fn rfc3339(wall_clock: Time) -> String {
    DateTime::from_timestamp_nanos(wall_clock.as_nanos() as i64)
        .to_rfc3339_opts(SecondsFormat::Micros, true)
}
