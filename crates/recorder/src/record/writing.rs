//! Output during a recording: the journal, and the state for users.

use std::collections::BTreeMap;
use std::path::Path;

use cellbed_link::{Duration, Time};
use serde::Serialize;

use super::{Notice, Watch};
use crate::client::{Event, RunEvent};
use crate::error::Result;
use crate::recording::{Entry, Head, JournalWriter, Role, RunPlan};

/// Maximum trains that wait for answers.
const TRAINS: usize = 256;

const FLUSH: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

/// Files written during a recording.
pub(super) struct Writing {
    journal: JournalWriter,
    live: Live,
    flushed: Time,
    shown: Time,
}

impl Writing {
    /// Create the files in the new directory `folder`, from `zero` on.
    pub(super) fn begin(folder: &Path, head: &Head, zero: Time) -> Result<Self> {
        Ok(Self {
            journal: JournalWriter::create(folder, head, zero)?,
            live: Live::new(zero),
            flushed: zero,
            shown: zero,
        })
    }

    /// Add a requested run.
    pub(super) fn plan(&mut self, plan: RunPlan) -> Result<()> {
        self.live.roles.insert(plan.number, plan.role);
        self.journal.add(&Entry::Run(plan))
    }

    /// Add an event of a path.
    pub(super) fn take(&mut self, event: Event) -> Result<()> {
        self.live.take(&event);
        self.journal.add(&Entry::Event(event))
    }

    /// Add packets lost by this machine.
    pub(super) fn overflowed(&mut self, count: u64) -> Result<()> {
        self.journal.add(&Entry::Overflows(count))
    }

    /// Flush files and show the state at their intervals.
    pub(super) fn keep_up(&mut self, now: Time, end: Time, watch: Watch<'_>) -> Result<()> {
        if now.since(self.flushed) >= FLUSH {
            self.flushed = now;
            self.journal.flush()?;
        }
        if now.since(self.shown) >= SECOND {
            self.shown = now;
            self.journal.sync()?;
            watch(Notice::Snapshot(&self.live.snapshot(now, end)));
        }
        Ok(())
    }

    /// End the writing; the journal can be packed.
    pub(super) fn end(mut self) -> Result<()> {
        self.journal.flush()
    }
}

/// Counters of events since the last snapshot.
#[derive(Default)]
struct Live {
    zero: Time,
    roles: BTreeMap<u32, Role>,
    /// Sending times of trains.
    trains: BTreeMap<(u32, u32), Time>,
    round_trips: Vec<f64>,
    bytes: [[u64; 2]; 2],
    since: Time,
    silent: bool,
}

/// State of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    pub elapsed_s: f64,
    /// Time until the planned end, s.
    pub remaining_s: f64,
    /// Rate of arrivals in the last second, by IP lengths.
    pub light_uplink_mbps: f64,
    pub light_downlink_mbps: f64,
    pub heavy_uplink_mbps: f64,
    pub heavy_downlink_mbps: f64,
    /// Median round-trip time of the first packets of trains in the last second, ms.
    pub round_trip_ms: Option<f64>,
    /// True if the server is silent.
    pub silent: bool,
}

impl Live {
    fn new(zero: Time) -> Self {
        Self {
            zero,
            since: zero,
            ..Self::default()
        }
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Run(run, RunEvent::Sent(departure))
                if departure.index == 0 && self.roles.get(run) == Some(&Role::Light) =>
            {
                self.trains.insert((*run, departure.train), departure.at);
                if self.trains.len() > TRAINS {
                    self.trains.pop_first();
                }
            }
            Event::Run(run, RunEvent::ArrivedUplink(arrival)) => self.count(*run, 0, arrival.bytes),
            Event::Run(run, RunEvent::ArrivedDownlink(reception)) => {
                self.count(*run, 1, reception.bytes);
                if let Some(sent) = self.trains.remove(&(*run, reception.train)) {
                    self.round_trips
                        .push((reception.at - sent).as_secs_f64() * 1e3);
                }
            }
            Event::Silent => self.silent = true,
            Event::Resumed | Event::Connected(_) => self.silent = false,
            _ => {}
        }
    }

    fn count(&mut self, run: u32, way: usize, bytes: u16) {
        if let Some(role) = self.roles.get(&run) {
            self.bytes[*role as usize][way] += u64::from(bytes);
        }
    }

    /// Return the current state and restart the counters.
    fn snapshot(&mut self, now: Time, end: Time) -> Snapshot {
        let span = (now - self.since).as_secs_f64().max(1e-3);
        let bytes = std::mem::take(&mut self.bytes);
        let rate = |role: Role, way: usize| bytes[role as usize][way] as f64 * 8e-6 / span;
        let mut round_trips = std::mem::take(&mut self.round_trips);
        round_trips.sort_by(f64::total_cmp);
        self.since = now;
        Snapshot {
            elapsed_s: (now - self.zero).as_secs_f64(),
            remaining_s: end.since(now).max(Duration::ZERO).as_secs_f64(),
            light_uplink_mbps: rate(Role::Light, 0),
            light_downlink_mbps: rate(Role::Light, 1),
            heavy_uplink_mbps: rate(Role::Heavy, 0),
            heavy_downlink_mbps: rate(Role::Heavy, 1),
            round_trip_ms: round_trips.get(round_trips.len() / 2).copied(),
            silent: self.silent,
        }
    }
}
