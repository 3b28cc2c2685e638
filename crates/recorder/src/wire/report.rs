//! Arrivals of a client's probes at the server, in chunks.

use serde::{Deserialize, Serialize};

use super::Encode;

/// Maximum bytes of the encoded arrivals of a chunk.
const ARRIVALS_BYTES: usize = 1150;
/// Maximum bytes of an encoded arrival.
const ARRIVAL_BYTES: usize = 5 + 5 + 3 + 10;

/// Arrival of one copy of a probe at the server. A further arrival of the same train and index is another copy of the
/// packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Arrival {
    /// Number of the train; 0 for saturation.
    pub train: u32,
    /// Position in the train, or in the saturation.
    pub index: u32,
    /// IP length, bytes.
    pub bytes: u16,
    /// Time by the kernel's stamp, ns on the server's clock.
    pub arrived_ns: u64,
}

impl Arrival {
    /// Combine the numbers of two arrivals one by one.
    fn map(self, other: Self, number: fn(u32, u32) -> u32, time: fn(u64, u64) -> u64) -> Self {
        Self {
            train: number(self.train, other.train),
            index: number(self.index, other.index),
            arrived_ns: time(self.arrived_ns, other.arrived_ns),
            ..self
        }
    }
}

/// The arrivals of one chunk, in order, encoded as differences from the one before, except for the length: mostly six
/// bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    bytes: Vec<u8>,
    #[serde(skip)]
    last: Arrival,
}

impl Arrivals {
    /// Add an arrival; return `false`, without adding, if the chunk is full.
    pub fn push(&mut self, arrival: Arrival) -> bool {
        if self.bytes.len() + ARRIVAL_BYTES > ARRIVALS_BYTES {
            return false;
        }
        let step = arrival.map(self.last, u32::wrapping_sub, u64::wrapping_sub);
        step.put(&mut self.bytes);
        self.last = arrival;
        true
    }

    /// Return whether there are no arrivals.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Return the memory that the arrivals take, bytes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Return the chunk without spare memory, and leave an empty one.
    pub fn finish(&mut self) -> Self {
        self.bytes.shrink_to_fit();
        self.last = Arrival::default();
        std::mem::take(self)
    }

    /// Return the arrivals, up to bytes that are none.
    pub fn iter(&self) -> impl Iterator<Item = Arrival> {
        let (mut rest, mut last) = (&self.bytes[..], Arrival::default());
        std::iter::from_fn(move || {
            let (step, after) = Arrival::take(rest).ok()?;
            rest = after;
            last = step.map(last, u32::wrapping_add, u64::wrapping_add);
            Some(last)
        })
    }
}

/// Counts of a run at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCounts {
    /// Number of packets of the server's saturation that have been sent.
    pub saturation_sent: u32,
    /// Number of packets that the server did not send because of a limit.
    pub withheld: u32,
    /// Number of arrivals that were not recorded for lack of memory.
    pub unrecorded: u32,
    /// Number of packets of all clients lost since the run began because the server's receive buffer was full.
    pub overflows: u32,
}

/// One chunk of a run's arrivals, possibly empty, and the state of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Number of the run.
    pub run: u32,
    /// Number of chunks that remain to be fetched.
    pub left: u32,
    /// Counts of the run so far.
    pub counts: RunCounts,
    /// In order of arrival.
    pub arrivals: Arrivals,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Reply;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arrivals_come_back(arrivals: Vec<(u32, u32, u16, u64)>) {
            let arrivals: Vec<_> = arrivals
                .into_iter()
                .map(|(train, index, bytes, arrived_ns)| Arrival { train, index, bytes, arrived_ns })
                .collect();
            let mut chunk = Arrivals::default();
            let taken = arrivals.iter().take_while(|arrival| chunk.push(**arrival)).count();
            prop_assert!(taken == arrivals.len() || chunk.bytes.len() > ARRIVALS_BYTES - ARRIVAL_BYTES);
            prop_assert_eq!(chunk.iter().collect::<Vec<_>>(), &arrivals[..taken]);
            let chunk = chunk.finish();
            prop_assert_eq!(Arrivals::decode(&chunk.encode()), Ok(chunk));
        }

        #[test]
        fn any_bytes_are_a_report_or_none(bytes: Vec<u8>) {
            if let Ok(Reply::Report(report)) = Reply::decode(&[&[2][..], &bytes].concat()) {
                prop_assert!(report.arrivals.iter().count() <= bytes.len());
            }
        }
    }

    #[test]
    fn a_saturation_takes_seven_bytes_an_arrival() {
        let mut arrivals = Arrivals::default();
        let arrival = |index| Arrival {
            train: 0,
            index,
            bytes: 1400,
            arrived_ns: (1 << 60) + u64::from(index) * 224_000,
        };
        let taken = (0..)
            .take_while(|index| arrivals.push(arrival(*index)))
            .count();
        assert!(taken >= ARRIVALS_BYTES / 8, "{taken}");
        let report = Reply::Report(Report {
            run: 1,
            left: 7,
            arrivals: arrivals.finish(),
            ..Report::default()
        });
        assert!(arrivals.is_empty());
        assert_eq!(Reply::decode(&report.encode()), Ok(report));
    }
}
