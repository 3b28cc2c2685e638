//! The light workload: how packet trains fared at regular instants.

use crate::delay::interpolate;
use crate::time::Duration;

/// Delivery opportunities of one packet train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LightRow {
    /// When, since the start of the recording.
    pub time: Duration,
    /// Half the round-trip time of its first packet.
    pub base_delay: Duration,
    /// The arrivals of its packets after the first one, in any order: the light delivery opportunities.
    pub opportunities: Vec<Duration>,
}

/// The recording of the light workload in one direction (Sentosa et al., "CellReplay", NSDI 2025, §4.2): base delay and
/// light delivery opportunities over time.
#[derive(Clone, PartialEq, Eq)]
pub struct LightRows {
    /// (time, base delay), never decreasing in time, never empty.
    samples: Vec<(Duration, Duration)>,
    /// End in the table of each row's opportunities.
    ends: Vec<usize>,
    /// Opportunities of all rows, sorted within each.
    opportunities: Vec<Duration>,
}

impl LightRows {
    /// The recording of these rows; `None` if there are none or their times decrease.
    pub fn new(rows: impl IntoIterator<Item = LightRow>) -> Option<Self> {
        let mut light = Self {
            samples: Vec::new(),
            ends: Vec::new(),
            opportunities: Vec::new(),
        };
        for row in rows {
            if light.last_time().is_some_and(|last| row.time < last) {
                return None;
            }
            light.push(row.time, row.base_delay, row.opportunities);
        }
        (!light.samples.is_empty()).then_some(light)
    }

    /// Return the number of rows.
    pub fn count(&self) -> usize {
        self.samples.len()
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = LightRow> + '_ {
        (0..self.count()).map(|row| LightRow {
            time: self.samples[row].0,
            base_delay: self.samples[row].1,
            opportunities: self.of_row(row).to_vec(),
        })
    }

    /// The base delay at a position of the recording: linear between rows, constant before the first and after the last
    /// (§4.3); rounded to the nanosecond below.
    pub fn base_delay(&self, position: Duration) -> Duration {
        let row = self.row_at(position);
        match self.samples.get(row + 1) {
            Some(&after) if self.samples[row].0 <= position => {
                interpolate(self.samples[row], after, position)
            }
            _ => self.samples[row].1,
        }
    }

    /// The light opportunities of the row at or before a position, or of the first row, sorted.
    pub fn opportunities(&self, position: Duration) -> &[Duration] {
        self.of_row(self.row_at(position))
    }

    /// Number of the row at or before a position, or of the first row.
    pub(crate) fn row_at(&self, position: Duration) -> usize {
        let after = self.samples.partition_point(|&(time, _)| time <= position);
        after.saturating_sub(1)
    }

    pub(crate) fn of_row(&self, row: usize) -> &[Duration] {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.opportunities[begin..self.ends[row]]
    }

    pub(crate) fn empty() -> Self {
        Self {
            samples: Vec::new(),
            ends: Vec::new(),
            opportunities: Vec::new(),
        }
    }

    pub(crate) fn last_time(&self) -> Option<Duration> {
        self.samples.last().map(|&(time, _)| time)
    }

    /// Adds a row whose time is not before the last one.
    pub(crate) fn push(
        &mut self,
        time: Duration,
        base_delay: Duration,
        opportunities: impl IntoIterator<Item = Duration>,
    ) {
        let begin = self.opportunities.len();
        self.opportunities.extend(opportunities);
        self.opportunities[begin..].sort_unstable();
        self.ends.push(self.opportunities.len());
        self.samples.push((time, base_delay));
    }
}

impl std::fmt::Debug for LightRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.last_time().unwrap_or_default();
        write!(f, "LightRows({} rows until {last})", self.count())
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
