//! What the engine tells the files of a run.

use cellbed_link::{Direction, Fate, Outcome, Time};

use crate::pool::{Pool, Segment};
use crate::records::{PacketRecord, SeriesRecord};
use crate::writer::Records;

/// Notes that a segment left a direction, or was dropped in it, in the packet log if there is one.
pub fn passage(
    records: &mut Records,
    pool: &Pool,
    lane: u16,
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
        direction: lane,
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

/// Notes the bins of a direction that have ended, if there is a file for them.
pub fn bins(records: &mut Records, index: usize, direction: &mut Direction<Segment>, now: Time) {
    let Some(file) = &mut records.series else {
        return;
    };
    for bin in direction.finished_bins(now) {
        let record = SeriesRecord {
            start: bin.start,
            direction: index as u32,
            queue_packets: bin.queue.packets.0 as u32,
            queue_bytes: bin.queue.bytes.0,
            queue_peak_bytes: bin.peak.0,
            capacity: bin.capacity.map(|bytes| bytes.0),
            used: bin.used.0,
            arrived: bin.arrived.0,
            dropped_queue: bin.queue_full.0 as u32,
            dropped_loss: bin.lost.0 as u32,
        };
        file.push(record.to_bytes());
    }
}
