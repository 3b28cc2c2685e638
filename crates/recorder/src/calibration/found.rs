//! Results of a direction so far.

use super::rate::{self, QueueLimit};
use super::result::{DirectionCalibration, GapProfile, LengthProfile, PredictionError};
use super::trains;
use crate::packet::PacketRecord;

/// Results of a direction so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// One way, with the offset of the clocks.
    pub least_delay_ns: Option<i64>,
    pub saturated_bps: f64,
    pub saturated_error_bps: f64,
    pub slowest_bps: f64,
    pub queue: Option<QueueLimit>,
    pub train: u16,
    pub lengths: Vec<LengthProfile>,
    pub errors: Vec<PredictionError>,
    pub gaps: Vec<GapProfile>,
    pub offsets: Vec<(u16, i64)>,
    pub offset_errors: Vec<u64>,
}

impl Found {
    /// Finds the queue's limit in the results of an overload.
    pub fn take_overload(&mut self, records: &[PacketRecord]) {
        self.queue = self
            .least_delay_ns
            .and_then(|least| rate::queue_limit(records, least));
    }
}

impl From<Found> for DirectionCalibration {
    fn from(found: Found) -> Self {
        let (least_gap_ns, idle_ns) = trains::least_gap(&found.gaps);
        let (queue_bytes, queue_at_least_bytes) = match found.queue {
            Some(QueueLimit::Bytes(bytes)) => (Some(bytes), None),
            Some(QueueLimit::AtLeast(bytes)) => (None, Some(bytes)),
            None => (None, None),
        };
        Self {
            train: found.train,
            least_gap_ns,
            idle_ns,
            queue_bytes,
            queue_at_least_bytes,
            saturated_bps: found.saturated_bps as u64,
            saturated_error_bps: found.saturated_error_bps as u64,
            slowest_bps: Some(found.slowest_bps as u64),
            lengths: found.lengths,
            errors: found.errors,
            gaps: found.gaps,
        }
    }
}
