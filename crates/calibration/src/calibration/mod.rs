//! Calibration: the response of a network to trains of various lengths, gaps and packet sizes, and to saturation.
//! Procedures and section numbers follow Sentosa et al. ("CellReplay: Towards accurate record-and-replay for
//! cellular networks", NSDI 2025, §4.4).
//!
//! No input or output: a [`Calibrator`] returns the next experiment and accepts the results. The caller has the
//! sockets, or the [virtual network](crate::virtual_network).
//!
//! Choices not specified in the paper:
//!
//! * Gaps are from the start of one train to the start of the next, as in a recording.
//! * The error of a length is relative: the mean of |R*_L(N) − R_N(N)| / R_N(N).
//! * The order of trains is random train by train, and gaps vary by a tenth, so that trains do not keep meeting the
//!   same phase of the radio's frames.
//! * The bottleneck's rate is measured here, not by another program: by saturation at rates that grow fourfold.
//! * Experiments are repeated until the standard errors are small, within limits of time and bytes. Trains that met an
//!   earlier one do not count. Facts that stay unknown are [listed](Calibration::unknown).

mod design;
mod filling;
mod light;
mod rate;
mod result;
mod trains;
mod verdict;

use cellbed_link::random::Random;
use cellbed_link::{BitRate, Duration, Seed};

pub use design::{Experiment, Purpose};
pub use light::{add_regular, describe_turns, doubts, fit, regular};
pub use result::{
    Calibration, DirectionCalibration, GapProfile, LengthProfile, PredictionError, RoundTrips,
};

use crate::plan::{Both, PacketRecord, Train, Way, Workload};
use crate::{Error, Result};
use filling::Filling;
use trains::Arrivals;

/// IP length of the packets of trains and of saturation (§4.4).
pub const PACKET_BYTES: u16 = 1400;
const PACKET_BITS: f64 = 8.0 * PACKET_BYTES as f64;

/// Default maximum of packets in a server's answer.
const MOST_PACKETS: u16 = 1000;

/// Maximum relative standard error of a known quantity; `PRECISION_NS` is allowed in any case.
const PRECISION: f64 = 0.05;
const PRECISION_NS: f64 = 250e3;

/// Maximum share of single packets lost without a note, and maximum number lost by chance.
const MOST_LOST: f64 = 0.01;
const BY_CHANCE: usize = 4;

/// Minimum time for which a link holds up a lone packet in a pause, ns.
const PAUSE_NS: i64 = 900_000_000;

/// Maximum share of a queue for one train.
const QUEUE_SHARE: f64 = 0.8;

/// Limits of a calibration. It ends earlier if its results are precise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum duration.
    pub span: Duration,
    /// Maximum bytes in both directions, by IP lengths.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            span: Duration::from_secs(240),
            bytes: 300_000_000,
        }
    }
}

/// Return experiments one after another, and computes the parameters from their results.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, DelayConfig, Duration, Schedule, Seed};
/// use cellbed_calibration::calibration::Calibrator;
/// use cellbed_calibration::virtual_network::VirtualNetwork;
///
/// let stages = |mbps: u64| vec![
///     BottleneckConfig::new(Schedule::Constant(BitRate(mbps * 1_000_000))).into(),
///     DelayConfig::Fixed(Duration::from_millis(20)).into(),
/// ];
/// let mut network = VirtualNetwork::new(stages(3), stages(10));
/// let mut calibrator = Calibrator::new(Seed(1));
/// while let Some(experiment) = calibrator.next() {
///     let (up, down) = network.run(experiment); // over sockets this takes a while
///     calibrator.take(&up, &down).unwrap();
/// }
/// let calibration = calibrator.finish().unwrap();
/// assert!(calibration.directions.downlink.saturated_bps.abs_diff(10_000_000) < 100_000);
/// ```
#[derive(Clone, Debug)]
pub struct Calibrator {
    random: Random,
    /// Next experiment; `None` at the end.
    next: Option<Experiment>,
    filling: Filling,
    most_packets: u16,
    /// Gap of each block in the experiments on gaps, and trains per block.
    blocks: Vec<Duration>,
    block: usize,
    /// Gaps under test.
    gaps: Vec<Duration>,
    limits: Limits,
    /// Trains and records of all experiments with the current purpose.
    trains: Vec<Train>,
    records: Both<Vec<PacketRecord>>,
    found: Calibration,
    /// Numbers of single packets sent and lost.
    singles: Both<(usize, usize)>,
}

