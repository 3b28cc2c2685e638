//! Events of a path.

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
    /// The server's clock was asked.
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
    /// A copy of a packet has arrived at the server: which, and when on the server's clock.
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
    pub(crate) fn at(&self) -> Option<Time> {
        match self {
            Self::Began(at) => Some(*at),
            Self::Sent(departure) => Some(departure.at),
            Self::ArrivedDownlink(reception) => Some(reception.at),
            Self::Ended(end) => Some(end.at),
            Self::ArrivedUplink(_) | Self::Paused(_) => None,
        }
    }
}

/// The server's clock was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnswer {
    /// When.
    pub requested: Time,
    /// When the question arrived, ns on the server's clock.
    pub received_ns: u64,
    /// When the answer was sent, ns on the server's clock.
    pub sent_ns: u64,
    /// When it arrived.
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
    /// When.
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
    /// When it was sent, ns on the server's clock.
    pub sent_ns: u64,
    /// When it arrived.
    pub at: Time,
}

/// A pause of the server's saturation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// From when.
    pub from: Time,
    /// Until when.
    pub until: Time,
}

/// End of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// When its last packet was sent, or later.
    pub at: Time,
    /// True if all arrivals at the server are known. If not, the session was lost with some.
    pub complete: bool,
    /// Packets of the server's saturation.
    pub saturation_sent: u32,
    /// Packets that the server did not send, because of its limits.
    pub withheld: u32,
    /// Arrivals that the server did not record, for lack of memory.
    pub unrecorded: u32,
    /// Packets that found the server's receive buffer full meanwhile, whosever they were.
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
