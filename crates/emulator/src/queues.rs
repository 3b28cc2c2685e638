//! Queues, as the configuration tells them.
//!
//! What is left out takes the default of the path model, which is that of the discipline's RFC.

use cellbed_link::{
    Bytes, CoDelConfig, Discipline, DualPi2Config, Duration, FqCoDelConfig, Limit,
    MahimahiCoDelConfig, MahimahiPieConfig, Packets, PieConfig, RedConfig, Seed,
};
use serde::Deserialize;

use crate::error::Refusal;

/// The queue of a bottleneck.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Queue {
    /// Everything waits.
    Infinite,
    /// What does not fit is dropped on arrival.
    DropTail {
        /// Most packets that wait.
        packets: Option<u64>,
        /// Most bytes that wait.
        bytes: Option<u64>,
    },
    /// What has waited longest is dropped for what comes.
    DropHead {
        /// Most packets that wait.
        packets: Option<u64>,
        /// Most bytes that wait.
        bytes: Option<u64>,
    },
    /// RFC 8289.
    CoDel(CoDel),
    /// RFC 8290.
    FqCoDel(FqCoDel),
    /// RFC 8033.
    Pie(Pie),
    /// Random early detection.
    Red(Red),
    /// RFC 9332.
    DualPi2(DualPi2),
    /// Mahimahi's CoDel.
    #[serde(rename = "mahimahi-codel")]
    MahimahiCoDel(MahimahiCoDel),
    /// Mahimahi's PIE.
    #[serde(rename = "mahimahi-pie")]
    MahimahiPie(MahimahiPie),
}

impl Queue {
    pub(crate) fn build(&self) -> Result<Discipline, Refusal> {
        Ok(match self {
            Self::Infinite => Discipline::Infinite,
            Self::DropTail { packets, bytes } => Discipline::DropTail {
                packets: packets.map(Packets),
                bytes: bytes.map(Bytes),
            },
            Self::DropHead { packets, bytes } => Discipline::DropHead {
                packets: packets.map(Packets),
                bytes: bytes.map(Bytes),
            },
            Self::CoDel(queue) => queue.build(),
            Self::FqCoDel(queue) => queue.build(),
            Self::Pie(queue) => queue.build(),
            Self::Red(queue) => queue.build()?,
            Self::DualPi2(queue) => queue.build(),
            Self::MahimahiCoDel(queue) => queue.build()?,
            Self::MahimahiPie(queue) => queue.build()?,
        })
    }
}

fn nanos(value: Option<u64>, default: Duration) -> Duration {
    value.map_or(default, Duration::from_nanos)
}

fn limit(packets: Option<u64>, bytes: Option<u64>, default: Limit) -> Limit {
    if packets.is_none() && bytes.is_none() {
        return default;
    }
    Limit {
        packets: packets.map(Packets),
        bytes: bytes.map(Bytes),
    }
}

/// CoDel (RFC 8289).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoDel {
    target_ns: Option<u64>,
    interval_ns: Option<u64>,
    #[serde(default)]
    ecn: bool,
    ce_threshold_ns: Option<u64>,
    packets: Option<u64>,
    bytes: Option<u64>,
}

impl CoDel {
    fn build(&self) -> Discipline {
        let default = CoDelConfig::default();
        Discipline::CoDel(CoDelConfig {
            target: nanos(self.target_ns, default.target),
            interval: nanos(self.interval_ns, default.interval),
            ecn: self.ecn,
            ce_threshold: self.ce_threshold_ns.map(Duration::from_nanos),
            limit: limit(self.packets, self.bytes, default.limit),
            ..default
        })
    }
}

/// FQ-CoDel (RFC 8290).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FqCoDel {
    flows: Option<u16>,
    quantum: Option<u64>,
    target_ns: Option<u64>,
    interval_ns: Option<u64>,
    ecn: Option<bool>,
    ce_threshold_ns: Option<u64>,
    packets: Option<u64>,
    bytes: Option<u64>,
    #[serde(default)]
    seed: u64,
}

impl FqCoDel {
    fn build(&self) -> Discipline {
        let default = FqCoDelConfig::default();
        Discipline::FqCoDel(FqCoDelConfig {
            flows: self.flows.unwrap_or(default.flows),
            quantum: self.quantum.map_or(default.quantum, Bytes),
            codel: CoDelConfig {
                target: nanos(self.target_ns, default.codel.target),
                interval: nanos(self.interval_ns, default.codel.interval),
                ecn: self.ecn.unwrap_or(default.codel.ecn),
                ce_threshold: self.ce_threshold_ns.map(Duration::from_nanos),
                ..default.codel
            },
            limit: limit(self.packets, self.bytes, default.limit),
            seed: Seed(self.seed),
        })
    }
}

/// PIE (RFC 8033).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pie {
    target_ns: Option<u64>,
    update_ns: Option<u64>,
    alpha: Option<f64>,
    beta: Option<f64>,
    burst_ns: Option<u64>,
    mark_below: Option<f64>,
    packets: Option<u64>,
    bytes: Option<u64>,
    #[serde(default)]
    seed: u64,
}

