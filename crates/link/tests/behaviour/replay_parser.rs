//! The files of CellReplay's tool: what is written is read again, and any bytes are either read or refused.

use cellbed_link::*;
use proptest::prelude::*;

fn nanos() -> impl Strategy<Value = u64> {
    let largest = u64::from(u32::MAX) * 1_000_000 + 999_999;
    prop_oneof![3 => (0..1000u64).prop_map(|millis| millis * 1_000_000), 2 => 0..100_000_000u64, 1 => 0..=largest]
}

/// Return random contents of files, mostly in an order that makes sense.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[0-9]{1,3}",
        3 => Just(" ".to_owned()),
        3 => Just("\n".to_owned()),
        1 => "[-+.#\r\t]",
        1 => "\\PC{1,3}",
    ];
    prop_oneof![
        4 => prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..80),
    ]
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
        prop_assert_eq!(LightRows::parse(light.to_text().as_bytes()).unwrap(), light);
    }

    #[test]
    fn offsets_that_are_written_are_read_again(
        shifts in prop::collection::vec(-100_000_000i64..100_000_000, 1..15)
    ) {
        let point = |(index, nanos): (u64, i64)| (Bytes(100 * index), Shift::from_nanos(nanos));
        let compensation = Compensation::new((1..).zip(shifts).map(point)).unwrap();
        let again = Compensation::parse(compensation.to_text().as_bytes()).unwrap();
        prop_assert_eq!(again, compensation);
    }

    #[test]
    fn any_bytes_are_read_or_refused_with_a_line(bytes in text()) {
        let lines = bytes.split(|&byte| byte == b'\n').count();
        for error in [LightRows::parse(&bytes[..]).err(), Compensation::parse(&bytes[..]).err()].into_iter().flatten() {
            let message = error.in_file("x");
            prop_assert!(!message.contains(char::is_control), "{}", message);
            prop_assert!(error.line().is_none_or(|line| (1..=lines).contains(&line)));
        }
        if let Ok(light) = LightRows::parse(&bytes[..]) {
            prop_assert_eq!(LightRows::parse(light.to_text().as_bytes()).unwrap(), light);
        }
    }
}
