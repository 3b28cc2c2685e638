//! From what happened to what became of each packet.

use std::collections::BTreeMap;

use cellbed_link::{Duration, Time};
use serde::{Deserialize, Serialize};

use crate::calibration::TimedTrain;
use crate::client::{Event, Role, RunEnd, Workload};
use crate::clock::{ClockEstimate, ClockEstimator};
use crate::packet::PacketRecord;
use crate::plan::{Train, TrainPlan};

/// Of a run that was broken off the last packets are left out: they may have been underway.
const UNDERWAY: Duration = Duration::from_millis(800);

/// More packets of one saturation are not believed.
const MOST_PACKETS: u32 = 1 << 29;

/// What is to be known of a run to understand its events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Its number.
    pub number: u32,
    /// Which workload it is of.
    pub role: Role,
    /// Its trains; none in a saturation.
    pub trains: Vec<Train>,
    /// IP length of the packets of its saturation.
    pub bytes: u16,
}

impl RunPlan {
    /// That of a workload. Trains after the last one are the first ones again.
    pub fn new(number: u32, role: Role, workload: &Workload) -> Self {
        let (trains, bytes) = match workload {
            Workload::Trains(TrainPlan { rotation, .. }) => (rotation.clone(), 0),
            Workload::Timed(trains) => (
                trains
                    .iter()
                    .map(|TimedTrain { train, .. }| *train)
                    .collect(),
                0,
            ),
            Workload::Saturation { bytes, .. } => (Vec::new(), *bytes),
        };
        Self {
            number,
            role,
            trains,
            bytes,
        }
    }

    fn train(&self, number: u32) -> Option<&Train> {
        let position = (number as usize).checked_rem(self.trains.len())?;
        self.trains.get(position)
    }
}

/// Gathers the events of all runs.
pub struct Collector {
    /// Time zero on the client's clock.
    zero: Time,
    /// Stamps of runs that are finished.
    past: ClockEstimator,
    runs: BTreeMap<u32, Run>,
    /// The last thing that happened.
    last: Time,
}

struct Run {
    plan: RunPlan,
    began: Option<Time>,
    paused: Vec<(Time, Time)>,
    /// In order of (train, index), as they were sent.
    uplink: Vec<Sent>,
    /// Where each train begins in `uplink`.
    starts: Vec<usize>,
    /// Packets of the server, by train; a saturation is train 0.
    downlink: BTreeMap<u32, Vec<Slot>>,
    end: Option<RunEnd>,
}

/// A packet of the client.
#[derive(Clone, Copy)]
struct Sent {
    train: u32,
    index: u32,
    bytes: u16,
    at: Time,
    /// On the server's clock.
    arrived: Option<u64>,
    copies: u8,
}

/// A packet of the server.
#[derive(Clone, Copy, Default)]
struct Slot {
    bytes: u16,
    /// On the server's clock.
    sent: u64,
    arrived: Option<Time>,
    copies: u8,
}

/// What became of a run's packets.
pub struct RunRecords {
    /// Which workload it is of.
    pub role: Role,
    /// How long its rotation is; 1 of a saturation.
    pub rotation: u32,
    /// From the client.
    pub uplink: Vec<PacketRecord>,
    /// From the server.
    pub downlink: Vec<PacketRecord>,
    /// When it ran.
    pub spans: Vec<(i64, i64)>,
    /// How it ended; `None` if it was broken off.
    pub end: Option<RunEnd>,
}

impl Collector {
    /// One that knows nothing yet. Times will count from `zero` on the client's clock.
    pub fn new(zero: Time) -> Self {
        Self {
            zero,
            past: ClockEstimator::new(),
            runs: BTreeMap::new(),
            last: Time::ZERO,
        }
    }

    /// A run has been asked for.
    pub fn plan(&mut self, plan: RunPlan) {
        self.runs.entry(plan.number).or_insert(Run {
            plan,
            began: None,
            paused: Vec::new(),
            uplink: Vec::new(),
            starts: Vec::new(),
            downlink: BTreeMap::new(),
            end: None,
        });
    }

