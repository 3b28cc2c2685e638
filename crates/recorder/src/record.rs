//! A whole recording: paths, runs in their order, the journal.

mod live;
mod modem;
mod schedule;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use cellbed_link::{BitRate, Duration, Time};

use crate::calibration::{Calibration, Calibrator, Purpose, Workload as Experimented};
use crate::client::{
    Event, Message, Order, PathThread, Role, RunEnd, RunEvent, RunRequest, Workload,
};
use crate::error::{Error, Result};
use crate::plan::Saturation;
use crate::recording::{
    Arrangement, Collector, Entry, Head, JournalWriter, Packed, RunPlan, pack, rfc3339,
};
use crate::secure::{Secret, random_bytes};
use crate::socket::{Interrupts, now, wall_clock};
use crate::wire::Offer;

pub use live::{Live, Snapshot};
use modem::Modem;
use schedule::Schedule;

/// A server that does not answer for so long is not there.
const CONNECT: Duration = Duration::from_secs(15);

/// After the planned end, how long to try to fetch what the server still has.
const AFTER_END: Duration = Duration::from_secs(45);

const LOOK: std::time::Duration = std::time::Duration::from_millis(50);
const FLUSH: Duration = Duration::from_millis(200);
const SYNC: Duration = Duration::from_secs(1);

/// Packets of a light run are waited for so long, and those behind a saturated queue.
const QUIET_LIGHT: Duration = Duration::from_millis(500);
const QUIET_HEAVY: Duration = Duration::from_secs(1);

/// By which interfaces a server is reached, and with what secret.
#[derive(Clone, Debug)]
pub struct Access {
    /// The server.
    pub server: SocketAddr,
    /// Shared with it.
    pub secret: Secret,
    /// Of the light workload, of calibration, and of both workloads in turn; `None` lets the routes decide.
    pub first: Option<String>,
    /// Of the heavy workload beside the light one.
    pub second: Option<String>,
}

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The light workload.
    pub light: Option<Workload>,
    /// The heavy one.
    pub heavy: Option<Workload>,
    /// Both at once, or in turn.
    pub arrangement: Arrangement,
    /// How long each has its turn.
    pub turns: (Duration, Duration),
    /// All in all.
    pub duration: Duration,
}

