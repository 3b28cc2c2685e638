//! Choice of rates that find a network's capacity: a rough search, a saturation that fills the network, an overload.

use cellbed_link::{BitRate, Duration};

use super::design::{self, Experiment, Purpose};
use super::nothing;
use super::rate::{self, QueueLimit};
use super::result::DirectionCalibration;
use crate::Result;
use crate::plan::{Both, PacketRecord, Way};

/// First rate of the search; its growth factor and duration.
const SEARCH_FROM_BPS: f64 = 1e6;
const SEARCH_STEP: f64 = 4.0;
const SEARCH_SPAN: Duration = Duration::from_secs(1);
/// Default maximum rate of a server.
const MOST_BPS: f64 = 2.5e9;
/// Maximum share of packets delivered by a filled link.
const FILLED: f64 = 0.9;
/// Ratio of the sent rate to the capacity: in a saturation (§4.2), and to make a queue overflow.
const SATURATION: f64 = 1.25;
const OVERLOAD: f64 = 3.0;
const SATURATION_SPAN: Duration = Duration::from_secs(8);
const OVERLOAD_SPAN: Duration = Duration::from_secs(2);
/// Maximum number of saturations, and growth factor of the rate after one that did not fill the link.
const SATURATION_ATTEMPTS: u32 = 3;
const RAISE: f64 = 2.0;

/// Fills both directions.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    most_bps: f64,
    /// Current rate of the search, and the rates found.
    search_bps: f64,
    rough_bps: Both<Option<f64>>,
    /// Minimum one-way delay, ns, clock offset included.
    least_delay_ns: Both<Option<i64>>,
    attempts: u32,
}

impl Filling {
    pub fn new() -> Self {
        Self {
            most_bps: MOST_BPS,
            search_bps: SEARCH_FROM_BPS,
            rough_bps: Both::default(),
            least_delay_ns: Both::default(),
            attempts: 0,
        }
    }

    /// Set the maximum rate from now on.
    pub fn limit(&mut self, rate: BitRate) {
        self.most_bps = self.most_bps.min(rate.0 as f64);
        self.search_bps = self.search_bps.min(self.most_bps);
    }

    pub fn search(&self) -> Experiment {
        design::saturation(Purpose::Search, SEARCH_SPAN, |way| {
            self.rough_bps.of(way).is_none().then_some(self.search_bps)
        })
    }

    /// Take the records of a search; return whether the rates of both directions are known.
    pub fn take_search(
        &mut self,
        experiment: &Experiment,
        records: Both<&[PacketRecord]>,
    ) -> Result<bool> {
        for way in Way::BOTH {
            let Some((offered, share)) = delivered(experiment, records, way) else {
                continue;
            };
            if share == 0.0 {
                return nothing(way, Purpose::Search, records.of(way).len());
            }
            let least = self.least_delay_ns.of_mut(way);
            *least = [*least, rate::least_delay(records.of(way))]
                .into_iter()
                .flatten()
                .min();
            if share < FILLED || offered >= self.most_bps {
                *self.rough_bps.of_mut(way) = Some(share * offered);
            }
        }
        let known = self.rough_bps.uplink.is_some() && self.rough_bps.downlink.is_some();
        if !known {
            self.search_bps = (SEARCH_STEP * self.search_bps).min(self.most_bps);
        }
        Ok(known)
    }

    pub fn saturation(&self) -> Experiment {
        design::saturation(Purpose::Saturation, SATURATION_SPAN, |way| {
            let rough = self.rough_bps.of(way);
            rough.map(|rate| (SATURATION * rate).min(self.most_bps))
        })
    }

    /// Take the records of a saturation; return whether it filled both directions or the attempts are used up.
    pub fn take_saturation(
        &mut self,
        experiment: &Experiment,
        records: Both<&[PacketRecord]>,
        found: &mut Both<DirectionCalibration>,
    ) -> Result<bool> {
        self.attempts += 1;
        let mut filled = true;
        for way in Way::BOTH {
            let Some(estimate) = rate::saturated(records.of(way)) else {
                return nothing(way, Purpose::Saturation, records.of(way).len());
            };
            let found = found.of_mut(way);
            found.saturated_bps = estimate.mean as u64;
            found.saturated_error_bps = estimate.error as u64;
            let slowest = rate::slowest_second(records.of(way)).unwrap_or(estimate.mean);
            found.slowest_bps = Some(slowest as u64);
            if let Some((offered, share)) = delivered(experiment, records, way)
                && share > FILLED
                && offered < self.most_bps
            {
                filled = false;
                *self.rough_bps.of_mut(way) = Some(RAISE * offered / SATURATION);
            }
        }
        Ok(filled || self.attempts == SATURATION_ATTEMPTS)
    }

    /// Return an overload of both directions: beyond the capacity found.
    pub fn overload(&self, found: &Both<DirectionCalibration>) -> Experiment {
        design::saturation(Purpose::Queue, OVERLOAD_SPAN, |way| {
            Some((OVERLOAD * found.of(way).saturated_bps as f64).min(self.most_bps))
        })
    }

    /// Find the limits of the queues in the records of an overload.
    pub fn take_overload(
        &self,
        records: Both<&[PacketRecord]>,
        found: &mut Both<DirectionCalibration>,
    ) {
        for way in Way::BOTH {
            let least = self.least_delay_ns.of(way);
            let limit = least.and_then(|least| rate::queue_limit(records.of(way), least));
            let found = found.of_mut(way);
            match limit {
                Some(QueueLimit::Bytes(bytes)) => found.queue_bytes = Some(bytes),
                Some(QueueLimit::AtLeast(bytes)) => found.queue_at_least_bytes = Some(bytes),
                None => {}
            }
        }
    }
}

/// Return the sent rate of a direction, bit/s, and the share delivered in time.
fn delivered(
    experiment: &Experiment,
    records: Both<&[PacketRecord]>,
    way: Way,
) -> Option<(f64, f64)> {
    let offered = experiment.workload.rate(way)?.0 as f64;
    let share = rate::delivered(records.of(way), offered, experiment.span?);
    Some((offered, share))
}
