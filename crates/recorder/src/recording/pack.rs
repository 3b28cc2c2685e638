//! Converts a journal into recording files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cellbed_link::{Duration, Time};

use super::collector::Collector;
use super::description::{Arrangement, Clocks, Counts, Description, Span};
use super::entry::Entry;
use super::error::RecordingError;
use super::journal::{self, JournalReader};
use super::parquet_file;
use crate::client::Role;
use crate::packet::PacketRecord;

/// Summary of a packed recording.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Duration of the recording.
    pub duration: Duration,
    /// Packets of each file, by its name without the ending.
    pub counts: BTreeMap<&'static str, Counts>,
    /// Warnings for users.
    pub warnings: Vec<String>,
}

/// The packets of one file, gathered from runs.
#[derive(Default)]
struct Table {
    packets: Vec<PacketRecord>,
}

impl Table {
    /// Adds the packets of a run; their numbers follow the runs before.
    fn append(&mut self, role: Role, first_train: u32, packets: Vec<PacketRecord>) {
        let first_index = match role {
            Role::Light => 0,
            Role::Heavy => self.packets.last().map_or(0, |last| last.index + 1),
        };
        self.packets
            .extend(packets.into_iter().map(|packet| PacketRecord {
                train: packet.train + first_train,
                index: packet.index + first_index,
                ..packet
            }));
    }
}

/// Makes the files of a recording out of its journal, and removes that. It does no harm to do it again after a crash.
///
/// Errors: there is no journal, or it is none, or nothing was recorded, or the disk refuses.
pub fn pack(folder: &Path) -> Result<Packed, RecordingError> {
    let mut journal = JournalReader::open(folder)?;
    let head = journal.head.clone();
    let zero = Time::from_nanos(head.zero_ns);
    let mut collector = Collector::new(zero);
    let mut overflows = 0;
    journal.by_ref().for_each(|entry| match entry {
        Entry::Run(plan) => collector.plan(plan),
        Entry::Event(event) => collector.take(&event),
        Entry::Overflows(count) => overflows += count,
    });
    let clock = collector.clock();
    let mut tables: BTreeMap<&'static str, Table> = BTreeMap::new();
    let mut spans = Vec::new();
    let mut next_train = 0;
    let shared = match (&head.light, &head.heavy) {
        (Some(light), Some(heavy)) => light.interface == heavy.interface,
        _ => false,
    };
    let mut notes = Notes {
        overflows,
        met: shared && head.arrangement == Arrangement::Together,
        ..Notes::default()
    };
    for number in collector.runs() {
        let Some(run) = collector.finish(number, clock.as_ref()) else {
            continue;
        };
        let (up, down, first_train) = match run.role {
            Role::Light => ("light-uplink", "light-downlink", next_train),
            Role::Heavy => ("heavy-uplink", "heavy-downlink", 0),
        };
        if run.role == Role::Light {
            let trains = run.uplink.last().map_or(0, |packet| packet.train + 1);
            next_train += trains.next_multiple_of(run.rotation);
        }
        notes.add(run.end.as_ref());
        notes.unsettled |= run.unsettled;
        spans.extend(run.spans.iter().map(|(start_ns, end_ns)| Span {
            workload: run.role,
            start_ns: *start_ns,
            end_ns: *end_ns,
        }));
        tables
            .entry(up)
            .or_default()
            .append(run.role, first_train, run.uplink);
        tables
            .entry(down)
            .or_default()
            .append(run.role, first_train, run.downlink);
    }
    spans.sort_by_key(|span| span.start_ns);
    let duration_ns = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
    if duration_ns <= 0 || tables.values().all(|table| table.packets.is_empty()) {
        return Err(RecordingError::Empty(folder.to_owned()));
    }
    let mut files = Vec::new();
    for (name, table) in &tables {
        let file = Unfinished::new(folder, &format!("{name}.parquet"));
        parquet_file::write_packets(&file.partial, &table.packets)
            .map_err(|source| file.failed(source))?;
        files.push(file);
    }
    let counts: BTreeMap<&'static str, Counts> = tables
        .iter()
        .map(|(name, table)| (*name, count(&table.packets)))
        .collect();
    let warnings = notes.sentences();
    let description = Description {
        format: "cellbed-recording",
        version: 1,
        id: &head.id,
        started: &head.started,
        duration_ns,
        synthetic: false,
        tool: format!("cellbed {}", env!("CARGO_PKG_VERSION")),
        packet_bytes: head.packet_bytes,
        arrangement: head.arrangement,
        spans,
        light: head.light.clone().unwrap_or_default(),
        heavy: head.heavy.clone().unwrap_or_default(),
        clock: Clocks {
            light: clock.filter(|_| head.light.is_some()),
            heavy: clock.filter(|_| head.heavy.is_some()),
        },
        calibration: &head.calibration,
        signal: &head.signal,
        counts: counts.clone(),
        warnings: warnings.clone(),
    };
    let file = Unfinished::new(folder, "recording.json");
    let text = serde_json::to_string_pretty(&description).unwrap_or_default() + "\n";
    fs::write(&file.partial, text).map_err(|source| file.refused("write", source))?;
    files.push(file);
    // recording.json comes last: where it is, all the others are.
    files.iter().try_for_each(Unfinished::finish)?;
    let path = journal::path_in(folder);
    fs::remove_file(&path).map_err(|source| {
        let what = "remove";
        RecordingError::File { what, path, source }
    })?;
    Ok(Packed {
        duration: Duration::from_nanos(duration_ns as u64),
        counts,
        warnings,
    })
}

