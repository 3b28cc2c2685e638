//! Schedulers (`scheduler.h`) and admission policies (`admission.h`) of radio cells.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::slice::{from_raw_parts, from_raw_parts_mut};

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
const BUFFER: u64 = (size_of::<Buffer<'_>>() << 8 | size_of::<Queue>()) as u64;
/// A header of a scheduler.
pub type SchedulerHeader = Header<2, CELL>;
/// A header of an admission policy.
pub type AdmissionHeader = Header<3, BUFFER>;

/// A scheduler in a simulation.
#[derive(Debug)]
pub struct Scheduler {
    running: Running,
    users: u32,
}

impl Scheduler {
    /// Return a scheduler of so many users.
    pub fn new(header: &SchedulerHeader, users: u32, seed: u64) -> Self {
        Self {
            running: header.running(users, 1, seed),
            users,
        }
    }

    fn call(&mut self, function: u32, now: u64, b: u64, c: u64) -> Option<u64> {
        let mut cell = Cell {
            user_states: self.running.states.start(),
            state: self.running.others.start(),
            users: self.users,
        };
        let cell = (&raw mut cell).cast();
        // SAFETY: the functions have a cell, whose states have the sizes of the header, and two values.
        unsafe {
            self.running
                .call(function, now, &mut |_, _, _, _| Ok(0), (cell, b, c))
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

/// The queues of all users, by user.
#[derive(Debug)]
pub struct Queues {
    memory: Memory,
    users: u32,
}

impl Queues {
    /// Return queues with one threshold.
    pub fn new(users: u32, threshold: u32) -> Self {
        let memory = Memory::new(users as usize * size_of::<Queue>());
        let mut queues = Self { memory, users };
        queues.iter_mut().for_each(|it| it.threshold = threshold);
        queues
    }
}

impl Deref for Queues {
    type Target = [Queue];

    fn deref(&self) -> &[Queue] {
        // SAFETY: the memory has a queue for each user, and belongs to the value.
        unsafe { from_raw_parts(self.memory.start().cast(), self.users as usize) }
    }
}

impl DerefMut for Queues {
    fn deref_mut(&mut self) -> &mut [Queue] {
        // SAFETY: the same.
        unsafe { from_raw_parts_mut(self.memory.start().cast(), self.users as usize) }
    }
}

/// A buffer (`struct buffer`).
#[repr(C)]
#[derive(Debug)]
pub struct Buffer<'a> {
    queues: *mut c_void,
    user_states: *mut c_void,
    state: *mut c_void,
    bytes: u64,
    users: u32,
    packets: u32,
    capacity: u32,
    user_packets: u32,
    owner: PhantomData<&'a mut Queues>,
}

impl<'a> Buffer<'a> {
    /// Return a buffer with so many bytes and packets. user_packets: maximum packets of a user.
    pub fn new(
        queues: &'a mut Queues,
        bytes: u64,
        [packets, capacity, user_packets]: [u32; 3],
    ) -> Self {
        Self {
            queues: queues.memory.start(),
            user_states: ptr::null_mut(),
            state: ptr::null_mut(),
            bytes,
            users: queues.users,
            packets,
            capacity,
            user_packets,
            owner: PhantomData,
        }
    }
}

/// An admission policy in a simulation.
#[derive(Debug)]
pub struct Admission {
    running: Running,
    /// Time of the next calls, ps.
    pub now: u64,
}

impl Admission {
    /// Return a policy of so many users.
    pub fn new(header: &AdmissionHeader, users: u32, seed: u64) -> Self {
        Self {
            running: header.running(users, 1, seed),
            now: 0,
        }
    }

    fn call(
        &mut self,
        function: u32,
        mut buffer: Buffer<'_>,
        user: u32,
        value: u32,
    ) -> Option<u64> {
        buffer.user_states = self.running.states.start();
        buffer.state = self.running.others.start();
        let values = ((&raw mut buffer).cast(), user.into(), value.into());
        // SAFETY: the functions have a buffer, whose states have the sizes of the header, and two values.
        unsafe {
            self.running
                .call(function, self.now, &mut |_, _, _, _| Ok(0), values)
        }
    }

    /// Return whether a packet of a user is admitted (`Some`), and the user whose last packet is dropped for it.
    pub fn offer(&mut self, buffer: Buffer<'_>, user: u32, bytes: u16) -> Option<Option<u32>> {
        const ADMIT: u64 = 0xffff_ffff;
        const REFUSE: u64 = 0xffff_fffe;
        let (users, full) = (buffer.users.into(), buffer.packets >= buffer.capacity);
        let queues: *const Queue = buffer.queues.cast();
        let text = match self.call(9, buffer, user, bytes.into()).unwrap_or(REFUSE) {
            ADMIT if full => "admits a packet into a full buffer".to_owned(),
            ADMIT => return Some(None),
            REFUSE => return None,
            other if self.running.facts().option == 0 => {
                format!(
                    "returns {other} without ADMISSION_REPLACES: return ADMISSION_ADMIT or ADMISSION_REFUSE"
                )
            }
            other if other >= users => {
                format!("drops a packet of user {other}: there are {users} users")
            }
            // SAFETY: a queue of the buffer, which is borrowed until the end of this function.
            other if unsafe { (*queues.add(other as usize)).length } == 0 => {
                format!("drops a packet of user {other}, which has none")
            }
            other => return Some(Some(other as u32)),
        };
        self.running.fail(9, &text);
        None
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
