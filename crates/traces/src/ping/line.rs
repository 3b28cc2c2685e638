//! Lines of ping's output.

use crate::quantity::decimal_ns;

const NANOS_PER_MILLI: i64 = 1_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A ping begins; `first` is the number of its first probe, if the kind of ping is known.
    Begins { first: Option<u64> },
    /// A report on a probe.
    Heard(Heard),
    /// The total number of probes sent.
    Sent(u64),
    /// Other lines.
    Other,
}

/// A report on a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Its number; missing on Windows.
    pub number: Option<u64>,
    /// Until its answer; `None` if it has none, or none yet.
    pub trip_ns: Option<i64>,
    /// The time of printing, ns since 1970.
    pub stamp_ns: Option<i64>,
    /// True if `trip_ns` is only an upper bound.
    pub at_most: bool,
    /// True for a duplicate answer.
    pub duplicate: bool,
}

/// "ms" in the languages of iputils that translate it.
const MILLIS: [&[u8]; 4] = [
    b"ms",
    "мс".as_bytes(),
    "毫秒".as_bytes(),
    "ミリ秒".as_bytes(),
];

/// Windows' messages for a missing answer, in the languages of its documentation and forums; without the letters whose
/// encoding depends on the code page.
const UNANSWERED: [&[u8]; 12] = [
    b"equest timed out",
    b"berschreitung der Anforderung",
    b"attente de la demande d",
    b"iempo de espera agotado",
    b"sgotado o tempo limite",
    b"Richiesta scaduta",
    b"Time-out bij opdracht",
    b"limit czasu",
    b"nreachable",
    b"nicht erreichbar",
    b"General failure",
    b"TTL expired",
];

/// The meaning of a line (without its line end).
pub(super) fn read(text: &[u8]) -> Line {
    let (stamp_ns, text) = stamp(text);
    let number = after(text, b"icmp_seq=")
        .or_else(|| after(text, b"icmp_req="))
        .or_else(|| after(text, b" seq="))
        .or_else(|| after(text, b"icmp_seq "))
        .and_then(whole);
    if let Some((trip_ns, at_most)) = round_trip(text) {
        return Line::Heard(Heard {
            number,
            trip_ns: Some(trip_ns),
            stamp_ns,
            at_most,
            duplicate: contains(text, b"DUP!"),
        });
    }
    if number.is_some() {
        return Line::Heard(Heard {
            number,
            stamp_ns,
            ..Heard::default()
        });
    }
    if text.starts_with(b"PING ") || text.starts_with(b"Pinging ") {
        return Line::Begins {
            first: first_number(text),
        };
    }
    if let Some(sent) = sent(text) {
        return Line::Sent(sent);
    }
    if UNANSWERED.iter().any(|it| contains(text, it)) {
        return Line::Heard(Heard {
            stamp_ns,
            ..Heard::default()
        });
    }
    Line::Other
}

/// The stamp of `ping -D`, and the rest of the line.
fn stamp(text: &[u8]) -> (Option<i64>, &[u8]) {
    let read = || {
        let rest = text.strip_prefix(b"[")?;
        let end = rest.iter().take(32).position(|it| *it == b']')?;
        let stamp = decimal_ns(&rest[..end], NANOS_PER_SECOND).filter(|it| *it >= 0)?;
        Some((stamp, rest[end + 1..].trim_ascii_start()))
    };
    match read() {
        Some((stamp, rest)) => (Some(stamp), rest),
        None => (None, text),
    }
}

/// The number before "ms" after an equals sign, or a less-than sign as Windows has it.
fn round_trip(text: &[u8]) -> Option<(i64, bool)> {
    let mut rest = text;
    loop {
        let at = rest.iter().position(|it| matches!(it, b'=' | b'<'))?;
        let (sign, after) = (rest[at], &rest[at + 1..]);
        let digits = after
            .iter()
            .take_while(|it| it.is_ascii_digit() || matches!(it, b'.' | b','))
            .count();
        if digits > 0 {
            let unit = &after[digits..];
            let unit = unit.strip_prefix(b" ").unwrap_or(unit);
            if MILLIS.iter().any(|it| unit.starts_with(it)) {
                return Some((decimal_ns(&after[..digits], NANOS_PER_MILLI)?, sign == b'<'));
            }
        }
        rest = after;
    }
}

/// iputils counts from 1 and names the size of data as `56(84)`; the others count from 0.
fn first_number(text: &[u8]) -> Option<u64> {
    if !text.starts_with(b"PING ") {
        return None;
    }
    let sizes = text
        .windows(2)
        .any(|pair| pair[0].is_ascii_digit() && pair[1] == b'(');
    Some(u64::from(sizes))
}

/// Return the number of packets sent, from `10 packets transmitted, …` in any language, or `Packets: Sent = 10, …` of
/// Windows.
fn sent(text: &[u8]) -> Option<u64> {
    if text.first()?.is_ascii_digit() && text.contains(&b'%') {
        return whole(text);
    }
    let lost = contains(text, b"%") && contains(text, b"(");
    after(text, b" = ")
        .filter(|_| lost && text.starts_with(b" "))
        .and_then(whole)
}

