//! For any file content, an importer returns series with a length or a one-line error.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use cellbed_link::Trace;
use cellbed_traces::{Imported, import};
use proptest::prelude::*;

const REQUESTS: [(&str, &str); 3] = [
    ("mahimahi", r#"{"format":"mahimahi","direction":"uplink"}"#),
    ("capture", r#"{"format":"capture"}"#),
    (
        "capture",
        r#"{"format":"capture","flow":["udp"],"all_flows":true,"each_packet":true}"#,
    ),
];

/// Imports bytes by a request: series with a length, or a one-line error.
fn read(bytes: &[u8], request: &str) -> Option<Imported> {
    let folder = tempfile::tempdir().expect("a folder");
    let request = serde_json::from_str(request).expect("a request");
    match import(Cursor::new(bytes), &request, folder.path()) {
        Ok(done) => {
            let mut parts = done.parts.iter();
            assert!(parts.len() > 0 && parts.all(|it| it.rows > 0 && it.duration_ns > 0));
            let mut notes = done.notes.iter();
            assert!(notes.all(|note| !note.contains(char::is_control)));
            Some(done)
        }
        Err(error) => {
            let message = error.in_file("x".as_ref());
            assert!(
                message.starts_with('x') && !message.contains(char::is_control),
                "{message:?}"
            );
            None
        }
    }
}

/// Returns files to mutate.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/seeds")
        .join(target);
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| fs::read(path).unwrap())
        .collect()
}

#[test]
fn seeds_are_read() {
    for (target, request) in REQUESTS
        .into_iter()
        .filter(|it| !it.1.contains("all_flows"))
    {
        let read = seeds(target)
            .iter()
            .filter(|seed| read(seed, request).is_some())
            .count();
        assert!(read > 0, "{target}");
    }
}

/// A pcap file of raw IP with one packet of unset length, which had 4 GiB before it was cut to 20 bytes.
const LONG_PACKET: &[u8] = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x65\0\0\0\
    \0\0\0\0\0\0\0\0\x14\0\0\0\xff\xff\xff\xff\
    \x45\0\0\0\0\0\0\0\x40\x11\0\0\x0a\0\0\x02\x0a\0\0\x01";

/// A pcapng file with a process information block of four bytes.
const SHORT_BLOCK: &[u8] = b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0\
    \x01\0\0\x80\x04\0\0\0";

#[test]
fn what_once_made_an_importer_fall_over_is_refused() {
    for bytes in [LONG_PACKET, SHORT_BLOCK] {
        let (_, request) = REQUESTS[1];
        assert_eq!(read(bytes, request), None, "{}", bytes.escape_ascii());
    }
}

/// A change: its place, the number of bytes there that it repeats or replaces, and the new bytes.
type Change = (prop::sample::Index, bool, usize, Vec<u8>);

fn change() -> impl Strategy<Value = Change> {
    let odd: [&[u8]; 6] = [
        b"\n",
        b"-1",
        b"9999999999999999999999",
        b"nan",
        b"\"",
        b"\xff\xff\xff\xff",
    ];
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        prop::sample::select(odd.to_vec()).prop_map(<[u8]>::to_vec),
    ];
    let length = prop_oneof![0..2_usize, 1..60_usize];
    (any::<prop::sample::Index>(), any::<bool>(), length, bytes)
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for (at, repeats, length, piece) in changes {
        let begin = at.index(bytes.len() + 1);
        let end = bytes.len().min(begin + length);
        let mut new = piece.clone();
        if *repeats {
            new = bytes[begin..end].repeat(2);
        }
        drop(bytes.splice(begin..end, new));
    }
    bytes
}

proptest! {
    #[test]
    fn changed_files_are_series_or_an_error(
        kind in prop::sample::select(REQUESTS.to_vec()),
        seed in any::<prop::sample::Index>(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let seeds = seeds(kind.0);
        read(&changed(seed.get(&seeds).clone(), &changes), kind.1);
    }

    #[test]
    fn any_bytes_are_series_or_an_error(
        kind in prop::sample::select(REQUESTS.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        read(&bytes, kind.1);
    }

    #[test]
    fn a_trace_is_the_same_to_whoever_holds_it(
        changes in prop::collection::vec(change(), 0..4),
        millis in prop::collection::vec(0..100_u32, 1..50),
    ) {
        let mut sorted = millis;
        sorted.sort_unstable();
        let text: String = sorted.iter().map(|it| format!("{it}\n")).collect();
        let bytes = changed(text.into_bytes(), &changes);
        let done = read(&bytes, REQUESTS[0].1);
        let held = Trace::parse(&bytes[..]).ok();
        if let Some(held) = held {
            let done = done.expect("an import leaves out at most what a trace refuses");
            prop_assert_eq!(done.parts[0].rows, held.opportunities().0);
            prop_assert_eq!(done.parts[0].duration_ns as u64, held.duration().as_nanos());
        }
    }
}
