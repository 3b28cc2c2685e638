//! The opportunities of a recording, with others in front of them for a while.

use std::sync::Arc;

use super::{LightRows, Playback};
use crate::time::{Duration, Time};
use crate::units::Opportunities;

/// Opportunities that an activation puts before the recording (TempPDO in Sentosa et al., "CellReplay", NSDI 2025,
/// §4.3): the light opportunities of a row from `base` on, then the recorded ones from `splice` on. There is
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

/// A recording, from time to time with a [`Head`] in front. Opportunities are numbered from the first of the head, or
/// from the start of the recording without one.
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
