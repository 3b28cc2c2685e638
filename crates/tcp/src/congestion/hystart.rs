//! The end of slow start before a loss: HyStart (Ha & Rhee, Computer Networks 55, 2011, §4) with Linux's parameters.

use cellbed_link::{Duration, Time};

use super::AckSample;

/// Below this window it never ends slow start.
const LEAST_WINDOW: f64 = 16.0;
/// Acknowledgements that follow each other sooner are one train.
const TRAIN: Duration = Duration::from_millis(2);
/// Linux's maximum allowance for aggregated acknowledgements (more below 2 Gbit/s).
const HELD_BACK: Duration = Duration::from_millis(1);
/// Round trips of a round that are enough to judge it.
const SAMPLES: u32 = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    found: bool,
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    began: Time,
    /// It ends when this byte has arrived.
    end: u64,
    /// The last acknowledgement of the train.
    last: Time,
    least: Duration,
    samples: u32,
}

impl HyStart {
    /// Returns whether a train of acknowledgements is as long as half a round trip, or a round's round trips are longer
    /// than the shortest by an eighth of it. least: the shortest.
    pub fn shall_end(
        &mut self,
        at: &AckSample,
        round_trip: Duration,
        least: Duration,
        window: f64,
    ) -> bool {
        if self.found {
            return false;
        }
        let begun = Round {
            began: at.now,
            end: at.next,
            last: at.now,
            least: Duration::MAX,
            samples: 0,
        };
        let round = self.round.get_or_insert(begun);
        if at.missing > round.end {
            *round = begun;
        }
        if window < LEAST_WINDOW {
            return false;
        }
        if at.now - round.last <= TRAIN {
            round.last = at.now;
            let half = Duration::from_nanos((least + HELD_BACK).as_nanos() / 2);
            self.found = at.now - round.began > half;
        }
        round.least = round.least.min(round_trip);
        if round.samples < SAMPLES {
            round.samples += 1;
        } else {
            let eighth = Duration::from_nanos(least.as_nanos() / 8);
            let margin = eighth.clamp(Duration::from_millis(4), Duration::from_millis(16));
            self.found |= round.least > least + margin;
        }
        self.found
    }
}
