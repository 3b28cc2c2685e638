//! Requests that one path makes for another: a path whose queue is kept long sends its requests over one whose queue is
//! short.

use cellbed_link::{Duration, Time};

use crate::wire::{Refusal, Report, Request, SessionId};

/// A companion that has brought nothing for so long is no longer relied on: the path speaks for itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Replies that a path has received for its companion.
#[derive(Clone, Debug, PartialEq)]
pub enum Brought {
    /// A request was answered.
    Answer(Request, Result<(), Refusal>),
    /// Arrivals of a run.
    Report(Report),
}

/// The errands of a path: those it has for its companion, and those it does for it.
#[derive(Debug, Default)]
pub(super) struct Errands {
    /// When the companion last brought something; `None` if there is none.
    pub(super) relied: Option<Time>,
    /// To be made by the companion.
    pub(super) outgoing: Vec<Request>,
    /// Of the companion, to be sent once.
    pub(super) accepted: Vec<Request>,
    /// For the companion.
    pub(super) brought: Vec<Brought>,
}

impl Errands {
    /// Return whether to send requests over the companion.
    pub(super) fn relies(&self, now: Time) -> bool {
        self.relied
            .is_some_and(|brought| now.since(brought) < PATIENCE)
    }
}

/// Return whether both are the saturation of one run.
pub(super) fn same_saturation(request: &Request, session: SessionId, number: u32) -> bool {
    matches!(request, Request::Saturate { of, run, .. } if (*of, *run) == (session, number))
}
