//! Channel qualities.

/// A channel quality indicator: 0 (out of range) to 15 (3GPP TS 36.213, table 7.2.3-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(try_from = "u8")]
pub struct Cqi(u8);

impl Cqi {
    /// The lowest quality at which data can be sent.
    pub const LOWEST: Self = Self(1);
    /// The highest quality.
    pub const HIGHEST: Self = Self(15);

    /// Return the indicator, or `None` above 15.
    pub fn new(value: u8) -> Option<Self> {
        (value <= 15).then_some(Self(value))
    }

    /// Return the nearest quality at which data can be sent.
    pub fn nearest(value: f64) -> Self {
        Self((value.round() as u8).clamp(Self::LOWEST.0, Self::HIGHEST.0))
    }

    /// Return the value, 0 to 15.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Cqi {
    type Error = String;

    fn try_from(value: u8) -> Result<Self, Self::Error> {
        Self::new(value).ok_or_else(|| format!("a CQI of {value} is outside 0 to 15"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_indicator_is_refused() {
        assert_eq!(Cqi::new(16), None);
        assert_eq!(
            [-3.0, 0.4, 7.5, 99.0].map(|it| Cqi::nearest(it).0),
            [1, 1, 8, 15]
        );
    }
}
