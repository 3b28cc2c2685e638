//! Arrivals of a client's probes at the server, in chunks that fit a datagram.
//!
//! An arrival is encoded as its difference from the one expected after the one before: same train, next index, same
//! length. Such a one takes the byte of flags and two to four bytes of time.

use super::{HEADER_BYTES, Malformed, TAG_BYTES};
use crate::field::{Field, Reader, put_signed, put_variable};

/// No datagram with a report has more payload.
pub const REPORT_BYTES: usize = 1200;

/// Code, run, chunk, chunks, saturation sent, withheld, unrecorded, overflows.
const FIXED_BYTES: usize = 1 + 4 + 4 + 4 + 4 + 4 + 4 + 4;
/// The encoded arrivals of one chunk are no longer.
const ARRIVALS_BYTES: usize = REPORT_BYTES - HEADER_BYTES - TAG_BYTES - FIXED_BYTES;
/// Flags, three numbers of up to ten bytes each, a length of two.
const ARRIVAL_BYTES: usize = 1 + 3 * 10 + 2;

const NEW_TRAIN: u8 = 1;
const NEW_INDEX: u8 = 2;
const NEW_BYTES: u8 = 4;

/// One copy of a probe arrived at the server. A second arrival of the same train and index is another copy of the same
/// packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arrival {
    /// Number of the train; 0 for saturation.
    pub train: u32,
    /// Position in the train, or in the saturation.
    pub index: u32,
    /// IP length, bytes.
    pub bytes: u16,
    /// By the kernel's stamp, ns on the server's clock.
    pub arrived_ns: u64,
}

impl Arrival {
    /// Return the next arrival if nothing changes.
    fn expected_next(self) -> Self {
        Self {
            index: self.index.wrapping_add(1),
            ..self
        }
    }
}

/// Collects the arrivals of one chunk.
#[derive(Clone, Debug, Default)]
pub struct ArrivalsEncoder {
    bytes: Vec<u8>,
    last: Arrival,
}

impl ArrivalsEncoder {
    /// Adds an arrival; `false`, and it is not added, if the chunk is full.
    pub fn push(&mut self, arrival: Arrival) -> bool {
        if self.bytes.len() + ARRIVAL_BYTES > ARRIVALS_BYTES {
            return false;
        }
        let expected = self.last.expected_next();
        let changed = |differs, flag| if differs { flag } else { 0 };
        let flags = changed(arrival.train != expected.train, NEW_TRAIN)
            | changed(arrival.index != expected.index, NEW_INDEX)
            | changed(arrival.bytes != expected.bytes, NEW_BYTES);
        self.bytes.push(flags);
        if flags & NEW_TRAIN != 0 {
            put_signed(
                &mut self.bytes,
                i64::from(arrival.train) - i64::from(expected.train),
            );
        }
        if flags & NEW_INDEX != 0 {
            put_signed(
                &mut self.bytes,
                i64::from(arrival.index) - i64::from(expected.index),
            );
        }
        if flags & NEW_BYTES != 0 {
            put_variable(&mut self.bytes, u64::from(arrival.bytes));
        }
        put_signed(
            &mut self.bytes,
            arrival.arrived_ns.wrapping_sub(expected.arrived_ns) as i64,
        );
        self.last = arrival;
        true
    }

    /// Return whether there are no arrivals.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The encoded arrivals; it is empty afterwards.
    pub fn finish(&mut self) -> Box<[u8]> {
        self.last = Arrival::default();
        std::mem::take(&mut self.bytes).into_boxed_slice()
    }
}

/// Reads the arrivals of one chunk, in order; ends after the first error.
pub struct ArrivalsDecoder<'a> {
    reader: Reader<'a>,
    last: Arrival,
}

impl<'a> ArrivalsDecoder<'a> {
    /// Reads what [`ArrivalsEncoder::finish`] gave.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(bytes),
            last: Arrival::default(),
        }
    }

    fn read(&mut self) -> Result<Arrival, Malformed> {
        let flags = self.reader.u8()?;
        if flags & !(NEW_TRAIN | NEW_INDEX | NEW_BYTES) != 0 {
            return Err(Malformed("an arrival with unknown flags"));
        }
        let mut arrival = self.last.expected_next();
        if flags & NEW_TRAIN != 0 {
            arrival.train = offset_number(arrival.train, self.reader.signed()?)?;
        }
        if flags & NEW_INDEX != 0 {
            arrival.index = offset_number(arrival.index, self.reader.signed()?)?;
        }
        if flags & NEW_BYTES != 0 {
            let bytes = self.reader.variable()?;
            arrival.bytes =
                u16::try_from(bytes).map_err(|_| Malformed("a packet of more than 65535 bytes"))?;
        }
        arrival.arrived_ns = arrival
            .arrived_ns
            .wrapping_add(self.reader.signed()? as u64);
        self.last = arrival;
        Ok(arrival)
    }
}

