//! Events of a path, which the journal of a recording holds.

use cellbed_link::Time;

use crate::wire::{Arrival, Offer, Refusal, fields, variants};

/// Event of a path; events are reported in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// There is a session.
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
    /// It has begun, at this time: its first packet may leave now.
    Began(Time),
    /// A packet has been handed to the kernel.
    Sent(Departure),
    /// A copy of a packet has arrived at the server.
    ArrivedUplink(Arrival),
    /// A copy of a packet has arrived here.
    ArrivedDownlink(Reception),
    /// The client was silent for so long that the server's saturation has paused.
    Paused(Pause),
    /// It is over; no more events follow.
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
    /// When it happened here; `None` for events elsewhere, or reported later.
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

/// The server's clock was asked. Times in ns are of that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnswer {
    pub requested: Time,
    pub received_ns: u64,
    pub sent_ns: u64,
    /// When the answer arrived.
    pub at: Time,
}

/// A packet that was sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Number of the train; 0 for saturation.
    pub train: u32,
    /// Position in it.
    pub index: u32,
    /// IP length.
    pub bytes: u16,
    pub at: Time,
}

/// A packet that came from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// Number of the train that it answers; 0 for saturation.
    pub train: u32,
    /// Position in the answer, or in the saturation.
    pub index: u32,
    /// IP length.
    pub bytes: u16,
    /// On the server's clock.
    pub sent_ns: u64,
    /// When it arrived.
    pub at: Time,
}

/// A pause of the server's saturation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub from: Time,
    pub until: Time,
}

/// End of a run. Its counts are those of the server's last [`Report`](crate::wire::Report).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// When its last packet was sent, or later.
    pub at: Time,
    /// True if all arrivals at the server are known. If not, the session was lost with some.
    pub complete: bool,
    pub saturation_sent: u32,
    pub withheld: u32,
    pub unrecorded: u32,
    pub overflows: u32,
    /// Why the server did not do what it was asked, if it did not.
    pub refusal: Option<Refusal>,
}

fields! {
    ClockAnswer { requested, received_ns, sent_ns, at };
    Departure { train, index, bytes, at };
    Reception { train, index, bytes, sent_ns, at };
    Pause { from, until };
    RunEnd { at, complete, saturation_sent, withheld, unrecorded, overflows } but refusal;
}