impl Calibrator {
    /// A calibration at its begin. seed: for the order of trains and their gaps.
    pub fn new(seed: Seed) -> Self {
        Self::within(Limits::default(), seed)
    }

    /// A calibration with other limits than the default.
    pub fn within(limits: Limits, seed: Seed) -> Self {
        let mut calibrator = Self {
            random: Random::new(seed),
            next: None,
            filling: Filling::new(),
            most_packets: MOST_PACKETS,
            blocks: Vec::new(),
            block: 1,
            gaps: Vec::new(),
            limits,
            trains: Vec::new(),
            records: Both::default(),
            found: Calibration::default(),
            singles: Both::default(),
        };
        // A second at this rate takes a quarter of the bytes.
        calibrator.filling.limit(BitRate(2 * limits.bytes));
        calibrator.next = Some(calibrator.filling.search());
        calibrator
    }

    /// Return the limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Set the maximum rate from now on, such as a server's offer or a tariff's limit. A network with a higher rate is
    /// reported with this rate.
    pub fn limit(&mut self, rate: BitRate, answer_packets: u16) {
        self.filling.limit(rate);
        self.most_packets = self.most_packets.min(answer_packets);
    }

    /// Return the current experiment, the same until [`take`](Self::take) gets its results; `None` at the end.
    /// Interrupted experiments can be repeated.
    pub fn next(&self) -> Option<&Experiment> {
        self.next.as_ref()
    }

    /// Return the step number of the next experiment, and the number of steps.
    pub fn step(&self) -> (usize, usize) {
        let steps = Purpose::ORDER;
        let step = |next: &Experiment| steps.iter().position(|it| it.0 == next.purpose);
        let step = self.next.as_ref().and_then(step);
        (step.map_or(steps.len(), |it| it + 1), steps.len())
    }

    /// Accept the packet records of the [experiment](Self::next), in any order. Packets never sent, such as answers to
    /// lost ones, may be missing; lost packets of a saturation must be included.
    ///
    /// # Errors
    ///
    /// Nothing or hardly anything arrived.
    pub fn take(&mut self, up: &[PacketRecord], down: &[PacketRecord]) -> Result<()> {
        let Some(experiment) = self.next.take() else {
            return Ok(());
        };
        let records = Both {
            uplink: up,
            downlink: down,
        };
        self.account(&experiment, records);
        let done = self.take_records(&experiment, records)?;
        let order = Purpose::ORDER.into_iter();
        let mut order = order.skip_while(|(purpose, ..)| *purpose != experiment.purpose);
        let (_, span, bytes) = order.clone().next().unwrap_or(Purpose::ORDER[0]);
        let room = self.found.span_ns as f64 <= span * self.limits.span.as_nanos() as f64
            && self.found.bytes as f64 <= bytes * self.limits.bytes as f64;
        if done || !room && experiment.purpose != Purpose::Search {
            order.next();
            self.trains.clear();
            self.records = Both::default();
        }
        self.next = order.find_map(|(purpose, ..)| self.design(purpose));
        Ok(())
    }

    /// Add the time and the bytes of an experiment.
    fn account(&mut self, experiment: &Experiment, records: Both<&[PacketRecord]>) {
        let all = || records.uplink.iter().chain(records.downlink);
        let times = all().flat_map(|it| [it.sent_ns, it.arrived_ns]).flatten();
        let first = times.clone().min().unwrap_or(0);
        let active = times.max().map_or(0, |last| last.abs_diff(first));
        self.found.span_ns += active + experiment.quiet.as_nanos();
        self.found.bytes += all().map(|it| u64::from(it.bytes)).sum::<u64>();
    }

