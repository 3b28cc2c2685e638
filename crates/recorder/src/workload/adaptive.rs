//! Saturation of as much as keeps a queue long, but not endless.

use cellbed_link::{Duration, Time};

/// The fewest packets underway, so that there is something to hear of.
const LEAST_WINDOW: u32 = 20;

/// What a window loses at once where the delay is too long.
const STEP_DOWN: u32 = 20;

/// After so long without news, packets underway count as lost: a path that was gone must be filled again.
const SILENCE: Duration = Duration::from_secs(6);

/// Keeps so many packets underway that their delay stays between two bounds (Winstein et al., "Stochastic Forecasts Achieve High
/// Throughput and Low Delay over Cellular Networks", NSDI 2013, §4.1: 0.75 and 3 s).
///
/// News of arrivals must come over another device, whose path is not the one that is kept busy: so the delay from a packet's departure to
/// the news is the queue's, and little more.
#[derive(Clone, Debug)]
pub struct AdaptiveSaturator {
    least: Duration,
    most: Duration,
    end: Time,
    /// Packets that may be underway.
    window: u32,
    /// Number of the next packet.
    index: u32,
    /// Packets known to have arrived or to have been passed by later ones.
    through: u32,
    heard: Time,
}

impl AdaptiveSaturator {
    /// From `start` up to but excluding `end`.
    pub fn new(least: Duration, most: Duration, start: Time, end: Time) -> Self {
        Self {
            least,
            most,
            end,
            window: LEAST_WINDOW,
            index: 0,
            through: 0,
            heard: start,
        }
    }

    /// Takes news: of `arrivals` packets that were told of at once `index` is the latest, and it came `delay` after it was sent.
    pub fn arrived(&mut self, now: Time, index: u32, arrivals: u32, delay: Duration) {
        self.heard = self.heard.max(now);
        self.through = self.through.max(index.saturating_add(1)).min(self.index);
        if delay < self.least {
            // One more for each that arrived: the window doubles each round trip until the queue is there.
            self.window = self.window.saturating_add(arrivals);
        } else if delay > self.most {
            self.window = self.window.saturating_sub(STEP_DOWN).max(LEAST_WINDOW);
        }
    }

    /// Packets underway, as far as is known.
    pub fn underway(&self) -> u32 {
        self.index - self.through
    }

    /// When to ask again without news: at once while there is room in the window, else when the silence has lasted too long.
    pub fn next_event(&self) -> Option<Time> {
        let due = if self.underway() < self.window {
            self.heard
        } else {
            self.heard + SILENCE
        };
        (due < self.end).then_some(due)
    }

    /// The index of a packet to be sent at `now`; to be called until there is none.
    pub fn emit(&mut self, now: Time) -> Option<u32> {
        if now >= self.end {
            return None;
        }
        if now.since(self.heard) >= SILENCE {
            self.through = self.index;
            self.window = LEAST_WINDOW;
            self.heard = now;
        }
        if self.underway() >= self.window {
            return None;
        }
        let index = self.index;
        self.index = index.checked_add(1)?;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const LEAST: Duration = Duration::from_millis(750);
    const MOST: Duration = Duration::from_millis(3_000);

    /// Delays of packets, in s, at a bottleneck that takes `spacing` a packet and loses what `lost` says, news coming back 20 ms later.
    fn delays(
        spacing: Duration,
        seconds: u64,
        lost: impl Fn(Time) -> bool,
    ) -> Vec<(Time, Duration)> {
        let mut saturator =
            AdaptiveSaturator::new(LEAST, MOST, Time::ZERO, Time::from_millis(seconds * 1_000));
        let mut free = Time::ZERO;
        let mut underway: VecDeque<(Time, u32, Time)> = VecDeque::new();
        let mut delays = Vec::new();
        for millisecond in 0..seconds * 1_000 {
            let now = Time::from_millis(millisecond);
            while let Some(&(news, index, sent)) = underway.front() {
                if news > now {
                    break;
                }
                underway.pop_front();
                delays.push((news, news - sent));
                saturator.arrived(now, index, 1, news - sent);
            }
            while let Some(index) = saturator.emit(now) {
                if lost(now) {
                    continue;
                }
                free = free.max(now) + spacing;
                underway.push_back((free + Duration::from_millis(20), index, now));
            }
        }
        delays
    }

    #[test]
    fn the_queue_grows_into_its_bounds_and_stays() {
        for spacing in [Duration::from_micros(500), Duration::from_millis(10)] {
            let settled: Vec<_> = delays(spacing, 60, |_| false)
                .into_iter()
                .filter(|(news, _)| *news > Time::from_millis(20_000))
                .map(|(_, delay)| delay)
                .collect();
            assert!(settled.len() > 3_000);
            assert!(settled.iter().all(|delay| (LEAST..=MOST).contains(delay)));
        }
    }

    #[test]
    fn a_path_that_was_gone_is_filled_again() {
        // All packets of some seconds are lost: nothing is ever heard of them.
        let delays = delays(Duration::from_millis(5), 60, |now| {
            (10_000..20_000).contains(&(now.as_nanos() / 1_000_000))
        });
        let after = delays
            .iter()
            .filter(|(news, _)| *news > Time::from_millis(40_000))
            .count();
        assert!(after > 3_000, "{after} of 4000 packets that fit in 20 s");
    }
}
