//! Any bytes are a table of a time, a rate and a round trip, or an error.
//!
//! `cd crates/traces && mkdir -p fuzz/corpus/columns && cargo +nightly fuzz run columns fuzz/corpus/columns fuzz/seeds/columns`
#![no_main]

#[path = "../any/mod.rs"]
mod any;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let columns =
        r#"[{"index":1,"part":"uplink","unit":1e6},{"index":2,"part":"round-trip","unit":1e6}]"#;
    for (unit, missing) in [(r#"{"unit":1000000}"#, "hold"), (r#""moment""#, "refuse")] {
        any::read(
            bytes,
            &format!(
                r#"{{"format":"columns","delimiter":44,"head":1,"time":0,"unit":{unit},"columns":{columns},"missing":"{missing}"}}"#
            ),
        );
    }
});
