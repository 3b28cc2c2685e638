//! Any bytes are a table in Parquet of a time, a rate and a round trip, or an error.
//!
//! `cd crates/traces && mkdir -p fuzz/corpus/parquet_table && cargo +nightly fuzz run parquet_table fuzz/corpus/parquet_table \
//! fuzz/seeds/parquet_table`
#![no_main]

#[path = "../any/mod.rs"]
mod any;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let columns =
        r#"[{"index":1,"part":"uplink","unit":1e6},{"index":2,"part":"round-trip","unit":1e6}]"#;
    for (unit, missing) in [
        (r#"{"unit":1000000000}"#, "hold"),
        (r#""moment""#, "refuse"),
    ] {
        any::read(
            bytes,
            &format!(
                r#"{{"format":"parquet","time":0,"unit":{unit},"columns":{columns},"missing":"{missing}"}}"#
            ),
        );
    }
});
