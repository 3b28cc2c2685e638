//! Calls of a direction to its meter.

use super::Direction;
use crate::meter::{Bin, Meter};
use crate::outcome::Fate;
use crate::queue::QueueLevel;
use crate::schedule;
use crate::stage::{Behaviour, Offer, Stage};
use crate::time::Time;
use crate::units::Bytes;

impl<P: Clone> Direction<P> {
    /// The same direction with a meter. Its [bins](Self::finished_bins) pile up until they are taken.
    pub fn with_meter(mut self) -> Self {
        self.meter = Some(Meter::new(self.zero, self.offer()));
        self
    }

    /// The bins of the meter that had ended by `now` and were not taken before, in order of time, without a gap.
    ///
    /// The first one holds `zero`, or the first packet if that came earlier. Nothing without a
    /// [meter](Self::with_meter).
    pub fn finished_bins(&mut self, now: Time) -> impl Iterator<Item = Bin> + '_ {
        let now = self.settle(now);
        let mut meter = self.meter.as_mut();
        std::iter::from_fn(move || meter.as_mut()?.next_bin(now))
    }

    /// A packet has been delivered or dropped.
    #[inline]
    pub(super) fn ended(&mut self, now: Time, size: Bytes, fate: Fate) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        match fate {
            Fate::Dropped(reason) => meter.dropped(now, reason),
            Fate::Delivered if self.metered.is_none() => {
                meter.left(now, size, QueueLevel::default());
            }
            Fate::Delivered | Fate::Doubled => {}
        }
    }

    #[inline]
    pub(super) fn queue_changed(&mut self, index: usize, now: Time) {
        if self.meter.is_some() && self.metered == Some(index) {
            let level = self.queue();
            if let Some(meter) = &mut self.meter {
                meter.queue(now, level);
            }
        }
    }

    /// Reports another schedule to the meter.
    pub(super) fn offer_changed(&mut self, index: usize) {
        if let Stage::WorkloadDependent(link) = &mut self.stages[index]
            && let Some(from) = link.take_spliced()
            && self.metered == Some(index)
            && !self.closed
            && let Some(meter) = &mut self.meter
            && let Some(offer) = link.offer()
        {
            meter.offered(from, offer);
        }
    }

    #[inline]
    pub(super) fn left(&mut self, index: usize, now: Time, size: Bytes) {
        if self.meter.is_some() && self.metered == Some(index) {
            let level = self.queue();
            if let Some(meter) = &mut self.meter {
                meter.left(now, size, level);
            }
        }
    }

    pub(super) fn offer(&self) -> Offer {
        if self.closed {
            return Offer::NOTHING;
        }
        self.metered
            .and_then(|index| self.stages[index].offer())
            .unwrap_or(Offer::Schedule(schedule::Offer::Unlimited))
    }
}
