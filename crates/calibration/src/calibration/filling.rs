//! Choice of rates that find a network's capacity: a rough search, a saturation that fills the network, an overload,
//! and a search for slow seconds.

use cellbed_link::{BitRate, Duration};

use super::design::{self, Experiment, Purpose};
use super::rate::{self, Estimate, QueueLimit};
use super::result::{DirectionCalibration, LIGHT_SHARE};
use super::trains::lost;
use super::{PRECISION, nothing};
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
/// Ratio of the sent rate to the capacity: in a saturation (§4.2), to make a queue overflow, and in the search for slow
/// seconds.
const SATURATION: f64 = 1.25;
const OVERLOAD: f64 = 3.0;
const WATCH: f64 = 1.1;
/// Maximum and minimum duration of a saturation, s; fewest seconds of all; durations of an overload and of a search for
/// slow seconds.
const SATURATION_SPAN: f64 = 4.0;
const SHORTEST_SPAN: f64 = 3.0;
const FEWEST_SECONDS: usize = 3;
const OVERLOAD_SPAN: f64 = 2.0;
const SHORTEST_OVERLOAD: f64 = 0.5;
const WATCH_SPAN: Duration = Duration::from_secs(10);
/// Minimum duration of a search for slow seconds on a varying link, and maximum duration.
const WATCHED_LEAST: Duration = Duration::from_secs(30);
const WATCHED_MOST: Duration = Duration::from_secs(60);
/// Minimum share of the mean rate in all seconds of a steady link.
const STEADY: f64 = 0.8;
/// Maximum share of its rate at which a search below the capacity was slowed down by the link, not by a short stall.
const SLOWED: f64 = 0.5;
/// Maximum number of saturations that do not fill the link, and growth factor of the rate after each.
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
    /// Directions whose capacity is known.
    known: Both<bool>,
    /// Mean rate of each saturation, and rates of all seconds under saturation.
    means: Both<Vec<f64>>,
    seconds: Both<Vec<f64>>,
    /// Begin of the part of the search for slow seconds that found none slower.
    slowest_since_ns: u64,
}

