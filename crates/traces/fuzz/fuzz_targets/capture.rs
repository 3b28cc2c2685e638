//! Any bytes are a capture with a flow or an error; all flows have as many opportunities as one, or more.
//!
//! `cd crates/traces && mkdir -p fuzz/corpus/capture && cargo +nightly fuzz run capture fuzz/corpus/capture fuzz/seeds/capture`
#![no_main]

#[path = "../any/mod.rs"]
mod any;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    any::read(bytes, r#"{"format":"capture"}"#);
    any::read(
        bytes,
        r#"{"format":"capture","flow":["udp"],"all_flows":true,"each_packet":true}"#,
    );
});
