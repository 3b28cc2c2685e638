//! Calibration: what a network does to trains of various lengths, gaps and packet sizes, and to saturation, by the
//! procedures of Sentosa et al. ("CellReplay: Towards accurate record-and-replay for cellular networks", NSDI 2025,
//! §4.4; sections named here are that paper's).
//!
//! Pure: a [`Calibrator`] returns what to send next and accepts the outcome. Its driver has the sockets, or the
//! [virtual network](crate::virtual_network).
//!
//! Choices where the paper leaves something open:
//!
//! * Gaps are from the start of one train to the start of the next, as in a recording.
//! * The error of a length is relative: the mean of |R*_L(N) − R_N(N)| / R_N(N).
//! * The order of trains is random train by train, and gaps vary by a tenth, so that trains do not keep meeting the
//!   same phase of the radio's frames.
//! * The bottleneck's rate is not asked of another program but found by saturation at rates that grow fourfold.

mod design;
mod error;
mod estimate;
mod experiment;
mod filling;
mod found;
mod rate;
mod result;
mod sizes;
mod trains;
mod verdict;

use cellbed_link::random::Random;
use cellbed_link::{BitRate, Duration, Seed};

pub use error::CalibrationError;
pub use experiment::{Experiment, Purpose, TimedTrain, Workload};
pub use result::{
    Both, Calibration, DirectionCalibration, GapProfile, LengthProfile, PredictionError, RoundTrips,
};

use crate::packet::{PacketRecord, Way};
use filling::Filling;
use found::Found;
use trains::Arrivals;

/// IP length of the packets of trains and of saturation (§4.4).
pub const PACKET_BYTES: u16 = 1400;
const PACKET_BITS: f64 = 8.0 * PACKET_BYTES as f64;

/// Default maximum of a server's answers.
const MOST_PACKETS: u16 = 1000;

/// Share of single packets that may be lost, and number that may be by chance.
const MOST_LOST: f64 = 0.01;
const BY_CHANCE: usize = 4;

/// Asks for experiments one after another, and finds the parameters in their results.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, DelayConfig, Duration, Schedule, Seed};
/// use cellbed_recorder::calibration::Calibrator;
/// use cellbed_recorder::virtual_network::VirtualNetwork;
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
    /// Of each block of the experiment on gaps.
    blocks: Vec<Duration>,
    found: Both<Found>,
    round_trip_ns: RoundTrips,
    /// Single packets sent, and lost.
    singles: Both<(usize, usize)>,
}

impl Calibrator {
    /// At the beginning. seed: of the order of trains and of their gaps.
    pub fn new(seed: Seed) -> Self {
        let mut calibrator = Self {
            random: Random::new(seed),
            next: None,
            filling: Filling::new(),
            most_packets: MOST_PACKETS,
            blocks: Vec::new(),
            found: Both::default(),
            round_trip_ns: RoundTrips::default(),
            singles: Both::default(),
        };
        calibrator.next = Some(calibrator.filling.search());
        calibrator
    }

    /// Asks for no more than this from now on: what a server offers, or what a tariff bears. A network with a higher
    /// rate is reported with this one.
    pub fn limit(&mut self, rate: BitRate, answer_packets: u16) {
        self.filling.limit(rate);
        self.most_packets = self.most_packets.min(answer_packets);
    }

    /// The experiment to make now, the same until its results have been [taken](Self::take); `None` at the end. One
    /// that was broken off can be made again.
    pub fn next(&self) -> Option<&Experiment> {
        self.next.as_ref()
    }

    /// Returns the number of the step that the next experiment belongs to, and the number of steps.
    pub fn step(&self) -> (usize, usize) {
        let steps = Purpose::ORDER;
        let step = |next: &Experiment| steps.iter().position(|it| *it == next.purpose);
        let step = self.next.as_ref().and_then(step);
        (step.map_or(steps.len(), |it| it + 1), steps.len())
    }

