//! Any bytes from a device pass the segmentation, and what can be cut is cut as the plain code has it.
//!
//! `cd crates/emulator && mkdir -p fuzz/corpus/packet && cargo +nightly fuzz run packet fuzz/corpus/packet fuzz/seeds/packet`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cellbed_emulator::fuzzing::packet(bytes));
