//! Channel qualities of the users over time.

use serde::Deserialize;

use super::carrier::Carrier;
use super::cqi::Cqi;
use super::placement::Placement;
use crate::error::{DescriptionError, refuse};
use crate::random::{Purpose, Stream, stream};
use crate::units::Picos;

/// Source of the users' channel quality indicators (CQI). Users report every [`REPORT_INTERVAL`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum CqiSource {
    /// Constant: drawn uniformly for each user.
    Fixed {
        /// Lowest value.
        #[serde(default = "lowest")]
        low: Cqi,
        /// Highest value.
        #[serde(default = "highest")]
        high: Cqi,
    },
    /// Synthetic: a Gauss-Markov process around a mean drawn as in `fixed` (Liang & Haas, "Predictive Distance-Based
    /// Mobility Management for PCS Networks", INFOCOM 1999, §II), in steps of the CQI, which are about 2 dB each.
    GaussMarkov {
        /// Lowest mean.
        #[serde(default = "lowest")]
        low: Cqi,
        /// Highest mean.
        #[serde(default = "highest")]
        high: Cqi,
        /// Standard deviation, in steps of the CQI.
        #[serde(default = "deviation")]
        deviation: f64,
        /// Time until the correlation falls to 1/e.
        #[serde(default = "memory")]
        memory_ps: Picos,
    },
    /// Around the quality of a place in the cell.
    Placed(Placement),
    /// Recorded reports. User n repeats trace n modulo the number of traces, from a random offset.
    Trace {
        /// The reports of each trace.
        traces: Vec<Vec<Cqi>>,
    },
}

/// Interval between reports of a user (3GPP TS 36.213, §7.2.2: reports on the uplink control channel).
pub const REPORT_INTERVAL: Picos = Picos::from_millis(5);

fn lowest() -> Cqi {
    Cqi::LOWEST
}

fn highest() -> Cqi {
    Cqi::HIGHEST
}

fn deviation() -> f64 {
    2.0
}

fn memory() -> Picos {
    Picos::from_millis(100)
}

impl Default for CqiSource {
    fn default() -> Self {
        Self::Fixed {
            low: lowest(),
            high: highest(),
        }
    }
}

impl CqiSource {
    pub(super) fn check(&self) -> Result<(), DescriptionError> {
        match self {
            Self::Fixed { low, high } | Self::GaussMarkov { low, high, .. } if low > high => {
                let (low, high) = (low.get(), high.get());
                refuse(format!("the lowest CQI {low} is above the highest {high}"))
            }
            _ => Ok(()),
        }
    }

    /// Return the standard deviation around a user's mean, and the time until the correlation falls to 1/e.
    fn variation(&self) -> Option<(f64, Picos)> {
        match self {
            Self::GaussMarkov {
                deviation,
                memory_ps,
                ..
            } => Some((*deviation, *memory_ps)),
            Self::Placed(it) => Some((it.deviation, it.memory_ps)),
            Self::Fixed { .. } | Self::Trace { .. } => None,
        }
    }

    fn is_constant(&self) -> bool {
        matches!(self, Self::Fixed { .. }) || self.variation().is_some_and(|it| it.0 == 0.0)
    }
}

/// The channels of all users.
#[derive(Clone, Debug)]
pub struct Channels {
    source: CqiSource,
    users: Vec<Channel>,
}

#[derive(Clone, Debug)]
struct Channel {
    random: Stream,
    /// Mean CQI, or the offset into the user's trace.
    base: u64,
    /// Distance from the mean.
    distance: f64,
    /// Number of the latest report.
    report: u64,
    cqi: Cqi,
    /// Sum of the CQIs of all reports.
    sum: u64,
    /// Distance from the antenna in m, of placed users.
    metres: Option<f64>,
}

impl Channels {
    /// Return the channels of `count` users.
    pub fn new(source: &CqiSource, carrier: &Carrier, count: u32, seed: u64) -> Self {
        let channel = |user| Channel::new(source, carrier, user, seed);
        Self {
            source: source.clone(),
            users: (0..count).map(channel).collect(),
        }
    }