impl Filling {
    pub fn new() -> Self {
        Self {
            most_bps: MOST_BPS,
            search_bps: SEARCH_FROM_BPS,
            rough_bps: Both::default(),
            least_delay_ns: Both::default(),
            attempts: 0,
            known: Both::default(),
            means: Both::default(),
            seconds: Both::default(),
            slowest_since_ns: 0,
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

    /// Return a saturation of the directions whose capacity is not known, with at most `bytes`.
    pub fn saturation(&self, bytes: f64) -> Experiment {
        let rate = |way| {
            let rough = self.rough_bps.of(way).filter(|_| !self.known.of(way));
            rough.map(|rate| (SATURATION * rate).min(self.most_bps))
        };
        let total: f64 = Way::BOTH.into_iter().filter_map(rate).sum();
        let span = (8.0 * bytes / total).clamp(SHORTEST_SPAN, SATURATION_SPAN);
        design::saturation(Purpose::Saturation, Duration::from_secs_f64(span), rate)
    }

    /// Take the records of a saturation; return whether the capacities are known: it filled both directions, and the
    /// standard error is small, or the attempts are used up.
    pub fn take_saturation(
        &mut self,
        experiment: &Experiment,
        records: Both<&[PacketRecord]>,
        found: &mut Both<DirectionCalibration>,
    ) -> Result<bool> {
        let mut filled = true;
        for way in Way::BOTH {
            let Some((offered, share)) = delivered(experiment, records, way) else {
                continue;
            };
            let sent = records.of(way).len();
            let Some((mean, seconds)) = rate::saturated(records.of(way)) else {
                let arrived = records.of(way).iter().filter(|it| it.arrived_ns.is_some());
                let arrived = arrived.count();
                if !self.means.of(way).is_empty() {
                    found.of_mut(way).slowest_bps = Some(0); // a pause
                    continue;
                }
                return match arrived {
                    0 => nothing(way, Purpose::Saturation, sent),
                    some => lost(way, "packets", sent, some),
                };
            };
            let found = found.of_mut(way);
            let free = share > FILLED && offered < self.most_bps;
            if free {
                filled = false;
                *self.rough_bps.of_mut(way) = Some(RAISE * offered / SATURATION);
                self.means.of_mut(way).clear();
                self.seconds.of_mut(way).clear();
                found.slowest_bps = None;
            }
            self.means.of_mut(way).push(mean);
            self.seconds.of_mut(way).extend(seconds);
            let error = Estimate::of(self.seconds.of(way)).map_or(0.0, |seconds| seconds.error);
            let mean = Estimate::of(self.means.of(way)).map_or(mean, |it| it.mean);
            found.saturated_bps = mean as u64;
            found.saturated_error_bps = error as u64;
            *self.known.of_mut(way) = !free && self.knows(way) && error < PRECISION * mean;
            let slowest = rate::slowest_second(records.of(way)).unwrap_or(mean) as u64;
            found.slowest_bps = Some(found.slowest_bps.map_or(slowest, |it| it.min(slowest)));
            self.take_overload(way, records.of(way), found);
        }
        self.attempts += u32::from(!filled);
        let known = self.known.uplink && self.known.downlink;
        Ok(known || self.attempts == SATURATION_ATTEMPTS)
    }

    /// Return whether a direction was saturated for enough seconds to know its mean rate and standard error.
    pub fn knows(&self, way: Way) -> bool {
        self.seconds.of(way).len() >= FEWEST_SECONDS
    }

    /// Return an overload, beyond the capacity found, of the directions whose queue did not overflow so far, with at
    /// most `bytes`.
    pub fn overload(&self, found: &Both<DirectionCalibration>, bytes: f64) -> Option<Experiment> {
        let rate = |way| {
            let open = found.of(way).queue_bytes.is_none();
            open.then(|| (OVERLOAD * found.of(way).saturated_bps as f64).min(self.most_bps))
        };
        let total: f64 = Way::BOTH.into_iter().filter_map(rate).sum();
        let span = (8.0 * bytes / total).clamp(SHORTEST_OVERLOAD, OVERLOAD_SPAN);
        (total > 0.0)
            .then(|| design::saturation(Purpose::Queue, Duration::from_secs_f64(span), rate))
    }

    /// Find the limit of a queue in the records of an overload.
    pub fn take_overload(
        &self,
        way: Way,
        records: &[PacketRecord],
        found: &mut DirectionCalibration,
    ) {
        let least = self.least_delay_ns.of(way);
        match least.and_then(|least| rate::queue_limit(records, least)) {
            Some(QueueLimit::Bytes(bytes)) => {
                (found.queue_bytes, found.queue_at_least_bytes) = (Some(bytes), None);
            }
            Some(QueueLimit::AtLeast(bytes)) if found.queue_bytes.is_none() => {
                found.queue_at_least_bytes = found.queue_at_least_bytes.max(Some(bytes));
            }
            _ => {}
        }
    }

    /// Return a search for slow seconds, with at most `bytes` in its maximum time: packets at rates that slow seconds
    /// cannot carry. The search needs less traffic than a saturation, and seconds above its rate are fast enough.
    pub fn watch(&self, found: &Both<DirectionCalibration>, bytes: f64) -> Experiment {
        let capacity = |way| found.of(way).saturated_bps as f64;
        let total: f64 = Way::BOTH.into_iter().map(capacity).sum();
        let share = (8.0 * bytes / WATCHED_MOST.as_secs_f64() / total).clamp(LIGHT_SHARE, WATCH);
        design::saturation(Purpose::Watch, WATCH_SPAN, |way| {
            Some((share * capacity(way)).min(self.most_bps))
        })
    }

    /// Take the records of a search for slow seconds; return whether more are unlikely: all seconds were alike, or the
    /// second half of the search found none slower.
    pub fn take_watch(
        &mut self,
        experiment: &Experiment,
        records: Both<&[PacketRecord]>,
        found: &mut Both<DirectionCalibration>,
    ) -> bool {
        let mut steady = true;
        for way in Way::BOTH {
            let found = found.of_mut(way);
            found.watched_ns += WATCH_SPAN.as_nanos();
            let offered = experiment
                .workload
                .rate(way)
                .map_or(0.0, |rate| rate.0 as f64);
            let slowest = rate::slowest_second(records.of(way)).unwrap_or(0.0);
            let before = found.slowest_bps.unwrap_or(u64::MAX);
            let filled = offered > found.saturated_bps as f64;
            if (filled || slowest < SLOWED * offered) && (slowest as u64) < before {
                found.slowest_bps = Some(slowest as u64);
                self.slowest_since_ns = found.watched_ns;
            }
            let slowest = found.slowest_bps.unwrap_or(0) as f64;
            steady &= slowest >= STEADY * found.saturated_bps as f64;
        }
        let watched = Duration::from_nanos(found.uplink.watched_ns);
        let settled = watched >= WATCHED_LEAST && 2 * self.slowest_since_ns <= watched.as_nanos();
        steady || settled || watched >= WATCHED_MOST
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
