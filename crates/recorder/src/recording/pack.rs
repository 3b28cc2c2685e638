//! Converts a journal into recording files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cellbed_link::Duration;
use parquet::basic::Encoding;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::Int64Type;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::description::{Arrangement, Clocks, Counts, Description, Role, Span};
use super::journal::{Entry, JournalReader, path_in};
use super::run::Collector;
use crate::client::{Download, RunEnd};
use crate::error::{Error, Result, Trying};
use cellbed_calibration::calibration::{describe_turns, doubts};
use cellbed_calibration::plan::{Both, PacketRecord};

/// Summary of a packed recording.
#[derive(Clone, Debug)]
pub struct Packed {
    pub duration: Duration,
    /// Counts of packets by file name, without suffix.
    pub counts: BTreeMap<&'static str, Counts>,
    pub warnings: Vec<String>,
}

/// Append the packets of a run to a file; train numbers continue from the previous runs.
fn append(packets: &mut Vec<PacketRecord>, role: Role, first_train: u32, added: Vec<PacketRecord>) {
    let first_index = match role {
        Role::Light | Role::Downloads => 0,
        Role::Heavy => packets.last().map_or(0, |last| last.index + 1),
    };
    packets.extend(added.into_iter().map(|packet| PacketRecord {
        train: packet.train + first_train,
        index: packet.index + first_index,
        ..packet
    }));
}

/// Convert the journal of a recording into files, then remove the journal. Can be repeated after a crash.
///
/// Errors: a missing or invalid journal, an empty recording, failures of the disk.
pub fn pack(folder: &Path) -> Result<Packed> {
    let mut journal = JournalReader::open(folder)?;
    let mut head = journal.head.clone();
    let mut collector = Collector::new(journal.zero);
    let shared = match (&head.light, &head.heavy) {
        (Some(light), Some(heavy)) => light.interface == heavy.interface,
        _ => false,
    };
    let mut notes = Notes {
        met: shared && head.arrangement == Arrangement::Together,
        ..Notes::default()
    };
    journal.by_ref().for_each(|entry| match entry {
        Entry::Run(plan) => collector.plan(plan),
        Entry::Event(event) => collector.take(&event),
        Entry::Overflows(count) => notes.overflows += count,
    });
    let clock = collector.clock();
    let mut tables: BTreeMap<&'static str, Vec<PacketRecord>> = BTreeMap::new();
    let mut spans = Vec::new();
    let mut downloads = Vec::new();
    let mut next_train = 0;
    for number in collector.runs() {
        let Some(run) = collector.finish(number, clock.as_ref()) else {
            continue;
        };
        spans.extend(run.spans.iter().map(|(start_ns, end_ns)| Span {
            workload: run.role,
            start_ns: *start_ns,
            end_ns: *end_ns,
        }));
        let (up, down, first_train) = match run.role {
            Role::Light => ("light-uplink", "light-downlink", next_train),
            Role::Heavy => ("heavy-uplink", "heavy-downlink", 0),
            Role::Downloads => {
                downloads.extend(run.downloads);
                continue;
            }
        };
        if run.role == Role::Light {
            let trains = run.uplink.last().map_or(0, |packet| packet.train + 1);
            next_train += trains.next_multiple_of(run.rotation);
        }
        notes.add(run.end.as_ref());
        notes.unsettled |= run.unsettled;
        for (name, packets) in [(up, run.uplink), (down, run.downlink)] {
            let table = tables.entry(name).or_default();
            append(table, run.role, first_train, packets);
        }
    }
    spans.sort_by_key(|span| span.start_ns);
    let workloads = spans.iter().filter(|span| span.workload != Role::Downloads);
    let duration_ns = workloads.map(|span| span.end_ns).max().unwrap_or(0);
    if duration_ns <= 0 || tables.values().all(Vec::is_empty) {
        return Error::failed(format!("{}: nothing was recorded", folder.display()));
    }
    let mut files = Vec::new();
    for (name, packets) in &tables {
        files.push(write_table(folder, name, PACKETS, packets)?);
    }
    if !downloads.is_empty() {
        files.push(write_table(folder, "downloads", DOWNLOADS, &downloads)?);
    }
    let counts: BTreeMap<&'static str, Counts> = tables
        .iter()
        .map(|(name, packets)| (*name, count(packets)))
        .collect();
    let both = |up, down| Both {
        uplink: tables.get(up).map_or(&[][..], Vec::as_slice),
        downlink: tables.get(down).map_or(&[][..], Vec::as_slice),
    };
    let heavy = both("heavy-uplink", "heavy-downlink");
    let mut warnings = notes.sentences();
    warnings.extend(doubts(both("light-uplink", "light-downlink"), heavy));
    if head.arrangement == Arrangement::Alternating {
        warnings.push(describe_turns(heavy));
    }
    warnings.extend(head.calibration.iter().flat_map(|it| it.unknown.clone()));
    let clock = Clocks {
        light: clock.filter(|_| head.light.is_some()),
        heavy: clock.filter(|_| head.heavy.is_some()),
    };
    head.light.get_or_insert_default();
    head.heavy.get_or_insert_default();
    let description = Description {
        format: "cellbed-recording",
        version: 1,
        head: &head,
        duration_ns,
        synthetic: false,
        tool: format!("cellbed {}", env!("CARGO_PKG_VERSION")),
        spans,
        clock,
        counts: counts.clone(),
        warnings: warnings.clone(),
    };
    let file = partial(folder, "recording.json");
    let text = serde_json::to_string_pretty(&description).unwrap_or_default() + "\n";
    fs::write(&file, text).trying(|| format!("write {}", file.display()))?;
    files.push("recording.json".into());
    // recording.json is written last: if it exists, all other files do.
    for file in &files {
        let path = folder.join(file);
        fs::rename(partial(folder, file), &path).trying(|| format!("rename {}", path.display()))?;
    }
    let journal = path_in(folder);
    fs::remove_file(&journal).trying(|| format!("remove {}", journal.display()))?;
    Ok(Packed {
        duration: Duration::from_nanos(duration_ns as u64),
        counts,
        warnings,
    })
}

