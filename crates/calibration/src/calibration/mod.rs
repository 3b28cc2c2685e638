//! Calibration: the response of a network to trains of various lengths, gaps and packet sizes, and to saturation.
//! Procedures and section numbers are those of Sentosa et al. ("CellReplay: Towards accurate record-and-replay for
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

mod design;
mod filling;
mod rate;
mod result;
mod trains;
mod verdict;

use cellbed_link::random::Random;
use cellbed_link::{BitRate, Duration, Seed};

pub use design::{Experiment, Purpose};
pub use result::{
    Calibration, DirectionCalibration, GapProfile, LengthProfile, PredictionError, RoundTrips,
};

use crate::plan::{Both, PacketRecord, TimedTrain, Way, Workload};
use crate::{Error, Result};
use filling::Filling;
use trains::Arrivals;

/// IP length of the packets of trains and of saturation (§4.4).
pub const PACKET_BYTES: u16 = 1400;
const PACKET_BITS: f64 = 8.0 * PACKET_BYTES as f64;

/// Default maximum of packets in a server's answer.
const MOST_PACKETS: u16 = 1000;

/// Maximum share of single packets lost, and maximum number lost by chance.
const MOST_LOST: f64 = 0.01;
const BY_CHANCE: usize = 4;

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
    /// Gap of each block in the experiment on gaps.
    blocks: Vec<Duration>,
    found: Calibration,
    /// Numbers of single packets sent and lost.
    singles: Both<(usize, usize)>,
}

impl Calibrator {
    /// A calibration at its begin. seed: for the order of trains and their gaps.
    pub fn new(seed: Seed) -> Self {
        let mut calibrator = Self {
            random: Random::new(seed),
            next: None,
            filling: Filling::new(),
            most_packets: MOST_PACKETS,
            blocks: Vec::new(),
            found: Calibration::default(),
            singles: Both::default(),
        };
        calibrator.next = Some(calibrator.filling.search());
        calibrator
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
        let step = |next: &Experiment| steps.iter().position(|it| *it == next.purpose);
        let step = self.next.as_ref().and_then(step);
        (step.map_or(steps.len(), |it| it + 1), steps.len())
    }

    /// Accept the packet records of the [experiment](Self::next), in any order. Packets never sent, such as answers to
    /// lost ones, may be missing; lost packets of a saturation must be included.
    ///
    /// # Errors
    ///
    /// Too many packets were lost.
    pub fn take(&mut self, up: &[PacketRecord], down: &[PacketRecord]) -> Result<()> {
        let Some(experiment) = self.next.clone() else {
            return Ok(());
        };
        let records = Both {
            uplink: up,
            downlink: down,
        };
        let done = self.take_records(&experiment, records)?;
        let order = Purpose::ORDER.into_iter();
        let mut order = order.skip_while(|purpose| *purpose != experiment.purpose);
        let next = order.nth(done.into());
        self.next = next.map(|purpose| self.design(purpose));
        Ok(())
    }

    fn design(&mut self, purpose: Purpose) -> Experiment {
        let random = &mut self.random;
        let directions = &self.found.directions;
        match purpose {
            Purpose::Search => self.filling.search(),
            Purpose::Saturation => self.filling.saturation(),
            Purpose::Queue => self.filling.overload(directions),
            Purpose::RoundTrips => design::round_trips(random),
            Purpose::Trains(way) => {
                let rate = directions.of(way).saturated_bps as f64;
                design::trains(way, rate, self.most_packets, random)
            }
            Purpose::Gaps(way) => {
                let found = directions.of(way);
                let (length, rate) = (found.train, found.saturated_bps as f64);
                let (experiment, blocks) = design::gap_blocks(way, length, rate, random);
                self.blocks = blocks;
                experiment
            }
            Purpose::Sizes(way) => design::size_rounds(way, random),
        }
    }

