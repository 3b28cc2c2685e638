//! Calibration: what a network does to trains of various lengths, gaps and packet sizes, and to saturation, by the procedures of Sentosa et
//! al. ("CellReplay: Towards accurate record-and-replay for cellular networks", NSDI 2025, §4.4; sections named here are that paper's).
//!
//! Pure: a [`Calibrator`] says what to send next and is told what became of it. Whoever drives it has the sockets, or the
//! [virtual network](crate::virtual_network).
//!
//! Where the paper leaves something open:
//!
//! * Gaps are told from the start of one train to that of the next, as in a recording.
//! * The error of a length is relative: the mean of |R*_L(N) − R_N(N)| / R_N(N).
//! * The order of trains is random train by train, and gaps vary by a tenth, so that trains do not keep meeting the same phase of the radio's
//!   frames.
//! * The bottleneck's rate is not asked of another program but found by saturation at rates that grow fourfold.

mod design;
mod error;
mod estimate;
mod experiment;
mod rate;
mod result;
mod sizes;
mod trains;
mod verdict;

use cellbed_link::random::Random;
use cellbed_link::{Duration, Seed};

pub use error::CalibrationError;
pub use experiment::{Experiment, Purpose, TimedTrain, Workload};
pub use result::{
    Both, Calibration, DirectionCalibration, GapProfile, LengthProfile, PredictionError, RoundTrips,
};

use crate::packet::{PacketRecord, Way};
use rate::QueueLimit;
use trains::Arrivals;

/// IP length of the packets of trains and of saturation (§4.4).
pub const PACKET_BYTES: u16 = 1400;
const PACKET_BITS: f64 = 8.0 * PACKET_BYTES as f64;

/// The search for the rate begins here, and ends at a network that takes this much.
const SEARCH_FROM_BPS: f64 = 1e6;
const SEARCH_TO_BPS: f64 = 4.1e9;
const SEARCH_STEP: f64 = 4.0;
const SEARCH_SPAN: Duration = Duration::from_secs(1);
/// A link that delivers less than this share of what is sent is filled.
const FILLED: f64 = 0.9;
/// How much more than the rate is sent in a saturation (§4.2), and until a queue overflows.
const SATURATION: f64 = 1.25;
const OVERLOAD: f64 = 3.0;
const SATURATION_SPAN: Duration = Duration::from_secs(8);
const OVERLOAD_SPAN: Duration = Duration::from_secs(2);
/// How often a saturation is tried, and how much more is sent when the one before did not fill the link.
const SATURATION_ATTEMPTS: u32 = 3;
const RAISE: f64 = 2.0;

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
    /// What comes next; `None` at the end.
    next: Option<Experiment>,
    /// At which rate the search is, and what it has found.
    search_bps: f64,
    rough_bps: Both<Option<f64>>,
    attempts: u32,
    /// Of each block of the experiment on gaps.
    blocks: Vec<Duration>,
    found: Both<Found>,
    round_trip_ns: RoundTrips,
}

/// What has been found out of a direction so far.
#[derive(Clone, Debug, Default)]
struct Found {
    /// One way, with the offset of the clocks.
    least_delay_ns: Option<i64>,
    saturated_bps: f64,
    saturated_error_bps: f64,
    queue: Option<QueueLimit>,
    train: u16,
    lengths: Vec<LengthProfile>,
    errors: Vec<PredictionError>,
    gaps: Vec<GapProfile>,
    offsets: Vec<(u16, i64)>,
    offset_errors: Vec<u64>,
}

impl Calibrator {
    /// At the beginning. The seed is that of the order of trains and of their gaps.
    pub fn new(seed: Seed) -> Self {
        let mut calibrator = Self {
            random: Random::new(seed),
            next: None,
            search_bps: SEARCH_FROM_BPS,
            rough_bps: Both::default(),
            attempts: 0,
            blocks: Vec::new(),
            found: Both::default(),
            round_trip_ns: RoundTrips::default(),
        };
        calibrator.next = Some(calibrator.search());
        calibrator
    }

    /// The experiment to make now, the same until its results have been [taken](Self::take); `None` at the end. One that was broken off can
    /// be made again.
    pub fn next(&self) -> Option<&Experiment> {
        self.next.as_ref()
    }

    /// About how long what is left will take. At the beginning, when nothing is known of the network, that is what a network that takes
    /// 300 Mbit/s needs; it is never more than five minutes.
    pub fn remaining(&self) -> Duration {
        let Some(next) = &self.next else {
            return Duration::ZERO;
        };
        let behind = Purpose::ORDER
            .iter()
            .skip_while(|purpose| **purpose != next.purpose);
        let later = behind.skip(1).map(|purpose| self.expected(*purpose));
        later.fold(next.span(), |sum, span| sum + span)
    }

