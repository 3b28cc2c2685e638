//! The files of a run, and what the engine writes into them.

use std::path::PathBuf;

use cellbed_link::records::{PACKETS_MAGIC, PacketRecord, SERIES_MAGIC, Series};
use cellbed_link::{Bytes, DirectionConfig, DropReason, Duration, Fate, Graph, Outcome, Time};

use crate::clock;
use crate::config::Config;
use crate::error::Result;
use crate::lateness::{LATENESS_MAGIC, Second};
use crate::mahimahi_log::{self, Event};
use crate::pool::{Pool, Segment};
use crate::writer::{LARGEST_FILE, Lost, RecordFile};

/// The files of a run, those that were asked for.
pub struct Records {
    /// Every packet.
    pub packets: Option<RecordFile>,
    /// The 10 ms series.
    pub series: Option<(Series, RecordFile)>,
    /// Lateness of the event loop, by the second.
    pub lateness: Option<RecordFile>,
    /// Logs in the format of Mahimahi's mm-link, by direction.
    pub mahimahi: Vec<Option<RecordFile>>,
}

impl Records {
    /// Creates the files.
    pub fn create(config: &Config, directions: &[DirectionConfig]) -> Result<Self> {
        let create = |path: &Option<PathBuf>, magic| {
            path.as_deref()
                .map(|path| RecordFile::create(path, magic, LARGEST_FILE))
                .transpose()
        };
        Ok(Self {
            packets: match (&config.packet_log, config.packet_log_bytes) {
                (Some(path), Some(most)) => {
                    Some(RecordFile::create_latest(path, PACKETS_MAGIC, most)?)
                }
                (path, _) => create(path, PACKETS_MAGIC)?,
            },
            series: create(&config.series, SERIES_MAGIC)?
                .map(|file| (Series::new(config.directions.len()), file)),
            lateness: create(&config.lateness, LATENESS_MAGIC)?,
            mahimahi: config
                .directions
                .iter()
                .zip(directions)
                .map(|(table, direction)| {
                    let wanted = table.mahimahi_log.as_ref();
                    let create = |it| mahimahi_log::create(it, &direction.stages);
                    wanted.map(create).transpose()
                })
                .collect::<Result<_>>()?,
        })
    }

    /// Hands what was appended so far to the writer threads.
    pub fn flush(&mut self) {
        // Idle bins that others may follow are not written yet.
        let series = self.series.as_mut().map(|(_, file)| file);
        let files = [self.packets.as_mut(), self.lateness.as_mut(), series];
        let mahimahi = self.mahimahi.iter_mut().map(Option::as_mut);
        for file in files.into_iter().chain(mahimahi).flatten() {
            file.flush();
        }
    }

    /// Closes the files. Returns what is missing in them.
    pub fn finish(&mut self) -> Result<Lost> {
        let mut lost = Lost::default();
        if let Some((series, mut file)) = self.series.take() {
            series.finish(|record| file.push(record));
            lost.add(file.finish()?);
        }
        let files = [self.packets.take(), self.lateness.take()];
        for file in files.into_iter().chain(self.mahimahi.drain(..)).flatten() {
            lost.add(file.finish()?);
        }
        Ok(lost)
    }
}

/// Notes that a segment left a direction, or was dropped in it, in the packet log if there is one.
pub fn passage(
    records: &mut Records,
    pool: &Pool,
    direction: u16,
    outcome: &Outcome<Segment>,
    observed: Time,
) {
    let Some(file) = &mut records.packets else {
        return;
    };
    let Segment { slot, index, .. } = outcome.packet;
    let packet = pool.packet(slot);
    let (payload, tcp_sequence) = packet.part(index);
    let record = PacketRecord {
        packet: packet.number + u64::from(index),
        arrived: outcome.arrived,
        released: outcome.released,
        departed: outcome.departed,
        observed,
        direction,
        drop: match outcome.fate {
            Fate::Delivered | Fate::Doubled => 0,
            Fate::Dropped(reason) => reason as u8,
        },
        protocol: packet.protocol,
        bytes: outcome.size.0 as u32,
        source_port: packet.source_port,
        destination_port: packet.destination_port,
        tcp_sequence,
        payload,
        source_vertex: packet.source,
        destination_vertex: packet.destination,
    };
    file.push(record.to_bytes());
}

/// Notes the bins of all directions that have ended, if there is a file for them.
pub fn bins(records: &mut Records, graph: &mut Graph<Segment>, now: Time) {
    let Some((series, file)) = &mut records.series else {
        return;
    };
    for direction in 0..graph.directions().len() {
        graph.finished_bins(direction, now, |bin| {
            series.push(direction, &bin, |record| file.push(record));
        });
    }
}

/// Notes how punctual the event loop was within a second, if there is a file for it.
pub fn second(records: &mut Records, second: Second) {
    if let Some(file) = &mut records.lateness {
        file.push(second.to_bytes());
    }
}

/// Returns whether a direction has a log in Mahimahi's format, which gets each segment separately.
pub fn is_by_segment(records: &Records, direction: usize) -> bool {
    matches!(records.mahimahi.get(direction), Some(Some(_)))
}

/// Reports to the Mahimahi log of a direction, if there is one, that a packet reached it.
pub fn arrival(records: &mut Records, direction: usize, at: Time, size: Bytes) {
    append(records, direction, || Event::Arrival { at, size });
}

/// Reports to the Mahimahi log of a direction, if there is one, the outcome of a packet.
pub fn outcome(records: &mut Records, direction: usize, outcome: &Outcome<Segment>) {
    let size = outcome.size;
    match outcome.fate {
        Fate::Delivered => append(records, direction, || Event::Departure {
            at: outcome.released,
            arrived: outcome.arrived,
            size,
        }),
        // The original logs packets that an arrival displaces, and no packets that CoDel drops where packets leave.
        Fate::Dropped(DropReason::Congestion) if outcome.departed > outcome.arrived => {}
        Fate::Dropped(_) => append(records, direction, || Event::Drop {
            at: outcome.departed,
            size,
        }),
        Fate::Doubled => {}
    }
}

/// Reports to all Mahimahi logs that schedules start at `zero`.
pub fn start(records: &mut Records, zero: Time, offset: Duration) {
    let epoch_ms = clock::epoch_millis(zero);
    for direction in 0..records.mahimahi.len() {
        append(records, direction, || Event::Start {
            zero,
            offset,
            epoch_ms,
        });
    }
}

/// Reports to the Mahimahi log of a direction, if there is one, whether an outage closes it from `at` on.
pub fn gate(records: &mut Records, direction: usize, at: Time, closed: bool) {
    append(records, direction, || Event::Gate { at, closed });
}

/// Reports to all Mahimahi logs that no event before `now` will come.
pub fn idle_until(records: &mut Records, now: Time) {
    for direction in 0..records.mahimahi.len() {
        append(records, direction, || Event::Now(now));
    }
}

fn append(records: &mut Records, direction: usize, event: impl FnOnce() -> Event) {
    if let Some(Some(file)) = records.mahimahi.get_mut(direction) {
        file.push(event().to_bytes());
    }
}
