//! Arrivals of a client's probes at the server, in chunks that fit a datagram.

use super::field::{put_signed, put_variable};
use super::{Field, HEADER_BYTES, Malformed, Reader, TAG_BYTES, fields};

/// Maximum payload of a datagram with a report, bytes.
pub const REPORT_BYTES: usize = 1200;

/// Bytes of code, run, chunk, chunks, saturation sent, withheld, unrecorded, overflows.
const FIXED_BYTES: usize = 1 + 4 + 4 + 4 + 4 + 4 + 4 + 4;
/// Maximum bytes of the encoded arrivals of a chunk.
const ARRIVALS_BYTES: usize = REPORT_BYTES - HEADER_BYTES - TAG_BYTES - FIXED_BYTES;
/// Maximum bytes of an arrival: flags, three numbers of up to ten bytes, a length of two.
const ARRIVAL_BYTES: usize = 1 + 3 * 10 + 2;

const NEW_TRAIN: u8 = 1;
const NEW_INDEX: u8 = 2;
const NEW_BYTES: u8 = 4;

/// Arrival of one copy of a probe at the server. A further arrival of the same train and index is another copy of the
/// packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
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

/// The arrivals of one chunk, in order, encoded.
///
/// An arrival is encoded as the difference from the expected one: same train, next index and same length as the
/// previous arrival. An expected arrival takes a byte of flags and two to four bytes of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    bytes: Vec<u8>,
    last: Arrival,
}

impl Arrivals {
    /// Add an arrival; return `false`, without adding, if the chunk is full.
    pub fn push(&mut self, arrival: Arrival) -> bool {
        if self.bytes.len() + ARRIVAL_BYTES > ARRIVALS_BYTES {
            return false;
        }
        let (last, index) = (self.last, self.last.index.wrapping_add(1));
        let changed = |differs, flag| if differs { flag } else { 0 };
        let flags = changed(arrival.train != last.train, NEW_TRAIN)
            | changed(arrival.index != index, NEW_INDEX)
            | changed(arrival.bytes != last.bytes, NEW_BYTES);
        let out = &mut self.bytes;
        out.push(flags);
        if flags & NEW_TRAIN != 0 {
            put_signed(out, i64::from(arrival.train) - i64::from(last.train));
        }
        if flags & NEW_INDEX != 0 {
            put_signed(out, i64::from(arrival.index) - i64::from(index));
        }
        if flags & NEW_BYTES != 0 {
            put_variable(out, u64::from(arrival.bytes));
        }
        let since = arrival.arrived_ns.wrapping_sub(last.arrived_ns);
        put_signed(out, since as i64);
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
        std::mem::take(self)
    }

    /// Return the arrivals.
    pub fn iter(&self) -> impl Iterator<Item = Arrival> {
        let (mut reader, mut last) = (Reader::new(&self.bytes), Arrival::default());
        std::iter::from_fn(move || {
            last = read(&mut reader, last).ok()?;
            Some(last)
        })
    }
}

/// All remaining bytes of a message.
impl Field for Arrivals {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (bytes, mut last) = (reader.rest().to_vec(), Arrival::default());
        while !reader.is_empty() {
            last = read(reader, last)?;
        }
        Ok(Self { bytes, last })
    }
}

/// Read the arrival after `last`.
fn read(reader: &mut Reader<'_>, last: Arrival) -> Result<Arrival, Malformed> {
    let flags: u8 = reader.take()?;
    if flags & !(NEW_TRAIN | NEW_INDEX | NEW_BYTES) != 0 {
        return Err(Malformed("an arrival with unknown flags"));
    }
    let mut arrival = last;
    arrival.index = last.index.wrapping_add(1);
    if flags & NEW_TRAIN != 0 {
        arrival.train = offset_number(arrival.train, reader.signed()?)?;
    }
    if flags & NEW_INDEX != 0 {
        arrival.index = offset_number(arrival.index, reader.signed()?)?;
    }
    if flags & NEW_BYTES != 0 {
        let bytes = u16::try_from(reader.variable()?);
        arrival.bytes = bytes.map_err(|_| Malformed("a packet of more than 65535 bytes"))?;
    }
    arrival.arrived_ns = last.arrived_ns.wrapping_add(reader.signed()? as u64);
    Ok(arrival)
}

fn offset_number(number: u32, by: i64) -> Result<u32, Malformed> {
    let sum = i64::from(number).checked_add(by);
    sum.and_then(|sum| u32::try_from(sum).ok())
        .ok_or(Malformed("a number outside its 32 bits"))
}

/// One chunk of a run's arrivals, and the state of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of the run.
    pub run: u32,
    /// Number of this chunk. If it equals `chunks`, there is no such chunk yet, and `arrivals` is empty.
    pub chunk: u32,
    /// Number of chunks so far. Chunks from `chunk + 1` to `chunks - 1` remain to be fetched.
    pub chunks: u32,
    /// Number of packets of the server's saturation that have been sent.
    pub saturation_sent: u32,
    /// Number of packets that the server did not send because of a limit.
    pub withheld: u32,
    /// Number of arrivals that were not recorded for lack of memory.
    pub unrecorded: u32,
    /// Number of packets of all clients lost since the run began because the server's receive buffer was full.
    pub overflows: u32,
    /// In order of arrival.
    pub arrivals: Arrivals,
}

fields! {
    Arrival { train, index, bytes, arrived_ns };
    Report { run, chunk, chunks, saturation_sent, withheld, unrecorded, overflows, arrivals };
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
            prop_assert_eq!(Arrivals::decode(&chunk.encode()), Ok(chunk));
        }

        #[test]
        fn any_bytes_are_a_report_or_none(bytes: Vec<u8>) {
            let _ = Reply::decode(&[&[4][..], &bytes].concat());
        }
    }

    #[test]
    fn a_saturation_takes_five_bytes_an_arrival() {
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
        assert!(taken >= ARRIVALS_BYTES / 5, "{taken}");
        let report = Reply::Report(Report {
            run: 1,
            overflows: 7,
            arrivals: arrivals.finish(),
            ..Report::default()
        });
        assert!(arrivals.is_empty());
        let message = report.encode();
        assert!(HEADER_BYTES + message.len() + TAG_BYTES <= REPORT_BYTES);
        assert_eq!(Reply::decode(&message), Ok(report));
    }
}
