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
            past: ClockEstimator::default(),
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

    /// The server's clock against the client's, by all packets so far.
    pub fn clock(&self) -> Option<ClockEstimate> {
        let mut estimator = self.past.clone();
        for run in self.runs.values() {
            run.add_stamps(self.zero, &mut estimator);
        }
        estimator.estimate()
    }

    /// Return and remove the records of a run's packets; `None` if it never began.
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