    /// Return the latest report of a user at `now`, which does not decrease between calls.
    pub fn cqi(&mut self, user: u32, now: Picos) -> Cqi {
        let report = now.0 / REPORT_INTERVAL.0;
        let channel = &mut self.users[user as usize];
        if self.source.is_constant() {
            return channel.cqi; // sparse activity needs no walk through all reports
        }
        while channel.report < report {
            channel.advance(&self.source, user);
        }
        channel.cqi
    }

    /// Return the mean of the CQIs that a user has reported.
    pub fn mean(&self, user: u32) -> f64 {
        let channel = &self.users[user as usize];
        channel.sum as f64 / (channel.report + 1) as f64
    }

    /// Return the distance of a placed user from the antenna, in m.
    pub fn metres(&self, user: u32) -> Option<f64> {
        self.users[user as usize].metres
    }

    /// Return the mean of the bits per TTI over users and time: the rate of a cell whose users have equal times.
    pub fn mean_bits_per_tti(&self, carrier: &Carrier) -> f64 {
        let mean = |(user, channel): (usize, &Channel)| match &self.source {
            CqiSource::Fixed { .. } => f64::from(carrier.bits(channel.cqi)),
            CqiSource::GaussMarkov { .. } | CqiSource::Placed(_) => {
                let (deviation, _) = self.source.variation().unwrap_or_default();
                // The process is always normally distributed, rounded to the nearest CQI.
                let below = |cqi: u8| match cqi {
                    0 => 0.0,
                    15 => 1.0,
                    _ => {
                        let distance = f64::from(cqi) + 0.5 - channel.base as f64;
                        0.5 * libm::erfc(-distance / (deviation * std::f64::consts::SQRT_2))
                    }
                };
                let bits = (1..=15).map(|cqi| {
                    let rate = carrier.bits(Cqi::nearest(f64::from(cqi)));
                    f64::from(rate) * (below(cqi) - below(cqi - 1))
                });
                bits.sum()
            }
            CqiSource::Trace { traces } => {
                let trace = &traces[user % traces.len()];
                let bits = trace.iter().map(|cqi| u64::from(carrier.bits(*cqi)));
                bits.sum::<u64>() as f64 / trace.len() as f64
            }
        };
        self.users.iter().enumerate().map(mean).sum::<f64>() / self.users.len() as f64
    }
}

impl Channel {
    fn new(source: &CqiSource, carrier: &Carrier, user: u32, seed: u64) -> Self {
        let mut random = stream(seed, Purpose::Channel, u64::from(user));
        let mut metres = None;
        let (base, distance) = match source {
            // Both kinds draw the same means.
            CqiSource::Fixed { low, high } => (draw_mean(*low, *high, &mut random), 0.0),
            CqiSource::GaussMarkov {
                low,
                high,
                deviation,
                ..
            } => {
                let mean = draw_mean(*low, *high, &mut random);
                (mean, deviation * draw_normal(&mut random))
            }
            CqiSource::Placed(placement) => {
                let (distance, cqi) = placement.draw(carrier, &mut random);
                metres = Some(distance);
                let normal = draw_normal(&mut random);
                (u64::from(cqi.get()), placement.deviation * normal)
            }
            CqiSource::Trace { traces } => {
                let length = traces[user as usize % traces.len()].len();
                (random.below(length as u64), 0.0)
            }
        };
        let mut channel = Self {
            random,
            base,
            distance,
            report: 0,
            cqi: Cqi::LOWEST,
            sum: 0,
            metres,
        };
        channel.look(source, user);
        channel
    }

    fn advance(&mut self, source: &CqiSource, user: u32) {
        if let Some((deviation, memory_ps)) = source.variation() {
            let kept = libm::exp(-(REPORT_INTERVAL.0 as f64) / memory_ps.0 as f64);
            let fresh = deviation * libm::sqrt(1.0 - kept * kept);
            self.distance = kept * self.distance + fresh * draw_normal(&mut self.random);
        }
        self.report += 1;
        self.look(source, user);
    }

    fn look(&mut self, source: &CqiSource, user: u32) {
        self.cqi = match source {
            CqiSource::Trace { traces } => {
                let trace = &traces[user as usize % traces.len()];
                trace[((self.base + self.report) % trace.len() as u64) as usize]
            }
            _ => Cqi::nearest(self.base as f64 + self.distance),
        };
        self.sum += u64::from(self.cqi.get());
    }
}

