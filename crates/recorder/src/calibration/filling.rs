//! Choice of the rates that find a network's capacity: a rough search, a saturation that fills it, and an overload.

use cellbed_link::{BitRate, Duration};

use super::error::CalibrationError;
use super::experiment::{Experiment, Purpose, Workload};
use super::found::Found;
use super::result::Both;
use super::{design, rate};
use crate::packet::{PacketRecord, Way};

/// The search for the rate begins here.
const SEARCH_FROM_BPS: f64 = 1e6;
const SEARCH_STEP: f64 = 4.0;
const SEARCH_SPAN: Duration = Duration::from_secs(1);
/// Default maximum rate of a server.
const MOST_BPS: f64 = 2.5e9;
/// A link that delivers less than this share of the packets is filled.
const FILLED: f64 = 0.9;
/// Ratio of the sent rate to the capacity in a saturation (§4.2), and until a queue overflows.
const SATURATION: f64 = 1.25;
const OVERLOAD: f64 = 3.0;
const SATURATION_SPAN: Duration = Duration::from_secs(8);
const OVERLOAD_SPAN: Duration = Duration::from_secs(2);
/// Maximum number of saturations, and the growth factor of the rate when the previous one did not fill the link.
const SATURATION_ATTEMPTS: u32 = 3;
const RAISE: f64 = 2.0;

/// Fills both directions.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    most_bps: f64,
    /// At which rate the search is, and what it has found.
    search_bps: f64,
    rough_bps: Both<Option<f64>>,
    attempts: u32,
}

impl Filling {
    pub fn new() -> Self {
        Self {
            most_bps: MOST_BPS,
            search_bps: SEARCH_FROM_BPS,
            rough_bps: Both::default(),
            attempts: 0,
        }
    }

    /// Asks for no more than this from now on.
    pub fn limit(&mut self, rate: BitRate) {
        self.most_bps = self.most_bps.min(rate.0 as f64);
        self.search_bps = self.search_bps.min(self.most_bps);
    }

    pub fn search(&self) -> Experiment {
        let rate = |way| self.rough_bps.of(way).is_none().then_some(self.search_bps);
        design::saturation(
            Purpose::Search,
            rate(Way::Uplink),
            rate(Way::Downlink),
            SEARCH_SPAN,
        )
    }

    /// Take the records of a search; return whether the rates of both directions are known.
    pub fn take_search(
        &mut self,
        workload: &Workload,
        records: Both<&[PacketRecord]>,
        found: &mut Both<Found>,
    ) -> Result<bool, CalibrationError> {
        for way in Way::BOTH {
            let Some(offered) = workload.rate_bps(way) else {
                continue;
            };
            let share = rate::delivered(records.of(way), offered, workload.span());
            if share == 0.0 {
                return Err(nothing(way, Purpose::Search, records));
            }
            let least = &mut found.of_mut(way).least_delay_ns;
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
        let rate = |way| {
            let rough = self.rough_bps.of(way);
            rough.map(|rate| (SATURATION * rate).min(self.most_bps))
        };
        design::saturation(
            Purpose::Saturation,
            rate(Way::Uplink),
            rate(Way::Downlink),
            SATURATION_SPAN,
        )
    }

    /// Take the records of a saturation; return whether it filled both directions or the attempts are used up.
    pub fn take_saturation(
        &mut self,
        workload: &Workload,
        records: Both<&[PacketRecord]>,
        found: &mut Both<Found>,
    ) -> Result<bool, CalibrationError> {
        self.attempts += 1;
        let mut filled = true;
        for way in Way::BOTH {
            let estimate = rate::saturated(records.of(way))
                .ok_or_else(|| nothing(way, Purpose::Saturation, records))?;
            let found = found.of_mut(way);
            (found.saturated_bps, found.saturated_error_bps) = (estimate.mean, estimate.error);
            found.slowest_bps = rate::slowest_second(records.of(way)).unwrap_or(estimate.mean);
            let offered = workload.rate_bps(way).unwrap_or(self.most_bps);
            let share = rate::delivered(records.of(way), offered, workload.span());
            if share > FILLED && offered < self.most_bps {
                filled = false;
                *self.rough_bps.of_mut(way) = Some(RAISE * offered / SATURATION);
            }
        }
        Ok(filled || self.attempts == SATURATION_ATTEMPTS)
    }

    /// More than both directions were found to carry.
    pub fn overload(&self, found: &Both<Found>) -> Experiment {
        let rate = |way| Some((OVERLOAD * found.of(way).saturated_bps).min(self.most_bps));
        design::saturation(
            Purpose::Queue,
            rate(Way::Uplink),
            rate(Way::Downlink),
            OVERLOAD_SPAN,
        )
    }
}

fn nothing(way: Way, purpose: Purpose, records: Both<&[PacketRecord]>) -> CalibrationError {
    CalibrationError::Nothing {
        way,
        purpose,
        sent: records.of(way).len(),
    }
}