fn whole(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|it| it.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits.min(18)])
        .ok()?
        .parse()
        .ok()
}

fn after<'a>(text: &'a [u8], mark: &[u8]) -> Option<&'a [u8]> {
    memchr::memmem::find(text, mark).map(|at| &text[at + mark.len()..])
}

fn contains(text: &[u8], mark: &[u8]) -> bool {
    memchr::memmem::find(text, mark).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Heard {
        match read(text.as_bytes()) {
            Line::Heard(heard) => heard,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn answers_of_many_pings_are_understood() {
        for (text, number, trip) in [
            (
                "64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=21.3 ms",
                Some(1),
                21_300_000,
            ),
            (
                "64 bytes from host (192.0.2.1): icmp_seq=12 ttl=57 time=123 ms",
                Some(12),
                123_000_000,
            ),
            (
                "64 bytes from host (2001:db8::1): icmp_seq=2 ttl=57 time=0.045 ms",
                Some(2),
                45_000,
            ),
            (
                "64 bytes from 192.0.2.1: icmp_req=7 ttl=57 time=21.3 ms",
                Some(7),
                21_300_000,
            ),
            (
                "64 bytes from 192.0.2.1: seq=0 ttl=64 time=0.123 ms",
                Some(0),
                123_000,
            ),
            (
                "16 bytes from 2001:db8::1, icmp_seq=3 hlim=57 time=9.871 ms",
                Some(3),
                9_871_000,
            ),
            (
                "64 Bytes von 192.0.2.1: icmp_seq=4 ttl=57 Zeit=21,3 ms",
                Some(4),
                21_300_000,
            ),
            (
                "64 octets de 192.0.2.1 : icmp_seq=5 ttl=57 temps=21.3 ms",
                Some(5),
                21_300_000,
            ),
            (
                "64 байт из 192.0.2.1: icmp_seq=6 ttl=57 время=21.3 мс",
                Some(6),
                21_300_000,
            ),
            (
                "Reply from 192.0.2.1: bytes=32 time=14ms TTL=57",
                None,
                14_000_000,
            ),
            ("Reply from 2001:db8::1: time=9ms", None, 9_000_000),
            (
                "Antwort von 192.0.2.1: Bytes=32 Zeit=14ms TTL=57",
                None,
                14_000_000,
            ),
        ] {
            let heard = heard(text);
            assert_eq!(
                (heard.number, heard.trip_ns),
                (number, Some(trip)),
                "{text}"
            );
        }
        let short = heard("Reply from 192.0.2.1: bytes=32 time<1ms TTL=128");
        assert!(short.at_most && short.trip_ns == Some(1_000_000));
        let stamped =
            heard("[1696500000.123456] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=21.3 ms");
        assert_eq!(stamped.stamp_ns, Some(1_696_500_000_123_456_000));
        assert!(heard("64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=21.3 ms (DUP!)").duplicate);
    }

    #[test]
    fn what_was_not_answered_is_heard_of_too() {
        for (text, number) in [
            ("[1696500000.123456] no answer yet for icmp_seq=5", Some(5)),
            (
                "From 192.0.2.9 icmp_seq=6 Destination Host Unreachable",
                Some(6),
            ),
            ("Request timeout for icmp_seq 7", Some(7)),
            ("Request timed out.", None),
            ("Zeit\u{fc}berschreitung der Anforderung.", None),
            ("Reply from 192.0.2.9: Destination host unreachable.", None),
        ] {
            let heard = heard(text);
            assert_eq!((heard.number, heard.trip_ns), (number, None), "{text}");
        }
    }

    #[test]
    fn beginnings_and_ends_are_told_apart_from_answers() {
        let begins = |text: &str| read(text.as_bytes());
        assert_eq!(
            begins("PING h (192.0.2.1) 56(84) bytes of data."),
            Line::Begins { first: Some(1) }
        );
        assert_eq!(
            begins("PING h (192.0.2.1): 56 data bytes"),
            Line::Begins { first: Some(0) }
        );
        assert_eq!(
            begins("Pinging 192.0.2.1 with 32 bytes of data:"),
            Line::Begins { first: None }
        );
        for (text, sent) in [
            (
                "10 packets transmitted, 9 received, 10% packet loss, time 9012ms",
                10,
            ),
            ("10 Pakete übertragen, 9 empfangen, 10% packet loss", 10),
            (
                "10 packets transmitted, 9 packets received, 10.0% packet loss",
                10,
            ),
            (
                "    Packets: Sent = 4, Received = 3, Lost = 1 (25% loss),",
                4,
            ),
        ] {
            assert_eq!(read(text.as_bytes()), Line::Sent(sent), "{text}");
        }
        for text in [
            "",
            "--- h ping statistics ---",
            "rtt min/avg/max/mdev = 21.1/22.2/23.3/0.4 ms",
            "    Minimum = 13ms, Maximum = 15ms, Average = 14ms",
            "Approximate round trip times in milli-seconds:",
        ] {
            assert_eq!(read(text.as_bytes()), Line::Other, "{text}");
        }
    }
}