    /// Something happened. Events of runs that are not known are ignored.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Began { run, at } => {
                self.last = self.last.max(*at);
                if let Some(run) = self.runs.get_mut(run) {
                    run.began = Some(*at);
                }
            }
            Event::Sent {
                run,
                train,
                index,
                bytes,
                at,
            } => {
                self.last = self.last.max(*at);
                if let Some(run) = self.runs.get_mut(run) {
                    run.sent(*train, *index, *bytes, *at);
                }
            }
            Event::ArrivedUplink { run, arrival } => {
                if let Some(packet) = self
                    .runs
                    .get_mut(run)
                    .and_then(|run| run.find(arrival.train, arrival.index))
                {
                    let first = packet.arrived.unwrap_or(u64::MAX).min(arrival.arrived_ns);
                    packet.arrived = Some(first);
                    packet.copies = packet.copies.saturating_add(1);
                }
            }
            Event::ArrivedDownlink {
                run,
                train,
                index,
                bytes,
                sent_ns,
                at,
            } => {
                self.last = self.last.max(*at);
                if let Some(slot) = self
                    .runs
                    .get_mut(run)
                    .and_then(|run| run.slot(*train, *index))
                {
                    slot.bytes = *bytes;
                    slot.sent = *sent_ns;
                    slot.arrived = Some(slot.arrived.unwrap_or(Time::MAX).min(*at));
                    slot.copies = slot.copies.saturating_add(1);
                }
            }
            Event::Paused { run, from, until } => {
                if let Some(run) = self.runs.get_mut(run) {
                    run.paused.push((*from, *until));
                }
            }
            Event::Ended { run, end } => {
                self.last = self.last.max(end.at);
                if let Some(run) = self.runs.get_mut(run) {
                    run.end = Some(end.clone());
                }
            }
            Event::Connected(_)
            | Event::Silent
            | Event::Resumed
            | Event::Rejected(_)
            | Event::RoundTrip(_) => {}
        }
    }

    /// The server's clock against the client's, by all packets so far.
    pub fn clock(&self) -> Option<ClockEstimate> {
        let mut estimator = self.past.clone();
        for run in self.runs.values() {
            run.tell_stamps(self.zero, &mut estimator);
        }
        estimator.estimate()
    }

    /// What became of the packets of a run, and forgets it; `None` if it never began.
    pub fn finish(&mut self, number: u32, clock: Option<&ClockEstimate>) -> Option<RunRecords> {
        let run = self.runs.remove(&number)?;
        let zero = self.zero;
        run.tell_stamps(zero, &mut self.past);
        let began = run.began?;
        let cut = run.cut(self.last);
        let ended = match &run.end {
            Some(end) if end.complete => end.at,
            _ => cut,
        };
        let to_client = |server: u64| clock.map(|clock| clock.to_client(server as i64));
        let uplink = run
            .uplink
            .iter()
            .take_while(|packet| packet.at <= cut)
            .map(|packet| {
                let arrived_ns = packet.arrived.and_then(to_client);
                PacketRecord {
                    train: packet.train,
                    index: packet.index,
                    bytes: packet.bytes,
                    sent_ns: Some(since(zero, packet.at)),
                    arrived_ns,
                    copies: if arrived_ns.is_some() {
                        packet.copies
                    } else {
                        0
                    },
                }
            })
            .collect();
        Some(RunRecords {
            role: run.plan.role,
            rotation: run.plan.trains.len().max(1) as u32,
            uplink,
            downlink: run.downlink_records(cut, zero, to_client),
            spans: run.spans(began, ended, zero),
            end: run.end,
        })
    }

    /// Numbers of all runs.
    pub fn runs(&self) -> Vec<u32> {
        self.runs.keys().copied().collect()
    }
}

impl Run {
    fn sent(&mut self, train: u32, index: u32, bytes: u16, at: Time) {
        if index == 0 && self.starts.len() == train as usize {
            self.starts.push(self.uplink.len());
        }
        self.uplink.push(Sent {
            train,
            index,
            bytes,
            at,
            arrived: None,
            copies: 0,
        });
    }

