//! Delays drawn from a distribution, as in the network emulator of Linux (netem).

use std::sync::Arc;

use crate::schema::JsonSchema;
use serde::Deserialize;

use crate::random::{Probability, Random, Seed};
use crate::time::Duration;

/// A random delay, drawn for every packet.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomDelay {
    /// Distribution of the delays.
    pub distribution: Distribution,
    /// Correlation of successive draws, as netem defines it.
    ///
    /// `get_crandom` in `sch_netem.c`: with a fresh uniform number u and the last one v, the next is (1 − ρ) u + ρ v.
    /// The closer to 1, the narrower the distribution becomes, there as here.
    #[serde(default)]
    #[schemars(example = 0.25, extend("exclusiveMaximum" = 1))]
    pub correlation: Probability,
    /// Let a packet with a shorter delay overtake. If not, it leaves with the one before.
    #[serde(default)]
    pub reorder: bool,
    /// Seed of this stage's generator.
    pub seed: Seed,
}

/// Distributions of a delay. What would be less than nothing is nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Distribution {
    /// Uniformly distributed within a range.
    #[schemars(extend("text" = "{mean_ns} ± {spread_ns} one way, uniform"))]
    Uniform {
        /// Mean delay.
        #[serde(rename = "mean_ns")]
        #[schemars(example = "20 ms", extend("least" = "0 s", "most" = "60 s"))]
        mean: Duration,
        /// Largest distance from the mean.
        #[serde(rename = "spread_ns")]
        #[schemars(example = "5 ms", extend("least" = "0 s", "most" = "60 s"))]
        spread: Duration,
    },
    /// Normally distributed, cut at four deviations.
    ///
    /// The tables of netem end there, too.
    #[schemars(extend("text" = "{mean_ns} ± {deviation_ns} one way, normal"))]
    Normal {
        /// Mean delay.
        #[serde(rename = "mean_ns")]
        #[schemars(example = "20 ms", extend("least" = "0 s", "most" = "60 s"))]
        mean: Duration,
        /// Standard deviation.
        #[serde(rename = "deviation_ns")]
        #[schemars(example = "3 ms", extend("least" = "0 s", "most" = "60 s"))]
        deviation: Duration,
    },
    /// With a long tail: the Pareto distribution of netem.
    ///
    /// `pareto.c` of iproute2: shape 3, shifted by its mean of 1.5 and scaled by 4/3, cut at four `deviation`s. Its
    /// standard deviation is 1.15 times `deviation` without the cut.
    #[schemars(extend("text" = "{mean_ns} ± {deviation_ns} one way, pareto"))]
    Pareto {
        /// Mean delay.
        #[serde(rename = "mean_ns")]
        #[schemars(example = "20 ms", extend("least" = "0 s", "most" = "60 s"))]
        mean: Duration,
        /// Scale of the distribution.
        #[serde(rename = "deviation_ns")]
        #[schemars(example = "3 ms", extend("least" = "0 s", "most" = "60 s"))]
        deviation: Duration,
    },
    /// One of the observed delays, with equal probability.
    ///
    /// With correlation, in order of size.
    #[schemars(extend("text" = "{delays_ns.span} one way, drawn from {delays_ns.count} observed"))]
    Empirical {
        /// A CSV file with a column of observed delays.
        #[serde(rename = "delays_ns")]
        #[schemars(extend("key" = "file"))]
        delays: Observed,
    },
}

/// Delays that were observed, at least one, in order of size.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<Duration>")]
pub struct Observed(Arc<[Duration]>);

impl TryFrom<Vec<Duration>> for Observed {
    type Error = &'static str;

    fn try_from(mut delays: Vec<Duration>) -> Result<Self, Self::Error> {
        delays.sort_unstable();
        match delays.is_empty() {
            true => Err("an empirical distribution needs at least one delay"),
            false => Ok(Self(delays.into())),
        }
    }
}

/// Limit of netem's tables: they hold 16-bit numbers in units of 1/8192.
const CUT: f64 = 32_767.0 / 8_192.0;

