use super::Role;
use std::fs;
use std::path::Path;

use cellbed_link::Time;

use super::description::Counts;
use super::*;
use crate::client::{Departure, Event, Reception, RunEnd, RunEvent};
use crate::wire::{Arrival, RunCounts};
use cellbed_calibration::plan::{Train, TrainPlan, Workload};

const ZERO: u64 = 5_000_000_000;
/// Offset of the server's clock, ns.
const AHEAD: u64 = 77_000_000_000;

fn at(millisecond: f64) -> Time {
    Time::from_nanos(ZERO + (millisecond * 1e6) as u64)
}

fn head() -> Head {
    Head {
        id: "00ff".into(),
        started: rfc3339(Time::from_nanos(1_700_000_000_000_000_000)),
        packet_bytes: 1400,
        arrangement: Arrangement::Together,
        light: Some(Light::default()),
        heavy: None,
        calibration: None,
        signal: Signal::default(),
    }
}

fn plan(number: u32) -> Entry {
    let workload = Workload::Trains(TrainPlan {
        rotation: vec![Train::new((3, 1400), (2, 1400))],
        gap_ns: 50_000_000,
        jitter: 0.0,
        count: None,
        seed: 0,
    });
    Entry::Run(RunPlan::new(number, Role::Light, &workload))
}

fn in_run(event: RunEvent) -> Entry {
    Entry::Event(Event::Run(1, event))
}

fn sent(train: u32, index: u32, millisecond: f64) -> Entry {
    in_run(RunEvent::Sent(Departure {
        train,
        index,
        bytes: 1400,
        at: at(millisecond),
    }))
}

/// Arrived at the server, 10 ms after `millisecond`.
fn reached(train: u32, index: u32, millisecond: f64) -> Entry {
    in_run(RunEvent::ArrivedUplink(Arrival {
        train,
        index,
        bytes: 1400,
        arrived_ns: at(millisecond + 10.0).as_nanos() + AHEAD,
    }))
}

/// Sent by the server at `millisecond`; arrived 10 ms later.
fn answered(train: u32, index: u32, millisecond: f64) -> Entry {
    in_run(RunEvent::ArrivedDownlink(Reception {
        train,
        index,
        bytes: 1400,
        sent_ns: at(millisecond).as_nanos() + AHEAD,
        at: at(millisecond + 10.0),
    }))
}

fn ended(millisecond: f64, overflows: u32) -> Entry {
    in_run(RunEvent::Ended(RunEnd {
        at: at(millisecond),
        complete: true,
        counts: RunCounts {
            overflows,
            ..RunCounts::default()
        },
        ..RunEnd::default()
    }))
}

fn began() -> Entry {
    in_run(RunEvent::Began(at(1.0)))
}

fn journal(folder: &Path, entries: &[Entry]) {
    let mut writer = JournalWriter::create(folder, &head(), Time::from_nanos(ZERO)).unwrap();
    for entry in entries {
        writer.add(entry).unwrap();
        writer.flush().unwrap();
    }
}

fn a_second_of_trains(trains: u32) -> Vec<Entry> {
    let mut entries = vec![plan(1), began()];
    for train in 0..trains {
        let start = f64::from(train) * 50.0 + 1.0;
        for index in 0..3 {
            entries.push(sent(train, index, start));
            entries.push(reached(train, index, start));
        }
        for index in 0..2 {
            entries.push(answered(train, index, start + 10.0));
        }
    }
    entries
}

#[test]
fn losses_copies_and_reordering_are_counted_apart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("recording");
    let entries = [
        plan(1),
        began(),
        sent(0, 0, 1.0),
        sent(0, 1, 1.0),
        sent(0, 2, 1.0),
        reached(0, 0, 3.0),
        reached(0, 2, 2.0), // overtook the first packet
        reached(0, 2, 4.0), // a copy
        answered(0, 1, 12.0),
        sent(1, 0, 51.0), // all lost: no answer
        sent(1, 1, 51.0),
        sent(1, 2, 51.0),
        ended(100.0, 0),
    ];
    journal(&folder, &entries);
    let packed = pack(&folder).unwrap();
    let counts = |sent, lost, duplicated, reordered| Counts {
        sent,
        lost,
        duplicated,
        reordered,
    };
    assert_eq!(packed.counts["light-uplink"], counts(6, 4, 1, 1));
    assert_eq!(packed.counts["light-downlink"], counts(2, 1, 0, 0));
    assert!(
        packed
            .warnings
            .iter()
            .all(|it| it.contains("only 1 of its trains")),
        "{:?}",
        packed.warnings
    );
    assert!(!folder.join("journal").exists());
    let text = fs::read_to_string(folder.join("recording.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["spans"][0]["workload"], "light");
    assert_eq!(json["spans"][0]["start_ns"], 1_000_000);
    assert_eq!(json["duration_ns"], 100_000_000);
    let offset = json["clock"]["light"]["offset_ns"].as_i64().unwrap();
    let error = offset - AHEAD as i64 - ZERO as i64;
    assert!(error.abs() < 2_000_000, "{offset}");
    let error = pack(&folder).unwrap_err().to_string();
    assert!(error.contains("already packed"), "{error}");
}

#[test]
fn what_the_server_had_no_room_for_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("recording");
    let packet = [sent(0, 0, 1.0), reached(0, 0, 3.0)];
    let entries = [&[plan(1), began()][..], &packet, &[ended(100.0, 3)]].concat();
    journal(&folder, &entries);
    let warnings = pack(&folder).unwrap().warnings;
    assert!(
        warnings.iter().any(|it| it.contains("lost 3 packets")),
        "{warnings:?}"
    );
}

#[test]
fn what_a_kill_leaves_is_a_recording_without_its_last_second() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("killed");
    journal(&folder, &a_second_of_trains(40));
    // An incomplete block: the recorder died while writing.
    let path = folder.join("journal");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let packed = pack(&folder).unwrap();
    let counts = packed.counts["light-uplink"];
    assert_eq!(counts.lost, 0);
    assert!((60..120).contains(&counts.sent), "{counts:?}"); // of 120 in 2 s
    assert_eq!(packed.counts["light-downlink"].sent * 3, counts.sent * 2);
    assert!(packed.warnings[0].contains("interrupted"));
}

#[test]
fn a_recording_without_a_packet_is_an_error() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("empty");
    journal(&folder, &[plan(1)]);
    let error = pack(&folder).unwrap_err().to_string();
    assert!(error.contains("nothing was recorded"), "{error}");
}
