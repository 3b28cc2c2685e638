//! Any bytes are a trace or an error, and a trace answers every query.
//!
//! `cd crates/link && mkdir -p fuzz/corpus/trace_parser && cargo +nightly fuzz run trace_parser
//! fuzz/corpus/trace_parser fuzz/seeds`
#![no_main]

use cellbed_link::{Bytes, Duration, MTU, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Trace::parse(bytes) {
        Ok(trace) => ask(&trace, bytes),
        Err(error) => assert!(!error.in_file("trace").contains(char::is_control)),
    }
});

/// Queries a trace at positions that its own bytes determine.
fn ask(trace: &Trace, bytes: &[u8]) {
    let period = trace.duration();
    for eight in bytes.chunks_exact(8) {
        let mut nanos = [0; 8];
        nanos.copy_from_slice(eight);
        let nanos = u64::from_le_bytes(nanos) >> (nanos[0] % 64);
        let from = Duration::from_nanos(nanos);
        let next = trace.next_opportunity(from);
        assert!(next >= from);
        assert_eq!(trace.capacity(from, next), Bytes(0));
        if nanos > 0 && nanos < u64::MAX / 2 {
            assert!(next.saturating_sub(from) <= trace.longest_gap());
            assert_eq!(
                trace.capacity(from, from + period),
                trace.opportunities().carrying(MTU)
            );
        }
    }
    if period.as_nanos() < 100_000_000_000 {
        let bins: Bytes = trace.bins(Duration::from_millis(10)).sum();
        assert_eq!(bins, trace.opportunities().carrying(MTU));
    }
}
