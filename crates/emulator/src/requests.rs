//! Requests from the main thread to the event loop, and their replies.

use std::sync::mpsc::Sender;

use cellbed_link::tally::{Counters, Delay};
use cellbed_link::{ChangeError, Duration, InForce, QueueLevel, StageConfig, Time};

use serde_json::{Value, json};

use crate::error::Result;
use crate::lateness::Lateness;
use crate::process::Scheduling;
use crate::writer::Lost;

/// A request to the engine, with the channel for its reply.
pub enum Request {
    /// Restart all schedules, recorded series and random sequences at `zero`, `offset` further into the traces.
    Restart {
        /// The new time zero; it may lie in the future.
        zero: Time,
        /// Added to the offsets of the configuration.
        offset: Duration,
        /// Signals that all have restarted.
        done: Sender<()>,
    },
    /// Report the counters.
    Status(Sender<Status>),
    /// Report the origin of the parameters of all stages, by direction.
    Describe(Sender<Vec<Vec<InForce>>>),
    /// Change a stage from now on.
    Change {
        /// Number of the direction.
        direction: usize,
        /// Number of the stage in it.
        stage: usize,
        /// New configuration.
        to: Box<StageConfig>,
        /// Signals that the new configuration is in force.
        reply: Sender<Result<Changed, ChangeError>>,
    },
    /// Write all packets and records, and end.
    Stop(Sender<Result<Summary>>),
}

/// The reply to [`Request::Change`].
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// Time of the change.
    pub at: Time,
    /// Previous origin of the stage's parameters.
    pub before: InForce,
}

/// State of a direction.
#[derive(Clone, Copy, Debug)]
pub struct DirectionStatus {
    /// Counters of the direction's events.
    pub counters: Counters,
    /// Level of its bottleneck queue.
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
    /// Packets that the kernel refused when they were written.
    pub refused: u64,
    /// Packets that have neither left the emulator nor been dropped.
    pub in_flight: u64,
    /// Time for which a cell served each of its users while packets waited, since the last restart; by cell and user.
    pub served: Vec<Vec<Duration>>,
}

/// Summary of the whole run, the reply to [`Request::Stop`].
pub struct Summary {
    /// Delay of the writing of packets behind their modelled departure.
    pub lateness: Lateness,
    /// Packets that the kernel refused when they were written.
    pub refused: u64,
    /// Packets read from devices, segments counted one by one.
    pub packets: u64,
    /// Records missing from the files.
    pub lost: Lost,
    /// Kernel scheduling of the event loop.
    pub scheduling: Scheduling,
    /// As [`Status::served`].
    pub served: Vec<Vec<Duration>>,
}
