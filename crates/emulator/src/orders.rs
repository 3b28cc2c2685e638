//! What the event loop is asked, and what it answers.

use std::sync::mpsc::Sender;

use cellbed_link::{Duration, Time};

use crate::error::Result;
use crate::lateness::Lateness;
use crate::process::Scheduling;

/// What the engine is asked to do.
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
    /// Tell the counters.
    Status(Sender<Status>),
    /// Write everything and end.
    Stop(Sender<Result<Account>>),
}

/// Counters of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Packets that left it.
    pub delivered: u64,
    /// Packets that found its queue full.
    pub queue_full: u64,
    /// Packets that it lost.
    pub lost: u64,
    /// Bytes that wait in its bottleneck queue.
    pub queue_bytes: u64,
}

/// Counters of the emulator as a whole.
#[derive(Clone, Debug)]
pub struct Status {
    /// By direction.
    pub directions: Vec<Counters>,
    /// Packets for which there was no way.
    pub unroutable: u64,
}

/// The final account.
pub struct Account {
    /// How late packets were written after their modelled departure.
    pub lateness: Lateness,
    /// Packets that the kernel refused when they were written.
    pub refused: u64,
    /// Packets read from devices, segments counted one by one.
    pub packets: u64,
    /// Records that could not be written because the disk fell behind.
    pub records_lost: u64,
    /// How the kernel scheduled the event loop.
    pub scheduling: Scheduling,
}