fn offset_number(number: u32, by: i64) -> Result<u32, Malformed> {
    let sum = i64::from(number)
        .checked_add(by)
        .and_then(|sum| u32::try_from(sum).ok());
    sum.ok_or(Malformed("a number outside its 32 bits"))
}

impl Iterator for ArrivalsDecoder<'_> {
    type Item = Result<Arrival, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let arrival = self.read();
        if arrival.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(arrival)
    }
}

/// One chunk of a run's arrivals, and how the run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of the run.
    pub run: u32,
    /// The number of this chunk. If it equals `chunks` there is no such chunk yet, and no arrivals are here.
    pub chunk: u32,
    /// Number of chunks so far: those from `chunk + 1` up to it remain to be fetched.
    pub chunks: u32,
    /// Number of packets of the server's saturation that have been sent.
    pub saturation_sent: u32,
    /// Number of packets that the server did not send because of a limit.
    pub withheld: u32,
    /// Number of arrivals that were not recorded for lack of memory.
    pub unrecorded: u32,
    /// Number of packets of all clients that found the server's receive buffer full since the run began.
    pub overflows: u32,
    /// In order of arrival.
    pub arrivals: Vec<Arrival>,
}

impl Report {
    /// Appends a report of arrivals that are already encoded: what a server sends.
    pub fn encode_with(&self, arrivals: &[u8], out: &mut Vec<u8>) {
        out.push(4);
        self.put_fixed(out);
        out.extend_from_slice(arrivals);
    }

    fn put_fixed(&self, out: &mut Vec<u8>) {
        for number in [
            self.run,
            self.chunk,
            self.chunks,
            self.saturation_sent,
            self.withheld,
            self.unrecorded,
            self.overflows,
        ] {
            number.put(out);
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.put_fixed(out);
        let mut encoder = ArrivalsEncoder::default();
        for arrival in &self.arrivals {
            encoder.push(*arrival);
        }
        out.extend_from_slice(&encoder.finish());
    }

    pub(super) fn take(mut reader: Reader<'_>) -> Result<Self, Malformed> {
        let mut report = Self {
            run: reader.take()?,
            chunk: reader.take()?,
            chunks: reader.take()?,
            saturation_sent: reader.take()?,
            withheld: reader.take()?,
            unrecorded: reader.take()?,
            overflows: reader.take()?,
            arrivals: Vec::new(),
        };
        report.arrivals = ArrivalsDecoder::new(reader.rest()).collect::<Result<_, _>>()?;
        Ok(report)
    }
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
            let mut encoder = ArrivalsEncoder::default();
            let taken = arrivals.iter().take_while(|arrival| encoder.push(**arrival)).count();
            let bytes = encoder.finish();
            prop_assert!(taken == arrivals.len() || bytes.len() > ARRIVALS_BYTES - ARRIVAL_BYTES);
            let read: Result<Vec<_>, _> = ArrivalsDecoder::new(&bytes).collect();
            prop_assert_eq!(read, Ok(arrivals[..taken].to_vec()));
        }

        #[test]
        fn any_bytes_are_a_report_or_none(bytes: Vec<u8>) {
            let _ = Reply::decode(&[&[4][..], &bytes].concat());
        }
    }

    #[test]
    fn a_saturation_takes_five_bytes_an_arrival() {
        let mut encoder = ArrivalsEncoder::default();
        let arrival = |index| Arrival {
            train: 0,
            index,
            bytes: 1400,
            arrived_ns: (1 << 60) + u64::from(index) * 224_000,
        };
        let taken = (0..)
            .take_while(|index| encoder.push(arrival(*index)))
            .count();
        assert!(taken >= ARRIVALS_BYTES / 5, "{taken}");
        let bytes = encoder.finish();
        assert!(encoder.is_empty());
        let report = Report {
            run: 1,
            chunk: 2,
            chunks: 3,
            saturation_sent: 4,
            withheld: 5,
            unrecorded: 6,
            overflows: 7,
            arrivals: Vec::new(),
        };
        let mut message = Vec::new();
        report.encode_with(&bytes, &mut message);
        assert!(HEADER_BYTES + message.len() + TAG_BYTES <= REPORT_BYTES);
        let arrivals = (0..taken as u32).map(arrival).collect();
        assert_eq!(
            Reply::decode(&message),
            Ok(Reply::Report(Report { arrivals, ..report }))
        );
    }
}
