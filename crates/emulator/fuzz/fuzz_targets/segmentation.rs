#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cellbed_emulator::fuzzing::Segmentation::default().case(bytes));