fn draw_mean(low: Cqi, high: Cqi, random: &mut Stream) -> u64 {
    u64::from(low.get()) + random.below(u64::from(high.get() - low.get()) + 1)
}

/// Draw a normally distributed number (Box & Muller, "A Note on the Generation of Random Normal Deviates", Ann. Math.
/// Stat. 29(2), 1958). Logarithm and cosine are computed in software: all machines get the same number.
pub(super) fn draw_normal(random: &mut Stream) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - random.unit()));
    radius * libm::cos(std::f64::consts::TAU * random.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markov(deviation: f64) -> CqiSource {
        CqiSource::GaussMarkov {
            low: Cqi::LOWEST,
            high: Cqi::HIGHEST,
            deviation,
            memory_ps: memory(),
        }
    }

    #[test]
    fn fixed_qualities_are_uniform_from_1_to_15_and_stay() {
        let mut channels = Channels::new(&CqiSource::default(), &Carrier::default(), 15_000, 1);
        let mut counts = [0; 16];
        for user in 0..15_000 {
            let cqi = channels.cqi(user, Picos::ZERO);
            counts[usize::from(cqi.get())] += 1;
            assert_eq!(channels.cqi(user, Picos::from_millis(900)), cqi);
            assert_eq!(channels.mean(user), f64::from(cqi.get()));
        }
        assert_eq!(counts[0], 0);
        assert!(
            counts[1..].iter().all(|it| (880..1120).contains(it)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_synthetic_model_has_the_means_of_fixed_users_and_forgets_at_its_rate() {
        let mut fixed = Channels::new(&CqiSource::default(), &Carrier::default(), 50, 3);
        let mut channels = Channels::new(&markov(1.0), &Carrier::default(), 50, 3);
        let user = (0..50)
            .find(|&it| fixed.cqi(it, Picos::ZERO).get() == 8)
            .unwrap();
        let values: Vec<f64> = (0..200_000)
            .map(|it| {
                let now = Picos(it * REPORT_INTERVAL.0);
                f64::from(channels.cqi(user, now).get()) - 8.0
            })
            .collect();
        let mean = values.iter().sum::<f64>() / 2e5;
        let variance = values.iter().map(|it| it * it).sum::<f64>() / 2e5;
        let after_memory = values.iter().zip(&values[20..]);
        let correlation = after_memory.map(|(a, b)| a * b).sum::<f64>() / 2e5 / variance;
        // Rounding to integers adds 1/12 to the variance.
        assert!(
            mean.abs() < 0.05 && (variance - 13.0 / 12.0).abs() < 0.05,
            "{mean} {variance}"
        );
        assert!(
            (correlation - (-1f64).exp() * 12.0 / 13.0).abs() < 0.03,
            "{correlation}"
        );
        assert!((channels.mean(user) - 8.0 - mean).abs() < 1e-9);
    }

    #[test]
    fn the_mean_rate_is_that_of_long_observation() {
        let carrier = Carrier::default();
        for deviation in [0.0, 1.0, 2.5] {
            let mut channels = Channels::new(&markov(deviation), &carrier, 5, 2);
            let expected = channels.mean_bits_per_tti(&carrier);
            let reports = 100_000;
            let bits = (0..reports * 5).map(|it| {
                let now = Picos(it / 5 * REPORT_INTERVAL.0);
                u64::from(carrier.bits(channels.cqi((it % 5) as u32, now)))
            });
            let mean = bits.sum::<u64>() as f64 / (reports * 5) as f64;
            assert!(
                (mean / expected - 1.0).abs() < 0.02,
                "{deviation}: {mean} {expected}"
            );
        }
    }

    #[test]
    fn traces_change_every_report_and_repeat() {
        let trace: Vec<Cqi> = (1..=4).map(|it| Cqi::new(it).unwrap()).collect();
        let mut channels = Channels::new(
            &CqiSource::Trace {
                traces: vec![trace],
            },
            &Carrier::default(),
            1,
            1,
        );
        let mut at = |millis| channels.cqi(0, Picos::from_millis(millis)).get();
        let first = at(0);
        assert_eq!(at(4), first);
        assert_eq!(at(5), first % 4 + 1);
        assert_eq!(at(20), first);
    }
}
