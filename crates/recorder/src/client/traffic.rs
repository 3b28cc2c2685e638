//! Traffic of a run and its times.

use std::collections::VecDeque;

use cellbed_link::{BitRate, Bytes, Duration, Time};
use serde::{Deserialize, Serialize};

use crate::calibration::TimedTrain;
use crate::plan::{Saturation, Train, TrainPlan};
use crate::wire::Arrival;
use crate::workload::{AdaptiveSaturator, FixedRateSaturator, QueueKeeper, TrainScheduler};

/// Arrivals that are reported later give no information on the queue.
const REMEMBERED: Duration = Duration::from_secs(15);

/// Traffic of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Trains in rotation.
    Trains(TrainPlan),
    /// Each train at its time; a train's number is its place.
    Timed(Vec<TimedTrain>),
    /// Saturation of either direction or both.
    Saturation {
        /// From the client.
        uplink: Option<Saturation>,
        /// From the server.
        downlink: Option<Saturation>,
        /// IP length of the packets.
        bytes: u16,
    },
}

impl Workload {
    /// Return whether the workload sends trains.
    pub fn is_trains(&self) -> bool {
        !matches!(self, Self::Saturation { .. })
    }

    /// Return whether the traffic depends on the length of the queue.
    pub fn is_adaptive(&self) -> bool {
        let Self::Saturation {
            uplink, downlink, ..
        } = self
        else {
            return false;
        };
        let mut ways = [uplink, downlink].into_iter().flatten();
        ways.any(Saturation::is_adaptive)
    }
}

/// Workload of a recording, made of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Packet trains.
    Light,
    /// Saturation.
    Heavy,
}

/// The packets of the client that are due together: a train, or some of a saturation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Burst {
    /// A whole train.
    Train(u32, Train),
    /// One packet of a saturation.
    Packet(u32),
}

/// Emits the uplink of a workload.
pub(super) enum Traffic {
    Trains(TrainScheduler),
    Timed {
        trains: Vec<TimedTrain>,
        start: Time,
        next: usize,
    },
    Fixed(FixedRateSaturator),
    Adaptive {
        saturator: AdaptiveSaturator,
        /// Packets that were sent of late, in order, and when.
        recent: VecDeque<(u32, Time)>,
    },
    Silence,
}

impl Traffic {
    /// An adaptive saturation sends no faster than `fastest`.
    pub(super) fn new(workload: &Workload, fastest: BitRate, start: Time, end: Time) -> Self {
        match workload {
            Workload::Trains(plan) => Self::Trains(TrainScheduler::new(plan.clone(), start)),
            Workload::Timed(trains) => Self::Timed {
                trains: trains.clone(),
                start,
                next: 0,
            },
            Workload::Saturation { uplink, bytes, .. } => match uplink {
                None => Self::Silence,
                Some(Saturation::Fixed { rate_bps }) => {
                    let (rate, bytes) = (BitRate(*rate_bps), Bytes(u64::from(*bytes)));
                    Self::Fixed(FixedRateSaturator::new(rate, bytes, start, end))
                }
                Some(adaptive @ Saturation::Adaptive { .. }) => {
                    keeper(adaptive, *bytes, fastest, start).map_or(Self::Silence, |keeper| {
                        Self::Adaptive {
                            saturator: AdaptiveSaturator::new(keeper, *bytes, start, end),
                            recent: VecDeque::new(),
                        }
                    })
                }
            },
        }
    }

    /// When the next packet is due; `None` if there will be none.
    pub(super) fn next_event(&self) -> Option<Time> {
        match self {
            Self::Trains(trains) => trains.next_event(),
            Self::Timed {
                trains,
                start,
                next,
            } => trains.get(*next).map(|timed| *start + timed.at),
            Self::Fixed(saturator) => saturator.next_event(),
            Self::Adaptive { saturator, .. } => saturator.next_event(),
            Self::Silence => None,
        }
    }

    /// Takes news of packets that have arrived; see [`AdaptiveSaturator::arrived`]. Other traffic does not care.
    pub(super) fn arrived(&mut self, now: Time, arrivals: &[Arrival]) {
        let Self::Adaptive { saturator, recent } = self else {
            return;
        };
        let Some(&(first, _)) = recent.front() else {
            return;
        };
        for arrival in arrivals {
            let place = arrival.index.wrapping_sub(first) as usize;
            if let Some((index, sent)) = recent.get(place) {
                let (sent_ns, arrived_ns) = (sent.as_nanos() as i64, arrival.arrived_ns as i64);
                saturator.arrived(now, *index, sent_ns, arrived_ns);
            }
        }
    }

    pub(super) fn emit(&mut self, now: Time) -> Option<Burst> {
        match self {
            Self::Trains(trains) => trains
                .emit(now)
                .map(|(number, train)| Burst::Train(number, train)),
            Self::Timed {
                trains,
                start,
                next,
            } => {
                let timed = trains.get(*next)?;
                if *start + timed.at > now {
                    return None;
                }
                *next += 1;
                Some(Burst::Train(*next as u32 - 1, timed.train))
            }
            Self::Fixed(saturator) => saturator.emit(now).map(Burst::Packet),
            Self::Adaptive { saturator, recent } => {
                let index = saturator.emit(now)?;
                recent.push_back((index, now));
                while let Some((_, sent)) = recent.front()
                    && now.since(*sent) > REMEMBERED
                {
                    recent.pop_front();
                }
                Some(Burst::Packet(index))
            }
            Self::Silence => None,
        }
    }
}

/// Return the queue keeper of an adaptive saturation; `None` for a fixed one.
pub(super) fn keeper(
    saturation: &Saturation,
    bytes: u16,
    fastest: BitRate,
    now: Time,
) -> Option<QueueKeeper> {
    let Saturation::Adaptive {
        least_delay_ns,
        most_delay_ns,
    } = *saturation
    else {
        return None;
    };
    let (least, most) = (
        Duration::from_nanos(least_delay_ns),
        Duration::from_nanos(most_delay_ns),
    );
    Some(QueueKeeper::new(least, most, bytes, fastest, now))
}
