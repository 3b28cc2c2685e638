//! Converts the events of runs into records of their packets.

use super::Role;
use std::collections::BTreeMap;

use cellbed_link::Time;
use serde::{Deserialize, Serialize};

use crate::client::{Download, Event, RunEnd, RunEvent};
use crate::clock::{ClockEstimate, ClockEstimator};
use cellbed_calibration::plan::{Both, PacketRecord, Train, Workload};

/// Time before the last event in which packets of an interrupted run are ignored, ns: they may have been in flight.
const UNDERWAY: i64 = 800_000_000;

/// Maximum packets of one saturation; higher numbers are ignored.
const MOST_PACKETS: u32 = 1 << 29;

/// Gathers the events of all runs.
pub struct Collector {
    /// Time zero on the client's clock.
    zero: Time,
    /// Time stamps of finished runs and of requests for the server's time.
    past: ClockEstimator,
    runs: BTreeMap<u32, Run>,
    /// Time of the last event, ns since time zero.
    last: i64,
}

impl Collector {
    /// An empty collector. Times count from `zero` on the client's clock.
    pub fn new(zero: Time) -> Self {
        Self {
            zero,
            past: ClockEstimator::default(),
            runs: BTreeMap::new(),
            last: 0,
        }
    }

    /// Add the plan of a requested run.
    pub fn plan(&mut self, plan: RunPlan) {
        let number = plan.number;
        self.runs.entry(number).or_insert_with(|| Run::new(plan));
    }

    /// Add an event. Events of unknown runs are ignored.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Clock(echo, at) => {
                let requested = Time::from_nanos(echo.client_ns);
                let [requested, at] = [requested, *at].map(|at| since(self.zero, at));
                self.past.uplink(requested, echo.received_ns as i64);
                self.past.downlink(echo.sent_ns as i64, at);
            }
            Event::Run(run, event) => {
                if let Some(at) = event.at() {
                    self.last = self.last.max(since(self.zero, at));
                }
                if let Some(run) = self.runs.get_mut(run) {
                    run.take(event, self.zero);
                }
            }
            _ => {}
        }
    }

    /// Estimate the server's clock relative to the client's, from all packets so far.
    pub fn clock(&self) -> Option<ClockEstimate> {
        let mut estimator = self.past.clone();
        for run in self.runs.values() {
            run.add_stamps(&mut estimator);
        }
        estimator.estimate()
    }

    /// Remove a run and return its packet records; `None` if it never began.
    pub fn finish(&mut self, number: u32, clock: Option<&ClockEstimate>) -> Option<RunRecords> {
        let run = self.runs.remove(&number)?;
        run.add_stamps(&mut self.past);
        run.records(self.last, clock)
    }

    /// Numbers of all runs.
    pub fn runs(&self) -> Vec<u32> {
        self.runs.keys().copied().collect()
    }
}

/// The facts of a run needed for its events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    pub number: u32,
    pub role: Role,
    /// The workload; none of downloads.
    pub workload: Option<Workload>,
}

impl RunPlan {
    /// The plan of a workload.
    pub fn new(number: u32, role: Role, workload: &Workload) -> Self {
        Self {
            number,
            role,
            workload: Some(workload.clone()),
        }
    }

    /// Return the trains in rotation; none of a saturation.
    fn trains(&self) -> &[Train] {
        match &self.workload {
            Some(Workload::Trains(plan)) => &plan.rotation,
            _ => &[],
        }
    }
}

/// A run, as far as known. Times are ns since time zero, but stamps of the server are on its clock.
struct Run {
    plan: RunPlan,
    began: Option<i64>,
    paused: Vec<(i64, i64)>,
    /// Packets sent, in order of (train, index).
    uplink: Vec<PacketRecord>,
    /// Index in `uplink` of the first packet of each train.
    starts: Vec<usize>,
    /// Packets of the server, by train; train 0 is a saturation.
    downlink: BTreeMap<u32, Vec<PacketRecord>>,
    downloads: Vec<Download>,
    end: Option<RunEnd>,
    /// Time of the end; 0 before.
    ended: i64,
}

/// A packet of unknown fate.
const UNKNOWN: PacketRecord = PacketRecord {
    train: 0,
    index: 0,
    bytes: 0,
    sent_ns: None,
    arrived_ns: None,
    copies: 0,
};

/// Records of a run's packets.
pub struct RunRecords {
    pub role: Role,
    /// Number of trains in the rotation; 1 for a saturation.
    pub rotation: u32,
    pub uplink: Vec<PacketRecord>,
    pub downlink: Vec<PacketRecord>,
    /// Their times count from time zero.
    pub downloads: Vec<Download>,
    /// Times of activity; for an adaptive saturation without the start-up, which had no queue yet.
    pub spans: Vec<(i64, i64)>,
    /// True if packets of an adaptive saturation never reached the intended queueing delay. Then the spans include the
    /// start-up.
    pub unsettled: bool,
    /// End of the run; `None` if it was interrupted.
    pub end: Option<RunEnd>,
}

