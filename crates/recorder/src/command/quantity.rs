//! Quantities as users write them.

use cellbed_link::{BitRate, Bytes, Duration};

/// A time: a number and its unit; s if there is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [
        ("", 1.0),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
        ("h", 3600.0),
    ];
    let seconds = quantity(
        text,
        &units,
        "a time, such as \"50 ms\", \"60 s\", \"10 min\"",
    )?;
    match Duration::from_secs_f64(seconds) {
        span if span.is_zero() => Err("it must be above 0".into()),
        span => Ok(span),
    }
}

/// A rate: a number and its unit, Mbit/s if there is none.
pub fn rate(text: &str) -> Result<BitRate, String> {
    let units = [
        ("", 1e6),
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("Mbit/s", 1e6),
        ("Gbit/s", 1e9),
    ];
    quantity(text, &units, "a rate, such as \"50 Mbit/s\"").map(|rate| BitRate(rate as u64))
}

/// A size: a number and its unit, bytes if there is none.
pub fn bytes(text: &str) -> Result<Bytes, String> {
    let units = [
        ("", 1.0),
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
    ];
    quantity(text, &units, "a size, such as \"1400\" or \"20 GB\"").map(|size| Bytes(size as u64))
}

/// Lengths of a train and its answer, such as `25:50`.
pub fn train_lengths(text: &str) -> Result<(u16, u16), String> {
    let parts = text
        .split_once(':')
        .and_then(|(up, down)| Some((up.trim().parse().ok()?, down.trim().parse().ok()?)));
    match parts {
        Some((0, _)) => Err("a train has at least one packet of the client".into()),
        Some(lengths) => Ok(lengths),
        None => Err("two numbers of packets, such as 25:50 for 25 answered by 50".into()),
    }
}

/// Two times, such as `20s:10s`.
pub fn interval_pair(text: &str) -> Result<(Duration, Duration), String> {
    match text.split_once(':') {
        Some((first, second)) => Ok((duration(first)?, duration(second)?)),
        None => Err("two times, such as 20s:10s".into()),
    }
}

fn quantity(text: &str, units: &[(&str, f64)], wanted: &str) -> Result<f64, String> {
    let text = text.trim();
    let end = text
        .find(|character: char| !(character.is_ascii_digit() || character == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: Option<f64> = number.parse().ok();
    let factor = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))
        .map(|(_, factor)| factor);
    match (number, factor) {
        (Some(number), Some(factor)) => Ok(number * factor),
        _ => Err(format!("it must be {wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_understood_with_and_without_units() {
        assert_eq!(duration("50 ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("1.5min"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        assert_eq!(rate("2.5"), Ok(BitRate(2_500_000)));
        assert_eq!(rate("1 Gbit/s"), Ok(BitRate(1_000_000_000)));
        assert_eq!(bytes("20 GB"), Ok(Bytes(20_000_000_000)));
        assert_eq!(train_lengths("25:50"), Ok((25, 50)));
        assert_eq!(
            interval_pair("20s:500ms"),
            Ok((Duration::from_secs(20), Duration::from_millis(500)))
        );
        for wrong in ["", "5 parsecs", "-3 s", "0", "1e999 s x"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(train_lengths("0:5").is_err() && train_lengths("5").is_err());
    }
}