    /// Accept the records of an experiment; return whether its purpose is fulfilled.
    fn take_records(
        &mut self,
        experiment: &Experiment,
        records: Both<&[PacketRecord]>,
    ) -> Result<bool> {
        let trains: &[TimedTrain] = match &experiment.workload {
            Workload::Timed(trains) => trains,
            _ => &[],
        };
        let directions = &mut self.found.directions;
        match experiment.purpose {
            Purpose::Search => return self.filling.take_search(experiment, records),
            Purpose::Saturation => {
                let filling = &mut self.filling;
                return filling.take_saturation(experiment, records, directions);
            }
            Purpose::Queue => self.filling.take_overload(records, directions),
            Purpose::RoundTrips => {
                self.take_round_trips(trains, records)?;
                self.take_singles(trains.len(), records)?;
            }
            Purpose::Trains(way) => {
                let arrivals = Arrivals::new(way, trains, records.of(way));
                let found = directions.of_mut(way);
                let rate = found.saturated_bps as f64;
                let lengths = design::lengths(rate, self.most_packets);
                found.lengths = trains::profiles(way, &lengths, &arrivals)?;
                (found.train, found.errors) = trains::choice(&found.lengths, rate);
            }
            Purpose::Gaps(way) => {
                let arrivals = Arrivals::new(way, trains, records.of(way));
                let found = directions.of_mut(way);
                let gaps = design::gaps(found.saturated_bps as f64);
                found.gaps = trains::gap_profiles(way, &gaps, &self.blocks, &arrivals)?;
                (found.least_gap_ns, found.idle_ns) = trains::least_gap(&found.gaps);
            }
            Purpose::Sizes(way) => {
                let (offsets, errors) = trains::size_offsets(way, trains, records.of(way))?;
                self.take_singles(trains.len(), records)?;
                *self.found.compensation.of_mut(way) = offsets;
                *self.found.compensation_error_ns.of_mut(way) = errors;
            }
        }
        Ok(true)
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
        self.found.verdict = verdict::verdict(&self.found);
        Ok(self.found)
    }

    fn take_round_trips(
        &mut self,
        trains: &[TimedTrain],
        records: Both<&[PacketRecord]>,
    ) -> Result<()> {
        let answers = Arrivals::new(Way::Downlink, trains, records.downlink);
        let times = trains::round_trips(records.uplink, trains, &answers);
        let purpose = Purpose::RoundTrips;
        trains::enough(Way::Downlink, purpose, trains.len(), times.len())?;
        let quantile = |share| rate::quantile(&times, share).map_or(0, |time| time as i64);
        self.found.round_trip_ns = RoundTrips {
            p5: quantile(0.05),
            median: quantile(0.5),
            p95: quantile(0.95),
        };
        Ok(())
    }

    /// Count the losses of single packets, each with a single answer.
    fn take_singles(&mut self, sent: usize, records: Both<&[PacketRecord]>) -> Result<()> {
        let arrived = |way| {
            let records: &[PacketRecord] = records.of(way);
            records.iter().filter(|it| it.arrived_ns.is_some()).count()
        };
        let up = arrived(Way::Uplink);
        for (way, sent, arrived) in [
            (Way::Uplink, sent, up),
            (Way::Downlink, up, arrived(Way::Downlink)),
        ] {
            let (all, lost) = self.singles.of_mut(way);
            *all += sent;
            *lost += sent.saturating_sub(arrived);
            if *lost > BY_CHANCE && *lost as f64 > MOST_LOST * *all as f64 {
                return Err(Error(format!(
                    "{lost} of {all} single packets were lost {way}, more than 1 %: a light workload would record \
                     losses that no load has caused. Move to a better signal, or remove what loses packets, such as a \
                     loss or a tiny queue of an emulated link. To record such a network all the same: \
                     --no-calibration with --light-train, --gap, --uplink-rate and --downlink-rate"
                )));
            }
        }
        Ok(())
    }
}

fn nothing<T>(way: Way, purpose: Purpose, sent: usize) -> Result<T> {
    Err(Error(format!(
        "nothing arrived {way} ({purpose}): none of {sent} packets. Is the server running, and does UDP of 1400 bytes \
         pass both ways?"
    )))
}
