//! The state of a recording, for users.

use std::collections::BTreeMap;

use cellbed_link::{Duration, Time};
use serde::Serialize;

use crate::client::{Event, RunEvent};
use crate::plan::Role;

/// Trains whose answers may still come.
const TRAINS: usize = 256;

/// Counters of events since the last look.
#[derive(Default)]
pub struct Live {
    zero: Time,
    roles: BTreeMap<u32, Role>,
    /// When trains were sent.
    trains: BTreeMap<(u32, u32), Time>,
    round_trips: Vec<f64>,
    bytes: [[u64; 2]; 2],
    since: Time,
    silent: bool,
}

/// State of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Since its beginning, s.
    pub elapsed_s: f64,
    /// Until its planned end, s.
    pub remaining_s: f64,
    /// Light workload's arrivals of the last second on the uplink, counting IP lengths, Mbit/s.
    pub light_uplink_mbps: f64,
    /// See above.
    pub light_downlink_mbps: f64,
    /// Of the heavy workload.
    pub heavy_uplink_mbps: f64,
    /// See above.
    pub heavy_downlink_mbps: f64,
    /// Median round-trip time of the first packets of trains in the last second, ms.
    pub round_trip_ms: Option<f64>,
    /// True if the server is silent.
    pub silent: bool,
}

impl Live {
    /// Begins at `zero`.
    pub fn new(zero: Time) -> Self {
        Self {
            zero,
            since: zero,
            ..Self::default()
        }
    }

    /// A run has been asked for.
    pub fn plan(&mut self, run: u32, role: Role) {
        self.roles.insert(run, role);
    }

    /// Something happened.
    pub fn take(&mut self, event: &Event) {
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
    pub fn snapshot(&mut self, now: Time, end: Time) -> Snapshot {
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
