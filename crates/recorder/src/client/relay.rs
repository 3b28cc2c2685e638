//! Requests that one path sends for another: a path whose queue is kept long sends its requests over one whose queue is
//! short, its companion.

use cellbed_link::{Duration, Time};

use crate::wire::{Refusal, Report, Request};

/// A companion that has relayed no reply for this time is not used; the path sends its requests itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// A reply that a path has received for its companion.
#[derive(Clone, Debug, PartialEq)]
pub enum Relayed {
    /// A request was answered.
    Answer(Request, Result<(), Refusal>),
    /// Arrivals of a run.
    Report(Report),
}

/// Relayed requests and replies of a path.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// When the companion last relayed a reply; `None` if there is no companion.
    pub(super) last_relayed: Option<Time>,
    /// Requests for the companion to send.
    pub(super) outgoing: Vec<Request>,
    /// Requests of the companion, to be sent once.
    pub(super) accepted: Vec<Request>,
    /// Replies for the companion.
    pub(super) relayed: Vec<Relayed>,
}

impl Relay {
    /// Return whether to send requests over the companion.
    pub(super) fn is_used(&self, now: Time) -> bool {
        self.last_relayed
            .is_some_and(|relayed| now.since(relayed) < PATIENCE)
    }
}