    fn find(&mut self, train: u32, index: u32) -> Option<&mut Sent> {
        let start = *self.starts.get(train as usize)?;
        let packet = self.uplink.get_mut(start + index as usize)?;
        (packet.train == train && packet.index == index).then_some(packet)
    }

    fn slot(&mut self, train: u32, index: u32) -> Option<&mut Slot> {
        if index >= MOST_PACKETS {
            return None;
        }
        let slots = self.downlink.entry(train).or_default();
        if slots.len() <= index as usize {
            slots.resize(index as usize + 1, Slot::default());
        }
        slots.get_mut(index as usize)
    }

    fn tell_stamps(&self, zero: Time, estimator: &mut ClockEstimator) {
        for packet in &self.uplink {
            if let Some(arrived) = packet.arrived {
                estimator.uplink(since(zero, packet.at), arrived as i64);
            }
        }
        for slot in self.downlink.values().flatten() {
            if let Some(arrived) = slot.arrived {
                estimator.downlink(slot.sent as i64, since(zero, arrived));
            }
        }
    }

    /// The fate of packets that were sent later is not known: never, if the run was ended properly.
    fn cut(&self, last: Time) -> Time {
        if self.end.as_ref().is_some_and(|end| end.complete) {
            return Time::MAX;
        }
        let known = self
            .uplink
            .iter()
            .rev()
            .find(|packet| packet.arrived.is_some());
        let horizon = match known {
            Some(packet) => packet.at,
            None if self.uplink.is_empty() => Time::MAX,
            None => Time::ZERO,
        };
        horizon.min(last - UNDERWAY)
    }

    fn downlink_records(
        &self,
        cut: Time,
        zero: Time,
        to_client: impl Fn(u64) -> Option<i64>,
    ) -> Vec<PacketRecord> {
        let record = |train: u32, index: usize, bytes: u16, slot: &Slot| PacketRecord {
            train,
            index: index as u32,
            bytes: if slot.copies > 0 { slot.bytes } else { bytes },
            sent_ns: (slot.copies > 0).then(|| to_client(slot.sent)).flatten(),
            arrived_ns: slot.arrived.map(|at| since(zero, at)),
            copies: slot.copies,
        };
        if self.plan.trains.is_empty() {
            let nothing = Vec::new();
            let slots = self.downlink.get(&0).unwrap_or(&nothing);
            let sent = self.end.as_ref().map_or(0, |end| end.saturation_sent) as usize;
            let none = Slot::default();
            return (0..slots.len().max(sent))
                .map(|index| (index, slots.get(index).unwrap_or(&none)))
                .take_while(|(_, slot)| slot.arrived.is_none_or(|at| at <= cut + UNDERWAY))
                .map(|(index, slot)| record(0, index, self.plan.bytes, slot))
                .collect();
        }
        let mut records = Vec::new();
        for (number, start) in (0u32..).zip(&self.starts) {
            let Some(plan) = self.plan.train(number) else {
                break;
            };
            if self.uplink[*start].at > cut {
                break;
            }
            let packets = self.uplink[*start..].iter().take(usize::from(plan.up));
            let reached = packets
                .take_while(|packet| packet.train == number)
                .any(|packet| packet.arrived.is_some());
            let slots = self.downlink.get(&number);
            if !reached && slots.is_none() {
                continue; // nobody asked the server to answer
            }
            for index in 0..usize::from(plan.down) {
                let slot = slots
                    .and_then(|slots| slots.get(index))
                    .copied()
                    .unwrap_or_default();
                records.push(record(number, index, plan.down_bytes, &slot));
            }
        }
        records
    }

    fn spans(&self, began: Time, ended: Time, zero: Time) -> Vec<(i64, i64)> {
        let mut spans = Vec::new();
        let mut start = began;
        for (from, until) in &self.paused {
            spans.push((start, *from));
            start = *until;
        }
        spans.push((start, ended));
        spans
            .into_iter()
            .filter(|(start, end)| start < end)
            .map(|(start, end)| (since(zero, start), since(zero, end)))
            .collect()
    }
}

fn since(zero: Time, at: Time) -> i64 {
    at.as_nanos() as i64 - zero.as_nanos() as i64
}
