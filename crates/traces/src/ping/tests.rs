use std::fmt::Write as _;

use super::*;
use crate::target::Nowhere;

fn read(text: &str) -> Result<Imported> {
    ping(text.as_bytes(), None, &Nowhere)
}

fn rows(text: &str) -> (u64, i64) {
    let done = read(text).unwrap();
    (done.parts[0].rows, done.parts[0].duration_ns)
}

const SECOND: i64 = 1_000_000_000;

fn answer(number: u64) -> String {
    format!("64 bytes from 192.0.2.1: icmp_seq={number} ttl=57 time=20.0 ms\n")
}

#[test]
fn numbers_that_are_missing_are_probes_that_nothing_answered() {
    let head = "PING h (192.0.2.1) 56(84) bytes of data.\n";
    let text = format!("{head}{}{}{}", answer(3), answer(5), answer(4));
    assert_eq!(rows(&text), (5, 5 * SECOND));
    let ended = format!(
        "{text}\n--- h ping statistics ---\n9 packets transmitted, 3 received, 66% packet loss\n"
    );
    assert_eq!(rows(&ended), (9, 9 * SECOND));
    let under_way = format!("{text}\n6 packets transmitted, 3 received, 50% packet loss\n");
    assert_eq!(rows(&under_way), (5, 5 * SECOND));
}

#[test]
fn numbers_start_anew_after_sixteen_bits() {
    let text: String = (65_530..65_546).map(|it| answer(it % 65_536)).collect();
    assert_eq!(rows(&text).0, 16);
}

#[test]
fn an_answer_after_it_was_missed_counts() {
    let text = format!(
        "{}no answer yet for icmp_seq=2\n{}{}",
        answer(1),
        answer(2),
        answer(3)
    );
    assert_eq!(rows(&text).0, 3);
    let text = format!("{}{}", answer(1), answer(1));
    assert_eq!(rows(&text).0, 1);
}

#[test]
fn stamps_tell_when_probes_were_sent() {
    let at = |seconds: f64, number: u64| format!("[{seconds:.6}] {}", answer(number));
    let text = at(100.0, 1) + &at(100.2, 2) + &at(101.0, 6);
    let done = read(&text).unwrap();
    assert_eq!(
        (done.parts[0].rows, done.parts[0].duration_ns),
        (6, 1_200_000_000)
    );
    assert!(done.notes.is_empty(), "{:?}", done.notes);
    let again = format!("PING h 56(84)\n{text}PING h 56(84)\n{}", at(200.0, 1));
    assert_eq!(read(&again).unwrap().parts[0].rows, 7);
    let back = at(100.0, 1) + &at(90.0, 2);
    assert!(read(&back).unwrap_err().to_string().contains("clock"));
}

#[test]
fn what_is_no_ping_or_two_of_them_is_refused() {
    for (text, what) in [
        (String::new(), "no answer"),
        ("hello\n".into(), "no answer"),
        (
            format!("PING h\n{}PING h\n{}", answer(1), answer(1)),
            "another ping",
        ),
        (format!("[1.5] {}{}", answer(1), answer(2)), "stamps"),
        ("x".repeat(5000), "longer than"),
    ] {
        let error = read(&text).unwrap_err().in_file("x".as_ref());
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_flood_of_gaps_is_given_up() {
    let mut text = String::new();
    for it in 0..20_000_u64 {
        let _ = write!(text, "{}", answer(it * 30_000 % 65_536));
    }
    assert!(read(&text).unwrap_err().to_string().contains("probes"));
}

#[test]
fn a_ping_that_nothing_answered_is_refused_as_that() {
    let text = "PING h (192.0.2.1) 56(84) bytes of data.\n\n--- h ping statistics ---\n\
                4 packets transmitted, 0 received, 100% packet loss, time 3051ms\n";
    let refused = read(text).unwrap_err().to_string();
    assert!(
        refused.starts_with("none of its 4 probes was answered"),
        "{refused}"
    );
}
