//! Senders of runs.

use cellbed_link::Time;

use super::event::{Departure, Event, RunEvent};
use super::relay::Relay;
use super::session::Session;
use crate::plan::Train;
use crate::socket::Outbox;
use crate::wire::{Kind, Probe, SessionId};

/// A session, and a place for probes.
pub(super) struct Sender<'a> {
    pub(super) session: &'a mut Session,
    pub(super) relay: &'a mut Relay,
    pub(super) of: SessionId,
    /// Bytes of IP and UDP headers.
    pub(super) overhead: u16,
    /// IP length of a probe without filler.
    pub(super) least_bytes: u16,
    pub(super) outbox: &'a mut Outbox,
    pub(super) departures: &'a mut Vec<Event>,
}

impl Sender<'_> {
    /// Sends a packet of a run's train, or of its saturation.
    pub(super) fn probe(
        &mut self,
        now: Time,
        kind: Kind,
        run: u32,
        number: u32,
        index: u32,
        train: &Train,
    ) {
        let bytes = train.up_bytes.max(self.least_bytes);
        let probe = Probe {
            run,
            train: number,
            index,
            answer_packets: train.down,
            answer_bytes: if train.down > 0 {
                train.down_bytes.max(self.least_bytes)
            } else {
                0
            },
            sent_ns: now.as_nanos(),
        };
        let payload = usize::from(bytes - self.overhead);
        self.session.seal_probe(kind, &probe, payload, self.outbox);
        let departure = Departure {
            train: number,
            index,
            bytes,
            at: now,
        };
        self.departures
            .push(Event::Run(run, RunEvent::Sent(departure)));
    }
}