    /// Return the bytes that are left until a share of the limit is used up.
    fn left(&self, share: f64) -> f64 {
        (share * self.limits.bytes as f64 - self.found.bytes as f64).max(0.0)
    }

    /// Return the maximum length of trains: within four fifths of the queue, and a thousandth of the bytes.
    fn longest(&self, way: Way) -> u16 {
        let queue = self.found.directions.of(way).queue_bytes;
        let most = QUEUE_SHARE * queue.map_or(f64::MAX, |bytes| bytes as f64);
        let packets = most.min(1e-3 * self.limits.bytes as f64) / f64::from(PACKET_BYTES);
        self.most_packets.min((packets as u16).max(1))
    }

    /// Return the lengths of trains, and the rate of slow seconds.
    fn lengths(&self, way: Way) -> (Vec<u16>, f64) {
        let found = self.found.directions.of(way);
        let rate = found.saturated_bps as f64;
        let longest = self.longest(way);
        let mut lengths = design::lengths(rate, longest);
        lengths.retain(|&length| length <= longest.max(design::SHORTEST));
        (lengths, found.expected_slowest_bps().max(0.25 * rate))
    }

    fn design(&mut self, purpose: Purpose) -> Option<Experiment> {
        let directions = &self.found.directions;
        Some(match purpose {
            Purpose::Search => self.filling.search(),
            Purpose::Saturation => self.filling.saturation(self.left(0.5)),
            Purpose::Queue => self.filling.overload(directions, self.left(0.6))?,
            Purpose::Watch => self.filling.watch(directions, 0.3 * self.left(1.0)),
            Purpose::RoundTrips => design::round_trips(&mut self.random),
            Purpose::Trains(way) => {
                let (lengths, slow) = self.lengths(way);
                design::trains(way, &lengths, slow, &mut self.random)
            }
            Purpose::Gaps(way) => {
                let found = directions.of(way);
                let mut lengths = found.lengths.iter();
                let chosen = lengths.find(|profile| profile.length == found.train)?;
                self.gaps = design::gaps(chosen.last_ns());
                let gaps = self.gaps.clone();
                let (experiment, blocks, block) =
                    design::gap_blocks(way, found.train, gaps, &mut self.random);
                if self.trains.is_empty() {
                    self.blocks.clear();
                }
                self.blocks.extend(blocks);
                self.block = block;
                experiment
            }
            Purpose::Sizes(way) => design::size_rounds(way, &mut self.random),
        })
    }

