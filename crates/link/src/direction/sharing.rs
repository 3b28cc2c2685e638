//! Operations of a [cell](crate::cell) on the directions of its users.

use super::Direction;
use crate::stage::Behaviour;
use crate::time::{Duration, Time, earlier};
use crate::units::{Packets, Share};

impl<P: Clone> Direction<P> {
    /// Make the direction a user of a cell.
    pub(crate) fn join_cell(&mut self) {
        self.in_cell = true;
    }

    /// Return the stage where packets queue.
    fn metered_stage(&self) -> Option<&(dyn Behaviour<P> + '_)> {
        self.metered.map(|index| self.stages[index].behaviour())
    }

    /// Serve nothing from `at` on.
    pub(crate) fn bar(&mut self, at: Time) {
        self.end_slot(at);
        self.set_barred(true, Share::WHOLE);
    }

    /// End a slot at `at`: opportunities at `at` belong to the next slot, bytes that a steady flow sent by then have
    /// left. Return when the queue became empty, if it is.
    pub(crate) fn end_slot(&mut self, at: Time) -> Option<Time> {
        let stage = self.metered_stage();
        if stage.is_some_and(|stage| stage.is_steady()) {
            self.settle(at);
        } else if at > self.clock {
            self.settle(Time::from_nanos(at.as_nanos() - 1));
            self.clock = at;
        }
        self.empty_since()
    }

    /// Serve again from `at` on, with a share of the capacity at that instant.
    pub(crate) fn admit(&mut self, at: Time, share: Share) {
        self.settle(at);
        self.set_barred(false, share);
    }

    fn set_barred(&mut self, barred: bool, share: Share) {
        let Some(index) = self.metered.filter(|_| barred != self.barred) else {
            return;
        };
        self.barred = barred;
        let stage = self.stages[index].behaviour_mut();
        stage.set_closed(self.closed, barred, share, self.clock);
        if self.report_dropped(index, self.clock) {
            self.queue_changed(index, self.clock);
        }
        self.next = self.next_internal();
    }

    /// Return when the queue became empty, if it is empty at `now`.
    pub(crate) fn emptied(&mut self, now: Time) -> Option<Time> {
        self.settle(now);
        self.empty_since()
    }

    fn empty_since(&self) -> Option<Time> {
        (self.queue().packets == Packets(0)).then_some(self.emptied)
    }

    /// Return when the queue or its service may next change without an arrival.
    pub(crate) fn queue_event(&self) -> Option<Time> {
        let event = self.metered_stage().and_then(|stage| stage.queue_event());
        let change = self.pending.front().map(|pending| pending.at);
        earlier(event, change)
    }

    /// Return the unused share of the bottleneck's capacity at `at`.
    pub(crate) fn share_left(&self, at: Time) -> Share {
        let stage = self.metered_stage();
        stage.map_or(Share::WHOLE, |stage| stage.left(at))
    }

    /// Return the rank of the most urgent class of packets at the bottleneck; 0 is the highest.
    pub(crate) fn rank(&self) -> u32 {
        self.metered_stage().map_or(0, |stage| stage.rank())
    }

    /// Return the capacity of the bottleneck from `from` up to but excluding `to`, bytes, used or not; infinite without
    /// a bottleneck.
    pub fn offered(&self, from: Time, to: Time) -> f64 {
        let stage = self.metered_stage();
        stage.map_or(f64::INFINITY, |stage| stage.potential(from, to))
    }

    /// Return the bytes that the bottleneck can carry from `from` up to but excluding `to`, with `share` of its
    /// capacity at `from`; zero during an outage.
    pub(crate) fn potential(&self, from: Time, to: Time, share: Share) -> f64 {
        let Some(stage) = self.metered_stage() else {
            return 0.0;
        };
        let ready = stage.ready();
        if self.closed || ready >= to {
            0.0
        } else if share == Share::WHOLE || ready > from {
            stage.potential(from.max(ready), to)
        } else {
            let after = from + Duration::from_nanos(1);
            let now = stage.potential(from, after.min(to)) * share.as_fraction();
            now.floor() + stage.potential(after, to)
        }
    }

    #[cold]
    pub(super) fn note_emptied(&mut self, index: usize, now: Time) {
        if self.metered == Some(index) && self.queue().packets == Packets(0) {
            // Packets behind the queue may leave the stage later.
            if std::mem::take(&mut self.queued) {
                self.emptied = now;
            }
        }
    }
}
