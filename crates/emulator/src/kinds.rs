//! Stages, schedules and queues with parameters of their own, as the configuration tells them.
//!
//! What is left out takes the default of the path model, which is that of the discipline's RFC.

use std::sync::Arc;

use cellbed_link::{
    Adaptation, BitRate, Bytes, CoDelConfig, DelayConfig, Discipline, Distribution, DualPi2Config,
    Duration, FqCoDelConfig, Limit, LossConfig, LossSeries, MahimahiCoDelConfig, MahimahiPieConfig,
    Packets, PieConfig, Probability, RandomDelay, RateSeries, RedConfig, Schedule, Seed, Spell,
};
use serde::Deserialize;

/// Why a value is refused.
type Refusal = String;

pub(crate) fn probability(value: f64) -> Result<Probability, Refusal> {
    Probability::new(value).ok_or_else(|| format!("{value} is no probability"))
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

/// Rate steps: pairs of time (ns, the first 0) and rate (bit/s), from the start again after `period_ns`, if given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    steps: Vec<(u64, u64)>,
    period_ns: Option<u64>,
    #[serde(default)]
    offset_ns: u64,
}

impl Series {
    pub(crate) fn build(&self) -> Result<Schedule, Refusal> {
        let steps = self
            .steps
            .iter()
            .map(|&(at, rate)| (Duration::from_nanos(at), BitRate(rate)));
        let period = self.period_ns.map(Duration::from_nanos);
        let series = RateSeries::new(steps.collect(), period)
            .ok_or("the times of a rate series must begin at 0 and rise up to its period")?;
        Ok(Schedule::Series {
            series: Arc::new(series),
            offset: Duration::from_nanos(self.offset_ns),
        })
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
    pub(crate) fn build(&self) -> Discipline {
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
    pub(crate) fn build(&self) -> Discipline {
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
    pub(crate) fn build(&self) -> Discipline {
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
    /// How long a typical packet takes to send.
    service_ns: u64,
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
    pub(crate) fn build(&self) -> Result<Discipline, Refusal> {
        let (minimum, maximum) = (Bytes(self.minimum_bytes), Bytes(self.maximum_bytes));
        if minimum >= maximum {
            return Err("the lower threshold of RED must lie below the upper one".to_owned());
        }
        let service = Duration::from_nanos(self.service_ns);
        let default = if self.adaptive {
            RedConfig::adaptive(minimum, maximum, service)
        } else {
            RedConfig::new(minimum, maximum, service)
        };
        Ok(Discipline::Red(RedConfig {
            probability: self.probability.unwrap_or(default.probability),
            weight: self.weight.unwrap_or(default.weight),
            gentle: self.gentle.unwrap_or(default.gentle),
            adaptation: self.adaptive.then(Adaptation::default),
            ecn: self.ecn,
            limit: limit(self.packets, self.bytes, default.limit),
            seed: Seed(self.seed),
            ..default
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
    pub(crate) fn build(&self) -> Discipline {
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
    pub(crate) fn build(&self) -> Result<Discipline, Refusal> {
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
    pub(crate) fn build(&self) -> Result<Discipline, Refusal> {
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

/// Losses in bursts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    to_bad: f64,
    to_good: f64,
    loss_good: f64,
    loss_bad: f64,
    seed: u64,
}

impl GilbertElliott {
    pub(crate) fn build(&self) -> Result<LossConfig, Refusal> {
        Ok(LossConfig::GilbertElliott {
            to_bad: probability(self.to_bad)?,
            to_good: probability(self.to_good)?,
            loss_good: probability(self.loss_good)?,
            loss_bad: probability(self.loss_bad)?,
            seed: Seed(self.seed),
        })
    }
}

/// A loss probability in steps: pairs of time (ns) and probability.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossSteps {
    steps: Vec<(u64, f64)>,
    seed: u64,
}

impl LossSteps {
    pub(crate) fn build(&self) -> Result<LossConfig, Refusal> {
        let steps = self
            .steps
            .iter()
            .map(|&(at, value)| Ok((Duration::from_nanos(at), probability(value)?)));
        let series = LossSeries::new(steps.collect::<Result<_, Refusal>>()?)
            .ok_or("the times of a recorded loss must rise")?;
        Ok(LossConfig::Series {
            series: Arc::new(series),
            seed: Seed(self.seed),
        })
    }
}

/// All packets pass for a time, then none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnOff {
    on_ns: u64,
    off_ns: u64,
    /// Whether these are means of exponential distributions.
    #[serde(default)]
    exponential: bool,
    seed: u64,
}

impl OnOff {
    pub(crate) fn build(&self) -> LossConfig {
        let spell = |length| match (self.exponential, Duration::from_nanos(length)) {
            (true, mean) => Spell::Exponential(mean),
            (false, length) => Spell::Fixed(length),
        };
        LossConfig::OnOff {
            on: spell(self.on_ns),
            off: spell(self.off_ns),
            seed: Seed(self.seed),
        }
    }
}

/// A delay that is drawn for each packet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    distribution: Drawn,
    #[serde(default)]
    correlation: f64,
    #[serde(default)]
    reorder: bool,
    seed: u64,
}

/// What it is drawn from.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Drawn {
    Uniform { mean_ns: u64, spread_ns: u64 },
    Normal { mean_ns: u64, deviation_ns: u64 },
    Pareto { mean_ns: u64, deviation_ns: u64 },
    Empirical { delays_ns: Vec<u64> },
}

impl Jitter {
    pub(crate) fn build(&self) -> Result<DelayConfig, Refusal> {
        let span = |nanos: &u64| Duration::from_nanos(*nanos);
        let distribution = match &self.distribution {
            Drawn::Uniform { mean_ns, spread_ns } => Distribution::Uniform {
                mean: span(mean_ns),
                spread: span(spread_ns),
            },
            Drawn::Normal {
                mean_ns,
                deviation_ns,
            } => Distribution::Normal {
                mean: span(mean_ns),
                deviation: span(deviation_ns),
            },
            Drawn::Pareto {
                mean_ns,
                deviation_ns,
            } => Distribution::Pareto {
                mean: span(mean_ns),
                deviation: span(deviation_ns),
            },
            Drawn::Empirical { delays_ns } => {
                Distribution::empirical(delays_ns.iter().map(span).collect())
                    .ok_or("an empirical distribution needs at least one delay")?
            }
        };
        Ok(DelayConfig::Random(RandomDelay {
            distribution,
            correlation: probability(self.correlation)?,
            reorder: self.reorder,
            seed: Seed(self.seed),
        }))
    }
}
