//! Restarts and changes of a direction while it runs.

use thiserror::Error;

use super::Direction;
use crate::packet::{DropReason, Fate};
use crate::stage::{Configured, Stage, StageConfig};
use crate::time::{Duration, Time, earlier};
use crate::units::Share;

/// A change that follows every start of a direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time after the start.
    pub at: Duration,
    /// Number of the stage, from 0.
    pub stage: usize,
    /// New configuration: a stage of the same kind.
    pub config: StageConfig,
}

/// Origin of the present parameters of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InForce {
    /// Parameters of the [new](Direction::new) direction.
    Start,
    /// A change known beforehand: its number in the [list](Direction::with_changes).
    Scheduled(usize),
    /// The last [change](Direction::change) requested by a call.
    Called,
}

/// Error of a refused change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ChangeError(String);

/// A future event of the stages.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) at: Time,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// A restart; the span is added to the offset.
    Restart(Duration),
    /// Requested by a call.
    Change {
        stage: usize,
        config: Box<StageConfig>,
    },
    /// Known beforehand: number of the change.
    Scheduled(usize),
    /// An outage begins or ends.
    Gate,
}

impl What {
    pub(super) fn is_restart(&self) -> bool {
        matches!(self, Self::Restart(_))
    }

    /// Return whether delays stay as they are.
    pub(super) fn is_steady(&self) -> bool {
        matches!(self, Self::Restart(_) | Self::Gate)
    }
}

impl<P: Clone> Direction<P> {
    /// Add changes known beforehand. They happen again after every [restart](Self::restart), which begins with the
    /// stages given to [`new`](Self::new).
    ///
    /// Errors if a change names a missing stage, or a stage of another kind.
    pub fn with_changes(mut self, changes: Vec<Change>) -> Result<Self, ChangeError> {
        for change in &changes {
            self.check(change.stage, &change.config)?;
        }
        self.changes = changes;
        self.schedule_changes();
        Ok(self)
    }

    /// Change a stage from `at` on, or from now on if `at` is past. `stage` counts from 0, and `config` must be of the
    /// stage's present kind.
    ///
    /// The change drops no packets, except those that [exceed](crate::DropReason::QueueFull) a smaller limit: drop-head
    /// and FQ-CoDel drop as usual, all other queues from the tail. The packet in service stays in service, and its sent
    /// bytes stay sent. Packets in transit in a delay stage keep their departure. A schedule or series takes its
    /// position from the last restart. Random generators keep their state. The change lasts until another change, or
    /// until a restart if there are [changes known beforehand](Self::with_changes).
    pub fn change(
        &mut self,
        at: Time,
        stage: usize,
        config: StageConfig,
    ) -> Result<(), ChangeError> {
        self.check(stage, &config)?;
        let config = Box::new(config);
        self.schedule(Pending {
            at,
            what: What::Change { stage, config },
        });
        self.settle(self.clock);
        Ok(())
    }

    /// Return the origin of each stage's parameters, as of the last call.
    pub fn in_force(&self) -> &[InForce] {
        &self.in_force
    }

    fn check(&self, stage: usize, config: &StageConfig) -> Result<(), ChangeError> {
        let problem = match self.configs.get(stage) {
            None => {
                let stages = self.configs.len();
                format!("there is no stage {stage}: the direction has {stages}")
            }
            Some(now) if std::mem::discriminant(now) != std::mem::discriminant(config) => format!(
                "stage {stage} is of another kind: only the parameters of a stage can change"
            ),
            Some(_) => return Ok(()),
        };
        Err(ChangeError(problem))
    }

    /// Add a pending event after all events at or before its time.
    pub(super) fn schedule(&mut self, pending: Pending) {
        let index = self.pending.partition_point(|other| other.at <= pending.at);
        self.pending.insert(index, pending);
    }

    fn schedule_changes(&mut self) {
        for index in 0..self.changes.len() {
            let at = self.zero + self.changes[index].at;
            self.schedule(Pending {
                at,
                what: What::Scheduled(index),
            });
        }
    }

