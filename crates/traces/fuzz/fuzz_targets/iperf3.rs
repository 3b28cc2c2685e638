//! Any bytes are a report or an error.
//!
//! `cd crates/traces && mkdir -p fuzz/corpus/iperf3 && cargo +nightly fuzz run iperf3 fuzz/corpus/iperf3 fuzz/seeds/iperf3`
#![no_main]

#[path = "../any/mod.rs"]
mod any;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    any::read(bytes, r#"{"format":"iperf3"}"#);
    any::read(
        bytes,
        r#"{"format":"iperf3","device_is_server":true,"direction":"downlink"}"#,
    );
});
