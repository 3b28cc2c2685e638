//! Expected volume of a recording, and plans within a budget.

use cellbed_calibration::calibration::Calibration;
use cellbed_calibration::plan::{Saturation, TrainPlan, Way};
use cellbed_link::Duration;
use serde::Serialize;

use super::schedule::{PAUSE, fitting};
use super::{Plan, QUIET_HEAVY, QUIET_LIGHT};
use crate::error::{Error, Result};
use crate::recording::Arrangement;

/// Minimum turn of a saturation, and minimum duration of a recording, within a budget.
const LEAST_TURN: Duration = Duration::from_secs(3);
const LEAST_DURATION: Duration = Duration::from_secs(15);
/// Factor of a turn that is shortened.
const SHORTER: f64 = 0.8;
/// Factor and minimum of the share of a light workload's rate when trains are thinned out.
const THINNER: f64 = 0.7;
const LEAST_SHARE: f64 = 0.2;

/// Expected bytes of both directions, by IP lengths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Volume {
    /// Bytes that the calibration before the recording sent.
    pub calibration_bytes: u64,
    pub light_bytes: u64,
    pub heavy_bytes: u64,
    /// Bytes of files that are downloaded.
    pub download_bytes: u64,
    /// Duration of the recording.
    pub duration_s: f64,
    /// Number of trains.
    pub trains: u64,
}

impl Volume {
    /// Return the expected volume of a plan. An adaptive saturation is expected to have the calibrated rate.
    pub fn new(plan: &Plan, calibration_bytes: u64, calibration: Option<&Calibration>) -> Self {
        let duration = plan.duration.as_secs_f64();
        let (light_s, heavy_s, runs) = match plan.arrangement {
            Arrangement::Together => (duration, duration, 1),
            Arrangement::Alternating => turns(plan),
        };
        let files: u64 = plan.downloads.iter().sum();
        let (light_bps, trains) = match &plan.light {
            Some(trains) => {
                let rates = Way::BOTH.map(|way| trains.rate_bps(way));
                (rates.iter().sum(), light_s * trains.trains_per_second())
            }
            None => (0.0, 0.0),
        };
        let heavy_bps = |way| match plan.heavy?.of(way) {
            Some(Saturation::Fixed { rate_bps }) => Some(*rate_bps as f64),
            Some(_) => Some(calibration?.directions.of(way).saturated_bps as f64),
            None => None,
        };
        let heavy_bps: f64 = Way::BOTH.into_iter().filter_map(heavy_bps).sum();
        Self {
            calibration_bytes,
            light_bytes: (light_bps * light_s / 8.0) as u64,
            heavy_bytes: (heavy_bps * heavy_s / 8.0) as u64,
            download_bytes: files.saturating_mul(runs),
            duration_s: duration,
            trains: trains as u64,
        }
    }

    /// Return the bytes of calibration and recording together.
    pub fn total(&self) -> u64 {
        let workloads = self.light_bytes + self.heavy_bytes;
        workloads.saturating_add(self.calibration_bytes.saturating_add(self.download_bytes))
    }

    /// Shorten a plan until it is within `budget` bytes: first turns of the saturation, then trains, then the duration.
    /// trains: the trains for a share of the rate of a light workload.
    ///
    /// # Errors
    ///
    /// The budget is too small.
    pub fn fit(
        plan: &mut Plan,
        trains: impl Fn(f64) -> TrainPlan,
        budget: u64,
        calibration_bytes: u64,
        calibration: Option<&Calibration>,
    ) -> Result<()> {
        let volume = |plan: &Plan| Self::new(plan, calibration_bytes, calibration);
        let in_turns = plan.arrangement == Arrangement::Alternating;
        while in_turns && volume(plan).total() > budget && plan.turns.1 > LEAST_TURN {
            let shorter = Duration::from_secs_f64(SHORTER * plan.turns.1.as_secs_f64());
            plan.turns.1 = shorter.max(LEAST_TURN);
        }
        let mut share = THINNER;
        while plan.light.is_some() && volume(plan).total() > budget && share >= LEAST_SHARE {
            plan.light = Some(trains(share));
            share *= THINNER;
        }
        let least = LEAST_DURATION.min(plan.duration);
        while volume(plan).total() > budget && plan.duration > least {
            let shorter = Duration::from_secs_f64(SHORTER * plan.duration.as_secs_f64());
            plan.duration = shorter.max(least);
        }
        match volume(plan) {
            needed if needed.total() > budget => Err(Error::Usage(format!(
                "--budget: {needed}, {:.0} MB in all: more than the budget of {:.0} MB. Give more, calibrate elsewhere \
                 (--calibration), or record only one workload (--only)",
                needed.total() as f64 / 1e6,
                budget as f64 / 1e6,
            ))),
            _ => Ok(()),
        }
    }
}

