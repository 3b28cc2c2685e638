//! Counters of a direction's events so far.

use crate::packet::{DropReason, Fate, Outcome};
use crate::time::{Duration, Time};

/// Time over which the delay is averaged.
const WINDOW: Duration = Duration::from_millis(100);

/// Maximum age of a window.
const FRESH: Duration = Duration::from_millis(1000);

/// Counters of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Packets that left the direction, duplicates included.
    pub delivered: u64,
    /// Total of their IP lengths.
    pub delivered_bytes: u64,
    /// Packets that found a queue full.
    pub queue_full: u64,
    /// Packets that a queue dropped to signal congestion.
    pub congestion: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets dropped at a handover.
    pub handover: u64,
    /// Packets that left with a mark of a queue here.
    pub marked: u64,
    /// Packets duplicated.
    pub doubled: u64,
    /// Packets that left damaged.
    pub corrupted: u64,
}

/// Delay of packets from their arrival at the direction to their departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Mean delay.
    pub mean: Duration,
    /// Maximum delay.
    pub most: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    end: Time,
    packets: u64,
    total: u64,
    most: u64,
}

/// Counters and delay of a direction.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counters: Counters,
    current: Window,
    last: Window,
}

impl Tally {
    /// Count an outcome of the direction.
    #[inline]
    pub fn count<P>(&mut self, outcome: &Outcome<P>) {
        let it = &mut self.counters;
        match outcome.fate {
            Fate::Delivered => {
                it.delivered += 1;
                it.delivered_bytes += outcome.size.0;
                it.marked += u64::from(outcome.marked);
                it.corrupted += u64::from(outcome.corrupt_bit.is_some());
                self.left(outcome.departed, outcome.departed.since(outcome.arrived));
            }
            Fate::Dropped(DropReason::QueueFull) => it.queue_full += 1,
            Fate::Dropped(DropReason::Congestion) => it.congestion += 1,
            Fate::Dropped(DropReason::Loss) => it.lost += 1,
            Fate::Dropped(DropReason::Handover) => it.handover += 1,
            Fate::Doubled => it.doubled += 1,
        }
    }

    #[inline]
    fn left(&mut self, at: Time, took: Duration) {
        if at >= self.current.end {
            self.last = self.current;
            self.current = Window {
                end: at + WINDOW,
                ..Window::default()
            };
        }
        self.current.packets += 1;
        self.current.total = self.current.total.saturating_add(took.as_nanos());
        self.current.most = self.current.most.max(took.as_nanos());
    }

    /// Return the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Return the delay over the last complete window of 100 ms, which begins with a packet, or over the current one
    /// if none ended within the last second. `None` if no packet left in that time.
    pub fn delay(&self, now: Time) -> Option<Delay> {
        let fresh = |window: &Window| window.packets > 0 && now < window.end + FRESH;
        let current_first = now >= self.current.end || !fresh(&self.last);
        let window = if current_first {
            &self.current
        } else {
            &self.last
        };
        fresh(window).then(|| Delay {
            mean: Duration::from_nanos(window.total / window.packets),
            most: Duration::from_nanos(window.most),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(packets: &[(u64, u64)]) -> Tally {
        let mut tally = Tally::default();
        for &(at, took) in packets {
            tally.left(Time::from_millis(at), Duration::from_millis(took));
        }
        tally
    }

    #[test]
    fn the_delay_is_that_of_the_last_window_that_is_over() {
        let tally = tally(&[(1000, 10), (1050, 30), (1200, 7), (1210, 9)]);
        let delay = |at| {
            let delay = tally.delay(Time::from_millis(at));
            delay.map(|it| (it.mean, it.most))
        };
        let millis = |mean, most| Some((Duration::from_millis(mean), Duration::from_millis(most)));
        assert_eq!(delay(1250), millis(20, 30));
        assert_eq!(delay(1300), millis(8, 9));
        assert_eq!(delay(2299), millis(8, 9));
        assert_eq!(delay(2300), None);
    }

    #[test]
    fn a_beginning_is_better_than_nothing() {
        assert_eq!(tally(&[]).delay(Time::from_millis(5)), None);
        let delay = tally(&[(1000, 10)]).delay(Time::from_millis(1001)).unwrap();
        assert_eq!(delay.mean, Duration::from_millis(10));
    }
}
