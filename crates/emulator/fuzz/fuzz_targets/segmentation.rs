#![no_main]

use std::cell::RefCell;

use cellbed_emulator::fuzzing::Segmentation;

thread_local! {
    // One for all cases: it begins with megabytes of memory.
    static SEGMENTATION: RefCell<Segmentation> = RefCell::default();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| SEGMENTATION.with_borrow_mut(|all| all.case(bytes)));
