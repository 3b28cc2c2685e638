//! One run of a session: answered trains, arrivals, saturation.

use std::collections::VecDeque;

use cellbed_link::{BitRate, Bytes, Duration, Time};

use crate::secure::{ReplayWindow, Standing};
use crate::wire::{Arrival, Arrivals, Report, RunCounts};
use cellbed_calibration::workload::FixedRateSaturator;

/// Overhead of a chunk, bytes: twice an element of the log, which may have grown just now, and an allocation.
const CHUNK_OVERHEAD: usize = 2 * size_of::<Arrivals>() + 32;

/// Maximum memory of the chunk that still grows, bytes.
const OPEN_BYTES: usize = 1200;

/// Time span of packets sent together: a server that woke up for each packet would do nothing else.
const ROUND: Duration = Duration::from_micros(250);

#[derive(Default)]
pub(super) struct Run {
    pub(super) number: u32,
    pub(super) stopped: bool,
    pub(super) log: ArrivalLog,
    pub(super) saturator: Option<Saturator>,
    answered: ReplayWindow,
    /// Arrivals less copies: replayed packets cannot fill the memory with more copies than packets.
    spare_copies: u32,
    pub(super) counts: RunCounts,
}

impl Run {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.saturator = None;
    }

    /// Record the arrival of a packet of a train. Return whether it is the train's first.
    pub(super) fn is_first_of(&mut self, train: u32) -> bool {
        self.answered.see(u64::from(train)) == Standing::New
    }

    /// Return whether another arrival, or copy, may be recorded.
    pub(super) fn admits(&mut self, copy: bool) -> bool {
        if copy {
            let spare = self.spare_copies.checked_sub(1);
            self.spare_copies = spare.unwrap_or(0);
            spare.is_some()
        } else {
            self.spare_copies = self.spare_copies.saturating_add(1);
            true
        }
    }

    /// Return the next report, without arrivals if there are none.
    pub(super) fn report(&mut self) -> Report {
        let arrivals = self.log.take();
        Report {
            run: self.number,
            left: self.log.chunks(),
            counts: self.counts,
            arrivals,
        }
    }
}

/// The arrivals of a run until the client fetches them, in chunks. The last chunk is open and grows.
#[derive(Default)]
pub(super) struct ArrivalLog {
    open: Arrivals,
    closed: VecDeque<Arrivals>,
    closed_bytes: usize,
}

impl ArrivalLog {
    pub(super) fn push(&mut self, arrival: Arrival) {
        if !self.open.push(arrival) {
            let chunk = self.open.finish();
            self.closed_bytes += chunk.memory() + CHUNK_OVERHEAD;
            self.closed.push_back(chunk);
            self.open.push(arrival);
        }
    }

    /// Remove and return the first chunk; an empty one if there is none.
    fn take(&mut self) -> Arrivals {
        let Some(chunk) = self.closed.pop_front() else {
            return self.open.finish();
        };
        self.closed_bytes -= chunk.memory() + CHUNK_OVERHEAD;
        chunk
    }

    /// Return the number of chunks.
    pub(super) fn chunks(&self) -> u32 {
        self.closed.len() as u32 + u32::from(!self.open.is_empty())
    }

    pub(super) fn memory(&self) -> Bytes {
        let open = match self.open.is_empty() {
            true => 0,
            false => OPEN_BYTES,
        };
        Bytes((self.closed_bytes + open) as u64)
    }
}

/// Saturation by the server: packets of one length at one rate until an end.
pub(super) struct Saturator {
    pace: FixedRateSaturator,
    spacing: Duration,
    pub(super) bytes: u16,
}

impl Saturator {
    /// Rate: at least 1 bit/s. The new saturator continues a previous one without a burst or a pause.
    pub(super) fn new(
        rate: BitRate,
        bytes: u16,
        now: Time,
        end: Time,
        before: Option<&Self>,
    ) -> Self {
        let spacing = Duration::from_secs_f64(f64::from(bytes) * 8.0 / rate.0.max(1) as f64);
        let due = before.and_then(|before| before.pace.next_event());
        let start = due.unwrap_or(now).min(now + spacing);
        Self {
            pace: FixedRateSaturator::new(rate, Bytes(u64::from(bytes)), start, end),
            spacing,
            bytes,
        }
    }

    /// Return the time of the next packets; `None` after the end.
    pub(super) fn next_event(&self) -> Option<Time> {
        let due = self.pace.next_event()?;
        let bundles = self.spacing < ROUND;
        Some(if bundles { due + ROUND } else { due })
    }

    /// Take a packet from the rate's budget; return whether it must leave now.
    pub(super) fn emit(&mut self, now: Time) -> bool {
        self.pace.emit(now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_taken_once_and_in_order() {
        let mut log = ArrivalLog::default();
        let arrival = |index| Arrival {
            train: 1,
            index,
            bytes: 1400,
            arrived_ns: u64::from(index) * 1000,
        };
        (0..1000).for_each(|index| log.push(arrival(index)));
        let chunks = log.chunks();
        assert!(chunks >= 2 && log.memory() > Bytes(1_000));
        let taken: Vec<_> = (0..chunks).map(|_| log.take()).collect();
        let read = taken.iter().flat_map(Arrivals::iter);
        assert!(read.eq((0..1000).map(arrival)));
        assert_eq!((log.chunks(), log.memory()), (0, Bytes(0)));
        assert!(log.take().is_empty());
    }
}
