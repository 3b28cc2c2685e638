//! Converts the events of runs into records of their packets.

use super::Role;
use std::collections::BTreeMap;

use cellbed_link::{Duration, Time};
use serde::{Deserialize, Serialize};

use crate::client::{Departure, Event, Pause, RunEnd, RunEvent};
use crate::clock::{ClockEstimate, ClockEstimator};
use cellbed_calibration::plan::{Both, PacketRecord, Train, Workload};

/// Time before the last event in which packets of an interrupted run are ignored: they may have been in flight.
const UNDERWAY: Duration = Duration::from_millis(800);

/// Maximum packets of one saturation; higher numbers are ignored.
const MOST_PACKETS: u32 = 1 << 29;

/// Gathers the events of all runs.
pub struct Collector {
    /// Time zero on the client's clock.
    zero: Time,
    /// Time stamps of finished runs and of requests for the server's time.
    past: ClockEstimator,
    runs: BTreeMap<u32, Run>,
    /// Time of the last event.
    last: Time,
}

impl Collector {
    /// An empty collector. Times count from `zero` on the client's clock.
    pub fn new(zero: Time) -> Self {
        Self {
            zero,
            past: ClockEstimator::default(),
            runs: BTreeMap::new(),
            last: Time::ZERO,
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
            Event::Clock(answer) => {
                let [requested, at] = [answer.requested, answer.at].map(|at| since(self.zero, at));
                self.past.uplink(requested, answer.received_ns as i64);
                self.past.downlink(answer.sent_ns as i64, at);
            }
            Event::Run(run, event) => {
                if let Some(at) = event.at() {
                    self.last = self.last.max(at);
                }
                if let Some(run) = self.runs.get_mut(run) {
                    run.take(event);
                }
            }
            _ => {}
        }
    }

    /// Estimate the server's clock relative to the client's, from all packets so far.
    pub fn clock(&self) -> Option<ClockEstimate> {
        let mut estimator = self.past.clone();
        for run in self.runs.values() {
            run.add_stamps(self.zero, &mut estimator);
        }
        estimator.estimate()
    }

    /// Remove a run and return its packet records; `None` if it never began.
    pub fn finish(&mut self, number: u32, clock: Option<&ClockEstimate>) -> Option<RunRecords> {
        let run = self.runs.remove(&number)?;
        let zero = self.zero;
        run.add_stamps(zero, &mut self.past);
        run.records(self.last, zero, clock)
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
    /// Trains of the run; none in a saturation.
    pub trains: Vec<Train>,
    /// IP length of the packets of a saturation, bytes.
    pub bytes: u16,
    /// Minimum queueing delay intended for an adaptive saturation, ns.
    pub least_waits_ns: Both<Option<u64>>,
}

impl RunPlan {
    /// The plan of a workload. The first train follows the last one.
    pub fn new(number: u32, role: Role, workload: &Workload) -> Self {
        let (trains, bytes) = match workload {
            Workload::Trains(plan) => (plan.rotation.clone(), 0),
            Workload::Timed(trains) => (trains.iter().map(|timed| timed.train).collect(), 0),
            Workload::Saturation { bytes, .. } => (Vec::new(), *bytes),
        };
        Self {
            number,
            role,
            trains,
            bytes,
            least_waits_ns: workload.least_waits_ns(),
        }
    }

    fn train(&self, number: u32) -> Option<&Train> {
        let position = (number as usize).checked_rem(self.trains.len())?;
        self.trains.get(position)
    }
}

/// A run, as far as known.
struct Run {
    plan: RunPlan,
    began: Option<Time>,
    paused: Vec<Pause>,
    /// Packets sent, in order of (train, index).
    uplink: Vec<Sent>,
    /// Index in `uplink` of the first packet of each train.
    starts: Vec<usize>,
    /// Packets of the server, by train; train 0 is a saturation.
    downlink: BTreeMap<u32, Vec<Slot>>,
    end: Option<RunEnd>,
}

/// A packet of the client.
#[derive(Clone, Copy)]
struct Sent {
    departure: Departure,
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

/// Records of a run's packets.
pub struct RunRecords {
    pub role: Role,
    /// Number of trains in the rotation; 1 for a saturation.
    pub rotation: u32,
    pub uplink: Vec<PacketRecord>,
    pub downlink: Vec<PacketRecord>,
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
            end: None,
        }
    }

