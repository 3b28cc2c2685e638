//! What a path learns.

use cellbed_link::{Duration, Time};

use crate::wire::{Arrival, Offer, Refusal};

/// What a path has learnt, in the order in which it learnt it. `run` is the number that whoever asked for the run gave it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// There is a session.
    Connected(Offer),
    /// Nothing has been heard for a while; probing goes on.
    Silent,
    /// The server is heard again.
    Resumed,
    /// The server lets nobody in, or not us.
    Rejected(Refusal),
    /// A run has begun: its first packet may leave now.
    Began {
        /// Which.
        run: u32,
        /// When.
        at: Time,
    },
    /// A packet has been handed to the kernel.
    Sent {
        /// Of which run.
        run: u32,
        /// Number of the train; 0 for saturation.
        train: u32,
        /// Position in it.
        index: u32,
        /// IP length.
        bytes: u16,
        /// When.
        at: Time,
    },
    /// A copy of a packet has arrived at the server.
    ArrivedUplink {
        /// Of which run.
        run: u32,
        /// Which packet, and when on the server's clock.
        arrival: Arrival,
    },
    /// A copy of a packet has arrived here.
    ArrivedDownlink {
        /// Of which run.
        run: u32,
        /// Number of the train that it answers; 0 for saturation.
        train: u32,
        /// Position in the answer, or in the saturation.
        index: u32,
        /// IP length.
        bytes: u16,
        /// When it was sent, ns on the server's clock.
        sent_ns: u64,
        /// When it arrived.
        at: Time,
    },
    /// The server was told nothing for so long that its saturation has paused.
    Paused {
        /// Which run.
        run: u32,
        /// From when.
        from: Time,
        /// Until when.
        until: Time,
    },
    /// The server's clock was asked.
    Clock {
        /// When.
        asked: Time,
        /// When the question arrived, ns on the server's clock.
        received_ns: u64,
        /// When the answer was sent, ns on the server's clock.
        sent_ns: u64,
        /// When it arrived.
        at: Time,
    },
    /// The time of a request and its answer.
    RoundTrip(Duration),
    /// A run is over; no more is to be learnt of it.
    Ended {
        /// Which.
        run: u32,
        /// How it ended.
        end: RunEnd,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// When its last packet was sent, or later.
    pub at: Time,
    /// Whether all arrivals at the server are known. If not, the session was lost with some.
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
