//! The files of CellReplay's tool: written files are read again.

use cellbed_link::*;
use proptest::prelude::*;

fn nanos() -> impl Strategy<Value = u64> {
    let largest = u64::from(u32::MAX) * 1_000_000 + 999_999;
    prop_oneof![3 => (0..1000u64).prop_map(|millis| millis * 1_000_000), 2 => 0..100_000_000u64, 1 => 0..=largest]
}

fn millis(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn light_rows_that_are_written_are_read_again(
        rows in prop::collection::vec((nanos(), nanos(), prop::collection::vec(nanos(), 0..6)), 1..8)
    ) {
        let mut times: Vec<u64> = rows.iter().map(|row| row.0).collect();
        times.sort_unstable();
        let row = |((_, delay, offsets), time): ((u64, u64, Vec<u64>), u64)| LightRow {
            time: Duration::from_nanos(time),
            base_delay: Duration::from_nanos(delay),
            opportunities: offsets.into_iter().map(Duration::from_nanos).collect(),
        };
        let light = LightRows::new(rows.into_iter().zip(times).map(row)).unwrap();
        let text: String = light.rows().iter().map(|row| {
            let spans = [row.time, row.base_delay].into_iter().chain(row.opportunities.iter().copied());
            let spans: Vec<_> = spans.map(|span| millis(span.as_nanos())).collect();
            spans.join(" ") + "\n"
        }).collect();
        prop_assert_eq!(LightRows::parse(text.as_bytes()).unwrap(), light);
    }

    #[test]
    fn offsets_that_are_written_are_read_again(
        shifts in prop::collection::vec(-100_000_000i64..100_000_000, 1..15)
    ) {
        let point = |(index, nanos): (u64, i64)| (Bytes(100 * index), Shift::from_nanos(nanos));
        let compensation = Compensation::new((1..).zip(shifts).map(point)).unwrap();
        let text: String = compensation.points().map(|(size, shift)| {
            let sign = if shift.as_nanos() < 0 { "-" } else { "" };
            format!("{} {sign}{}\n", size.0, millis(shift.as_nanos().unsigned_abs()))
        }).collect();
        let again = Compensation::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(again, compensation);
    }
}