    /// Takes what became of the packets of the [experiment](Self::next), in any order. Packets that were never sent, such as answers to lost
    /// ones, may be missing; a lost packet of a saturation must not be.
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
                self.take_search(workload.span(), records)?;
                Some(
                    if self.rough_bps.uplink.is_some() && self.rough_bps.downlink.is_some() {
                        self.saturation()
                    } else {
                        self.search_bps *= SEARCH_STEP;
                        self.search()
                    },
                )
            }
            (Purpose::Saturation, workload) => {
                Some(if self.take_saturation(workload.span(), records)? {
                    self.overload()
                } else {
                    self.saturation()
                })
            }
            (Purpose::Queue, _) => {
                for way in Way::BOTH {
                    let found = self.found.of_mut(way);
                    found.queue = found
                        .least_delay_ns
                        .and_then(|least| rate::queue_limit(records.of(way), least));
                }
                Some(design::round_trips(&mut self.random))
            }
            (Purpose::RoundTrips, Workload::Trains(trains)) => {
                self.take_round_trips(trains, records)?;
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
                let found = self.found.of_mut(way);
                (found.offsets, found.offset_errors) = (offsets.offsets, offsets.errors);
                (way == Way::Uplink).then(|| design::size_rounds(Way::Downlink, &mut self.random))
            }
            // Saturation is no answer to the questions above.
            (_, Workload::Saturation { .. }) => None,
        };
        Ok(())
    }

    /// What has been found.
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

    fn search(&self) -> Experiment {
        let rate = |way| self.rough_bps.of(way).is_none().then_some(self.search_bps);
        design::saturation(
            Purpose::Search,
            rate(Way::Uplink),
            rate(Way::Downlink),
            SEARCH_SPAN,
        )
    }

    fn take_search(
        &mut self,
        span: Duration,
        records: Both<&[PacketRecord]>,
    ) -> Result<(), CalibrationError> {
        for way in Way::BOTH {
            if self.rough_bps.of(way).is_some() {
                continue;
            }
            let share = rate::delivered(records.of(way), self.search_bps, span.as_nanos() as i64);
            if share == 0.0 {
                return Err(nothing(way, Purpose::Search, records));
            }
            let least = &mut self.found.of_mut(way).least_delay_ns;
            *least = [*least, rate::least_delay(records.of(way))]
                .into_iter()
                .flatten()
                .min();
            if share < FILLED || self.search_bps * SEARCH_STEP > SEARCH_TO_BPS {
                *self.rough_bps.of_mut(way) = Some(share * self.search_bps);
            }
        }
        Ok(())
    }

    fn saturation(&self) -> Experiment {
        let rate = |way| self.rough_bps.of(way).map(|rate| SATURATION * rate);
        design::saturation(
            Purpose::Saturation,
            rate(Way::Uplink),
            rate(Way::Downlink),
            SATURATION_SPAN,
        )
    }

    /// Whether it filled both directions.
    fn take_saturation(
        &mut self,
        span: Duration,
        records: Both<&[PacketRecord]>,
    ) -> Result<bool, CalibrationError> {
        self.attempts += 1;
        let mut filled = true;
        for way in Way::BOTH {
            let estimate = rate::saturated(records.of(way))
                .ok_or_else(|| nothing(way, Purpose::Saturation, records))?;
            let found = self.found.of_mut(way);
            (found.saturated_bps, found.saturated_error_bps) = (estimate.mean, estimate.error);
            let rough = self.rough_bps.of_mut(way);
            let sent = SATURATION * rough.unwrap_or(estimate.mean);
            if rate::delivered(records.of(way), sent, span.as_nanos() as i64) > FILLED
                && sent < SEARCH_TO_BPS
            {
                filled = false;
                *rough = Some(RAISE * sent / SATURATION);
            }
        }
        Ok(filled || self.attempts == SATURATION_ATTEMPTS)
    }

    fn overload(&self) -> Experiment {
        let rate = |way| Some(OVERLOAD * self.found.of(way).saturated_bps);
        design::saturation(
            Purpose::Queue,
            rate(Way::Uplink),
            rate(Way::Downlink),
            OVERLOAD_SPAN,
        )
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

    fn trains(&mut self, way: Way) -> Experiment {
        design::trains(way, self.found.of(way).saturated_bps, &mut self.random)
    }

    fn take_trains(&mut self, way: Way, arrivals: &Arrivals) -> Result<(), CalibrationError> {
        let found = self.found.of_mut(way);
        found.lengths = trains::profiles(way, &design::lengths(found.saturated_bps), arrivals)?;
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

    /// How long an experiment will take that is not planned yet.
    fn expected(&self, purpose: Purpose) -> Duration {
        /// Assumed of a network of which nothing is known.
        const UNKNOWN_BPS: f64 = 300e6;
        let random = &mut self.random.clone();
        let rate = |way| match self.found.of(way).saturated_bps {
            0.0 => UNKNOWN_BPS,
            known => known,
        };
        let length = |way| match self.found.of(way).train {
            0 => 50,
            known => known,
        };
        match purpose {
            Purpose::Search => self.search().span(),
            Purpose::Saturation => self.saturation().span(),
            Purpose::Queue => self.overload().span() + OVERLOAD_SPAN, // and then it empties
            Purpose::RoundTrips => design::round_trips(random).span(),
            Purpose::Trains(way) => design::trains(way, rate(way), random).span(),
            Purpose::Gaps(way) => design::gap_blocks(way, length(way), rate(way), random)
                .0
                .span(),
            Purpose::Sizes(way) => design::size_rounds(way, random).span(),
        }
    }
}

fn nothing(way: Way, purpose: Purpose, records: Both<&[PacketRecord]>) -> CalibrationError {
    CalibrationError::Nothing {
        way,
        purpose,
        sent: records.of(way).len(),
    }
}

impl From<Found> for DirectionCalibration {
    fn from(found: Found) -> Self {
        let (least_gap_ns, idle_ns) = trains::least_gap(&found.gaps);
        let (queue_bytes, queue_at_least_bytes) = match found.queue {
            Some(QueueLimit::Bytes(bytes)) => (Some(bytes), None),
            Some(QueueLimit::AtLeast(bytes)) => (None, Some(bytes)),
            None => (None, None),
        };
        Self {
            train: found.train,
            least_gap_ns,
            idle_ns,
            queue_bytes,
            queue_at_least_bytes,
            saturated_bps: found.saturated_bps as u64,
            saturated_error_bps: found.saturated_error_bps as u64,
            lengths: found.lengths,
            errors: found.errors,
            gaps: found.gaps,
        }
    }
}