/// Return the time of the light and of the heavy workload in turns, s, as the schedule has them.
///
/// Then the number of light turns, which downloads follow.
fn turns(plan: &Plan) -> (f64, f64, u64) {
    let (light, heavy) = fitting(plan.turns, plan.duration);
    let [light, heavy, pause] = [light, heavy, PAUSE].map(|turn| turn.as_secs_f64());
    let [after_light, after_heavy] = [QUIET_LIGHT, QUIET_HEAVY].map(|it| it.as_secs_f64() + pause);
    let end = plan.duration.as_secs_f64();
    let (mut sums, mut start) = ((0.0, 0.0, 0), 0.0);
    while start < end {
        let worth = start + light + pause + heavy / 2.0 <= end;
        let until = if worth { start + light } else { end };
        let begin = until + after_light;
        let span = heavy.min((end - begin).max(0.0));
        sums = (sums.0 + until - start, sums.1 + span, sums.2 + 1);
        start = begin + span + after_heavy;
    }
    sums
}

impl std::fmt::Display for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "{:.0} s of recording take about {:.1} MB of trains, {:.1} MB of saturation and {:.1} MB of downloads, beside \
             {:.1} MB of calibration",
            self.duration_s,
            megabytes(self.light_bytes),
            megabytes(self.heavy_bytes),
            megabytes(self.download_bytes),
            megabytes(self.calibration_bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellbed_calibration::calibration::fit;
    use cellbed_calibration::plan::{Both, Train};

    #[test]
    fn a_budget_shortens_turns_before_trains_and_the_duration_last() {
        let trains = TrainPlan {
            rotation: vec![Train::new((5, 1400), (50, 1400))],
            gap_ns: 100_000_000,
            jitter: 0.0,
            count: None,
            seed: 1,
        };
        let mut network = Calibration::default();
        for way in Way::BOTH {
            network.directions.of_mut(way).saturated_bps = 60_000_000;
        }
        let fixed = Saturation::Fixed {
            rate_bps: 75_000_000,
        };
        let planned = |budget| {
            let light = |share| fit(&trains, &network, share);
            let mut plan = Plan {
                light: Some(light(1.0)),
                heavy: Some(Both::from_fn(|_| Some(fixed))),
                packet_bytes: 1400,
                arrangement: Arrangement::Alternating,
                turns: (Duration::from_secs(20), Duration::from_secs(10)),
                duration: Duration::from_secs(60),
                downloads: vec![1_000_000],
            };
            let fitted = Volume::fit(&mut plan, light, budget, 50_000_000, Some(&network));
            fitted.map(|()| (Volume::new(&plan, 50_000_000, Some(&network)), plan))
        };
        let (free, wide) = planned(1_000_000_000).unwrap();
        assert_eq!(
            (wide.turns.1, free.duration_s, free.download_bytes),
            (Duration::from_secs(10), 60.0, 2_000_000)
        );
        let (turns, plan) = planned(300_000_000).unwrap();
        assert!(turns.total() <= 300_000_000 && plan.turns.1 < Duration::from_secs(10));
        assert_eq!((turns.duration_s, plan.light), (60.0, wide.light));
        let (short, plan) = planned(100_000_000).unwrap();
        assert!(short.total() <= 100_000_000 && short.duration_s < 60.0);
        assert_eq!(plan.turns.1, LEAST_TURN);
        let error = planned(60_000_000).unwrap_err().to_string();
        assert!(error.contains("more than the budget of 60 MB"), "{error}");
    }
}
