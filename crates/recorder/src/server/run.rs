//! One run of a session: answered trains, arrivals, saturation.

use std::collections::VecDeque;

use cellbed_link::{BitRate, Bytes, Duration, Time};

use crate::secure::{ReplayWindow, Standing};
use crate::wire::{Arrival, Arrivals, REPORT_BYTES, Report, SessionId};
use cellbed_calibration::workload::FixedRateSaturator;

/// Overhead of a chunk, bytes: twice an element of the log, which may have grown just now, and an allocation.
const CHUNK_OVERHEAD: usize = 2 * size_of::<Arrivals>() + 32;

/// Time span of packets sent together: a server that woke up for each packet would do nothing else.
const ROUND: Duration = Duration::from_micros(250);

#[derive(Default)]
pub(super) struct Run {
    pub(super) number: u32,
    pub(super) stopped: bool,
    pub(super) log: ArrivalLog,
    pub(super) saturator: Option<Saturator>,
    /// Session of the last request that set the saturation, and the request's sequence number.
    steered: Option<(SessionId, u64)>,
    answered: ReplayWindow,
    /// Arrivals less copies: replayed packets cannot fill the memory with more copies than packets.
    spare_copies: u32,
    pub(super) saturation_sent: u32,
    pub(super) withheld: u32,
    pub(super) unrecorded: u32,
    /// Packets of all clients lost during the run because the receive buffer was full.
    pub(super) overflows: u32,
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

    /// Record a request that steers the saturation. Return `false` if a later request of the session has arrived
    /// before.
    pub(super) fn steer(&mut self, by: SessionId, sequence: u64) -> bool {
        let overtaken = self
            .steered
            .is_some_and(|(last, number)| last == by && number > sequence);
        if !overtaken {
            self.steered = Some((by, sequence));
        }
        !overtaken
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

    /// Return the report of a chunk.
    pub(super) fn report(&self, chunk: u32) -> Report {
        Report {
            run: self.number,
            chunk,
            chunks: self.log.chunks(),
            saturation_sent: self.saturation_sent,
            withheld: self.withheld,
            unrecorded: self.unrecorded,
            overflows: self.overflows,
            arrivals: self.log.chunk(chunk).cloned().unwrap_or_default(),
        }
    }
}

/// The arrivals of a run until the client has them, in chunks numbered from 0 on. The last chunk is open and grows; the
/// others never change.
#[derive(Default)]
pub(super) struct ArrivalLog {
    open: Arrivals,
    closed: VecDeque<Arrivals>,
    /// Number of the first chunk without an acknowledgement.
    pub(super) first: u32,
    closed_bytes: usize,
}

impl ArrivalLog {
    pub(super) fn push(&mut self, arrival: Arrival) {
        if !self.open.push(arrival) {
            self.close();
            self.open.push(arrival);
        }
    }

    /// Close the open chunk, so that it can be fetched.
    pub(super) fn close(&mut self) {
        if !self.open.is_empty() {
            let chunk = self.open.finish();
            self.closed_bytes += chunk.memory() + CHUNK_OVERHEAD;
            self.closed.push_back(chunk);
        }
    }

    /// Remove the chunks before this one, which the client has.
    pub(super) fn acknowledge(&mut self, before: u32) {
        while self.first < before {
            let Some(chunk) = self.closed.pop_front() else {
                break;
            };
            self.closed_bytes -= chunk.memory() + CHUNK_OVERHEAD;
            self.first += 1;
        }
    }

    /// Return the arrivals of a closed chunk.
    fn chunk(&self, number: u32) -> Option<&Arrivals> {
        let position = number.checked_sub(self.first)?;
        self.closed.get(position as usize)
    }

    /// Return the number of chunks closed so far.
    pub(super) fn chunks(&self) -> u32 {
        self.first + self.closed.len() as u32
    }

    /// Return whether the client has fetched everything.
    pub(super) fn is_fetched(&self) -> bool {
        self.closed.is_empty() && self.open.is_empty()
    }

    pub(super) fn memory(&self) -> Bytes {
        let open = match self.open.is_empty() {
            true => 0,
            false => REPORT_BYTES,
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
    fn chunks_stay_the_same_until_they_are_acknowledged() {
        let mut log = ArrivalLog::default();
        let arrival = |index| Arrival {
            train: 1,
            index,
            bytes: 1400,
            arrived_ns: u64::from(index) * 1000,
        };
        (0..1000).for_each(|index| log.push(arrival(index)));
        let chunks = log.chunks();
        assert!(chunks >= 2);
        let first = log.chunk(0).cloned();
        log.close();
        log.close(); // no chunk remains open
        assert_eq!((log.chunk(0), log.chunks()), (first.as_ref(), chunks + 1));
        let read = (0..=chunks).flat_map(|number| log.chunk(number).unwrap().iter());
        assert!(read.eq((0..1000).map(arrival)));
        log.acknowledge(1);
        assert_eq!((log.chunk(0), log.chunk(1).is_some()), (None, true));
        log.acknowledge(u32::MAX);
        let state = (log.chunks(), log.memory(), log.is_fetched());
        assert_eq!(state, (chunks + 1, Bytes(0), true));
        log.push(arrival(0));
        log.close();
        assert!(log.chunk(chunks + 1).is_some());
    }
}