    /// Takes what became of the packets of the [experiment](Self::next), in any order. Packets that were never sent,
    /// such as answers to lost ones, may be missing; a lost packet of a saturation must not be.
    pub fn take(
        &mut self,
        up: &[PacketRecord],
        down: &[PacketRecord],
    ) -> Result<(), CalibrationError> {
        let Some(experiment) = self.next.clone() else {
            return Ok(());
        };
        let records = Both {
            uplink: up,
            downlink: down,
        };
        self.next = match (experiment.purpose, &experiment.workload) {
            (Purpose::Search, workload) => {
                let found = &mut self.found;
                Some(if self.filling.take_search(workload, records, found)? {
                    self.filling.saturation()
                } else {
                    self.filling.search()
                })
            }
            (Purpose::Saturation, workload) => {
                let found = &mut self.found;
                Some(if self.filling.take_saturation(workload, records, found)? {
                    self.filling.overload(found)
                } else {
                    self.filling.saturation()
                })
            }
            (Purpose::Queue, _) => {
                for way in Way::BOTH {
                    self.found.of_mut(way).take_overload(records.of(way));
                }
                Some(design::round_trips(&mut self.random))
            }
            (Purpose::RoundTrips, Workload::Trains(trains)) => {
                self.take_round_trips(trains, records)?;
                self.take_singles(trains.len(), records)?;
                Some(self.trains(Way::Uplink))
            }
            (Purpose::Trains(way), Workload::Trains(trains)) => {
                self.take_trains(way, &Arrivals::new(way, trains, records.of(way)))?;
                Some(match way {
                    Way::Uplink => self.trains(Way::Downlink),
                    Way::Downlink => self.gaps(Way::Uplink),
                })
            }
            (Purpose::Gaps(way), Workload::Trains(trains)) => {
                self.take_gaps(way, &Arrivals::new(way, trains, records.of(way)))?;
                Some(match way {
                    Way::Uplink => self.gaps(Way::Downlink),
                    Way::Downlink => design::size_rounds(Way::Uplink, &mut self.random),
                })
            }
            (Purpose::Sizes(way), Workload::Trains(trains)) => {
                let offsets = sizes::offsets(way, trains, records.of(way))?;
                self.take_singles(trains.len(), records)?;
                let found = self.found.of_mut(way);
                (found.offsets, found.offset_errors) = (offsets.offsets, offsets.errors);
                (way == Way::Uplink).then(|| design::size_rounds(Way::Downlink, &mut self.random))
            }
            // Saturation is no answer to the questions above.
            (_, Workload::Saturation { .. }) => None,
        };
        Ok(())
    }

    /// Return the result of the calibration.
    ///
    /// # Errors
    ///
    /// If there is an experiment [left](Self::next).
    pub fn finish(self) -> Result<Calibration, CalibrationError> {
        if let Some(next) = self.next {
            return Err(CalibrationError::Unfinished { next: next.purpose });
        }
        let Both { uplink, downlink } = self.found;
        let mut calibration = Calibration {
            compensation: Both {
                uplink: uplink.offsets.clone(),
                downlink: downlink.offsets.clone(),
            },
            compensation_error_ns: Both {
                uplink: uplink.offset_errors.clone(),
                downlink: downlink.offset_errors.clone(),
            },
            directions: Both {
                uplink: uplink.into(),
                downlink: downlink.into(),
            },
            round_trip_ns: self.round_trip_ns,
            verdict: Vec::new(),
        };
        calibration.verdict = verdict::verdict(&calibration);
        Ok(calibration)
    }

    fn take_round_trips(
        &mut self,
        trains: &[TimedTrain],
        records: Both<&[PacketRecord]>,
    ) -> Result<(), CalibrationError> {
        let answers = Arrivals::new(Way::Downlink, trains, records.downlink);
        let times = trains::round_trips(records.uplink, trains, &answers);
        let times: Vec<f64> = times.into_iter().flatten().collect();
        trains::enough(
            Way::Downlink,
            Purpose::RoundTrips,
            trains.len(),
            times.len(),
        )?;
        let quantile = |share| estimate::quantile(&times, share).map_or(0, |time| time as i64);
        self.round_trip_ns = RoundTrips {
            p5: quantile(0.05),
            median: quantile(0.5),
            p95: quantile(0.95),
        };
        Ok(())
    }

    /// Count the losses of single packets, each answered by one.
    fn take_singles(
        &mut self,
        sent: usize,
        records: Both<&[PacketRecord]>,
    ) -> Result<(), CalibrationError> {
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
                let (sent, lost) = (*all, *lost);
                return Err(CalibrationError::Lossy { way, sent, lost });
            }
        }
        Ok(())
    }

    fn trains(&mut self, way: Way) -> Experiment {
        let rate = self.found.of(way).saturated_bps;
        design::trains(way, rate, self.most_packets, &mut self.random)
    }

    fn take_trains(&mut self, way: Way, arrivals: &Arrivals) -> Result<(), CalibrationError> {
        let found = self.found.of_mut(way);
        let lengths = design::lengths(found.saturated_bps, self.most_packets);
        found.lengths = trains::profiles(way, &lengths, arrivals)?;
        (found.train, found.errors) = trains::choice(&found.lengths, found.saturated_bps);
        Ok(())
    }

    fn gaps(&mut self, way: Way) -> Experiment {
        let found = self.found.of(way);
        let (experiment, blocks) =
            design::gap_blocks(way, found.train, found.saturated_bps, &mut self.random);
        self.blocks = blocks;
        experiment
    }

    fn take_gaps(&mut self, way: Way, arrivals: &Arrivals) -> Result<(), CalibrationError> {
        let found = self.found.of_mut(way);
        let gaps = design::gaps(found.saturated_bps);
        found.gaps = trains::gap_profiles(way, &gaps, &self.blocks, arrivals)?;
        Ok(())
    }
}
