//! Any line is a configuration that can be built, or is refused in words.
//!
//! `cd crates/emulator && mkdir -p fuzz/corpus/configuration && cargo +nightly fuzz run configuration fuzz/corpus/configuration fuzz/seeds/configuration`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| cellbed_emulator::fuzzing::configuration(text));
