//! Schedulers of radio cells (`scheduler.h`).

use std::ffi::c_void;

use libloading::Library;

use crate::memory::Memory;
use crate::object::{Functions, Header, NONE, Running, Sim, optional};

/// No flow.
pub const NO_FLOW: u32 = u32::MAX;

/// A candidate for resource blocks (`struct candidate`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "scheduler.h has the meaning of each")]
pub struct Candidate {
    pub bytes: u64,
    pub bytes_per_tti: f64,
    pub user: u32,
    pub flow: u32,
    pub cqi: u32,
}

#[repr(C)]
struct Cell {
    user_states: *mut c_void,
    state: *mut c_void,
    users: u32,
}

/// The functions of a scheduler.
#[derive(Debug)]
pub struct Schedules {
    rank: unsafe extern "C" fn(*mut Sim, *mut Cell, *const Candidate) -> f64,
    sent: Option<unsafe extern "C" fn(*mut Sim, *mut Cell, u32, u64)>,
    arrived: Option<unsafe extern "C" fn(*mut Sim, *mut Cell, u32, u32, u32)>,
}

/// A header of a scheduler.
pub type SchedulerHeader = Header<Schedules>;

impl Functions for Schedules {
    const KIND: (u64, &'static str, u64) = (
        2,
        "scheduler",
        (size_of::<Cell>() << 8 | size_of::<Candidate>()) as u64,
    );

    unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
        Ok(Self {
            // SAFETY: as of `optional`.
            rank: unsafe { *library.get(c"scheduler_rank")? },
            sent: optional(library, c"scheduler_sent"),
            arrived: optional(library, c"scheduler_arrived"),
        })
    }
}

/// A scheduler in a simulation.
#[derive(Debug)]
pub struct Scheduler {
    running: Running<Schedules>,
    user_states: Memory,
    state: Memory,
    users: u32,
}

impl Scheduler {
    /// Return a scheduler of so many users.
    pub fn new(header: SchedulerHeader, users: u32, seed: u64) -> Self {
        let facts = *header.facts();
        Self {
            running: Running::new(header, seed),
            user_states: Memory::new(facts.many as usize * users as usize),
            state: Memory::new(facts.other as usize),
            users,
        }
    }

    /// Return whether the candidates are flows.
    pub fn by_flow(&self) -> bool {
        self.running.header().option()
    }

    /// Return the error that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.running.failure()
    }

    fn cell(&self) -> Cell {
        Cell {
            user_states: self.user_states.start(),
            state: self.state.start(),
            users: self.users,
        }
    }

    /// Return the rank of a candidate at `now`, ps.
    pub fn rank(&mut self, now: u64, candidate: &Candidate) -> f64 {
        let mut cell = self.cell();
        // SAFETY: the states have the sizes that the header states; the function uses its arguments during the call.
        let call = |it: &Schedules, sim| unsafe { (it.rank)(sim, &raw mut cell, candidate) };
        let rank = self.running.call(6, now, NONE, call).unwrap_or(0.0);
        if rank.is_nan() {
            self.running.fail(6, "the rank is not a number (NaN)");
            return 0.0;
        }
        rank
    }

    /// Take in that bytes of a user are sent in the interval that begins at `now`.
    pub fn sent(&mut self, now: u64, user: u32, bytes: u64) {
        if let Some(sent) = self.running.header().functions().sent {
            let mut cell = self.cell();
            // SAFETY: as of `rank`.
            let call = |_: &Schedules, sim| unsafe { sent(sim, &raw mut cell, user, bytes) };
            self.running.call(7, now, NONE, call);
        }
    }

    /// Take in that a packet joined the queue of a user.
    pub fn arrived(&mut self, now: u64, user: u32, flow: u32, bytes: u32) {
        if let Some(arrived) = self.running.header().functions().arrived {
            let mut cell = self.cell();
            // SAFETY: as of `rank`.
            let call =
                |_: &Schedules, sim| unsafe { arrived(sim, &raw mut cell, user, flow, bytes) };
            self.running.call(8, now, NONE, call);
        }
    }
}
