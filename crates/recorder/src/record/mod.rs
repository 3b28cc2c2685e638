//! A whole recording: paths, runs in order, the journal.

mod paths;
mod schedule;
mod volume;
mod writing;

use std::path::Path;

use cellbed_link::{BitRate, Duration, Time};

use crate::client::{Event, Message, Order, RunEnd, RunEvent, RunRequest};
use crate::error::{Error, Result};
use crate::recording::{Arrangement, Collector, Head, Packed, Role, RunPlan, pack, rfc3339};
use crate::socket::{Interrupts, now, wall_clock};
use crate::wire::Offer;
use cellbed_calibration::calibration::{Calibration, Calibrator, Limits, Purpose};
use cellbed_calibration::plan::{Both, Saturation, TrainPlan};

pub use paths::Access;
use paths::Paths;
use schedule::Schedule;
pub use volume::Volume;
pub use writing::Snapshot;
use writing::Writing;

/// Maximum time after the planned end for fetching the server's remaining data.
const AFTER_END: Duration = Duration::from_secs(45);

/// Maximum wait for packets of a light run; `QUIET_HEAVY`: behind a saturated queue.
const QUIET_LIGHT: Duration = Duration::from_millis(500);
const QUIET_HEAVY: Duration = Duration::from_secs(1);

/// Plan of a recording.
#[derive(Clone, Debug)]
pub struct Plan {
    pub light: Option<TrainPlan>,
    pub heavy: Option<Both<Option<Saturation>>>,
    /// IP length of the packets of the saturation, bytes.
    pub packet_bytes: u16,
    /// Sizes of the files to fetch after each run of the light workload.
    pub downloads: Vec<u64>,
    pub arrangement: Arrangement,
    /// Duration of each workload's turn.
    pub turns: (Duration, Duration),
    pub duration: Duration,
}

