//! The trace parser, with bytes of every kind.

use std::io::{self, Read};

use cellbed_link::*;
use proptest::prelude::*;

/// The rules of the format in short form. Returns the timestamps, or the number of the first offending line (0 for the
/// trace as a whole).
fn oracle(bytes: &[u8]) -> Result<Vec<u64>, usize> {
    let mut millis: Vec<u64> = Vec::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        let comment = text.first() == Some(&b'#');
        let blank = !text.contains(&b'\r') && text.trim_ascii().is_empty();
        let number = std::str::from_utf8(text)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse::<u32>().ok())
            .map(u64::from)
            .filter(|value| millis.last().is_none_or(|last| value >= last));
        match number {
            _ if line.len() > 4096 => return Err(index + 1),
            _ if comment || blank => {}
            Some(value) => millis.push(value),
            None => return Err(index + 1),
        }
    }
    if millis.last().is_some_and(|&last| last > 0) {
        Ok(millis)
    } else {
        Err(0)
    }
}

/// A source that returns its bytes in pieces of these sizes, in turn, like a pipe.
struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self
            .sizes
            .next()
            .copied()
            .unwrap_or(1)
            .min(self.bytes.len())
            .min(buffer.len());
        buffer[..size].copy_from_slice(&self.bytes[..size]);
        self.bytes = &self.bytes[size..];
        Ok(size)
    }
}

fn check(bytes: &[u8], sizes: &[usize]) -> Result<(), TestCaseError> {
    let pieces = Pieces {
        bytes,
        sizes: sizes.iter().cycle(),
    };
    match (Trace::parse(bytes), oracle(bytes)) {
        (Ok(trace), Ok(millis)) => {
            prop_assert_eq!(trace.opportunities(), Opportunities(millis.len() as u64));
            prop_assert_eq!(&trace, &Trace::from_millis(millis).unwrap());
            prop_assert_eq!(Trace::parse(pieces).unwrap(), trace);
        }
        (Err(error), Err(line)) => {
            prop_assert_eq!(error.line().unwrap_or(0), line);
            prop_assert_eq!(
                Trace::parse(pieces).unwrap_err().to_string(),
                error.to_string()
            );
            prop_assert!(
                error.to_string().len() < 500 && !error.to_string().contains(char::is_control)
            );
        }
        (parsed, expected) => prop_assert!(false, "{:?} where {:?} was expected", parsed, expected),
    }
    Ok(())
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..9usize, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_trace_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), sizes in sizes()) {
        check(&bytes, &sizes)?;
    }

    #[test]
    fn what_looks_like_a_trace_is_judged_by_the_rules(
        bytes in prop::collection::vec(prop::sample::select(b"0123456789\n\n\n\n\r#-+. x".to_vec()), 0..60),
        sizes in sizes(),
    ) {
        check(&bytes, &sizes)?;
    }

    #[test]
    fn one_bad_line_among_good_ones_is_found(
        millis in prop::collection::btree_set(0..1000u32, 1..30),
        bad in prop::option::of((0..30usize, prop::sample::select(vec!["", "\r", "#", "-1", "0", "1.5", "99999999999", " ", "7 ", "é", "\u{0}"]))),
        end in prop::sample::select(vec!["\n", "\r\n"]),
        sizes in sizes(),
    ) {
        let mut lines: Vec<String> = millis.iter().map(u32::to_string).collect();
        if let Some((index, line)) = bad {
            lines.insert(index.min(lines.len()), line.to_owned());
        }
        check(lines.join(end).as_bytes(), &sizes)?;
    }
}
