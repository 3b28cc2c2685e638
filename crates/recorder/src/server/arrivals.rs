//! The arrivals of one run, kept until the client has them.

use std::collections::VecDeque;

use cellbed_link::Bytes;

use crate::wire::{Arrival, ArrivalsEncoder, REPORT_BYTES};

/// Overhead of a chunk, bytes.
const CHUNK_OVERHEAD: usize = 64;

/// Chunks of arrivals, numbered from 0 on. The last one is open and grows; the others never change.
#[derive(Default)]
pub(super) struct ArrivalLog {
    open: ArrivalsEncoder,
    closed: VecDeque<Box<[u8]>>,
    first: u32,
    closed_bytes: usize,
}

impl ArrivalLog {
    pub(super) fn push(&mut self, arrival: Arrival) {
        if !self.open.push(arrival) {
            self.close();
            self.open.push(arrival);
        }
    }

    /// Makes the open chunk one that can be fetched.
    pub(super) fn close(&mut self) {
        if !self.open.is_empty() {
            let chunk = self.open.finish();
            self.closed_bytes += chunk.len() + CHUNK_OVERHEAD;
            self.closed.push_back(chunk);
        }
    }

    /// The client has all chunks before this one.
    pub(super) fn acknowledge(&mut self, before: u32) {
        while self.first < before {
            let Some(chunk) = self.closed.pop_front() else {
                break;
            };
            self.closed_bytes -= chunk.len() + CHUNK_OVERHEAD;
            self.first += 1;
        }
    }

    /// The encoded arrivals of a closed chunk.
    pub(super) fn chunk(&self, number: u32) -> Option<&[u8]> {
        let position = number.checked_sub(self.first)?;
        self.closed.get(position as usize).map(AsRef::as_ref)
    }

    /// Number of the first chunk that is not acknowledged.
    pub(super) fn first(&self) -> u32 {
        self.first
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
        let open = if self.open.is_empty() {
            0
        } else {
            REPORT_BYTES
        };
        Bytes((self.closed_bytes + open) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ArrivalsDecoder;

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
        let first = log.chunk(0).unwrap().to_vec();
        log.close();
        log.close(); // there is nothing to close any more
        assert_eq!((log.chunk(0), log.chunks()), (Some(&first[..]), chunks + 1));
        let read: Vec<_> = (0..=chunks)
            .flat_map(|number| ArrivalsDecoder::new(log.chunk(number).unwrap()))
            .collect();
        assert_eq!(
            read,
            (0..1000)
                .map(|index| Ok(arrival(index)))
                .collect::<Vec<_>>()
        );
        log.acknowledge(1);
        assert_eq!((log.chunk(0), log.chunk(1).is_some()), (None, true));
        log.acknowledge(u32::MAX);
        assert_eq!(
            (log.chunks(), log.memory(), log.is_fetched()),
            (chunks + 1, Bytes(0), true)
        );
        log.push(arrival(0));
        log.close();
        assert!(log.chunk(chunks + 1).is_some());
    }
}
