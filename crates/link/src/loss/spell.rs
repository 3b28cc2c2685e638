//! How long a link stays as it is.

use crate::random::Random;
use crate::time::Duration;

/// How long one of two conditions of a link lasts.
///
/// ```
/// use cellbed_link::{Bytes, Direction, Duration, Fate, LossConfig, Seed, Spell, Time};
///
/// let spell = |secs| Spell::Fixed(Duration::from_secs(secs));
/// let on_off = LossConfig::OnOff { on: spell(2), off: spell(1), seed: Seed(1) };
/// let mut link = Direction::new(vec![on_off.into()], Time::ZERO);
/// let delivered: Vec<bool> = [500, 1500, 2500, 3500]
///     .map(Time::from_millis)
///     .map(|now| {
///         link.accept(now, (), Bytes(100));
///         link.poll(now).unwrap().fate == Fate::Delivered
///     })
///     .to_vec();
/// assert_eq!(delivered, [true, true, false, true]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spell {
    /// Always the same.
    Fixed(Duration),
    /// Exponentially distributed with the given mean.
    Exponential(Duration),
}

/// No spell is shorter, so that time goes on.
const LEAST: Duration = Duration::from_nanos(1000);

impl Spell {
    pub(super) fn mean(&self) -> Duration {
        match self {
            Self::Fixed(length) | Self::Exponential(length) => (*length).max(LEAST),
        }
    }

    pub(super) fn draw(&self, random: &mut Random) -> Duration {
        match self {
            Self::Fixed(length) => (*length).max(LEAST),
            Self::Exponential(mean) => {
                let length = -(1.0 - random.unit()).ln() * mean.as_secs_f64();
                Duration::from_secs_f64(length).max(LEAST)
            }
        }
    }
}
