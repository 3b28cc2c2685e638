//! Any bytes are light rows, latency offsets and models or errors; a link plays the result.
//!
//! `cd crates/link && mkdir -p fuzz/corpus/replay_parser && cargo +nightly fuzz run replay_parser
//! fuzz/corpus/replay_parser fuzz/seeds_replay`
#![no_main]

use std::sync::Arc;

use cellbed_link::{
    Bytes, Compensation, ConditionalConfig, ConditionalModel, Direction, LightRows, StageConfig,
    Time, Trace, WorkloadDependentConfig,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let compensation = Compensation::parse(bytes).unwrap_or_else(|error| {
        assert!(!error.in_file("offsets").contains(char::is_control));
        Compensation::default()
    });
    match ConditionalModel::parse(bytes) {
        Ok(model) => pass(ConditionalConfig::new(Arc::new(model)).into(), bytes),
        Err(error) => assert!(!error.in_file("model").contains(char::is_control)),
    }
    match LightRows::parse(bytes) {
        Ok(light) => play(light, compensation, bytes),
        Err(error) => assert!(!error.in_file("light").contains(char::is_control)),
    }
});

/// Play light rows before a heavy trace.
fn play(light: LightRows, compensation: Compensation, bytes: &[u8]) {
    let Ok(heavy) = Trace::from_millis([1, 7]) else {
        return;
    };
    let config = WorkloadDependentConfig {
        compensation,
        ..WorkloadDependentConfig::new(Arc::new(light), Arc::new(heavy))
    };
    pass(config.into(), bytes);
}

/// Pass packets; the bytes determine their sizes and arrivals.
fn pass(stage: StageConfig, bytes: &[u8]) {
    let mut link = Direction::new(vec![stage], Time::ZERO);
    let mut now = 0;
    for pair in bytes.chunks_exact(2).take(100) {
        now += u64::from(pair[0]) * 1_000_000;
        link.accept(Time::from_nanos(now), (), Bytes(u64::from(pair[1]) * 8 + 1));
    }
    while let Some(outcome) = link.poll(Time::from_nanos(u64::MAX / 2)) {
        assert!(outcome.departed >= outcome.arrived);
    }
    assert_eq!(link.held().packets.0, 0);
}
