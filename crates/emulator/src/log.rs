//! The files of a run, and their records from the engine.

use std::path::PathBuf;

use cellbed_link::records::{PACKETS_MAGIC, PacketRecord, SERIES_MAGIC, Series};
use cellbed_link::{DirectionConfig, DropReason, Fate, Graph, Outcome, Time};

use crate::config::Config;
use crate::error::Result;
use crate::lateness::{LATENESS_MAGIC, Second};
use crate::mahimahi_log::{self, Event};
use crate::pool::{Pool, Segment};
use crate::writer::{LARGEST_FILE, Lost, RecordFile};

/// The requested files of a run.
pub struct Records {
    /// Records of all packets.
    pub packets: Option<RecordFile>,
    /// The 10 ms series.
    pub series: Option<(Series, RecordFile)>,
    /// Lateness of the event loop, by the second.
    pub lateness: Option<RecordFile>,
    /// Logs in the format of Mahimahi's mm-link, by direction.
    pub mahimahi: Vec<Option<RecordFile<Event>>>,
}

impl Records {
    /// Create the files.
    pub fn create(config: &Config, directions: &[DirectionConfig]) -> Result<Self> {
        let create = |path: &Option<PathBuf>, magic, latest: Option<u64>| {
            let most = latest.unwrap_or(LARGEST_FILE);
            let create = |path: &PathBuf| RecordFile::create(path, magic, most, latest.is_some());
            path.as_ref().map(create).transpose()
        };
        Ok(Self {
            packets: create(&config.packet_log, PACKETS_MAGIC, config.packet_log_bytes)?,
            series: create(&config.series, SERIES_MAGIC, None)?
                .map(|file| (Series::new(config.directions.len()), file)),
            lateness: create(&config.lateness, LATENESS_MAGIC, None)?,
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

    /// Return whether the run has no files.
    pub fn is_empty(&self) -> bool {
        let Self {
            packets,
            series,
            lateness,
            mahimahi,
        } = self;
        let mahimahi = mahimahi.iter().all(Option::is_none);
        packets.is_none() && series.is_none() && lateness.is_none() && mahimahi
    }

    /// Send the records appended so far to the writer threads.
    pub fn flush(&mut self) {
        // Idle bins that others may follow are not written yet.
        let series = self.series.as_mut().map(|(_, file)| file);
        let files = [self.packets.as_mut(), self.lateness.as_mut(), series];
        files.into_iter().flatten().for_each(RecordFile::flush);
        self.mahimahi
            .iter_mut()
            .flatten()
            .for_each(RecordFile::flush);
    }

    /// Close the files. Return the lost records.
    pub fn finish(&mut self) -> Result<Lost> {
        let mut lost = Lost::default();
        if let Some((series, mut file)) = self.series.take() {
            series.finish(|record| file.push(record));
            lost.add(file.finish()?);
        }
        for file in [self.packets.take(), self.lateness.take()]
            .into_iter()
            .flatten()
        {
            lost.add(file.finish()?);
        }
        for file in self.mahimahi.drain(..).flatten() {
            lost.add(file.finish()?);
        }
        Ok(lost)
    }

    /// Log a segment that left a direction or was dropped in it, if there is a packet log.
    pub fn passage(
        &mut self,
        pool: &Pool,
        direction: u16,
        outcome: &Outcome<Segment>,
        observed: Time,
    ) {
        let Some(file) = &mut self.packets else {
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

    /// Log the ended bins of all directions, if there is a series.
    pub fn bins(&mut self, graph: &mut Graph<Segment>, now: Time) {
        let Some((series, file)) = &mut self.series else {
            return;
        };
        for direction in 0..graph.directions().len() {
            graph.finished_bins(direction, now, |bin| {
                series.push(direction, &bin, |record| file.push(record));
            });
        }
    }

    /// Log the lateness of the event loop within a second, if there is a file for lateness.
    pub fn second(&mut self, second: Second) {
        if let Some(file) = &mut self.lateness {
            file.push(second.to_bytes());
        }
    }

    /// Return whether a direction has a log in Mahimahi's format, which has an entry per segment.
    pub fn is_by_segment(&self, direction: usize) -> bool {
        matches!(self.mahimahi.get(direction), Some(Some(_)))
    }

    /// Report an event to the Mahimahi log of a direction, if there is one.
    pub fn report(&mut self, direction: usize, event: Event) {
        if let Some(Some(file)) = self.mahimahi.get_mut(direction) {
            file.push(event);
        }
    }

    /// Report an event to all Mahimahi logs.
    pub fn report_all(&mut self, event: Event) {
        self.mahimahi
            .iter_mut()
            .flatten()
            .for_each(|file| file.push(event));
    }

    /// Report the outcome of a packet to the Mahimahi log of a direction, if there is one.
    pub fn report_outcome(&mut self, direction: usize, outcome: &Outcome<Segment>) {
        let Outcome {
            arrived,
            departed,
            size,
            ..
        } = *outcome;
        match outcome.fate {
            Fate::Delivered => self.report(
                direction,
                Event::Departure {
                    at: outcome.released,
                    arrived,
                    size,
                },
            ),
            // Like the original: log packets displaced by an arrival, but not packets that CoDel drops on departure.
            Fate::Dropped(DropReason::Congestion) if departed > arrived => {}
            Fate::Dropped(_) => self.report(direction, Event::Drop { at: departed, size }),
            Fate::Doubled => {}
        }
    }
}
