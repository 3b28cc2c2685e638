//! A loss probability recorded over time.

use crate::random::Probability;
use crate::time::Duration;

/// A loss probability that holds until the next step; the last one for ever.
///
/// ```
/// use cellbed_link::{Duration, LossSeries, Probability};
///
/// let chance = |value| Probability::new(value).unwrap();
/// let tunnel = LossSeries::new(vec![
///     (Duration::ZERO, chance(0.01)),
///     (Duration::from_secs(10), chance(1.0)),
///     (Duration::from_secs(12), chance(0.01)),
/// ]).unwrap();
/// assert_eq!(tunnel.at(Duration::from_secs(11)), chance(1.0));
/// ```
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "Vec<(Duration, Probability)>")]
pub struct LossSeries {
    /// (time since the start, probability), strictly increasing in time, never empty.
    steps: Vec<(Duration, Probability)>,
}

impl LossSeries {
    /// The series of `steps`, each (time since the start, probability from there on); before the first nothing is lost.
    /// `None` if there are none or their times do not increase.
    pub fn new(steps: Vec<(Duration, Probability)>) -> Option<Self> {
        let increasing = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (increasing && !steps.is_empty()).then_some(Self { steps })
    }

    /// The probability at a position of the series.
    pub fn at(&self, position: Duration) -> Probability {
        let next = self.steps.partition_point(|&(time, _)| time <= position);
        next.checked_sub(1)
            .map_or(Probability::NEVER, |index| self.steps[index].1)
    }
}

impl TryFrom<Vec<(Duration, Probability)>> for LossSeries {
    type Error = &'static str;

    fn try_from(steps: Vec<(Duration, Probability)>) -> Result<Self, Self::Error> {
        Self::new(steps).ok_or("the times of a recorded loss must rise")
    }
}