impl Run {
    fn new(plan: RunPlan) -> Self {
        Self {
            plan,
            began: None,
            paused: Vec::new(),
            uplink: Vec::new(),
            starts: Vec::new(),
            downlink: BTreeMap::new(),
            downloads: Vec::new(),
            end: None,
            ended: 0,
        }
    }

    /// Return the packet records from the events up to `last`; `None` if the run never began.
    fn records(mut self, last: i64, clock: Option<&ClockEstimate>) -> Option<RunRecords> {
        let began = self.began?;
        let complete = self.end.is_some_and(|end| end.complete);
        let cut = if complete { i64::MAX } else { self.cut(last) };
        let ended = if complete { self.ended } else { cut };
        let to_client = |server: i64| clock.map(|clock| clock.to_client(server));
        let downlink = self.downlink_records(cut, to_client);
        let mut uplink = std::mem::take(&mut self.uplink);
        uplink.truncate(uplink.partition_point(|packet| packet.sent_ns <= Some(cut)));
        for packet in &mut uplink {
            packet.arrived_ns = packet.arrived_ns.and_then(to_client);
            packet.copies = packet.arrived_ns.map_or(0, |_| packet.copies);
        }
        let workload = self.plan.workload.as_ref();
        let waits = workload.map_or(Both::default(), Workload::least_waits_ns);
        let ways = [(&uplink[..], waits.uplink), (&downlink[..], waits.downlink)];
        let (mut spans, mut unsettled) = (self.spans(began, ended), false);
        for span in &mut spans {
            match settling_time(ways, *span) {
                Some(start) => span.0 = start,
                None => unsettled = true,
            }
        }
        Some(RunRecords {
            role: self.plan.role,
            rotation: self.plan.trains().len().max(1) as u32,
            uplink,
            downlink,
            downloads: self.downloads,
            spans,
            unsettled,
            end: self.end,
        })
    }

    /// Add an event of the run.
    fn take(&mut self, event: &RunEvent, zero: Time) {
        match event {
            RunEvent::Began(at) => self.began = Some(since(zero, *at)),
            RunEvent::Sent(departure) => {
                if departure.index == 0 && self.starts.len() == departure.train as usize {
                    self.starts.push(self.uplink.len());
                }
                self.uplink.push(PacketRecord {
                    train: departure.train,
                    index: departure.index,
                    bytes: departure.bytes,
                    sent_ns: Some(since(zero, departure.at)),
                    ..UNKNOWN
                });
            }
            RunEvent::ArrivedUplink(arrival) => {
                if let Some(packet) = self.find(arrival.train, arrival.index) {
                    arrived(packet, arrival.arrived_ns as i64);
                }
            }
            RunEvent::ArrivedDownlink(reception) => {
                if let Some(packet) = self.slot(reception.train, reception.index) {
                    packet.bytes = reception.bytes;
                    packet.sent_ns = Some(reception.sent_ns as i64);
                    arrived(packet, since(zero, reception.at));
                }
            }
            RunEvent::Paused { from, until } => {
                self.paused.push((since(zero, *from), since(zero, *until)));
            }
            RunEvent::Downloaded(download) => self.downloads.push(Download {
                started: Time::ZERO + (download.started - zero),
                ..*download
            }),
            RunEvent::Ended(end) => {
                (self.end, self.ended) = (Some(*end), since(zero, end.at));
            }
        }
    }

    fn find(&mut self, train: u32, index: u32) -> Option<&mut PacketRecord> {
        let start = *self.starts.get(train as usize)?;
        let packet = self.uplink.get_mut(start + index as usize)?;
        (packet.train == train && packet.index == index).then_some(packet)
    }

    fn slot(&mut self, train: u32, index: u32) -> Option<&mut PacketRecord> {
        if index >= MOST_PACKETS {
            return None;
        }
        let slots = self.downlink.entry(train).or_default();
        if slots.len() <= index as usize {
            slots.resize(index as usize + 1, UNKNOWN);
        }
        slots.get_mut(index as usize)
    }

    fn add_stamps(&self, estimator: &mut ClockEstimator) {
        let times = |packet: &PacketRecord| packet.sent_ns.zip(packet.arrived_ns);
        for (sent, arrived) in self.uplink.iter().filter_map(times) {
            estimator.uplink(sent, arrived);
        }
        for (sent, arrived) in self.downlink.values().flatten().filter_map(times) {
            estimator.downlink(sent, arrived);
        }
    }

    /// Return the time from which the fate of sent packets is unknown, in a run that was interrupted.
    fn cut(&self, last: i64) -> i64 {
        let mut latest = self.uplink.iter().rev();
        let horizon = match latest.find(|packet| packet.arrived_ns.is_some()) {
            Some(packet) => packet.sent_ns.unwrap_or(0),
            None if self.uplink.is_empty() => i64::MAX,
            None => 0,
        };
        horizon.min(last - UNDERWAY)
    }

