#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| cellbed_emulator::fuzzing::stage_list(text));
