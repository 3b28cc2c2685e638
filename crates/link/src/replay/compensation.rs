//! Offsets of the arrival of packets of other sizes.

use crate::delay::on_line;
use crate::time::Duration;
use crate::units::Bytes;

/// A span: later or, if negative, sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Deserialize)]
pub struct Shift(i64);

impl Shift {
    /// No shift.
    pub const ZERO: Self = Self(0);

    /// `nanos` ns later.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The span with the shift, at least zero.
    pub const fn applied_to(self, span: Duration) -> Duration {
        Duration::from_nanos(span.as_nanos().saturating_add_signed(self.0))
    }
}

impl TryFrom<Vec<(Bytes, Shift)>> for Compensation {
    type Error = &'static str;

    fn try_from(points: Vec<(Bytes, Shift)>) -> Result<Self, Self::Error> {
        Self::new(points).ok_or("the sizes of a compensation must increase")
    }
}

/// comp(s): the delay of a packet of `s` bytes less the delay at the recorder's size (Sentosa et al., "CellReplay",
/// NSDI 2025, §4.4 and §A.1). Linear between the calibrated sizes, constant outside of them.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(try_from = "Vec<(Bytes, Shift)>")]
pub struct Compensation {
    /// (size, ns), strictly increasing in size.
    points: Vec<(u64, i64)>,
}

impl Compensation {
    /// The compensation through `points`; `None` if their sizes do not increase. Without a point there is none.
    pub fn new(points: impl IntoIterator<Item = (Bytes, Shift)>) -> Option<Self> {
        let points: Vec<_> = points
            .into_iter()
            .map(|(size, shift)| (size.0, shift.0))
            .collect();
        let increasing = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        increasing.then_some(Self { points })
    }

    /// The calibrated points.
    pub fn points(&self) -> impl Iterator<Item = (Bytes, Shift)> + '_ {
        let point = |&(size, shift): &(u64, i64)| (Bytes(size), Shift(shift));
        self.points.iter().map(point)
    }

    /// comp(size), rounded to the nanosecond below.
    pub fn of(&self, size: Bytes) -> Shift {
        let after = self.points.partition_point(|&(other, _)| other <= size.0);
        let before = after.checked_sub(1).map(|index| self.points[index]);
        Shift(match (before, self.points.get(after)) {
            (Some((low, under)), Some(&(high, over))) => {
                let shift = on_line((low, under.into()), (high, over.into()), size.0);
                i64::try_from(shift).unwrap_or(0) // lies between the two
            }
            (Some((_, shift)), None) | (None, Some(&(_, shift))) => shift,
            (None, None) => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_is_linear_between_sizes_and_constant_outside() {
        let point = |size, micros: i64| (Bytes(size), Shift::from_nanos(micros * 1000));
        let comp = Compensation::new([point(100, -6800), point(200, -6000), point(1400, 0)]);
        let comp = comp.unwrap();
        for (size, micros) in [(40, -6800), (100, -6800), (150, -6400), (800, -3000)] {
            assert_eq!(comp.of(Bytes(size)), point(size, micros).1, "{size} bytes");
        }
        assert_eq!(comp.of(Bytes(1500)), Shift::ZERO);
        assert_eq!(Compensation::default().of(Bytes(40)), Shift::ZERO);
        assert_eq!(Compensation::new([point(200, 1), point(200, 1)]), None);
    }

    #[test]
    fn no_delay_is_less_than_none() {
        let sooner = Shift::from_nanos(-6_800_000);
        assert_eq!(
            sooner.applied_to(Duration::from_millis(20)),
            Duration::from_micros(13_200)
        );
        assert_eq!(sooner.applied_to(Duration::from_millis(5)), Duration::ZERO);
    }
}
