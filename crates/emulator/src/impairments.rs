//! Loss and jitter with parameters of their own, as the configuration tells them.

use std::sync::Arc;

use cellbed_link::{
    DelayConfig, Distribution, Duration, LossConfig, LossSeries, Probability, RandomDelay, Seed,
    Spell,
};
use serde::Deserialize;

use crate::error::Refusal;

pub(crate) fn probability(value: f64) -> Result<Probability, Refusal> {
    Probability::new(value).ok_or_else(|| format!("{value} is not a probability"))
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