impl Pie {
    fn build(&self) -> Discipline {
        let default = PieConfig::default();
        Discipline::Pie(PieConfig {
            target: nanos(self.target_ns, default.target),
            update: nanos(self.update_ns, default.update),
            alpha: self.alpha.unwrap_or(default.alpha),
            beta: self.beta.unwrap_or(default.beta),
            burst: nanos(self.burst_ns, default.burst),
            mark_below: self.mark_below.or(default.mark_below),
            limit: limit(self.packets, self.bytes, default.limit),
            seed: Seed(self.seed),
            ..default
        })
    }
}

/// RED, or Adaptive RED.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Red {
    minimum_bytes: u64,
    maximum_bytes: u64,
    /// How long a typical packet takes to send; left out: by the mean rate of the link.
    service_ns: Option<u64>,
    probability: Option<f64>,
    weight: Option<f64>,
    gentle: Option<bool>,
    #[serde(default)]
    adaptive: bool,
    #[serde(default)]
    ecn: bool,
    packets: Option<u64>,
    bytes: Option<u64>,
    #[serde(default)]
    seed: u64,
}

impl Red {
    fn build(&self) -> Result<Discipline, Refusal> {
        let (minimum, maximum) = (Bytes(self.minimum_bytes), Bytes(self.maximum_bytes));
        if minimum >= maximum {
            return Err("the lower threshold of RED must lie below the upper one".to_owned());
        }
        let default = RedConfig::new(minimum, maximum);
        Ok(Discipline::Red(RedConfig {
            probability: self.probability.unwrap_or(default.probability),
            weight: self.weight,
            service: self.service_ns.map(Duration::from_nanos),
            gentle: self.gentle.unwrap_or(default.gentle),
            adaptive: self.adaptive,
            ecn: self.ecn,
            limit: limit(self.packets, self.bytes, default.limit),
            seed: Seed(self.seed),
            minimum,
            maximum,
        }))
    }
}

/// DualPI2 (RFC 9332).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DualPi2 {
    target_ns: Option<u64>,
    update_ns: Option<u64>,
    alpha: Option<f64>,
    beta: Option<f64>,
    coupling: Option<f64>,
    threshold_ns: Option<u64>,
    range_ns: Option<u64>,
    classic_share: Option<u8>,
    packets: Option<u64>,
    bytes: Option<u64>,
}

impl DualPi2 {
    fn build(&self) -> Discipline {
        let default = DualPi2Config::default();
        Discipline::DualPi2(DualPi2Config {
            target: nanos(self.target_ns, default.target),
            update: nanos(self.update_ns, default.update),
            alpha: self.alpha.unwrap_or(default.alpha),
            beta: self.beta.unwrap_or(default.beta),
            coupling: self.coupling.unwrap_or(default.coupling),
            threshold: nanos(self.threshold_ns, default.threshold),
            range: nanos(self.range_ns, default.range),
            classic_share: self.classic_share.unwrap_or(default.classic_share),
            limit: limit(self.packets, self.bytes, default.limit),
            ..default
        })
    }
}

/// Mahimahi's CoDel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MahimahiCoDel {
    target_ns: u64,
    interval_ns: u64,
    packets: Option<u64>,
    bytes: Option<u64>,
}

impl MahimahiCoDel {
    fn build(&self) -> Result<Discipline, Refusal> {
        Ok(Discipline::MahimahiCoDel(MahimahiCoDelConfig {
            target: at_least_a_millisecond("target_ns", self.target_ns)?,
            interval: at_least_a_millisecond("interval_ns", self.interval_ns)?,
            limit: limit(self.packets, self.bytes, Limit::default()),
        }))
    }
}

/// Mahimahi's PIE.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MahimahiPie {
    qdelay_ref_ns: u64,
    max_burst_ns: u64,
    packets: Option<u64>,
    bytes: Option<u64>,
    #[serde(default)]
    seed: u64,
}

impl MahimahiPie {
    fn build(&self) -> Result<Discipline, Refusal> {
        Ok(Discipline::MahimahiPie(MahimahiPieConfig {
            target: at_least_a_millisecond("qdelay_ref_ns", self.qdelay_ref_ns)?,
            burst: at_least_a_millisecond("max_burst_ns", self.max_burst_ns)?,
            limit: limit(self.packets, self.bytes, Limit::default()),
            seed: Seed(self.seed),
        }))
    }
}

/// The queues of Mahimahi count in whole milliseconds and know no 0.
fn at_least_a_millisecond(name: &str, nanos: u64) -> Result<Duration, Refusal> {
    if nanos < 1_000_000 {
        return Err(format!(
            "{name} is {nanos}, less than a millisecond; a queue of Mahimahi needs at least that"
        ));
    }
    Ok(Duration::from_nanos(nanos))
}