impl Distribution {
    /// Return the distribution of the given observations; `None` if there are none.
    pub fn empirical(observations: Vec<Duration>) -> Option<Self> {
        let delays = observations.try_into().ok()?;
        Some(Self::Empirical { delays })
    }

    /// Return the `u` quantile of the delay; 0 ≤ u < 1.
    pub(crate) fn quantile(&self, u: f64) -> Duration {
        let around = |mean: &Duration, scale: &Duration, z: f64| {
            Duration::from_secs_f64(mean.as_secs_f64() + scale.as_secs_f64() * z)
        };
        match self {
            Self::Uniform { mean, spread } => around(mean, spread, 2.0 * u - 1.0),
            Self::Normal { mean, deviation } => {
                around(mean, deviation, normal_quantile(u).clamp(-CUT, CUT))
            }
            Self::Pareto { mean, deviation } => {
                let value = 1.0 / (1.0 - u).cbrt();
                around(mean, deviation, ((value - 1.5) * 4.0 / 3.0).min(CUT))
            }
            Self::Empirical {
                delays: Observed(observations),
            } => {
                let index = (u * observations.len() as f64) as usize;
                let last = observations.len().saturating_sub(1);
                observations
                    .get(index.min(last))
                    .copied()
                    .unwrap_or_default()
            }
        }
    }
}

/// Draws delays.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    config: RandomDelay,
    random: Random,
    last: Option<f64>,
}

impl Draw {
    pub(crate) fn new(config: RandomDelay) -> Self {
        Self {
            random: Random::new(config.seed),
            last: None,
            config,
        }
    }

    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.config.clone());
    }

    /// Change the distribution of later draws; the generator keeps its state.
    pub(crate) fn change(&mut self, config: RandomDelay) {
        self.config = config;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let fresh = self.random.unit();
        let correlation = self.config.correlation.get();
        let u = match self.last {
            Some(last) if correlation > 0.0 => fresh * (1.0 - correlation) + last * correlation,
            _ => fresh,
        };
        self.last = Some(u);
        self.config.distribution.quantile(u)
    }
}

/// The inverse of the standard normal distribution function, with a relative error below 1.2 · 10⁻⁹: the rational
/// approximation of Acklam, "An algorithm for computing the inverse normal cumulative distribution function", 2003.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e+01,
        2.209460984245205e+02,
        -2.759285104469687e+02,
        1.383_577_518_672_69e2,
        -3.066479806614716e+01,
        2.506628277459239e+00,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e+01,
        1.615858368580409e+02,
        -1.556989798598866e+02,
        6.680131188771972e+01,
        -1.328068155288572e+01,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-03,
        -3.223964580411365e-01,
        -2.400758277161838e+00,
        -2.549732539343734e+00,
        4.374664141464968e+00,
        2.938163982698783e+00,
    ];
    const D: [f64; 5] = [
        7.784695709041462e-03,
        3.224671290700398e-01,
        2.445134137142996e+00,
        3.754408661907416e+00,
        1.0,
    ];
    const TAIL: f64 = 0.02425;
    let polynomial =
        |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let p = p.max(f64::MIN_POSITIVE);
        let q = (-2.0 * p.ln()).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    if p < TAIL {
        tail(p)
    } else if p > 1.0 - TAIL {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        q * polynomial(&A, q * q) / polynomial(&B, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        for (p, z) in [
            (0.5, 0.0),
            (0.841_344_746, 1.0),
            (0.975, 1.959_963_985),
            (0.999, 3.090_232_306),
            (0.01, -2.326_347_874),
        ] {
            assert!((normal_quantile(p) - z).abs() < 1e-7, "{p}");
        }
    }

    #[test]
    fn normal_delays_end_where_netem_s_table_does() {
        let normal = Distribution::Normal {
            mean: ms(50),
            deviation: ms(10),
        };
        for (u, sign) in [(0.0, -1.0), (1.0 - f64::EPSILON, 1.0)] {
            let end = Duration::from_secs_f64(0.05 + sign * 0.01 * CUT);
            assert_eq!(normal.quantile(u), end);
        }
    }
}
