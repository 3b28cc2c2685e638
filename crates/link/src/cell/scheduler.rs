//! Assignment of slots to users.

use crate::time::{Duration, Time};

/// The choice of a slot's user, among users with waiting packets and opportunities in the slot. Among users of equal
/// rank, the slot goes to the next in turn after the last owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scheduler {
    /// The users in turn.
    RoundRobin {},
    /// The user with the highest ratio of its rate in the slot to its throughput, averaged with an exponential window
    /// (Viswanath, Tse & Laroia, "Opportunistic Beamforming Using Dumb Antennas", IEEE Trans. Inf. Theory 48(6), 2002,
    /// §II; convergence: Kushner & Whiting, "Convergence of Proportional-Fair Sharing Algorithms Under General
    /// Conditions", IEEE Trans. Wireless Commun. 3(4), 2004). A user's throughput is the capacity of its channel while
    /// it has the cell.
    ProportionalFair {
        /// Time constant of the window.
        #[serde(rename = "window_ns", default = "default_window")]
        window: Duration,
        /// Initial average of a user that enters the cell.
        #[serde(default)]
        begin: Begin,
    },
    /// The user with the highest rate in the slot (max-CQI).
    MaxRate {},
    /// The user whose remaining bytes take the shortest time at its rate in the slot: minimum remaining flow size
    /// (Fiandrino et al., ICDCN 2019, Algorithm 1). Remaining bytes are its queue, and the bytes to come if the caller
    /// [knows](crate::Cell::arrived) them.
    ShortestRemaining {},
    /// The users with the lowest priority number, among these the ones with packets of the most urgent
    /// [class](crate::ClassesConfig), in turn.
    Priority {},
}

/// The initial average throughput of a user of a cell under [`Scheduler::ProportionalFair`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Begin {
    /// Zero: the user gets nearly all slots until its average has grown.
    #[default]
    Zero,
    /// The mean of the users that are in the cell.
    FairShare,
}

fn default_window() -> Duration {
    Duration::from_secs(1)
}

/// User as seen by a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Rank under [`Scheduler::Priority`]; 0 is the highest.
    pub priority: u32,
    /// Rank of its most urgent class of packets under [`Scheduler::Priority`], among users of equal priority.
    pub class: u32,
    /// Bytes that the user could send in the slot, above 0.
    pub potential: f64,
    /// Bytes that the user has to send.
    pub remaining: f64,
    /// Data sent in the window of [`Scheduler::ProportionalFair`].
    pub throughput: Average,
}

impl Scheduler {
    /// Return the rank of a user: the highest gets the slot.
    pub fn rank(self, user: Candidate, now: Time) -> f64 {
        match self {
            Self::RoundRobin {} => 0.0,
            Self::ProportionalFair { window, .. } => {
                user.potential / user.throughput.at(now, window)
            }
            Self::MaxRate {} => user.potential,
            Self::ShortestRemaining {} => user.potential / user.remaining.max(1.0),
            Self::Priority {} => {
                -(f64::from(user.priority) * f64::from(1 << 16) + f64::from(user.class))
            }
        }
    }

    /// Return the initial average of a user that enters at `now`; present: the averages in the cell.
    pub fn initial_average(self, present: impl Iterator<Item = Average>, now: Time) -> Average {
        let Self::ProportionalFair {
            window,
            begin: Begin::FairShare,
        } = self
        else {
            return Average::default();
        };
        let (sum, count) = present.fold((0.0, 0), |(sum, count), each| {
            (sum + each.at(now, window), count + 1)
        });
        Average {
            bytes: sum / f64::from(count.max(1)),
            since: now,
        }
    }

    /// Return the averaging window, if any.
    pub fn window(self) -> Option<Duration> {
        match self {
            Self::ProportionalFair { window, .. } => Some(window),
            _ => None,
        }
    }
}

/// An exponentially weighted sum of bytes, proportional to the throughput in the window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Average {
    bytes: f64,
    since: Time,
}

impl Average {
    /// Return the sum at `now`, bytes.
    pub fn at(self, now: Time, window: Duration) -> f64 {
        self.bytes * (-ratio(now.since(self.since), window)).exp()
    }

    /// Add bytes sent evenly from `from` to `to`.
    pub fn add(&mut self, bytes: f64, from: Time, to: Time, window: Duration) {
        let spans = ratio(to.since(from), window);
        // Bytes sent earlier count less: by the mean of exp(-x) over the spans.
        let weight = if spans > 0.0 {
            -(-spans).exp_m1() / spans
        } else {
            1.0
        };
        self.bytes = self.at(to, window) + bytes * weight;
        self.since = to;
    }
}

fn ratio(span: Duration, window: Duration) -> f64 {
    span.as_nanos() as f64 / window.as_nanos().max(1) as f64
}