    /// Accept the records of an experiment; return whether its purpose is fulfilled.
    fn take_records(
        &mut self,
        experiment: &Experiment,
        records: Both<&[PacketRecord]>,
    ) -> Result<bool> {
        let directions = &mut self.found.directions;
        let filling = &mut self.filling;
        match experiment.purpose {
            Purpose::Search => return filling.take_search(experiment, records),
            Purpose::Saturation => return filling.take_saturation(experiment, records, directions),
            Purpose::Watch => return Ok(filling.take_watch(experiment, records, directions)),
            Purpose::Queue => {
                for way in Way::BOTH {
                    filling.take_overload(way, records.of(way), directions.of_mut(way));
                }
                return Ok(true);
            }
            _ => {}
        }
        for way in Way::BOTH {
            if trains::longest_stall(records.of(way)) >= PAUSE_NS {
                directions.of_mut(way).slowest_bps = Some(0);
            }
        }
        // Experiments with one purpose count as one.
        let number = self.trains.len() as u32;
        if let Workload::Trains(plan) = &experiment.workload {
            self.trains.extend(&plan.rotation);
        }
        for way in Way::BOTH {
            let renumbered = records.of(way).iter().map(|record| PacketRecord {
                train: record.train + number,
                ..*record
            });
            self.records.of_mut(way).extend(renumbered);
        }
        let lengths = Both::from_fn(|way| self.lengths(way).0);
        let (trains, records) = (&self.trains, &self.records);
        let directions = &mut self.found.directions;
        Ok(match experiment.purpose {
            Purpose::RoundTrips => {
                let times = trains::round_trips(trains, records)?;
                let quantile = |share| rate::quantile(&times, share).unwrap_or(0.0);
                self.found.round_trip_ns = RoundTrips {
                    p5: quantile(0.05) as i64,
                    median: quantile(0.5) as i64,
                    p95: quantile(0.95) as i64,
                };
                let known = rate::median_is_known(&times);
                self.take_singles(number);
                known
            }
            Purpose::Trains(way) => {
                let arrivals = Arrivals::new(way, trains, records.of(way));
                let found = directions.of_mut(way);
                found.lengths = trains::profiles(way, lengths.of(way), &arrivals)?;
                (found.train, found.errors) =
                    trains::choice(&found.lengths, found.saturated_bps as f64);
                let mut profiles = found.lengths.iter();
                profiles.all(|it| is_precise(it.last_ns() as f64, it.last_error_ns as f64))
            }
            Purpose::Gaps(way) => {
                let arrivals = Arrivals::new(way, trains, records.of(way));
                let found = directions.of_mut(way);
                found.gaps = trains::gap_profiles(&self.gaps, &self.blocks, self.block, &arrivals);
                (found.least_gap_ns, found.idle_ns) = trains::least_gap(&found.gaps);
                let mut profiles = found.gaps.iter();
                number > 0
                    && profiles.all(|it| is_precise(it.last_ns as f64, it.last_error_ns as f64))
            }
            Purpose::Sizes(way) => {
                let (offsets, errors) = trains::size_offsets(way, trains, records.of(way))?;
                let largest = offsets[0].1.abs() as f64;
                let known = errors
                    .iter()
                    .all(|&error| is_precise(largest, error as f64));
                *self.found.compensation.of_mut(way) = offsets;
                *self.found.compensation_error_ns.of_mut(way) = errors;
                self.take_singles(number);
                known
            }
            _ => true,
        })
    }

    /// Return the result of the calibration.
    ///
    /// # Errors
    ///
    /// An experiment is [left](Self::next).
    pub fn finish(mut self) -> Result<Calibration> {
        if let Some(Experiment { purpose, .. }) = self.next {
            return Err(Error(format!(
                "the calibration is not finished: {purpose} is missing. Run `cellbed calibrate` again"
            )));
        }
        self.found.unknown = verdict::unknown(&self.found, &self.singles, &self.filling);
        if self.found.bytes >= self.limits.bytes
            || self.found.span_ns >= self.limits.span.as_nanos()
        {
            self.found.unknown.push(format!(
                "The calibration ended at its limit of {:.0} s and {} MB.",
                self.limits.span.as_secs_f64(),
                self.limits.bytes / 1_000_000
            ));
        }
        self.found.verdict = verdict::verdict(&self.found);
        Ok(self.found)
    }

    /// Count the losses of single packets, each with a single answer. first: number of the first new train.
    fn take_singles(&mut self, first: u32) {
        let arrived = |way| {
            let records: &Vec<PacketRecord> = self.records.of(way);
            let new = records.iter().filter(|it| it.train >= first);
            new.filter(|it| it.arrived_ns.is_some()).count()
        };
        let (up, down) = (arrived(Way::Uplink), arrived(Way::Downlink));
        let sent = self.trains.len() - first as usize;
        for (way, sent, arrived) in [(Way::Uplink, sent, up), (Way::Downlink, up, down)] {
            let (all, lost) = self.singles.of_mut(way);
            *all += sent;
            *lost += sent.saturating_sub(arrived);
        }
    }
}

/// Return whether the standard error of a value is small.
fn is_precise(value: f64, error: f64) -> bool {
    error <= PRECISION * value.abs() + PRECISION_NS
}

fn nothing<T>(way: Way, purpose: Purpose, sent: usize) -> Result<T> {
    Err(Error(format!(
        "nothing arrived {way} ({purpose}): none of {sent} packets. Is the server running, and does UDP of 1400 bytes \
         pass both ways?"
    )))
}
