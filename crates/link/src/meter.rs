//! Traffic and capacity of a direction, in bins of 10 ms.

use std::collections::VecDeque;

use crate::packet::DropReason;
use crate::queue::QueueLevel;
use crate::schedule::Offer;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Width of a bin.
pub const BIN_WIDTH: Duration = Duration::from_millis(10);

/// One bin: the events from `start` up to but excluding `end`.
///
/// Bins follow each other without a gap and are [`BIN_WIDTH`] wide, except the two next to a restart, where a new grid
/// begins. Capacity, use and queue belong to the direction's first bottleneck; arrivals and drops to the whole
/// direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// First instant of the bin.
    pub start: Time,
    /// First instant after the bin.
    pub end: Time,
    /// Capacity of the schedule, used or not; `None` without a limit.
    pub capacity: Option<Bytes>,
    /// Packets that left the bottleneck, counted whole in the bin of their last byte.
    pub used: Bytes,
    /// Bytes that arrived at the direction.
    pub arrived: Bytes,
    /// The queue at the end of the bin, the packet in service included.
    pub queue: QueueLevel,
    /// Maximum bytes in the queue.
    pub peak: Bytes,
    /// Packets that a queue dropped, because it was full or to signal congestion.
    pub queue_full: Packets,
    /// Packets lost.
    pub lost: Packets,
}

/// Counts events into bins. Only bins with events take memory; other bins are made on request.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    grids: VecDeque<Grid>,
    /// The queue at the last event.
    level: QueueLevel,
    /// The queue at the end of the last bin handed out.
    handed_out: QueueLevel,
}

/// Bins between two restarts.
#[derive(Clone, Debug)]
struct Grid {
    /// Start of the next bin to hand out.
    begin: Time,
    /// Start of the next grid.
    end: Option<Time>,
    /// Origin of the bin edges.
    zero: Time,
    /// Capacities, each with its first instant; the first one holds from the beginning.
    offers: VecDeque<(Time, Offer)>,
    eventful: VecDeque<Bin>,
}

impl Meter {
    pub(crate) fn new(zero: Time, offer: Offer) -> Self {
        Self {
            grids: VecDeque::from([Grid::new(zero, zero, offer)]),
            level: QueueLevel::default(),
            handed_out: QueueLevel::default(),
        }
    }

    /// Begin a new grid at `now`, aligned to `zero`.
    pub(crate) fn restart(&mut self, zero: Time, now: Time, offer: Offer) {
        if let Some(last) = self.grids.back_mut() {
            last.close(now);
        }
        self.grids.push_back(Grid::new(now, zero, offer));
    }

    /// Change the capacity from `from` on, which is not before now.
    pub(crate) fn offered(&mut self, from: Time, offer: Offer) {
        let last = self.grids.len() - 1; // there is always one
        self.grids[last].offered(from, offer);
    }

    pub(crate) fn arrived(&mut self, now: Time, size: Bytes) {
        self.bin(now).arrived += size;
    }

    pub(crate) fn left(&mut self, now: Time, size: Bytes, level: QueueLevel) {
        self.bin(now).used += size;
        self.queue(now, level);
    }

    pub(crate) fn queue(&mut self, now: Time, level: QueueLevel) {
        let bin = self.bin(now);
        bin.queue = level;
        bin.peak = bin.peak.max(level.bytes);
        self.level = level;
    }

    pub(crate) fn dropped(&mut self, now: Time, reason: DropReason) {
        let bin = self.bin(now);
        let count = match reason {
            DropReason::QueueFull | DropReason::Congestion | DropReason::Handover => {
                &mut bin.queue_full
            }
            DropReason::Loss => &mut bin.lost,
        };
        count.0 += 1;
    }

    /// Return the next bin that ended by `now`, after all events before `now` have been counted.
    pub(crate) fn next_bin(&mut self, now: Time) -> Option<Bin> {
        loop {
            let grid = self.grids.front_mut()?;
            if let Some(bin) = grid.next_bin(now, self.handed_out) {
                self.handed_out = bin.queue;
                return Some(bin);
            }
            if grid.end.is_none_or(|end| grid.begin < end) {
                return None;
            }
            self.grids.pop_front();
        }
    }

    /// Return the bin that contains `now`. Events come in order of time.
    fn bin(&mut self, now: Time) -> &mut Bin {
        let level = self.level;
        let last = self.grids.len() - 1; // there is always one
        self.grids[last].bin(now, level)
    }
}

impl Grid {
    fn new(begin: Time, zero: Time, offer: Offer) -> Self {
        Self {
            begin,
            end: None,
            zero,
            offers: VecDeque::from([(Time::ZERO, offer)]),
            eventful: VecDeque::new(),
        }
    }

    fn offered(&mut self, from: Time, offer: Offer) {
        while self.offers.len() > 1 && self.offers.back().is_some_and(|(start, _)| *start >= from) {
            self.offers.pop_back();
        }
        self.offers.push_back((from, offer));
    }

    /// Return the capacity in a bin; calls are in order of bins.
    fn capacity(&mut self, from: Time, to: Time) -> Option<Bytes> {
        while self.offers.get(1).is_some_and(|(start, _)| *start <= from) {
            self.offers.pop_front();
        }
        let mut capacity = Bytes(0);
        for (index, (start, offer)) in self.offers.iter().enumerate() {
            let end = self.offers.get(index + 1).map_or(to, |(next, _)| *next);
            let (begin, end) = (from.max(*start), end.min(to));
            if begin < end {
                capacity += offer.capacity(begin, end)?;
            }
        }
        Some(capacity)
    }