    fn downlink_records(
        &self,
        cut: i64,
        to_client: impl Fn(i64) -> Option<i64>,
    ) -> Vec<PacketRecord> {
        let record = |train: u32, index: usize, bytes: u16| {
            let slots = self.downlink.get(&train);
            let packet = slots.and_then(|slots| slots.get(index)).unwrap_or(&UNKNOWN);
            PacketRecord {
                train,
                index: index as u32,
                bytes: if packet.copies > 0 {
                    packet.bytes
                } else {
                    bytes
                },
                sent_ns: packet.sent_ns.and_then(&to_client),
                ..*packet
            }
        };
        if let Some(Workload::Saturation { bytes, .. }) = self.plan.workload {
            let received = self.downlink.get(&0).map_or(0, Vec::len);
            let sent = self.end.map_or(0, |end| end.counts.saturation_sent) as usize;
            let end = cut.saturating_add(UNDERWAY);
            return (0..received.max(sent))
                .map(|index| record(0, index, bytes))
                .take_while(|packet| packet.arrived_ns.is_none_or(|at| at <= end))
                .collect();
        }
        let mut records = Vec::new();
        let rotation = self.plan.trains().iter().cycle();
        for ((number, start), plan) in (0u32..).zip(&self.starts).zip(rotation) {
            let packets = self.uplink[*start..].iter().take(usize::from(plan.up));
            let mut packets = packets.take_while(|packet| packet.train == number);
            if self.uplink[*start].sent_ns > Some(cut) {
                break;
            }
            let reached = packets.any(|packet| packet.arrived_ns.is_some());
            if reached || self.downlink.contains_key(&number) {
                let answer = 0..usize::from(plan.down);
                records.extend(answer.map(|index| record(number, index, plan.down_bytes)));
            }
        }
        records
    }

    fn spans(&self, began: i64, ended: i64) -> Vec<(i64, i64)> {
        let starts = [began].into_iter().chain(self.paused.iter().map(|it| it.1));
        let ends = self.paused.iter().map(|it| it.0).chain([ended]);
        let spans = starts.zip(ends);
        spans.filter(|(start, end)| start < end).collect()
    }
}

/// Record another copy of a packet.
fn arrived(packet: &mut PacketRecord, at: i64) {
    packet.arrived_ns = Some(packet.arrived_ns.map_or(at, |before| before.min(at)));
    packet.copies = packet.copies.saturating_add(1);
}

fn since(zero: Time, at: Time) -> i64 {
    at.as_nanos() as i64 - zero.as_nanos() as i64
}

/// Return the time in a span from which the path carried its full rate. In each adaptive direction, a packet with the
/// minimum queueing delay must have arrived. `None` if there is none; the span's begin if no direction is adaptive.
///
/// ways: packets of each direction, and their minimum queueing delay (delay less the minimum delay), ns.
fn settling_time(
    ways: [(&[PacketRecord], Option<u64>); 2],
    (start, end): (i64, i64),
) -> Option<i64> {
    let mut settled = start;
    for (packets, wait) in ways {
        let Some(wait) = wait else {
            continue;
        };
        let least = packets.iter().filter_map(PacketRecord::delay_ns).min();
        let enough = least?.saturating_add_unsigned(wait);
        let waited = packets
            .iter()
            .filter(|packet| packet.delay_ns().is_some_and(|delay| delay >= enough));
        let arrivals = waited.filter_map(|packet| packet.arrived_ns);
        let first = arrivals.filter(|at| (start..end).contains(at)).min()?;
        settled = settled.max(first);
    }
    Some(settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One packet per 100 ms with 20 ms delay, plus 1 ms for each previous packet from the `busy`-th on.
    fn packets(busy: i64) -> Vec<PacketRecord> {
        let packet = |index: i64| PacketRecord {
            train: 0,
            index: index as u32,
            bytes: 1400,
            sent_ns: Some(index * 100),
            arrived_ns: Some(index * 100 + 20 + (index - busy).max(0)),
            copies: 1,
        };
        (0..100).map(packet).collect()
    }

    #[test]
    fn a_span_begins_when_both_ways_wait() {
        let (up, down) = (packets(10), packets(40));
        let time = |waits: [Option<u64>; 2], span| {
            settling_time([(&up, waits[0]), (&down, waits[1])], span)
        };
        let both = [Some(5), Some(5)];
        assert_eq!(time(both, (0, 10_000)), Some(45 * 100 + 25));
        assert_eq!(time(both, (7_000, 10_000)), Some(7_000 + 20 + 60));
        assert_eq!(time(both, (0, 4_000)), None);
        assert_eq!(time([Some(5), None], (0, 10_000)), Some(15 * 100 + 25));
        assert_eq!(time([None, None], (3, 9)), Some(3));
    }
}
