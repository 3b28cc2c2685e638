//! Traffic of a run, and its times.

use std::collections::VecDeque;

use cellbed_link::{BitRate, Bytes, Duration, Time};

use crate::wire::Arrivals;
use cellbed_calibration::plan::{Saturation, Train, Workload};
use cellbed_calibration::workload::{
    AdaptiveSaturator, FixedRateSaturator, QueueKeeper, TrainScheduler,
};

/// Time for which sent packets are remembered: later reports of arrivals no longer describe the queue.
const REMEMBERED: Duration = Duration::from_secs(15);

/// Packets of the client that are due together.
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
    Fixed(FixedRateSaturator),
    Adaptive {
        saturator: AdaptiveSaturator,
        /// Recently sent packets in order, with times.
        recent: VecDeque<(u32, Time)>,
    },
    Silence,
}

impl Traffic {
    /// Create the traffic. `fastest`: maximum rate of an adaptive saturation.
    pub(super) fn new(workload: &Workload, fastest: BitRate, start: Time, end: Time) -> Self {
        match workload {
            Workload::Trains(plan) => Self::Trains(TrainScheduler::new(plan.clone(), start)),
            Workload::Saturation { ways, bytes } => match ways.uplink {
                None => Self::Silence,
                Some(Saturation::Fixed { rate_bps }) => {
                    let (rate, bytes) = (BitRate(rate_bps), Bytes(u64::from(*bytes)));
                    Self::Fixed(FixedRateSaturator::new(rate, bytes, start, end))
                }
                Some(Saturation::Adaptive {
                    least_delay_ns,
                    most_delay_ns,
                }) => {
                    let delays = [least_delay_ns, most_delay_ns].map(Duration::from_nanos);
                    let keeper = QueueKeeper::new(delays[0], delays[1], *bytes, fastest, start);
                    Self::Adaptive {
                        saturator: AdaptiveSaturator::new(keeper, *bytes, start, end),
                        recent: VecDeque::new(),
                    }
                }
            },
        }
    }

    /// Return the time of the next packet; `None` after the last.
    pub(super) fn next_event(&self) -> Option<Time> {
        match self {
            Self::Trains(trains) => trains.next_event(),
            Self::Fixed(saturator) => saturator.next_event(),
            Self::Adaptive { saturator, .. } => saturator.next_event(),
            Self::Silence => None,
        }
    }

    /// Report arrivals to an adaptive saturation (see [`AdaptiveSaturator::arrived`]); other traffic ignores them.
    pub(super) fn arrived(&mut self, now: Time, arrivals: &Arrivals) {
        let Self::Adaptive { saturator, recent } = self else {
            return;
        };
        let Some(&(first, _)) = recent.front() else {
            return;
        };
        for arrival in arrivals.iter() {
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
