//! Samples of the senders of TCP flows, in the format of the kernel's (`python/cellbed/laws/flows.c`).

use cellbed_link::{Duration, Time};
use cellbed_tcp::Sending;

use crate::event::{End, Ends};

/// Beginning of a file of samples.
pub const FLOWS_MAGIC: &[u8; 16] = b"cellbed flows  1";
/// Bytes of a sample.
const FLOW_BYTES: usize = 128;
/// A sender is sampled at most once in each bin.
const BIN_NS: u64 = 10_000_000;
/// Bytes of a name without its final zero.
const NAME: usize = 15;

/// The begin of the next bin.
pub(crate) fn next(now: Time) -> Time {
    Time::from_nanos((now.as_nanos() / BIN_NS + 1) * BIN_NS)
}

/// Appends a sample. number: of the connection; at: which of its ends sends.
pub(crate) fn append(
    samples: &mut Vec<u8>,
    now: Time,
    number: u64,
    (ends, at): (Ends, End),
    state: &Sending,
) {
    let begin = samples.len();
    let (near, far) = (ends.of(at), ends.of(at.peer()));
    let micros = |span: Option<Duration>| span.map_or(0, |span| span.as_nanos() / 1000);
    let flow = 2 * number + u64::from(at == End::Server);
    let longs = [
        now.as_nanos(),
        flow,
        state.acknowledged,
        state.pacing.map_or(0, |rate| rate as u64),
    ];
    let words = [
        micros(state.latest),
        micros(state.round_trip),
        state.window,
        (state.threshold as u64).min(cellbed_tcp::UNLIMITED.into()),
        state.in_flight,
        state.segment,
        state.room,
        state.lost,
        state.repairs,
    ];
    let name = state.control.name();
    let name = &name.as_bytes()[name.len().saturating_sub(NAME)..];
    samples.extend(
        longs
            .iter()
            .chain(&state.shown)
            .flat_map(|it| it.to_le_bytes()),
    );
    samples.extend(
        words
            .iter()
            .flat_map(|&it| u32::try_from(it).unwrap_or(u32::MAX).to_le_bytes()),
    );
    samples.extend(
        [near.0, far.0, near.1, far.1]
            .iter()
            .flat_map(|it| it.to_le_bytes()),
    );
    samples.extend(name);
    samples.resize(begin + FLOW_BYTES, 0);
}
