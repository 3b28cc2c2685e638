//! Probabilities.

/// A probability: a number from 0 to 1.
///
/// ```
/// use cellbed_link::Probability;
///
/// assert_eq!(Probability::new(0.25).unwrap().get(), 0.25);
/// assert!(Probability::new(1.5).is_none());
/// assert!(Probability::new(f64::NAN).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// What never happens.
    pub const NEVER: Self = Self(0.0);
    /// What always happens.
    pub const ALWAYS: Self = Self(1.0);

    /// The probability, or `None` if `value` is not a number from 0 to 1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The value, 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_probability_is_refused() {
        assert!(
            [-0.1, 1.1, f64::NAN, f64::INFINITY]
                .iter()
                .all(|&value| Probability::new(value).is_none())
        );
    }
}
