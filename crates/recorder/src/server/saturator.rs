//! The server's saturation of one run.

use cellbed_link::{BitRate, Bytes, Duration, Time};

use crate::workload::FixedRateSaturator;

/// Packets that are due within so long leave together: a server that woke up for each would do nothing else.
const ROUND: Duration = Duration::from_micros(250);

/// Packets of one length at one rate until an end.
pub(super) struct Saturator {
    pace: FixedRateSaturator,
    spacing: Duration,
    pub(super) bytes: u16,
}

impl Saturator {
    /// Of at least 1 bit/s. It takes over from another one without a burst or a pause.
    pub(super) fn new(
        rate: BitRate,
        bytes: u16,
        now: Time,
        end: Time,
        before: Option<&Self>,
    ) -> Self {
        let spacing = Duration::from_secs_f64(f64::from(bytes) * 8.0 / rate.0.max(1) as f64);
        let due = before
            .and_then(|before| before.pace.next_event())
            .unwrap_or(now);
        let start = due.min(now + spacing);
        Self {
            pace: FixedRateSaturator::new(rate, Bytes(u64::from(bytes)), start, end),
            spacing,
            bytes,
        }
    }

    /// When the next packets are to leave; `None` when it is over.
    pub(super) fn next_event(&self) -> Option<Time> {
        let due = self.pace.next_event()?;
        Some(if self.spacing < ROUND {
            due + ROUND
        } else {
            due
        })
    }

    /// Take a packet from the rate's budget; return whether it must leave now.
    pub(super) fn emit(&mut self, now: Time) -> bool {
        self.pace.emit(now).is_some()
    }
}