/// A file under a temporary name.
struct Unfinished {
    partial: PathBuf,
    path: PathBuf,
}

impl Unfinished {
    fn new(folder: &Path, name: &str) -> Self {
        Self {
            partial: folder.join(format!(".{name}.partial")),
            path: folder.join(name),
        }
    }

    fn finish(&self) -> Result<(), RecordingError> {
        fs::rename(&self.partial, &self.path).map_err(|source| self.refused("rename", source))
    }

    fn refused(&self, what: &'static str, source: std::io::Error) -> RecordingError {
        RecordingError::File {
            what,
            path: self.path.clone(),
            source,
        }
    }

    fn failed(&self, source: parquet::errors::ParquetError) -> RecordingError {
        RecordingError::Parquet {
            path: self.path.clone(),
            source,
        }
    }
}

fn count(packets: &[PacketRecord]) -> Counts {
    let mut arrived: Vec<&PacketRecord> = packets
        .iter()
        .filter(|packet| packet.arrived_ns.is_some())
        .collect();
    arrived.sort_by_key(|packet| packet.arrived_ns);
    let mut highest: BTreeMap<u32, u32> = BTreeMap::new();
    let mut reordered = 0;
    for packet in &arrived {
        let highest = highest.entry(packet.train).or_insert(packet.index);
        reordered += u64::from(packet.index < *highest);
        *highest = (*highest).max(packet.index);
    }
    Counts {
        sent: packets.len() as u64,
        lost: (packets.len() - arrived.len()) as u64,
        duplicated: packets.iter().filter(|packet| packet.copies > 1).count() as u64,
        reordered,
    }
}

/// Anomalies found in a recording.
#[derive(Default)]
struct Notes {
    overflows: u64,
    withheld: u64,
    unrecorded: u64,
    /// Of the server, in the run that met most: concurrent runs report the same.
    server_overflows: u64,
    unsettled: bool,
    broken_off: bool,
    /// True if both workloads shared one queue.
    met: bool,
}

impl Notes {
    fn add(&mut self, end: Option<&crate::client::RunEnd>) {
        match end {
            Some(end) => {
                self.withheld += u64::from(end.withheld);
                self.unrecorded += u64::from(end.unrecorded);
                self.server_overflows = self.server_overflows.max(end.overflows.into());
                self.broken_off |= !end.complete;
            }
            None => self.broken_off = true,
        }
    }

    fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if self.overflows > 0 {
            sentences.push(format!(
                "{} downlink packets were lost by this machine and not by the network: its receive buffer was full (raise net.core.rmem_max, or record at a lower rate).",
                self.overflows
            ));
        }
        if self.withheld > 0 {
            sentences.push(format!(
                "{} downlink packets count as lost though the server did not send them, because of its limits.",
                self.withheld
            ));
        }
        if self.unrecorded > 0 {
            sentences.push(format!(
                "{} uplink packets count as lost though they arrived: the server had no memory left to record them.",
                self.unrecorded
            ));
        }
        if self.server_overflows > 0 {
            sentences.push(format!(
                "{} packets of this or another client were lost by the server and not by the network while a run went on: its receive buffer was full (raise net.core.rmem_max there, or record at a lower rate). Those that were of the uplink count as lost.",
                self.server_overflows
            ));
        }
        if self.unsettled {
            sentences.push(
                "Packets of the adaptive saturation did not wait for as long as they were to: where they never did, its time in `spans` has the start-up, when the path may have been able to carry more.".into(),
            );
        }
        if self.met {
            sentences.push(
                "Both workloads were recorded at once over one way (--together): where they met in one queue, trains waited behind the saturation, and round-trip times and trains show a busy network. For a replay by cellreplay or conditional record over two interfaces, or leave out --together: then both take turns.".into(),
            );
        }
        if self.broken_off {
            sentences.push(
                "The recording was broken off or lost its session; packets whose fate is not known are left out.".into(),
            );
        }
        sentences
    }
}
