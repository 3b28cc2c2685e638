//! Events of a path, stored in the journal of a recording.

use cellbed_link::{Duration, Time};
use serde::{Deserialize, Serialize};

use crate::wire::{Arrival, Echo, Offer, Refusal, RunCounts};

/// Event of a path; events are reported in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A session began.
    Connected(Offer),
    /// No packet was received for a while; probing continues.
    Silent,
    /// The server answers again.
    Resumed,
    /// The server refuses all clients, or this one.
    Rejected(Refusal),
    /// An answer with the server's time, and the time of its arrival.
    Clock(Echo, Time),
    /// An event of a run, by the run's number.
    Run(u32, RunEvent),
}

/// Event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RunEvent {
    /// The run began at this time: the first packet may leave now.
    Began(Time),
    /// A packet has been handed to the kernel.
    Sent(Departure),
    /// A copy of a packet has arrived at the server.
    ArrivedUplink(Arrival),
    /// A copy of a packet has arrived here.
    ArrivedDownlink(Reception),
    /// The server's saturation has paused: the client was silent for too long.
    Paused { from: Time, until: Time },
    /// A file was fetched, or was not completed in time.
    Downloaded(Download),
    /// The run has ended; no more events follow.
    Ended(RunEnd),
}

impl RunEvent {
    /// Return the time of the event here; `None` for events elsewhere, or reported later.
    pub fn at(&self) -> Option<Time> {
        match self {
            Self::Began(at) => Some(*at),
            Self::Sent(departure) => Some(departure.at),
            Self::ArrivedDownlink(reception) => Some(reception.at),
            Self::Ended(end) => Some(end.at),
            Self::Downloaded(download) => Some(download.started),
            Self::ArrivedUplink(_) | Self::Paused { .. } => None,
        }
    }
}

/// A packet sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Number of the train; 0 for saturation.
    pub train: u32,
    /// Position in the train, or in the saturation.
    pub index: u32,
    /// IP length, bytes.
    pub bytes: u16,
    pub at: Time,
}

/// A packet received from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reception {
    /// Number of the train answered; 0 for saturation.
    pub train: u32,
    /// Position in the answer, or in the saturation.
    pub index: u32,
    /// IP length, bytes.
    pub bytes: u16,
    /// Time of sending, ns on the server's clock.
    pub sent_ns: u64,
    /// Time of arrival.
    pub at: Time,
}

/// A download by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Download {
    /// Size of the file.
    pub bytes: u64,
    /// Time of the first SYN.
    pub started: Time,
    /// Time from the SYN to the last byte; `None` if never completed.
    pub taken: Option<Duration>,
}

/// End of a run. The counts are those of the server's last [`Report`](crate::wire::Report).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Time of the last packet sent, or later.
    pub at: Time,
    /// True if all arrivals at the server are known; otherwise the session was lost with some arrivals.
    pub complete: bool,
    pub counts: RunCounts,
    /// Reason if the server refused a request.
    pub refusal: Option<Refusal>,
}
