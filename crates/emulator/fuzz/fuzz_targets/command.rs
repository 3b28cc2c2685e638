//! Any line is a command, or is refused in words.
//!
//! `cd crates/emulator && mkdir -p fuzz/corpus/command && cargo +nightly fuzz run command fuzz/corpus/command fuzz/seeds/command`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| cellbed_emulator::fuzzing::command(text));