    /// Apply a pending event at `at`. Earlier departures must have been taken.
    pub(super) fn apply(&mut self, pending: Pending, at: Time) {
        match pending.what {
            What::Restart(offset) => self.start(pending.at, at, offset),
            What::Change { stage, config } => {
                self.in_force[stage] = InForce::Called;
                self.alter(stage, &config, at);
            }
            What::Scheduled(index) => {
                let Some(Change { stage, config, .. }) = self.changes.get(index).cloned() else {
                    return;
                };
                self.in_force[stage] = InForce::Scheduled(index);
                self.alter(stage, &config, at);
            }
            What::Gate => self.set_gate(at),
        }
    }

    fn start(&mut self, zero: Time, at: Time, offset: Duration) {
        self.zero = zero;
        self.offset = offset;
        if !self.changes.is_empty() {
            for stage in 0..self.configs.len() {
                let config = self.configs[stage].clone();
                self.alter_stage(stage, &config, at);
            }
            self.in_force.fill(InForce::Start);
            self.pending
                .retain(|pending| !matches!(pending.what, What::Scheduled(_)));
            self.schedule_changes();
        }
        for stage in &mut self.stages {
            stage.behaviour_mut().restart(zero, at, offset);
        }
        self.set_gate(at);
        self.lay_bins(at);
    }

    fn alter(&mut self, stage: usize, config: &StageConfig, at: Time) {
        self.alter_stage(stage, config, at);
        if self.metered == Some(stage) {
            self.lay_bins(at);
            self.queue_changed(stage, at);
        }
    }

    fn alter_stage(&mut self, stage: usize, config: &StageConfig, at: Time) {
        self.stages[stage].change(config, self.zero, at, self.offset);
        self.report_dropped(stage, at);
        if matches!(config, StageConfig::Gate(_)) {
            self.set_gate(at);
        }
    }

    /// Close or open the stage with the queue, as the gates require at `at`, and plan the next gate event.
    pub(super) fn set_gate(&mut self, at: Time) {
        let zero = self.zero;
        let gates = self.stages.iter().filter_map(|stage| match stage {
            Stage::Gate(gate) => Some(gate),
            _ => None,
        });
        let (mut closed, mut flushes, mut cuts, mut next) = (false, false, false, None::<Time>);
        for gate in gates {
            flushes |= gate.flushes(zero, at);
            cuts |= gate.drops_in_flight();
            closed |= gate.is_closed(zero, at);
            next = earlier(next, gate.next_edge(zero, at));
        }
        self.cuts = cuts;
        self.pending
            .retain(|pending| !matches!(pending.what, What::Gate));
        if let Some(at) = next {
            self.schedule(Pending {
                at,
                what: What::Gate,
            });
        }
        let Some(index) = self.metered.filter(|_| flushes || closed != self.closed) else {
            return;
        };
        self.closed = closed;
        let stage = self.stages[index].behaviour_mut();
        stage.set_closed(closed, self.barred, Share::WHOLE, at);
        if flushes {
            if cuts {
                self.drop_in_flight(index, at);
            }
            self.stages[index].behaviour_mut().flush();
            self.note_emptied(index, at);
        }
        self.report_dropped(index, at);
        let offer = self.offer();
        if let Some(meter) = &mut self.meter {
            meter.offered(at, offer);
        }
        self.queue_changed(index, at);
    }

    /// Drop the packets in flight behind a stage.
    fn drop_in_flight(&mut self, index: usize, at: Time) {
        for stage in index + 1..self.stages.len() {
            let Stage::Delay(delay) = &mut self.stages[stage] else {
                continue;
            };
            for item in delay.drain() {
                self.finish(at, item, Fate::Dropped(DropReason::Handover));
            }
        }
    }

    /// Begin a new grid of bins, with the schedule from `at` on.
    fn lay_bins(&mut self, at: Time) {
        let offer = self.offer();
        if let Some(meter) = &mut self.meter {
            meter.restart(self.zero, at, offer);
        }
    }
}