    fn close(&mut self, end: Time) {
        self.end = Some(end);
    }

    /// Return the edge after `at`.
    fn edge_after(&self, at: Time) -> Time {
        let width = BIN_WIDTH.as_nanos();
        let phase = Duration::from_nanos(self.zero.as_nanos() % width);
        // The bin before the first edge is partial.
        match at.as_nanos().checked_sub(phase.as_nanos()) {
            Some(since) => Time::from_nanos(since - since % width) + phase + BIN_WIDTH,
            None => Time::ZERO + phase,
        }
    }

    fn bin(&mut self, now: Time, level: QueueLevel) -> &mut Bin {
        self.begin = self.begin.min(now); // a packet that came before the schedule began
        if self.eventful.back().is_none_or(|last| last.end <= now) {
            self.eventful
                .push_back(Bin::quiet(now, self.edge_after(now), level));
        }
        let last = self.eventful.len() - 1;
        &mut self.eventful[last]
    }

    fn next_bin(&mut self, now: Time, level: QueueLevel) -> Option<Bin> {
        let start = self.begin;
        let edge = self.edge_after(start);
        let end = self.end.map_or(edge, |end| end.min(edge));
        if end <= start || end > now {
            return None;
        }
        let bin = match self.eventful.front() {
            Some(bin) if bin.end == edge => self.eventful.pop_front()?,
            _ => Bin::quiet(start, end, level),
        };
        self.begin = end;
        Some(Bin {
            start,
            end,
            capacity: self.capacity(start, end),
            ..bin
        })
    }
}

impl Bin {
    /// Return a bin without packets.
    fn quiet(start: Time, end: Time, level: QueueLevel) -> Self {
        Self {
            start,
            end,
            capacity: None,
            used: Bytes(0),
            arrived: Bytes(0),
            queue: level,
            peak: level.bytes,
            queue_full: Packets(0),
            lost: Packets(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bottleneck::BottleneckConfig;
    use crate::direction::Direction;
    use crate::queue::{Discipline, Limit};
    use crate::schedule::Schedule;
    use crate::trace::Trace;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// One opportunity every 5 ms, a queue of three packets.
    fn direction(zero: Time) -> Direction<()> {
        let trace = Arc::new(Trace::from_millis([5]).unwrap());
        let queue = Discipline::DropTail(Limit::packets(3));
        let bottleneck = BottleneckConfig::new(Schedule::looped(trace)).with_queue(queue);
        Direction::new(vec![bottleneck.into()], zero).with_meter()
    }

    fn starts(bins: &[Bin]) -> Vec<(Time, Time)> {
        bins.iter().map(|bin| (bin.start, bin.end)).collect()
    }

    #[test]
    fn a_restart_cuts_a_bin_short_and_lays_the_grid_anew() {
        let mut direction = direction(Time::ZERO);
        direction.accept(ms(1), (), Bytes(1500));
        direction.restart(ms(14), Duration::ZERO);
        direction.accept(ms(20), (), Bytes(1500));
        let bins: Vec<_> = direction.finished_bins(ms(39)).collect();
        assert_eq!(
            starts(&bins),
            [
                (ms(0), ms(10)),
                (ms(10), ms(14)),
                (ms(14), ms(24)),
                (ms(24), ms(34))
            ]
        );
        let capacities: Vec<_> = bins.iter().filter_map(|bin| bin.capacity).collect();
        assert_eq!(capacities, [1500, 1500, 1500, 3000].map(Bytes)); // 5 | 10 | 19 | 24, 29
        assert_eq!(
            bins.iter().map(|bin| bin.used.0).collect::<Vec<_>>(),
            [1500, 0, 0, 1500]
        );
    }

    #[test]
    fn the_grid_reaches_back_before_zero() {
        let mut direction = direction(ms(25));
        direction.accept(ms(2), (), Bytes(1500));
        let bins: Vec<_> = direction.finished_bins(ms(35)).collect();
        assert_eq!(
            starts(&bins),
            [
                (ms(2), ms(5)),
                (ms(5), ms(15)),
                (ms(15), ms(25)),
                (ms(25), ms(35))
            ]
        );
        assert_eq!(bins[0].arrived, Bytes(1500));
        assert_eq!(
            bins.iter().map(|bin| bin.capacity).collect::<Vec<_>>()[..3],
            [Some(Bytes(0)); 3]
        );
    }

    #[test]
    fn without_a_bottleneck_the_delivered_bytes_are_counted() {
        let delay = crate::delay::DelayConfig::Fixed(Duration::from_millis(15));
        let mut direction = Direction::new(vec![delay.into()], Time::ZERO).with_meter();
        direction.accept(ms(1), (), Bytes(40));
        let bins: Vec<_> = direction.finished_bins(ms(20)).collect();
        assert_eq!(
            (bins[0].arrived, bins[0].used, bins[0].capacity),
            (Bytes(40), Bytes(0), None)
        );
        assert_eq!((bins[1].arrived, bins[1].used), (Bytes(0), Bytes(40)));
    }
}
