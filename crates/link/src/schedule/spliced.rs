//! The opportunities of a recording, with others in front of them for a while.

use std::sync::Arc;

use super::{LightRows, Playback};
use crate::time::{Duration, Time};
use crate::units::Opportunities;

/// Opportunities that an activation puts before the recording (TempPDO in Sentosa et al., "CellReplay", NSDI 2025,
/// §4.3): the light opportunities of a row from `base` on, then those of the recording from `splice` on. There is
/// nothing before `base`.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    rows: Arc<LightRows>,
    row: usize,
    base: Time,
    splice: Time,
}

impl Head {
    /// The row in force at a position of the recording; its opportunities count from `base`.
    pub(crate) fn new(rows: &Arc<LightRows>, position: Duration, base: Time) -> Self {
        let row = rows.row_at(position);
        let splice = match rows.of_row(row).last() {
            Some(&last) => base + last + BREATH,
            None => base,
        };
        Self {
            rows: Arc::clone(rows),
            row,
            base,
            splice,
        }
    }

    /// When it begins to offer.
    pub(crate) fn base(&self) -> Time {
        self.base
    }

    fn offsets(&self) -> &[Duration] {
        self.rows.of_row(self.row)
    }

    fn count(&self) -> u64 {
        self.offsets().len() as u64
    }
}

/// Between the last light opportunity and the first that the recording may offer.
const BREATH: Duration = Duration::from_millis(1);

/// A recording, from time to time with a [`Head`] in front. Opportunities are numbered from the first of the head, or from the
/// start of the recording without one.
#[derive(Clone, Debug)]
pub(crate) struct Spliced {
    recording: Playback,
    head: Option<Head>,
    /// Opportunities of the recording before the splice.
    skipped: u64,
}

impl Spliced {
    pub(crate) fn new(recording: Playback) -> Self {
        Self {
            recording,
            head: None,
            skipped: 0,
        }
    }

    /// The position in the recording at an instant; in a looped one below its period.
    pub(crate) fn position(&self, at: Time) -> Duration {
        self.recording.position(at)
    }

    /// Replaces what is in front. Numbers change.
    pub(crate) fn splice(&mut self, head: Head) {
        self.skipped = self.recording.first_at(head.splice);
        self.head = Some(head);
    }

    pub(crate) fn restart(&mut self, zero: Time, further: Duration) {
        self.recording.restart(zero, further);
        if let Some(head) = &self.head {
            self.skipped = self.recording.first_at(head.splice);
        }
    }

    /// Number of the first opportunity at or after `at`.
    pub(crate) fn first_at(&self, at: Time) -> u64 {
        let Some(head) = &self.head else {
            return self.recording.first_at(at);
        };
        let since = at.since(head.base);
        let light = head.offsets().partition_point(|&offset| offset < since) as u64;
        if light < head.count() {
            return light;
        }
        let heavy = self.recording.first_at(at.max(head.splice));
        light.saturating_add(heavy.saturating_sub(self.skipped))
    }

    /// The instant of an opportunity; `None` past the end of a recording that is played once.
    #[inline]
    pub(crate) fn time_of(&mut self, index: u64) -> Option<Time> {
        let Some(head) = &self.head else {
            return self.recording.time_of(index);
        };
        let heavy = match index.checked_sub(head.count()) {
            Some(heavy) => heavy,
            None => return Some(head.base + head.offsets()[index as usize]),
        };
        self.recording.time_of(heavy.saturating_add(self.skipped))
    }

    /// Opportunities from `from` up to but excluding `to`.
    pub(crate) fn opportunities(&self, from: Time, to: Time) -> Opportunities {
        Opportunities(self.first_at(to).saturating_sub(self.first_at(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LightRow;
    use super::*;
    use crate::trace::Repeat;
    use crate::trace::Trace;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn spliced(light: &[u64], base: u64) -> Spliced {
        let span = Duration::from_millis;
        let rows = LightRows::new([LightRow {
            time: Duration::ZERO,
            base_delay: Duration::ZERO,
            opportunities: light.iter().copied().map(span).collect(),
        }]);
        let trace = Arc::new(Trace::from_millis([2, 4, 6, 8, 10]).unwrap());
        let recording = Playback::new(trace, Repeat::Looped, Duration::ZERO, Time::ZERO);
        let mut spliced = Spliced::new(recording);
        spliced.splice(Head::new(
            &Arc::new(rows.unwrap()),
            Duration::ZERO,
            ms(base),
        ));
        spliced
    }

    fn times(spliced: &mut Spliced, count: u64) -> Vec<u64> {
        let time = |index| spliced.time_of(index).unwrap().as_nanos() / 1_000_000;
        (0..count).map(time).collect()
    }

    #[test]
    fn the_recording_goes_on_a_millisecond_after_the_last_light_opportunity() {
        assert_eq!(
            times(&mut spliced(&[0, 1, 2], 11), 6),
            [11, 12, 13, 14, 16, 18]
        );
        assert_eq!(times(&mut spliced(&[0, 2], 11), 4), [11, 13, 14, 16]);
        assert_eq!(times(&mut spliced(&[0, 3], 11), 4), [11, 14, 16, 18]);
        assert_eq!(
            times(&mut spliced(&[], 12), 2),
            [12, 14],
            "without light ones at once"
        );
    }

    #[test]
    fn searches_agree_with_instants() {
        let mut spliced = spliced(&[0, 0, 5], 21);
        for (at, first) in [(0, 0), (21, 0), (22, 2), (26, 2), (27, 3), (28, 3), (29, 4)] {
            assert_eq!(spliced.first_at(ms(at)), first, "at {at} ms");
        }
        assert_eq!(times(&mut spliced, 5), [21, 21, 26, 28, 30]);
        assert_eq!(spliced.opportunities(ms(21), ms(29)), Opportunities(4));
    }
}
