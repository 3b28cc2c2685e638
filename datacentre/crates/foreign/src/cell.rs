//! Schedulers (`scheduler.h`) and admission policies (`admission.h`) of radio cells.

use std::ffi::c_void;
use std::ptr;

use crate::object::{Header, Memory, Running};

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

const CELL: u64 = (size_of::<Cell>() << 8 | size_of::<Candidate>()) as u64;
const BUFFER: u64 = (size_of::<CBuffer>() << 8 | size_of::<Queue>()) as u64;
/// A header of a scheduler.
pub type SchedulerHeader = Header<2, CELL>;
/// A header of an admission policy.
pub type AdmissionHeader = Header<3, BUFFER>;

/// Schedulers and policies have no questions but the one that `Running` answers.
fn no_answer(_: u32, _: *mut c_void, _: u64, _: u64) -> Result<u64, String> {
    Ok(0)
}

/// A scheduler in a simulation.
#[derive(Debug)]
pub struct Scheduler {
    running: Running,
    state: Memory,
    users: u32,
}

impl Scheduler {
    /// Return a scheduler of so many users.
    pub fn new(header: &SchedulerHeader, users: u32, seed: u64) -> Self {
        Self {
            running: header.running(users, seed),
            state: Memory::new(header.facts().other as usize),
            users,
        }
    }

    /// Return the error that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.running.failure()
    }

    fn call(&mut self, function: u32, now: u64, b: u64, c: u64) -> Option<u64> {
        let mut cell = Cell {
            user_states: self.running.states.start(),
            state: self.state.start(),
            users: self.users,
        };
        let cell = (&raw mut cell).cast();
        // SAFETY: the functions have a cell, whose states have the sizes of the header, and two values.
        unsafe {
            self.running
                .call(function, now, &mut no_answer, (cell, b, c))
        }
    }

    /// Return the rank of a candidate at `now`, ps.
    pub fn rank(&mut self, now: u64, candidate: &Candidate) -> f64 {
        let candidate = ptr::from_ref(candidate).expose_provenance() as u64;
        let rank = f64::from_bits(self.call(6, now, candidate, 0).unwrap_or_default());
        if rank.is_nan() {
            self.running.fail(6, "the rank is not a number (NaN)");
        }
        rank
    }

    /// Take in that bytes of a user are sent in the interval that begins at `now`.
    pub fn sent(&mut self, now: u64, user: u32, bytes: u64) {
        self.call(7, now, user.into(), bytes);
    }

    /// Take in that a packet joined the queue of a user.
    pub fn arrived(&mut self, now: u64, user: u32, flow: u32, bytes: u16) {
        self.call(
            8,
            now,
            user.into(),
            u64::from(flow) << 32 | u64::from(bytes),
        );
    }
}

/// The queue of a user (`struct queue`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Threshold, packets.
    pub threshold: u32,
    /// Waiting packets.
    pub length: u32,
    /// Waiting bytes.
    pub bytes: u64,
}

/// A buffer (`struct buffer`).
#[derive(Debug)]
#[expect(missing_docs, reason = "admission.h has the meaning of each")]
pub struct Buffer<'a> {
    pub queues: &'a mut [Queue],
    pub bytes: u64,
    pub packets: u32,
    pub capacity: u32,
    pub user_packets: u32,
}

#[repr(C)]
struct CBuffer {
    queues: *mut Queue,
    user_states: *mut c_void,
    state: *mut c_void,
    bytes: u64,
    users: u32,
    packets: u32,
    capacity: u32,
    user_packets: u32,
}

/// An admission policy in a simulation.
#[derive(Debug)]
pub struct Admission {
    running: Running,
    state: Memory,
    /// Time of the next calls, ps.
    pub now: u64,
}

impl Admission {
    /// Return a policy of so many users.
    pub fn new(header: &AdmissionHeader, users: u32, seed: u64) -> Self {
        Self {
            running: header.running(users, seed),
            state: Memory::new(header.facts().other as usize),
            now: 0,
        }
    }

    /// Return the error that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.running.failure()
    }

    fn call(&mut self, function: u32, buffer: Buffer<'_>, user: u32, value: u32) -> Option<u64> {
        let mut all = CBuffer {
            users: buffer.queues.len() as u32,
            queues: buffer.queues.as_mut_ptr(),
            user_states: self.running.states.start(),
            state: self.state.start(),
            bytes: buffer.bytes,
            packets: buffer.packets,
            capacity: buffer.capacity,
            user_packets: buffer.user_packets,
        };
        let values = ((&raw mut all).cast(), user.into(), value.into());
        // SAFETY: the functions have a buffer, whose states have the sizes of the header, and two values.
        unsafe {
            self.running
                .call(function, self.now, &mut no_answer, values)
        }
    }

    /// Return whether a packet of a user is admitted, and the user whose last packet is dropped for it, if any.
    pub fn offer(&mut self, buffer: Buffer<'_>, user: u32, bytes: u16) -> (bool, Option<u32>) {
        const ADMIT: u64 = 0xffff_ffff;
        const REFUSE: u64 = 0xffff_fffe;
        let (users, full) = (
            buffer.queues.len() as u64,
            buffer.packets >= buffer.capacity,
        );
        let text = match self.call(9, buffer, user, bytes.into()).unwrap_or(REFUSE) {
            ADMIT if full => "admits a packet into a full buffer".to_owned(),
            ADMIT => return (true, None),
            REFUSE => return (false, None),
            other if !self.running.option() => {
                format!(
                    "returns {other} without ADMISSION_REPLACES: return ADMISSION_ADMIT or ADMISSION_REFUSE"
                )
            }
            other if other < users => return (true, Some(other as u32)),
            other => format!("drops a packet of user {other}: there are {users} users"),
        };
        self.refuse(&text);
        (false, None)
    }

    /// End the use of the policy by an error of its decision.
    pub fn refuse(&mut self, text: &str) {
        self.running.fail(9, text);
    }

    /// Take in that a user became one of `active` users.
    pub fn open(&mut self, buffer: Buffer<'_>, user: u32, active: u32) {
        self.call(10, buffer, user, active);
    }

    /// Take in a report of the distributed unit.
    pub fn report(&mut self, buffer: Buffer<'_>, user: u32, reported: u32) {
        self.call(11, buffer, user, reported);
    }
}