/// Return the path of an unfinished file.
fn partial(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.partial"))
}

/// The columns of a table: declaration, and value in a row.
type Columns<Row> = [(&'static str, fn(&Row) -> Option<i64>)];

const PACKETS: &Columns<PacketRecord> = &[
    ("required int32 train (INTEGER(32,false))", |row| {
        Some(row.train.into())
    }),
    ("required int32 index (INTEGER(32,false))", |row| {
        Some(row.index.into())
    }),
    ("required int32 bytes (INTEGER(16,false))", |row| {
        Some(row.bytes.into())
    }),
    ("optional int64 sent_ns", |row| row.sent_ns),
    ("optional int64 arrived_ns", |row| row.arrived_ns),
    ("required int32 copies (INTEGER(8,false))", |row| {
        Some(row.copies.into())
    }),
];

const DOWNLOADS: &Columns<Download> = &[
    ("required int64 bytes (INTEGER(64,false))", |row| {
        Some(row.bytes as i64)
    }),
    ("required int64 started_ns", |row| {
        Some(row.started.as_nanos() as i64)
    }),
    ("optional int64 taken_ns", |row| {
        row.taken.map(|taken| taken.as_nanos() as i64)
    }),
];

/// Rows per group, the unit that readers load into memory.
const GROUP: usize = 1 << 20;

/// Write a table to an unfinished file; return the name of the finished one.
fn write_table<Row>(
    folder: &Path,
    name: &str,
    columns: &Columns<Row>,
    rows: &[Row],
) -> Result<String> {
    let file = format!("{name}.parquet");
    let path = partial(folder, &file);
    let created = File::create(&path).trying(|| format!("create {}", path.display()))?;
    let written = fill(created, columns, rows)
        .map_err(|error| format!("cannot write {}: {error}", path.display()));
    let written = written.map_err(Error::Failed)?;
    written
        .sync_all()
        .trying(|| format!("write {}", path.display()))?;
    Ok(file)
}

fn fill<Row>(file: File, columns: &Columns<Row>, rows: &[Row]) -> Result<File, ParquetError> {
    let declared: String = columns
        .iter()
        .map(|(column, _)| format!("{column};"))
        .collect();
    let schema = Arc::new(parse_message_type(&format!(
        "message table {{{declared}}}"
    ))?);
    // Evenly growing numbers take a few bits each as differences: a compressor would gain nothing.
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
    for rows in rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        let mut values = columns.iter().map(|(_, value)| value);
        while let (Some(mut column), Some(value)) = (group.next_column()?, values.next()) {
            let levels: Vec<i16> = rows.iter().map(|row| value(row).is_some().into()).collect();
            let values: Vec<i64> = rows.iter().filter_map(value).collect();
            if let ColumnWriter::Int32ColumnWriter(narrow) = column.untyped() {
                let values: Vec<i32> = values.iter().map(|it| *it as i32).collect();
                narrow.write_batch(&values, Some(&levels), None)?;
            } else {
                let wide = column.typed::<Int64Type>();
                wide.write_batch(&values, Some(&levels), None)?;
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
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
    /// Maximum over runs of the server's overflows: concurrent runs report the same ones.
    server_overflows: u64,
    unsettled: bool,
    broken_off: bool,
    /// True if both workloads shared one queue.
    met: bool,
}

impl Notes {
    fn add(&mut self, end: Option<&RunEnd>) {
        match end {
            Some(end) => {
                self.withheld += u64::from(end.counts.withheld);
                self.unrecorded += u64::from(end.counts.unrecorded);
                self.server_overflows = self.server_overflows.max(end.counts.overflows.into());
                self.broken_off |= !end.complete;
            }
            None => self.broken_off = true,
        }
    }

    fn sentences(&self) -> Vec<String> {
        let (overflows, server_overflows) = (self.overflows, self.server_overflows);
        let (withheld, unrecorded) = (self.withheld, self.unrecorded);
        let notes = [
            (overflows > 0, format!("This machine, not the network, lost {overflows} downlink packets: its receive buffer was full (raise net.core.rmem_max, or record at a lower rate).")),
            (withheld > 0, format!("{withheld} downlink packets count as lost, but the server did not send them because of its limits.")),
            (unrecorded > 0, format!("{unrecorded} uplink packets count as lost, but arrived: the server had no memory left to record them.")),
            (server_overflows > 0, format!("The server, not the network, lost {server_overflows} packets of this or another client during a run: its receive buffer was full (raise net.core.rmem_max there, or record at a lower rate). Uplink packets among them count as lost.")),
            (self.unsettled, "Packets of the adaptive saturation waited for less than the intended time. Where they always did, its time in `spans` includes the start-up, when the path may have been able to carry more.".into()),
            (self.met, "Both workloads were recorded at once over one interface (--together). If they share a queue, trains wait behind the saturation, and round-trip times and trains show a busy network. For a replay by cellreplay or conditional, record over two interfaces, or leave out --together: then the workloads take turns.".into()),
            (self.broken_off, "The recording was interrupted or lost its session; packets of unknown fate are left out.".into()),
        ];
        let noted = notes.into_iter().filter(|(applies, _)| *applies);
        noted.map(|(_, sentence)| sentence).collect()
    }
}
