//! The warm-up of an idle link to the rate of a saturated one.

use crate::time::Duration;
use crate::units::Bytes;

/// Shares of a saturated link's throughput that trains of one length got at the same times.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUpCurve {
    /// Size of a train, bytes, which all wait at first.
    #[serde(rename = "waiting_bytes")]
    pub waiting: Bytes,
    /// The share from each edge of the [`WarmUp`] on.
    pub shares: Vec<f64>,
}

/// The share of the saturated opportunities that a link gets, by its busy time and by the maximum of waiting bytes.
#[derive(Clone, Debug, PartialEq, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUp {
    #[serde(rename = "edges_ns")]
    edges: Vec<Duration>,
    curves: Vec<WarmUpCurve>,
    #[serde(rename = "memory_ns")]
    memory: Duration,
}

/// A share, and its range of warmth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    from: Duration,
    until: Duration,
    peak: f64,
    value: f64,
}

/// Warmth of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Warmth {
    /// Duration of the link's busy period, in the time of the curves.
    pub(super) busy: Duration,
    /// Maximum of waiting bytes.
    pub(super) peak: f64,
}

/// Minimum warmth kept; less counts as none.
const COLD: f64 = 0.05;

impl WarmUp {
    /// Return curves over `edges`, which begin with zero, in order of waiting bytes. While the link is idle, it cools
    /// with the time constant `memory`. `None` if a list is not in order, or a curve's length differs.
    ///
    /// Without curves all links get all opportunities.
    pub fn new(edges: Vec<Duration>, curves: Vec<WarmUpCurve>, memory: Duration) -> Option<Self> {
        let warm_up = Self {
            edges,
            curves,
            memory,
        };
        warm_up.is_sound().then_some(warm_up)
    }

    pub(super) fn is_sound(&self) -> bool {
        let Self { edges, curves, .. } = self;
        let sound = |curve: &WarmUpCurve| {
            let possible = |share: &f64| share.is_finite() && *share >= 0.0;
            curve.shares.len() == edges.len() && curve.shares.iter().all(possible)
        };
        curves.is_empty()
            || (edges.first().is_some_and(|edge| edge.is_zero())
                && edges.is_sorted_by(|a, b| a < b)
                && curves.is_sorted_by(|a, b| a.waiting < b.waiting)
                && curves[0].waiting.0 > 0
                && curves.iter().all(sound))
    }

    /// Return the share of a present opportunity. `last` is the previous share, kept while it is valid.
    pub(super) fn share(&self, warmth: Warmth, last: &mut Share) -> f64 {
        if warmth.busy < last.from || warmth.busy >= last.until || warmth.peak != last.peak {
            let bin = self.bin(warmth.busy);
            *last = Share {
                from: self.edges.get(bin).copied().unwrap_or_default(),
                until: self.edges.get(bin + 1).copied().unwrap_or(Duration::MAX),
                peak: warmth.peak,
                value: self.at(bin, warmth.peak),
            };
        }
        last.value
    }

    fn at(&self, bin: usize, peak: f64) -> f64 {
        self.between(peak, |curve| curve.shares[bin]).unwrap_or(1.0)
    }

    /// Return the rest of the warmth after an idle period.
    pub(super) fn cooled(&self, warmth: Warmth, idle: Duration) -> Warmth {
        if self.curves.is_empty() || warmth.busy.is_zero() {
            return warmth;
        }
        let kept = match self.memory.as_nanos() {
            0 => 0.0,
            memory => (-(idle.as_nanos() as f64) / memory as f64).exp(),
        };
        let peak = warmth.peak * kept;
        if kept < COLD {
            return Warmth {
                busy: Duration::ZERO,
                peak,
            };
        }
        let least = self.at(0, peak);
        let aim = least + (self.at(self.bin(warmth.busy), warmth.peak) - least) * kept;
        // The first bin where the curve reaches `aim`.
        let reached = (0..=self.bin(warmth.busy)).find(|&bin| {
            let share = self.between(peak, |curve| curve.shares[bin]);
            share.is_none_or(|share| share >= aim)
        });
        let busy = match reached {
            Some(0) => Duration::ZERO,
            Some(bin) => self.edges[bin],
            None => warmth.busy,
        };
        Warmth { busy, peak }
    }

    fn bin(&self, busy: Duration) -> usize {
        let after = self.edges.partition_point(|&edge| edge <= busy);
        after.saturating_sub(1)
    }

    /// Interpolate linearly in the logarithm of waiting bytes.
    fn between(&self, waiting: f64, value: impl Fn(&WarmUpCurve) -> f64) -> Option<f64> {
        let after = self
            .curves
            .partition_point(|curve| curve.waiting.0 as f64 <= waiting);
        Some(match (after.checked_sub(1), self.curves.get(after)) {
            (Some(before), Some(over)) => {
                let under = &self.curves[before];
                let (low, high) = (under.waiting.0 as f64, over.waiting.0 as f64);
                let part = (waiting / low).ln() / (high / low).ln();
                value(under) + (value(over) - value(under)) * part
            }
            (Some(last), None) => value(&self.curves[last]),
            (None, first) => value(first?),
        })
    }
}
