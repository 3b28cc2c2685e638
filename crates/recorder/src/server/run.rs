//! One run of a session: which trains were answered, what arrived, what is sent.

use crate::secure::{ReplayWindow, Standing};
use crate::wire::{Arrival, Report, SessionId};

use super::arrivals::ArrivalLog;
use super::saturator::Saturator;

#[derive(Default)]
pub(super) struct Run {
    pub(super) number: u32,
    pub(super) stopped: bool,
    pub(super) log: ArrivalLog,
    pub(super) saturator: Option<Saturator>,
    /// Session whose request last set the saturation, and the request's sequence number.
    steered: Option<(SessionId, u64)>,
    answered: ReplayWindow,
    /// Arrivals less copies: replayed packets cannot fill the memory with more copies than there were packets.
    spare_copies: u32,
    pub(super) saturation_sent: u32,
    pub(super) withheld: u32,
    pub(super) unrecorded: u32,
    /// Packets that found the receive buffer full meanwhile, whosever they were.
    pub(super) overflows: u32,
}

impl Run {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.saturator = None;
    }

    /// Notes that a request of this session with this number steers the saturation; `false` if it is overtaken by a
    /// later one.
    pub(super) fn steer(&mut self, by: SessionId, sequence: u64) -> bool {
        let overtaken = self
            .steered
            .is_some_and(|(last, number)| last == by && number > sequence);
        if !overtaken {
            self.steered = Some((by, sequence));
        }
        !overtaken
    }

    /// Notes that a packet of this train has arrived. Returns whether it is the first.
    pub(super) fn is_first_of(&mut self, train: u32) -> bool {
        self.answered.see(u64::from(train)) == Standing::New
    }

    /// Return whether one more arrival, or arrival of a copy, may be recorded.
    pub(super) fn admits(&mut self, copy: bool) -> bool {
        if copy {
            let spare = self.spare_copies.checked_sub(1);
            self.spare_copies = spare.unwrap_or(0);
            spare.is_some()
        } else {
            self.spare_copies = self.spare_copies.saturating_add(1);
            true
        }
    }

    /// Of a chunk, without its arrivals.
    pub(super) fn report(&self, chunk: u32) -> Report {
        Report {
            run: self.number,
            chunk,
            chunks: self.log.chunks(),
            saturation_sent: self.saturation_sent,
            withheld: self.withheld,
            unrecorded: self.unrecorded,
            overflows: self.overflows,
            arrivals: Vec::<Arrival>::new(),
        }
    }
}
