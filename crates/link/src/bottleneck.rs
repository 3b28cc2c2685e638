//! The bottleneck: a queue served by a schedule.

use crate::queue::{Discipline, Queue, QueueLevel};
use crate::schedule::{Offer, Schedule};
use crate::service::Service;
use crate::time::{Duration, Time};
use crate::units::{Bytes, MTU};

/// A bottleneck: its schedule, its queue and how bytes are charged.
///
/// Opportunities are served byte by byte: each carries `opportunity` bytes, a partly sent packet carries over to the
/// next one, one opportunity may finish several packets, and what no waiting packet uses is lost. A packet may use the
/// opportunities at or after the instant of its arrival; at that instant the packets before it are served first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BottleneckConfig {
    /// When bytes may leave.
    pub schedule: Schedule,
    /// Where packets wait.
    pub queue: Discipline,
    /// Bytes that one opportunity of a trace carries.
    pub opportunity: Bytes,
    /// Bytes that a packet is charged beyond its size when a trace serves it.
    pub overhead: Bytes,
}

impl BottleneckConfig {
    /// A bottleneck with an infinite queue and cellbed's own accounting: opportunities of one [`MTU`], packets charged
    /// their IP length.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            queue: Discipline::Infinite,
            opportunity: MTU,
            overhead: Bytes(0),
        }
    }

    /// The same bottleneck with another queue.
    pub fn with_queue(self, queue: Discipline) -> Self {
        Self { queue, ..self }
    }
}

/// The stage. Departures are computed, not stepped through: only the head of the queue is ever looked at.
#[derive(Clone, Debug)]
pub(crate) struct Bottleneck<T> {
    queue: Queue<T>,
    service: Service,
    /// When the packet at the head leaves; `None` if there is none or it never does.
    departure: Option<Time>,
}

/// What became of a packet that reached a bottleneck.
pub(crate) enum Admission<T> {
    Queued,
    Passed(T),
    Refused(T),
}

impl<T> Bottleneck<T> {
    pub(crate) fn new(config: &BottleneckConfig, zero: Time) -> Self {
        Self {
            queue: Queue::new(config.queue),
            service: Service::new(config, zero),
            departure: None,
        }
    }

    /// Plays the schedule from `zero` on, as of `now`; packets stay, and so does what was sent of the one in service.
    ///
    /// Departures before `now` must have been taken.
    pub(crate) fn restart(&mut self, zero: Time, now: Time, offset: Duration) {
        self.service.restart(zero, now, offset);
        self.look_ahead();
    }

    /// Departures up to and including `now` must have been taken.
    pub(crate) fn accept(&mut self, now: Time, size: Bytes, packet: T) -> Admission<T> {
        if matches!(self.service, Service::Unlimited) {
            return Admission::Passed(packet);
        }
        let idle = self.queue.head().is_none();
        if let Err(packet) = self.queue.push(size, packet) {
            return Admission::Refused(packet);
        }
        if idle {
            self.service.wake(now);
            self.service.begin(size);
            self.look_ahead();
        }
        Admission::Queued
    }

    pub(crate) fn next_departure(&self) -> Option<Time> {
        self.departure
    }

    /// Takes the packet that leaves at [`Self::next_departure`].
    pub(crate) fn take(&mut self) -> Option<T> {
        let departure = self.departure?;
        let packet = self.queue.pop()?;
        self.service.finish(departure);
        if let Some(size) = self.queue.head() {
            self.service.begin(size);
        }
        self.look_ahead();
        Some(packet)
    }

    pub(crate) fn level(&self) -> QueueLevel {
        self.queue.level()
    }

    /// What the schedule offers, used or not.
    pub(crate) fn offer(&self) -> Offer {
        self.service.offer()
    }

    fn look_ahead(&mut self) {
        self.departure = match self.queue.head() {
            Some(_) => self.service.departure(),
            None => None,
        };
    }
}
