//! Requests of the main thread, executed by the event loop between two polls of the devices.

use cellbed_link::tally::{Counters, Delay};
use cellbed_link::{ChangeError, Duration, InForce, QueueLevel, StageConfig, Time};
use serde_json::{Value, json};

use super::{AMPLE, Engine, LONGEST_UNREAD};
use crate::clock::{epoch_millis, now};
use crate::error::Result;
use crate::lateness::Lateness;
use crate::mahimahi_log::Event;
use crate::stages::bound;
use crate::stamps::Stamps;
use crate::writer::Lost;

/// A call of a public method below, which also sends the reply.
pub type Request = Box<dyn FnOnce(&mut Engine) + Send>;

/// State of a direction.
#[derive(Clone, Copy, Debug)]
pub struct DirectionStatus {
    /// Counters of the direction's events.
    pub counters: Counters,
    /// Level of the bottleneck queue.
    pub queue: QueueLevel,
    /// True during an outage.
    pub closed: bool,
    /// Delay of recent packets.
    pub delay: Option<Delay>,
}

impl DirectionStatus {
    /// Return the entry of the direction called `name` in a status event.
    pub fn to_json(self, name: &str) -> Value {
        let counters = &self.counters;
        json!({
            "name": name,
            "delivered": counters.delivered,
            "delivered_bytes": counters.delivered_bytes,
            "dropped": {
                "queue-full": counters.queue_full,
                "congestion": counters.congestion,
                "loss": counters.lost,
                "handover": counters.handover,
            },
            "marked": counters.marked,
            "duplicated": counters.doubled,
            "corrupted": counters.corrupted,
            "queue_bytes": self.queue.bytes.0,
            "queue_packets": self.queue.packets.0,
            "closed": self.closed,
            "delay_ns": self.delay.map(|delay| json!({"mean": delay.mean.as_nanos(), "max": delay.most.as_nanos()})),
        })
    }
}

/// State of the emulator.
#[derive(Clone, Debug)]
pub struct Status {
    /// Time of the report.
    pub time: Time,
    /// State of each direction, in the configuration's order.
    pub directions: Vec<DirectionStatus>,
    /// Packets without a route.
    pub unroutable: u64,
    /// Packets refused by the kernel on writing.
    pub refused: u64,
    /// Packets that have neither left the emulator nor been dropped.
    pub in_flight: u64,
    /// Time for which each user of a cell was served while packets waited, since the last restart; by cell and user.
    pub served: Vec<Vec<Duration>>,
}

/// Summary of the whole run.
pub struct Summary {
    /// Delay of writing packets after their modelled departure.
    pub lateness: Lateness,
    /// Packets refused by the kernel on writing.
    pub refused: u64,
    /// Packets read from devices; each segment counts.
    pub packets: u64,
    /// Records missing from the files.
    pub lost: Lost,
    /// Like [`Status::served`].
    pub served: Vec<Vec<Duration>>,
}

impl Engine {
    /// Use the kernel's stamps for the packets of the device of `vertex` from now on.
    pub fn stamp(&mut self, vertex: usize, stamps: Stamps) {
        self.devices[vertex].stamps = Some(stamps);
        self.survey();
    }

    /// Let the packets of the device of `vertex` arrive when they are read.
    pub(super) fn end_stamps(&mut self, vertex: usize) {
        if let Some(stamps) = self.devices[vertex].stamps.take() {
            // Closing the socket waits some 20 ms for the kernel.
            std::thread::spawn(move || drop(stamps));
            self.survey();
        }
    }

    /// Compute for how long packets may stay unread: their times are known, and they depart later.
    fn survey(&mut self) {
        let devices = self.devices.iter().enumerate();
        let devices = devices.filter(|(_, device)| device.tun.is_some());
        let stamped = devices.clone().all(|(_, device)| device.stamps.is_some());
        let vertices: Vec<_> = devices.map(|(vertex, _)| vertex).collect();
        self.unread = match stamped && self.proxies.is_empty() {
            true => self.graph.least_delay(&vertices).min(LONGEST_UNREAD),
            false => Duration::ZERO,
        };
        self.unread = Duration::from_nanos(self.unread.as_nanos().saturating_sub(AMPLE.as_nanos()));
    }

    /// Execute the waiting requests; return `true` after one that ends the loop.
    pub(super) fn handle_requests(&mut self) -> bool {
        let _ = rustix::io::read(&self.mailbox, &mut [0u8; 8]);
        while !self.finished
            && let Ok(request) = self.requests.try_recv()
        {
            request(self);
        }
        self.finished
    }

    /// Restart all schedules, recorded series and random sequences at `zero`, which may be in the future. Traces begin
    /// at positions `offset` later than configured.
    pub fn restart(&mut self, zero: Time, offset: Duration) {
        let now = now();
        self.advance(now);
        let epoch_ms = epoch_millis(zero);
        self.records.report_all(Event::Start {
            zero,
            offset,
            epoch_ms,
        });
        let second = self.seconds.restart(now, zero);
        self.records.second(second);
        self.graph.restart(now, zero, offset);
        self.survey();
    }

    /// Run the model and the clocks of all directions until now.
    fn catch_up(&mut self) -> Time {
        let now = now();
        self.advance(now);
        self.graph.catch_up(now);
        self.deliver_all(now, now);
        now
    }

    /// Return the service time of each user of each cell.
    fn served(&mut self) -> Vec<Vec<Duration>> {
        let cells = 0..self.cells;
        cells
            .map(|cell| self.graph.served(cell).collect())
            .collect()
    }

    /// Report the counters.
    pub fn status(&mut self) -> Status {
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

    /// Report the origin of the parameters of all stages, by direction.
    pub fn describe(&mut self) -> Vec<Vec<InForce>> {
        self.catch_up();
        let directions = self.graph.directions().iter();
        directions.map(|it| it.in_force().to_vec()).collect()
    }

    /// Change a stage from now on. Return the time, and the previous origin of the stage's parameters. Packets that
    /// have already left the stage are unaffected.
    pub fn change(
        &mut self,
        direction: usize,
        stage: usize,
        mut to: StageConfig,
    ) -> Result<(Time, InForce), ChangeError> {
        let at = self.catch_up();
        bound(&mut to, self.room);
        let before = self.graph.directions()[direction].in_force();
        let before = before.get(stage).copied().unwrap_or(InForce::Start);
        let changed = self.graph.change(at, direction, stage, to);
        self.survey();
        let closed = self.graph.directions()[direction].is_closed();
        self.records.report(direction, Event::Gate { at, closed });
        changed.map(|()| (at, before))
    }

    /// Write all packets and records, and stops.
    pub fn finish(&mut self) -> Result<Summary> {
        self.finished = true;
        (0..self.devices.len()).for_each(|vertex| self.end_stamps(vertex));
        let now = self.catch_up();
        self.write_all();
        let second = self.seconds.finish(now);
        self.records.second(second);
        self.flush(now, now);
        let lost = self.records.finish()?;
        Ok(Summary {
            lateness: std::mem::take(&mut self.lateness),
            refused: self.refused,
            packets: self.read,
            lost,
            served: self.served(),
        })
    }
}
