//! Any bytes are what ping printed or an error.
//!
//! `cd crates/traces && mkdir -p fuzz/corpus/ping && cargo +nightly fuzz run ping fuzz/corpus/ping fuzz/seeds/ping`
#![no_main]

#[path = "../any/mod.rs"]
mod any;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    any::read(bytes, r#"{"format":"ping"}"#);
});
