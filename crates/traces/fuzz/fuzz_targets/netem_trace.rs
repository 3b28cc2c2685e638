//! Any bytes are a model of bandwidth or delay, or an error.
//!
//! `cd crates/traces && mkdir -p fuzz/corpus/netem_trace && cargo +nightly fuzz run netem_trace fuzz/corpus/netem_trace fuzz/seeds/netem_trace`
#![no_main]

#[path = "../any/mod.rs"]
mod any;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    any::read(
        bytes,
        r#"{"format":"netem-trace","direction":"uplink","delays":"one-way"}"#,
    );
});
