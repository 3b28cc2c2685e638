//! Gathers what happened, by runs.

use std::collections::BTreeMap;

use cellbed_link::Time;

use super::run::{Run, RunPlan, RunRecords, since};
use crate::client::Event;
use crate::clock::{ClockEstimate, ClockEstimator};

/// Gathers the events of all runs.
pub struct Collector {
    /// Time zero on the client's clock.
    zero: Time,
    /// Stamps of runs that are finished, and of questions for the server's time.
    past: ClockEstimator,
    runs: BTreeMap<u32, Run>,
    /// The last thing that happened.
    last: Time,
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
        let number = plan.number;
        self.runs.entry(number).or_insert_with(|| Run::new(plan));
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
            Event::Clock {
                asked,
                received_ns,
                sent_ns,
                at,
            } => {
                self.past
                    .uplink(since(self.zero, *asked), *received_ns as i64);
                self.past.downlink(*sent_ns as i64, since(self.zero, *at));
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
        run.records(self.last, zero, clock)
    }

    /// Numbers of all runs.
    pub fn runs(&self) -> Vec<u32> {
        self.runs.keys().copied().collect()
    }
}
