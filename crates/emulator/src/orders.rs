//! Requests to the event loop, and its replies.

use std::sync::mpsc::Sender;

use cellbed_link::tally::{Counters, Delay};
use cellbed_link::{ChangeError, Duration, InForce, QueueLevel, StageConfig, Time};

use serde_json::{Value, json};

use crate::error::Result;
use crate::lateness::Lateness;
use crate::process::Scheduling;
use crate::writer::Lost;

/// Request to the engine.
pub enum Order {
    /// Begin all schedules, recorded series and random sequences anew at `zero`, `offset` further into the traces.
    Restart {
        /// The new time zero; it may lie in the future.
        zero: Time,
        /// Added to the offsets of the configuration.
        offset: Duration,
        /// Answered when done.
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
        /// Answered when it is in force.
        done: Sender<Result<Changed, ChangeError>>,
    },
    /// Write everything and end.
    Stop(Sender<Result<Account>>),
}

/// A stage that was changed.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// When.
    pub at: Time,
    /// Previous origin of its parameters.
    pub before: InForce,
}

/// State of a direction.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Counters of the direction's events.
    pub counters: Counters,
    /// Level of its bottleneck queue.
    pub queue: QueueLevel,
    /// True if an outage closes it.
    pub closed: bool,
    /// Delay of recent packets.
    pub delay: Option<Delay>,
}

impl Condition {
    /// The reported condition of the direction called `name`.
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
    /// When that was.
    pub time: Time,
    /// By direction.
    pub directions: Vec<Condition>,
    /// Packets for which there was no way.
    pub unroutable: u64,
    /// Packets that the kernel refused when they were written.
    pub refused: u64,
    /// Packets that have neither left the emulator nor been dropped.
    pub under_way: u64,
    /// By cell and user, how long it has had the cell with packets waiting since the last start.
    pub served: Vec<Vec<Duration>>,
}

/// The final account.
pub struct Account {
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
    /// As in [`Status`].
    pub served: Vec<Vec<Duration>>,
}