/// What happens, for whoever watches.
#[derive(Debug)]
pub enum Notice<'a> {
    /// Which experiment begins, and about how long the rest will take.
    Calibrating(Purpose, Duration),
    /// A path has a session.
    Connected(Offer),
    /// A path hears nothing.
    Silent,
    /// It does again.
    Resumed,
    /// How the recording stands, each second.
    Snapshot(&'a Snapshot),
    /// Stopping; what is underway is waited for.
    Stopping,
    /// Something that whoever uses the recording should know.
    Warning(&'a str),
}

/// Someone who watches.
pub type Watch<'a> = &'a mut dyn FnMut(Notice<'_>);

/// Which of the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    First,
    Second,
}

/// The paths to a server, and what they say.
pub struct Recorder {
    access: Access,
    first: PathThread,
    second: Option<PathThread>,
    sender: Sender<(Name, Message)>,
    messages: Receiver<(Name, Message)>,
    /// Paths without a session yet, and since when.
    unanswered: Vec<(Name, Time)>,
    offer: Option<Offer>,
    next_run: u32,
    interrupts: Interrupts,
}

impl Recorder {
    /// Opens the first path. The handshake goes on meanwhile.
    ///
    /// Errors: an interface that is none or not allowed.
    pub fn connect(access: Access) -> Result<Self> {
        let (sender, messages) = channel();
        let interrupts = Interrupts::catch();
        let first = start(Name::First, &access, access.first.as_deref(), &sender)?;
        Ok(Self {
            access,
            first,
            second: None,
            sender,
            messages,
            unanswered: vec![(Name::First, now())],
            offer: None,
            next_run: 1,
            interrupts,
        })
    }

    fn path(&self, role: Role) -> &PathThread {
        match (&self.second, role) {
            (Some(second), Role::Heavy) => second,
            _ => &self.first,
        }
    }

    fn take_number(&mut self) -> u32 {
        self.next_run += 1;
        self.next_run - 1
    }

    /// The next message, or `None` after a moment.
    fn receive(&mut self, watch: Watch<'_>) -> Result<Option<(Name, Message)>> {
        match self.messages.recv_timeout(LOOK) {
            Ok((_, Message::Failed(error))) => Err(error),
            Ok((name, message)) => {
                if let Message::Events(events) = &message {
                    self.look_at(name, events, watch)?;
                }
                Ok(Some((name, message)))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let late = |since: &Time| now().since(*since) > CONNECT;
                match self.unanswered.iter().find(|(_, since)| late(since)) {
                    Some((name, _)) => Err(self.no_answer(*name)),
                    None => Ok(None),
                }
            }
        }
    }

    fn no_answer(&self, name: Name) -> Error {
        let interface = match name {
            Name::First => &self.access.first,
            Name::Second => &self.access.second,
        };
        Error::NoAnswer {
            server: self.access.server,
            way: interface
                .as_ref()
                .map_or(String::new(), |interface| format!(" by {interface}")),
            seconds: CONNECT.as_secs_f64() as u64,
        }
    }

    fn look_at(&mut self, name: Name, events: &[Event], watch: Watch<'_>) -> Result<()> {
        for event in events {
            match event {
                Event::Connected(offer) => {
                    self.unanswered.retain(|(other, _)| *other != name);
                    self.offer = Some(*offer);
                    watch(Notice::Connected(*offer));
                }
                Event::Silent => watch(Notice::Silent),
                Event::Resumed => watch(Notice::Resumed),
                Event::Rejected(reason)
                    if self.unanswered.iter().any(|(other, _)| *other == name) =>
                {
                    return Err(Error::Rejected {
                        server: self.access.server,
                        reason: *reason,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Calibrates over the first path, in less than five minutes.
    ///
    /// Errors: no answer, too many losses, an interrupt.
    pub fn calibrate(
        &mut self,
        mut calibrator: Calibrator,
        watch: Watch<'_>,
    ) -> Result<Calibration> {
        self.wait_for_connection(watch)?;
        let zero = now();
        let mut collector = Collector::new(zero);
        while let Some(experiment) = calibrator.next().cloned() {
            if let Some(offer) = &self.offer {
                calibrator.limit(BitRate(offer.rate_bps), offer.answer_packets);
            }
            watch(Notice::Calibrating(
                experiment.purpose,
                calibrator.remaining(),
            ));
            let (workload, span) = match &experiment.workload {
                Experimented::Trains(trains) => (Workload::Timed(trains.clone()), None),
                Experimented::Saturation {
                    uplink,
                    downlink,
                    span,
                } => {
                    let workload = Workload::Saturation {
                        uplink: *uplink,
                        downlink: *downlink,
                        bytes: crate::calibration::PACKET_BYTES,
                    };
                    (workload, Some(*span))
                }
            };
            let number = self.take_number();
            collector.plan(RunPlan::new(number, Role::Light, &workload));
            self.first.tell(Order::Run(RunRequest {
                number,
                workload,
                span,
                quiet: experiment.quiet,
            }));
            let end = self.wait_for(number, &mut collector, watch)?;
            if let Some(reason) = end.refusal {
                return Err(Error::Refused { reason });
            }
            let clock = collector.clock();
            if let Some(records) = collector.finish(number, clock.as_ref())
                && end.complete
            {
                calibrator
                    .take(&records.uplink, &records.downlink)
                    .map_err(Error::Calibration)?;
            } // else: its session was lost, and it is made again
        }
        calibrator.finish().map_err(Error::Calibration)
    }

    /// The workload at no higher rate than the server sends.
    fn allowed(&self, mut workload: Workload) -> Workload {
        if let (
            Some(offer),
            Workload::Saturation {
                downlink: Some(Saturation::Fixed { rate_bps }),
                ..
            },
        ) = (self.offer, &mut workload)
        {
            *rate_bps = offer.rate_bps.min(*rate_bps);
        }
        workload
    }

    /// Lets the collector take everything until a run has ended.
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
            if let Some((_, Message::Events(events))) = self.receive(watch)? {
                let mut ended = None;
                for event in &events {
                    collector.take(event);
                    if let Event::Run(run, RunEvent::Ended(end)) = event
                        && *run == number
                    {
                        ended = Some(end.clone());
                    }
                }
                if let Some(end) = ended {
                    return Ok(end);
                }
            }
        }
    }

    /// Records by `plan` into the new directory `folder`, until the plan is done or the user interrupts, and packs it. A second interrupt
    /// does not wait for what is underway.
    ///
    /// Errors: those of the file system and the paths. What has been recorded before an error is packed.
    pub fn record(
        mut self,
        plan: &Plan,
        mut head: Head,
        folder: &Path,
        watch: Watch<'_>,
    ) -> Result<Packed> {
        if plan.arrangement == Arrangement::Together && plan.light.is_some() && plan.heavy.is_some()
        {
            let second = self.access.second.clone();
            self.second = Some(start(
                Name::Second,
                &self.access,
                second.as_deref(),
                &self.sender,
            )?);
            if plan.heavy.as_ref().is_some_and(Workload::is_adaptive)
                && let Some(second) = &self.second
            {
                second.rely_on(&self.first, random_bytes()?);
            }
        }
        self.wait_for_connection(watch)?;
        let mut plan = plan.clone();
        let wanted = plan.heavy.take();
        plan.heavy = wanted.clone().map(|heavy| self.allowed(heavy));
        if let (true, Some(Workload::Saturation { downlink, .. }), Some(heavy)) =
            (plan.heavy != wanted, &plan.heavy, &mut head.heavy)
        {
            heavy.downlink = *downlink;
            watch(Notice::Warning(
                "the downlink is saturated at the server's limit, which is less than was asked for",
            ));
        }
        let zero = now();
        head.zero_ns = zero.as_nanos();
        head.started = rfc3339(wall_clock());
        let journal = JournalWriter::create(folder, &head)?;
        let mut writing = Writing {
            journal,
            live: Live::new(zero),
            modem: Modem::find(zero),
            flushed: zero,
            synced: zero,
            shown: zero,
            overflows: [0; 2],
        };
        let result = self.follow(&plan, zero, &mut writing, watch);
        drop(self.second.take());
        drop(self.first);
        writing.journal.flush()?;
        drop(writing);
        let packed = pack(folder);
        result?;
        Ok(packed?)
    }

    fn wait_for_connection(&mut self, watch: Watch<'_>) -> Result<()> {
        while !self.unanswered.is_empty() {
            if self.interrupts.count() > 0 {
                return Err(Error::Interrupted);
            }
            self.receive(watch)?;
        }
        Ok(())
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
                    self.path(role).tell(Order::Stop(run));
                }
            }
            for (role, workload, span) in schedule.due(time) {
                let number = self.take_number();
                writing
                    .journal
                    .add(&Entry::Run(RunPlan::new(number, role, &workload)))?;
                writing.live.plan(number, role);
                schedule.began(role, number);
                let quiet = match role {
                    Role::Light => QUIET_LIGHT,
                    Role::Heavy => QUIET_HEAVY,
                };
                self.path(role).tell(Order::Run(RunRequest {
                    number,
                    workload,
                    span: Some(span),
                    quiet,
                }));
            }
            if schedule.is_done()
                || self.interrupts.count() > 1
                || time > schedule.end() + AFTER_END
            {
                return Ok(());
            }
            match self.receive(watch)? {
                Some((_, Message::Events(events))) => {
                    for event in events {
                        writing.live.take(&event);
                        if let Event::Run(run, RunEvent::Ended(end)) = &event {
                            if let Some(reason) = end.refusal {
                                watch(Notice::Warning(&reason.to_string()));
                            }
                            schedule.ended(*run, end.complete, now());
                        }
                        writing.journal.add(&Entry::Event(event))?;
                    }
                }
                Some((name, Message::Lost { overflows, refused })) => {
                    writing.live.refused(refused);
                    let before = &mut writing.overflows[name as usize];
                    let more = overflows.saturating_sub(std::mem::replace(before, overflows));
                    if more > 0 {
                        writing.journal.add(&Entry::Overflows(more))?;
                    }
                }
                Some((_, Message::Failed(_))) | None => {}
            }
            writing.keep_up(now(), schedule.end(), watch)?;
        }
    }
}

/// What is written while a recording goes on.
struct Writing {
    journal: JournalWriter,
    live: Live,
    modem: Modem,
    flushed: Time,
    synced: Time,
    shown: Time,
    overflows: [u64; 2],
}

impl Writing {
    /// Flushes and shows what is due.
    fn keep_up(&mut self, now: Time, end: Time, watch: Watch<'_>) -> Result<()> {
        for sample in self.modem.samples() {
            self.journal.add(&Entry::Signal(sample))?;
        }
        if now.since(self.flushed) >= FLUSH {
            self.flushed = now;
            self.journal.flush()?;
        }
        if now.since(self.synced) >= SYNC {
            self.synced = now;
            self.journal.sync()?;
        }
        if now.since(self.shown) >= Duration::from_secs(1) {
            self.shown = now;
            watch(Notice::Snapshot(&self.live.snapshot(now, end)));
        }
        Ok(())
    }
}

fn start(
    name: Name,
    access: &Access,
    interface: Option<&str>,
    sender: &Sender<(Name, Message)>,
) -> Result<PathThread> {
    random_bytes::<32>()?; // so that a system without randomness is an error here, and not in a thread
    let draw = Box::new(|| random_bytes().unwrap_or_default());
    PathThread::start(
        name,
        access.server,
        interface,
        &access.secret,
        draw,
        sender.clone(),
    )
}
