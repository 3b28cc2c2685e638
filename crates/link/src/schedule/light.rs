//! The light workload: delays of packet trains at regular instants.

use std::sync::Arc;

use super::Playback;
use crate::delay::interpolate;
use crate::time::{Duration, Time};
use crate::units::Opportunities;

/// Delivery opportunities of one packet train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LightRow {
    /// Time since the start of the recording.
    pub time: Duration,
    /// Half the round-trip time of the train's first packet.
    pub base_delay: Duration,
    /// Arrivals of the packets after the first one, in any order: the light delivery opportunities.
    pub opportunities: Vec<Duration>,
}

/// The recording of the light workload in one direction (Sentosa et al., "CellReplay", NSDI 2025, §4.2): base delay and
/// light delivery opportunities over time.
#[derive(Clone, PartialEq, Eq)]
pub struct LightRows {
    /// Never decreasing in time, never empty; each row's opportunities are sorted.
    rows: Vec<LightRow>,
}

impl LightRows {
    /// Return the recording of these rows; `None` if there are none or their times decrease.
    pub fn new(rows: impl IntoIterator<Item = LightRow>) -> Option<Self> {
        let mut rows: Vec<_> = rows.into_iter().collect();
        for row in &mut rows {
            row.opportunities.sort_unstable();
        }
        (!rows.is_empty() && rows.is_sorted_by_key(|row| row.time)).then_some(Self { rows })
    }

    /// Return the rows in order.
    pub fn rows(&self) -> &[LightRow] {
        &self.rows
    }

    /// Return the base delay at a position: linear between rows, constant before the first and after the last (§4.3);
    /// rounded down to the nanosecond.
    pub fn base_delay(&self, position: Duration) -> Duration {
        let row = self.row_at(position);
        let point = |row: &LightRow| (row.time, row.base_delay);
        let before = &self.rows[row];
        match self.rows.get(row + 1) {
            Some(after) if before.time <= position => {
                interpolate(point(before), point(after), position)
            }
            _ => before.base_delay,
        }
    }

    /// Return the number of the row at or before a position, or of the first row.
    fn row_at(&self, position: Duration) -> usize {
        let after = self.rows.partition_point(|row| row.time <= position);
        after.saturating_sub(1)
    }
}

impl std::fmt::Debug for LightRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.rows[self.rows.len() - 1].time;
        write!(f, "LightRows({} rows until {last})", self.rows.len())
    }
}

/// Opportunities that an activation puts before the recording (TempPDO in Sentosa et al., "CellReplay", NSDI 2025,
/// §4.3): the light opportunities of a row from `base` on, then the recorded ones from `splice` on. There are none
/// before `base`.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    rows: Arc<LightRows>,
    row: usize,
    base: Time,
    splice: Time,
}

impl Head {
    /// Return the head of the row at a position of the recording; its opportunities count from `base`.
    pub(crate) fn new(rows: &Arc<LightRows>, position: Duration, base: Time) -> Self {
        let row = rows.row_at(position);
        let splice = match rows.rows[row].opportunities.last() {
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

    /// Return the origin of its opportunities.
    pub(crate) fn base(&self) -> Time {
        self.base
    }

    fn offsets(&self) -> &[Duration] {
        &self.rows.rows[self.row].opportunities
    }

    fn count(&self) -> u64 {
        self.offsets().len() as u64
    }
}

/// Time between the last light opportunity and the earliest recorded one.
const BREATH: Duration = Duration::from_millis(1);

/// A recording, at times with a [`Head`] before it. Opportunities are numbered from the first one of the head, or from
/// the start of the recording without a head.
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

    /// Return the position in the recording at an instant, below the period if looped.
    pub(crate) fn position(&self, at: Time) -> Duration {
        self.recording.position(at)
    }

    /// Replace the head. Numbers change.
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

    /// Return the number of the first opportunity at or after `at`.
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

    /// Return the instant of an opportunity; `None` past the end of a recording played once.
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

    /// Return the opportunities from `from` up to but excluding `to`.
    pub(crate) fn opportunities(&self, from: Time, to: Time) -> Opportunities {
        Opportunities(self.first_at(to).saturating_sub(self.first_at(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_forward() {
        let row = |millis| LightRow {
            time: Duration::from_millis(millis),
            base_delay: Duration::ZERO,
            opportunities: Vec::new(),
        };
        assert_eq!(LightRows::new([]), None);
        assert_eq!(LightRows::new([row(5), row(4)]), None);
    }
}