    /// Return the packet records from the events up to `last`; `None` if the run never began.
    fn records(self, last: Time, zero: Time, clock: Option<&ClockEstimate>) -> Option<RunRecords> {
        let began = self.began?;
        let cut = self.cut(last);
        let ended = match &self.end {
            Some(end) if end.complete => end.at,
            _ => cut,
        };
        let to_client = |server: u64| clock.map(|clock| clock.to_client(server as i64));
        let known = self
            .uplink
            .iter()
            .take_while(|packet| packet.departure.at <= cut);
        let uplink: Vec<PacketRecord> = known
            .map(|packet| {
                let (sent, arrived_ns) = (packet.departure, packet.arrived.and_then(to_client));
                PacketRecord {
                    train: sent.train,
                    index: sent.index,
                    bytes: sent.bytes,
                    sent_ns: Some(since(zero, sent.at)),
                    arrived_ns,
                    copies: arrived_ns.map_or(0, |_| packet.copies),
                }
            })
            .collect();
        let downlink = self.downlink_records(cut, zero, to_client);
        let waits = self.plan.least_waits_ns;
        let ways = [(&uplink[..], waits.uplink), (&downlink[..], waits.downlink)];
        let (mut spans, mut unsettled) = (self.spans(began, ended, zero), false);
        for span in &mut spans {
            match settling_time(ways, *span) {
                Some(start) => span.0 = start,
                None => unsettled = true,
            }
        }
        Some(RunRecords {
            role: self.plan.role,
            rotation: self.plan.trains.len().max(1) as u32,
            uplink,
            downlink,
            spans,
            unsettled,
            end: self.end,
        })
    }

    /// Add an event of the run.
    fn take(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Began(at) => self.began = Some(*at),
            RunEvent::Sent(departure) => self.sent(departure),
            RunEvent::ArrivedUplink(arrival) => {
                if let Some(packet) = self.find(arrival.train, arrival.index) {
                    let first = packet.arrived.unwrap_or(u64::MAX).min(arrival.arrived_ns);
                    packet.arrived = Some(first);
                    packet.copies = packet.copies.saturating_add(1);
                }
            }
            RunEvent::ArrivedDownlink(reception) => {
                if let Some(slot) = self.slot(reception.train, reception.index) {
                    slot.bytes = reception.bytes;
                    slot.sent = reception.sent_ns;
                    slot.arrived = Some(slot.arrived.unwrap_or(Time::MAX).min(reception.at));
                    slot.copies = slot.copies.saturating_add(1);
                }
            }
            RunEvent::Paused(pause) => self.paused.push(*pause),
            RunEvent::Ended(end) => self.end = Some(*end),
        }
    }

    fn sent(&mut self, departure: &Departure) {
        if departure.index == 0 && self.starts.len() == departure.train as usize {
            self.starts.push(self.uplink.len());
        }
        self.uplink.push(Sent {
            departure: *departure,
            arrived: None,
            copies: 0,
        });
    }

    fn find(&mut self, train: u32, index: u32) -> Option<&mut Sent> {
        let start = *self.starts.get(train as usize)?;
        let packet = self.uplink.get_mut(start + index as usize)?;
        let sent = packet.departure;
        (sent.train == train && sent.index == index).then_some(packet)
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

    fn add_stamps(&self, zero: Time, estimator: &mut ClockEstimator) {
        for packet in &self.uplink {
            if let Some(arrived) = packet.arrived {
                estimator.uplink(since(zero, packet.departure.at), arrived as i64);
            }
        }
        for slot in self.downlink.values().flatten() {
            if let Some(arrived) = slot.arrived {
                estimator.downlink(slot.sent as i64, since(zero, arrived));
            }
        }
    }

    /// Return the time from which the fate of sent packets is unknown; never for a completed run.
    fn cut(&self, last: Time) -> Time {
        if self.end.as_ref().is_some_and(|end| end.complete) {
            return Time::MAX;
        }
        let mut latest = self.uplink.iter().rev();
        let horizon = match latest.find(|packet| packet.arrived.is_some()) {
            Some(packet) => packet.departure.at,
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
        let slot_of = |slots: Option<&Vec<Slot>>, index: usize| {
            let slot = slots.and_then(|slots| slots.get(index));
            slot.copied().unwrap_or_default()
        };
        if self.plan.trains.is_empty() {
            let slots = self.downlink.get(&0);
            let sent = self.end.map_or(0, |end| end.saturation_sent) as usize;
            return (0..slots.map_or(0, Vec::len).max(sent))
                .map(|index| (index, slot_of(slots, index)))
                .take_while(|(_, slot)| slot.arrived.is_none_or(|at| at <= cut + UNDERWAY))
                .map(|(index, slot)| record(0, index, self.plan.bytes, &slot))
                .collect();
        }
        let mut records = Vec::new();
        for (number, start) in (0u32..).zip(&self.starts) {
            let Some(plan) = self.plan.train(number) else {
                break;
            };
            if self.uplink[*start].departure.at > cut {
                break;
            }
            let packets = self.uplink[*start..].iter().take(usize::from(plan.up));
            let reached = packets
                .take_while(|packet| packet.departure.train == number)
                .any(|packet| packet.arrived.is_some());
            let slots = self.downlink.get(&number);
            if !reached && slots.is_none() {
                continue; // no answer was requested
            }
            for index in 0..usize::from(plan.down) {
                let slot = slot_of(slots, index);
                records.push(record(number, index, plan.down_bytes, &slot));
            }
        }
        records
    }

    fn spans(&self, began: Time, ended: Time, zero: Time) -> Vec<(i64, i64)> {
        let mut spans = Vec::new();
        let mut start = began;
        for Pause { from, until } in &self.paused {
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
