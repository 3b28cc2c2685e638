//! Any bytes are a trace or an error, and the same to whoever holds the trace as to the importer.
//!
//! `cd crates/traces && mkdir -p fuzz/corpus/mahimahi && cargo +nightly fuzz run mahimahi fuzz/corpus/mahimahi fuzz/seeds/mahimahi`
#![no_main]

#[path = "../any/mod.rs"]
mod any;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let done = any::read(bytes, r#"{"format":"mahimahi","direction":"uplink"}"#);
    let held = cellbed_link::Trace::parse(bytes).ok();
    assert_eq!(done.is_some(), held.is_some());
    if let (Some(done), Some(held)) = (done, held) {
        assert_eq!(done.parts[0].rows, held.opportunities().0);
        assert_eq!(done.parts[0].duration_ns as u64, held.duration().as_nanos());
    }
});
