//! Random arrivals: increasing times, and traces.

use proptest::prelude::*;

/// A millisecond, ns.
pub const MS: u64 = 1_000_000;

/// Convert the intervals between arrivals to times.
pub fn in_order<T>(steps: Vec<(u64, T)>) -> Vec<(u64, T)> {
    let mut now = 0;
    let at = |(wait, what)| {
        now += wait;
        (now, what)
    };
    steps.into_iter().map(at).collect()
}

/// Waits (ns) on a grid that often meets the opportunities, in bursts and with gaps.
pub fn waits() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 4 => (0..4u64).prop_map(|half| half * MS / 2), 1 => 0..80 * MS]
}

/// Timestamps of a trace, ms.
pub fn timestamps() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![4 => Just(0), 8 => 1..4u64, 1 => 1..100u64];
    prop::collection::vec(step, 1..40).prop_filter_map("a trace has a length", |steps| {
        let stamps = in_order(steps.into_iter().map(|step| (step, ())).collect());
        let millis: Vec<u64> = stamps.into_iter().map(|(stamp, ())| stamp).collect();
        (millis.last() > Some(&0)).then_some(millis)
    })
}
