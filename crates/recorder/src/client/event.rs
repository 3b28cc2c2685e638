//! Events of a path, stored in the journal of a recording.

use cellbed_link::Time;

use crate::wire::{Arrival, Offer, Refusal, fields, variants};

/// Event of a path; events are reported in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A session began.
    Connected(Offer),
    /// No packet was received for a while; probing continues.
    Silent,
    /// The server answers again.
    Resumed,
    /// The server refuses all clients, or this one.
    Rejected(Refusal),
    Clock(ClockAnswer),
    /// An event of a run, by the run's number.
    Run(u32, RunEvent),
}

variants! { Event:
    1 Connected(offer);
    2 Silent;
    3 Resumed;
    4 Rejected(reason);
    5 Clock(answer);
    6 Run(number, event);
}

/// Event of a run.
#[derive(Clone, Debug, PartialEq)]
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
    Paused(Pause),
    /// The run has ended; no more events follow.
    Ended(RunEnd),
}

variants! { RunEvent:
    1 Began(at);
    2 Sent(departure);
    3 ArrivedUplink(arrival);
    4 ArrivedDownlink(reception);
    5 Paused(pause);
    6 Ended(end);
}

impl RunEvent {
    /// Return the time of the event here; `None` for events elsewhere, or reported later.
    pub fn at(&self) -> Option<Time> {
        match self {
            Self::Began(at) => Some(*at),
            Self::Sent(departure) => Some(departure.at),
            Self::ArrivedDownlink(reception) => Some(reception.at),
            Self::Ended(end) => Some(end.at),
            Self::ArrivedUplink(_) | Self::Paused(_) => None,
        }
    }
}

/// An answer with the server's time. Times in ns are of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnswer {
    pub requested: Time,
    pub received_ns: u64,
    pub sent_ns: u64,
    /// Arrival time of the answer.
    pub at: Time,
}

/// A packet sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A pause of the server's saturation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub from: Time,
    pub until: Time,
}

/// End of a run. The counts are those of the server's last [`Report`](crate::wire::Report).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// Time of the last packet sent, or later.
    pub at: Time,
    /// True if all arrivals at the server are known; otherwise the session was lost with some arrivals.
    pub complete: bool,
    pub saturation_sent: u32,
    pub withheld: u32,
    pub unrecorded: u32,
    pub overflows: u32,
    /// Reason if the server refused a request.
    pub refusal: Option<Refusal>,
}

fields! {
    ClockAnswer { requested, received_ns, sent_ns, at };
    Departure { train, index, bytes, at };
    Reception { train, index, bytes, sent_ns, at };
    Pause { from, until };
    RunEnd { at, complete, saturation_sent, withheld, unrecorded, overflows } but refusal;
}
