//! Recorded losses, apart from the queue's.

use crate::random::{Probability, Random, Seed};
use crate::time::{Duration, Time};

/// Losses of a chain with a good and a bad state (Gilbert, Bell System Technical Journal 39, 1960; Elliott, ibid. 42,
/// 1963), which can change after each packet.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossChain {
    /// Probability of a loss in the good state.
    pub good: Probability,
    /// Probability of a loss in the bad state.
    pub bad: Probability,
    /// Probability of a change from the good to the bad state.
    pub enter: Probability,
    /// Probability of a change from the bad to the good state.
    pub leave: Probability,
    /// Maximum time between two packets whose states are related.
    #[serde(rename = "forget_ns")]
    pub forget: Duration,
}

/// The losses of a link.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    random: Random,
    is_bad: bool,
    at: Time,
}

impl Losses {
    /// The state is good.
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            random: Random::new(Seed(!seed.0)), // not the numbers of the delays
            is_bad: false,
            at: Time::ZERO,
        }
    }

    /// Draw whether a packet that arrives `now` is lost.
    #[inline]
    pub(super) fn strikes(&mut self, chain: &LossChain, now: Time) -> bool {
        if now.since(self.at) > chain.forget {
            let (enter, leave) = (chain.enter.get(), chain.leave.get());
            self.is_bad = self.random.unit() * (enter + leave) < enter;
        }
        self.at = now;
        let (loss, change) = match self.is_bad {
            true => (chain.bad, chain.leave),
            false => (chain.good, chain.enter),
        };
        let lost = self.random.hits(loss);
        self.is_bad ^= self.random.hits(change);
        lost
    }
}
