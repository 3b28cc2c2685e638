//! The orders that the event loop handles between two polls of the devices.

use cellbed_link::{ChangeError, Duration, InForce, StageConfig, Time};

use super::{Engine, Lane};
use crate::clock::now;
use crate::error::Result;
use crate::journal;
use crate::orders::{Account, Changed, Condition, Order, Status};
use crate::stages::bound;

impl Engine {
    /// Handles the waiting orders; `true` if one was to stop.
    pub(super) fn handle_orders(&mut self) -> bool {
        let _ = rustix::io::read(&self.mailbox, &mut [0u8; 8]);
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Restart { zero, offset, done } => {
                    self.restart(zero, offset);
                    let _ = done.send(());
                }
                Order::Status(answer) => {
                    let _ = answer.send(self.status());
                }
                Order::Describe(answer) => {
                    let _ = answer.send(self.describe());
                }
                Order::Change {
                    direction,
                    stage,
                    to,
                    done,
                } => {
                    let _ = done.send(self.change(direction, stage, *to));
                }
                Order::Stop(answer) => {
                    let _ = answer.send(self.finish());
                    return true;
                }
            }
        }
        false
    }

    fn restart(&mut self, zero: Time, offset: Duration) {
        let now = now();
        self.advance(now);
        journal::start(&mut self.records, zero, offset);
        let second = self.seconds.restart(now, zero);
        journal::second(&mut self.records, second);
        self.router.restart(zero);
        for lane in 0..self.lanes.len() {
            self.lanes[lane].direction.restart(zero, offset);
        }
        for cell in 0..self.cells.len() {
            self.with_cell(cell, |cell, users| cell.restart(now, zero, users));
        }
        for cell in 0..self.cells.len() {
            self.with_cell(cell, |cell, users| cell.look_again(now, users));
        }
        (0..self.lanes.len()).for_each(|lane| self.plan(lane));
    }

    /// Lets the model and the clock of every direction run up to now.
    fn catch_up(&mut self) -> Time {
        let now = now();
        self.advance(now);
        for lane in 0..self.lanes.len() {
            while let Some(outcome) = self.lanes[lane].direction.poll(now) {
                self.settle(lane, outcome, now);
            }
            self.plan(lane);
        }
        self.catch_up_cells(now);
        now
    }

    fn status(&mut self) -> Status {
        let now = self.catch_up();
        let condition = |lane: &Lane| Condition {
            counters: lane.tally.counters(),
            queue: lane.direction.queue(),
            closed: lane.direction.is_closed(),
            delay: lane.tally.delay(now),
        };
        Status {
            time: now,
            directions: self.lanes.iter().map(condition).collect(),
            unroutable: self.unroutable,
            refused: self.refused,
            under_way: self.pool.held(),
            served: self.served(),
        }
    }

    fn describe(&mut self) -> Vec<Vec<InForce>> {
        self.catch_up();
        let in_force = |lane: &Lane| lane.direction.in_force().to_vec();
        self.lanes.iter().map(in_force).collect()
    }

    /// Changes a stage. What has left it by now has left it as it was.
    fn change(
        &mut self,
        lane: usize,
        stage: usize,
        mut to: StageConfig,
    ) -> Result<Changed, ChangeError> {
        let at = self.catch_up();
        bound(&mut to, self.room);
        let direction = &mut self.lanes[lane].direction;
        let before = direction.in_force().get(stage).copied();
        let changed = direction.change(at, stage, to);
        journal::gate(&mut self.records, lane, at, direction.is_closed());
        self.plan(lane);
        if let Some((cell, _)) = self.cell_of(lane) {
            self.with_cell(cell, |cell, users| cell.look_again(at, users));
        }
        changed.map(|()| Changed {
            at,
            before: before.unwrap_or(InForce::Start),
        })
    }

    fn finish(&mut self) -> Result<Account> {
        let now = now();
        self.advance(now);
        self.catch_up_cells(now);
        self.write_all();
        let second = self.seconds.finish(now);
        journal::second(&mut self.records, second);
        self.flush(now);
        let lost = self.records.finish()?;
        Ok(Account {
            lateness: std::mem::take(&mut self.lateness),
            refused: self.refused,
            packets: self.read,
            lost,
            scheduling: self.scheduling,
            served: self.served(),
        })
    }
}
