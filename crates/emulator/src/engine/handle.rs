//! Requests to the event loop, which handles them between two polls of the devices.

use cellbed_link::{ChangeError, Duration, InForce, StageConfig, Time};

use super::Engine;
use crate::clock::now;
use crate::error::Result;
use crate::log;
use crate::requests::{Changed, DirectionStatus, Request, Status, Summary};
use crate::stages::bound;

impl Engine {
    /// Handle the waiting requests; return `true` after one to stop.
    pub(super) fn handle_requests(&mut self) -> bool {
        let _ = rustix::io::read(&self.mailbox, &mut [0u8; 8]);
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Restart { zero, offset, done } => {
                    self.restart(zero, offset);
                    let _ = done.send(());
                }
                Request::Status(reply) => {
                    let _ = reply.send(self.status());
                }
                Request::Describe(reply) => {
                    let _ = reply.send(self.describe());
                }
                Request::Change {
                    direction,
                    stage,
                    to,
                    reply,
                } => {
                    let _ = reply.send(self.change(direction, stage, *to));
                }
                Request::Stop(reply) => {
                    let _ = reply.send(self.finish());
                    return true;
                }
            }
        }
        false
    }

    fn restart(&mut self, zero: Time, offset: Duration) {
        let now = now();
        self.advance(now);
        log::start(&mut self.records, zero, offset);
        let second = self.seconds.restart(now, zero);
        log::second(&mut self.records, second);
        self.graph.restart(now, zero, offset);
    }

    /// Lets the model and the clock of every direction run up to now.
    fn catch_up(&mut self) -> Time {
        let now = now();
        self.advance(now);
        self.graph.catch_up(now);
        self.deliver_all(now, now);
        now
    }

    /// Return the time that each user of each cell has been served.
    fn served(&mut self) -> Vec<Vec<Duration>> {
        let cells = 0..self.cells;
        cells
            .map(|cell| self.graph.served(cell).collect())
            .collect()
    }

    fn status(&mut self) -> Status {
        let now = self.catch_up();
        let directions = self.graph.directions().iter().zip(self.graph.tallies());
        let directions = directions.map(|(direction, tally)| DirectionStatus {
            counters: tally.counters(),
            queue: direction.queue(),
            closed: direction.is_closed(),
            delay: tally.delay(now),
        });
        Status {
            time: now,
            directions: directions.collect(),
            unroutable: self.unroutable,
            refused: self.refused,
            in_flight: self.pool.held(),
            served: self.served(),
        }
    }

    fn describe(&mut self) -> Vec<Vec<InForce>> {
        self.catch_up();
        let directions = self.graph.directions().iter();
        directions.map(|it| it.in_force().to_vec()).collect()
    }

    /// Changes a stage. What has left it by now has left it as it was.
    fn change(
        &mut self,
        direction: usize,
        stage: usize,
        mut to: StageConfig,
    ) -> Result<Changed, ChangeError> {
        let at = self.catch_up();
        bound(&mut to, self.room);
        let before = self.graph.directions()[direction]
            .in_force()
            .get(stage)
            .copied();
        let changed = self.graph.change(at, direction, stage, to);
        let closed = self.graph.directions()[direction].is_closed();
        log::gate(&mut self.records, direction, at, closed);
        changed.map(|()| Changed {
            at,
            before: before.unwrap_or(InForce::Start),
        })
    }

    fn finish(&mut self) -> Result<Summary> {
        let now = self.catch_up();
        self.write_all();
        let second = self.seconds.finish(now);
        log::second(&mut self.records, second);
        self.flush(now);
        let lost = self.records.finish()?;
        Ok(Summary {
            lateness: std::mem::take(&mut self.lateness),
            refused: self.refused,
            packets: self.read,
            lost,
            scheduling: self.scheduling,
            served: self.served(),
        })
    }
}