/// Events for users.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A step of the calibration begins; its number, and the number of steps.
    Calibrating(Purpose, (usize, usize)),
    /// A calibration begins, within these limits.
    Limited(Limits),
    /// The recording is about to begin, with this expected volume.
    Planned(&'a Volume),
    /// A path has a session.
    Connected(Offer),
    /// The server of a path is silent.
    Silent,
    /// The server sends again.
    Resumed,
    /// State of the recording, once per second.
    Snapshot(&'a Snapshot),
    /// The recording ends; packets in flight may still arrive.
    Stopping,
    Warning(&'a str),
}

pub type Watch<'a> = &'a mut dyn FnMut(Notice<'_>);

/// Calibrates and records over the paths to a server.
pub struct Recorder {
    paths: Paths,
    next_run: u32,
    interrupts: Interrupts,
}

impl Recorder {
    /// Open the first path. The handshake continues in the background.
    ///
    /// Errors: an interface that does not exist or is not allowed.
    pub fn connect(access: Access) -> Result<Self> {
        let interrupts = Interrupts::catch();
        Ok(Self {
            paths: Paths::connect(access)?,
            next_run: 1,
            interrupts,
        })
    }

    fn wait_for_connection(&mut self, watch: Watch<'_>) -> Result<()> {
        while self.paths.is_connecting() {
            if self.interrupts.count() > 0 {
                return Err(Error::Interrupted);
            }
            self.paths.receive(watch)?;
        }
        Ok(())
    }

    fn take_number(&mut self) -> u32 {
        self.next_run += 1;
        self.next_run - 1
    }

    /// Calibrates over the first path, within the calibrator's limits.
    ///
    /// Errors: no answer, too many losses, an interrupt.
    pub fn calibrate(
        &mut self,
        mut calibrator: Calibrator,
        watch: Watch<'_>,
    ) -> Result<Calibration> {
        self.wait_for_connection(watch)?;
        watch(Notice::Limited(calibrator.limits()));
        let zero = now();
        let mut collector = Collector::new(zero);
        while let Some(experiment) = calibrator.next().cloned() {
            if let Some(offer) = self.paths.offer() {
                calibrator.limit(BitRate(offer.rate_bps), offer.answer_packets);
            }
            watch(Notice::Calibrating(experiment.purpose, calibrator.step()));
            let number = self.take_number();
            collector.plan(RunPlan::new(number, Role::Light, &experiment.workload));
            let request = RunRequest {
                number,
                workload: experiment.workload,
                span: experiment.span,
                quiet: experiment.quiet,
            };
            self.paths.send(Role::Light, Order::Run(request));
            let end = self.wait_for(number, &mut collector, watch)?;
            if let Some(reason) = end.refusal {
                return Error::failed(format!("the server refuses: {reason}"));
            }
            let clock = collector.clock();
            if let Some(records) = collector.finish(number, clock.as_ref())
                && end.complete
            {
                let taken = calibrator.take(&records.uplink, &records.downlink);
                taken.map_err(|error| Error::Failed(format!("calibration: {error}")))?;
            } else {
                tracing::info!("the session of run {number} was lost: repeating the experiment");
            }
        }
        Ok(calibrator.finish()?)
    }

    /// Limit the downlink saturation to the server's maximum rate; return whether that reduced the rate.
    fn limit_to_offer(&self, ways: &mut Both<Option<Saturation>>) -> bool {
        if let Some(offer) = self.paths.offer()
            && let Some(Saturation::Fixed { rate_bps }) = &mut ways.downlink
            && *rate_bps > offer.rate_bps
        {
            *rate_bps = offer.rate_bps;
            return true;
        }
        false
    }

    /// Pass events to the collector until the run `number` has ended.
    fn wait_for(
        &mut self,
        number: u32,
        collector: &mut Collector,
        watch: Watch<'_>,
    ) -> Result<RunEnd> {
        loop {
            if self.interrupts.count() > 0 {
                return Err(Error::Interrupted);
            }
            if let Some(Message::Events(events)) = self.paths.receive(watch)? {
                let mut ended = None;
                for event in &events {
                    collector.take(event);
                    if let Event::Run(run, RunEvent::Ended(end)) = event
                        && *run == number
                    {
                        ended = Some(*end);
                    }
                }
                if let Some(end) = ended {
                    return Ok(end);
                }
            }
        }
    }

    /// Records by `plan` into the new directory `folder`, until the plan is done or the user interrupts. Then packs the
    /// recording. A second interrupt skips packets in flight.
    ///
    /// Errors: failures of the file system or a path. Packets recorded before an error are packed.
    pub fn record(
        mut self,
        plan: &Plan,
        mut head: Head,
        folder: &Path,
        watch: Watch<'_>,
    ) -> Result<Packed> {
        if plan.arrangement == Arrangement::Together && plan.light.is_some() && plan.heavy.is_some()
        {
            self.paths.open_second()?;
        }
        self.wait_for_connection(watch)?;
        let mut plan = plan.clone();
        if let (Some(ways), Some(heavy)) = (&mut plan.heavy, &mut head.heavy)
            && self.limit_to_offer(ways)
        {
            heavy.ways = *ways;
            watch(Notice::Warning(
                "the downlink is saturated at the server's limit, below the requested rate",
            ));
        }
        let zero = now();
        head.started = rfc3339(wall_clock());
        let mut writing = Writing::begin(folder, &head, zero)?;
        let result = self.follow(&plan, zero, &mut writing, watch);
        drop(self.paths); // keeps `interrupts`: recorded packets are still packed
        writing.end()?;
        let packed = pack(folder);
        result?;
        packed
    }

    fn follow(
        &mut self,
        plan: &Plan,
        zero: Time,
        writing: &mut Writing,
        watch: Watch<'_>,
    ) -> Result<()> {
        let mut schedule = Schedule::new(plan, zero);
        let mut stopping = false;
        loop {
            let time = now();
            if self.interrupts.count() > 0 && !stopping {
                stopping = true;
                watch(Notice::Stopping);
                for (role, run) in schedule.stop(time) {
                    self.paths.send(role, Order::Stop(run));
                }
            }
            for (role, workload, span) in schedule.due(time) {
                let number = self.take_number();
                writing.plan(RunPlan::new(number, role, &workload))?;
                schedule.began(role, number);
                let quiet = match role {
                    Role::Heavy => QUIET_HEAVY,
                    _ => QUIET_LIGHT,
                };
                let request = RunRequest {
                    number,
                    workload,
                    span: Some(span),
                    quiet,
                };
                self.paths.send(role, Order::Run(request));
            }
            if schedule.downloads(time) {
                let number = self.take_number();
                let plan_of_files = RunPlan {
                    number,
                    role: Role::Downloads,
                    workload: None,
                };
                writing.plan(plan_of_files)?;
                schedule.began(Role::Downloads, number);
                let order = Order::Download(number, plan.downloads.clone());
                self.paths.send(Role::Downloads, order);
            }
            if schedule.is_done()
                || self.interrupts.count() > 1
                || time > schedule.end() + AFTER_END
            {
                return Ok(());
            }
            match self.paths.receive(watch)? {
                Some(Message::Events(events)) => {
                    for event in events {
                        if let Event::Run(run, RunEvent::Ended(end)) = &event {
                            if let Some(reason) = end.refusal {
                                watch(Notice::Warning(&reason.to_string()));
                            }
                            if !end.complete {
                                tracing::info!("run {run} ended early: another run follows");
                            }
                            schedule.ended(*run, end.complete, now());
                        }
                        writing.take(event)?;
                    }
                }
                Some(Message::Overflows(count)) => writing.overflowed(count)?,
                Some(Message::Failed(_)) | None => {}
            }
            writing.keep_up(now(), schedule.end(), watch)?;
        }
    }
}
