//! Rates, spans and times in files.

use chrono::{DateTime, NaiveDate, NaiveDateTime};

/// Units of a rate and what each is in bit/s. `k` is 1000; case matters only to distinguish bits from bytes.
const RATES: [(&str, f64); 25] = [
    ("bit/s", 1.0),
    ("bps", 1.0),
    ("b/s", 1.0),
    ("kbit/s", 1e3),
    ("kbps", 1e3),
    ("kb/s", 1e3),
    ("Mbit/s", 1e6),
    ("Mbps", 1e6),
    ("Mb/s", 1e6),
    ("Gbit/s", 1e9),
    ("Gbps", 1e9),
    ("Gb/s", 1e9),
    ("Tbps", 1e12),
    ("B/s", 8.0),
    ("byte/s", 8.0),
    ("bytes/s", 8.0),
    ("kB/s", 8e3),
    ("kbyte/s", 8e3),
    ("kbytes/s", 8e3),
    ("MB/s", 8e6),
    ("Mbyte/s", 8e6),
    ("Mbytes/s", 8e6),
    ("GB/s", 8e9),
    ("Gbyte/s", 8e9),
    ("Gbytes/s", 8e9),
];

/// Units of a span and what each is in ns.
const SPANS: [(&str, f64); 24] = [
    ("ns", 1.0),
    ("nsec", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("\u{3bc}s", 1e3),
    ("usec", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("millis", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("secs", 1e9),
    ("second", 1e9),
    ("seconds", 1e9),
    ("m", 60e9),
    ("min", 60e9),
    ("mins", 60e9),
    ("minute", 60e9),
    ("minutes", 60e9),
    ("h", 3600e9),
    ("hr", 3600e9),
    ("hour", 3600e9),
    ("hours", 3600e9),
    ("days", 86_400e9),
];

/// A unit of rate in bit/s.
pub(crate) fn rate_unit(name: &str) -> Option<f64> {
    let exact = RATES.iter().find(|(unit, _)| *unit == name);
    // `KBPS` and `mbit/s` are common; `MB/s` and `Mb/s` differ by their case alone, so those are taken as they are.
    let loose = || {
        let mut alike = RATES.iter().filter(|it| it.0.eq_ignore_ascii_case(name));
        let first = alike.next()?;
        alike.next().is_none().then_some(first)
    };
    exact.or_else(loose).map(|(_, size)| *size)
}

/// A unit of time in ns.
pub(crate) fn span_unit(name: &str) -> Option<f64> {
    let found = SPANS.iter().find(|it| it.0.eq_ignore_ascii_case(name));
    found.map(|(_, size)| *size)
}

/// The sum of amounts with a unit each, such as `1s 500ms`; `None` if it is none.
pub(crate) fn sum(text: &str, unit: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let mut rest = text.trim();
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !(it.is_ascii_digit() || it == '.'))?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let end = rest.find(|it: char| it.is_ascii_digit() || it.is_whitespace());
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        total += amount * unit(name)?;
        rest = after.trim_start();
    }
    (!text.trim().is_empty()).then_some(total)
}

/// Seconds with decimals, as nanoseconds, exactly where there are at most nine decimals. `None` if malformed.
pub(crate) fn decimal_ns(text: &[u8], unit_ns: i64) -> Option<i64> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let point = text.iter().position(|it| matches!(it, b'.' | b','));
    let (whole, decimals) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[][..]),
    };
    if whole.is_empty() && decimals.is_empty() {
        return None;
    }
    let mut value: i64 = 0;
    for digit in whole {
        digit.is_ascii_digit().then_some(())?;
        value = value.checked_mul(10)?.checked_add((digit - b'0').into())?;
    }
    value = value.checked_mul(unit_ns)?;
    let mut place = unit_ns;
    let mut rest = 0;
    for (index, digit) in decimals.iter().enumerate() {
        digit.is_ascii_digit().then_some(())?;
        if place >= 10 && place % 10 == 0 {
            place /= 10;
            rest += i64::from(digit - b'0') * place;
        } else if index < 30 && place > 0 {
            rest += i64::from(*digit >= b'5') * i64::from(place == 1);
            place = 0;
        }
    }
    value = value.checked_add(rest)?;
    Some(if negative { -value } else { value })
}

/// An ISO 8601 or RFC 3339 time, ns since 1970; UTC without a zone.
pub(crate) fn moment_ns(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return moment.timestamp_nanos_opt();
    }
    for form in [
        "%Y-%m-%dT%H:%M:%S%.f%z",
        "%Y-%m-%d %H:%M:%S%.f%z",
        "%Y-%m-%d %H:%M:%S%.f %z",
    ] {
        if let Ok(moment) = DateTime::parse_from_str(text, form) {
            return moment.timestamp_nanos_opt();
        }
    }
    for form in [
        "%Y-%m-%dT%H:%M:%S%.f",
        "%Y-%m-%d %H:%M:%S%.f",
        "%Y%m%dT%H%M%S%.f",
        "%Y-%m-%dT%H:%M",
    ] {
        if let Ok(moment) = NaiveDateTime::parse_from_str(text.trim_end_matches(" UTC"), form) {
            return moment.and_utc().timestamp_nanos_opt();
        }
    }
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    day.and_hms_opt(0, 0, 0)?.and_utc().timestamp_nanos_opt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_told_apart_by_case_only_where_it_tells_bits_from_bytes() {
        assert_eq!(rate_unit("Mbps"), Some(1e6));
        assert_eq!(rate_unit("MBPS"), Some(1e6));
        assert_eq!(rate_unit("MB/s"), Some(8e6));
        assert_eq!(rate_unit("Mb/s"), Some(1e6));
        assert_eq!(rate_unit("mB/S"), None);
        assert_eq!(rate_unit("furlong"), None);
        assert_eq!(sum("1s 500ms", span_unit), Some(1.5e9));
        assert_eq!(sum("60.000Mbps", rate_unit), Some(60e6));
        assert_eq!(sum("1Gbps 500 Mbps", rate_unit), Some(1.5e9));
        for wrong in ["", "5", "ms", "5 parsecs", "1..5s", "-5ms"] {
            assert_eq!(sum(wrong, span_unit), None, "{wrong}");
        }
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(
            decimal_ns(b"1696500000.123456789", 1_000_000_000),
            Some(1_696_500_000_123_456_789)
        );
        assert_eq!(decimal_ns(b"12,5", 1_000_000), Some(12_500_000));
        assert_eq!(decimal_ns(b"0.0000015", 1_000_000), Some(2));
        assert_eq!(decimal_ns(b"-3", 1), Some(-3));
        assert_eq!(decimal_ns(b".5", 1_000_000_000), Some(500_000_000));
        for wrong in [
            &b""[..],
            b".",
            b"1e3",
            b"1.2.3",
            b"99999999999999999999",
            b"x",
        ] {
            assert_eq!(decimal_ns(wrong, 1_000_000_000), None);
        }
    }

    #[test]
    fn moments_are_read_with_and_without_a_zone() {
        let want = Some(1_619_784_000_250_000_000);
        for text in [
            "2021-04-30T12:00:00.25Z",
            "2021-04-30T14:00:00.250+02:00",
            "2021-04-30 12:00:00.25",
            "2021-04-30 12:00:00.25 UTC",
            "2021-04-30 14:00:00.25+0200",
        ] {
            assert_eq!(moment_ns(text), want, "{text}");
        }
        assert_eq!(moment_ns("2021-13-30T12:00:00Z"), None);
        assert_eq!(moment_ns("yesterday"), None);
    }
}
