//! Random super-packets through the segmentation code, each result held against plain segmentation.
//!
//! `cargo run --release -p cellbed-emulator --features fuzzing --example segmentation_cases -- CASES [SEED]`

use std::time::Instant;

use cellbed_emulator::fuzzing::Segmentation;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| match arguments.next() {
        Some(text) => text.parse().expect("CASES and SEED are whole numbers"),
        None => default,
    };
    let (cases, seed) = (number(100_000), number(1));
    let begin = Instant::now();
    let mut segmentation = Segmentation::default();
    let mut bytes = [0; 192];
    for case in 0..cases {
        fill(&mut bytes, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ case);
        // Told by the panic's message, so that the case can be run again.
        let failed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| segmentation.case(&bytes)));
        if failed.is_err() {
            eprintln!("case {case} of seed {seed} failed");
            std::process::exit(1);
        }
    }
    let done = segmentation.figures();
    println!(
        "{} cases with seed {seed} in {:.0} s: {} packets of {} segments, {} of these dropped, marked, doubled, damaged or \
         overtaken; {} packets written, {} of them super-packets. No panic, no wrong length, checksum or byte.",
        done.cases,
        begin.elapsed().as_secs_f64(),
        done.packets,
        done.segments,
        done.meddled,
        done.written,
        done.super_packets,
    );
}

/// Random bytes of a case: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed;
    for eight in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        eight.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes()[..eight.len()]);
    }
}
