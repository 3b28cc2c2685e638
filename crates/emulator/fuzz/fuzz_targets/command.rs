#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| cellbed_emulator::fuzzing::command(text));
