//! Admission policies of central units (`admission.h`).

use std::ffi::c_void;

use libloading::Library;

use crate::memory::Memory;
use crate::object::{Functions, Header, NONE, Running, Sim, optional};

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

/// Totals and limits of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Waiting bytes.
    pub bytes: u64,
    /// Waiting packets.
    pub length: u32,
    /// Maximum packets.
    pub capacity: u32,
    /// Maximum packets of a user.
    pub user_limit: u32,
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

/// The functions of a policy.
#[derive(Debug)]
pub struct Admits {
    offer: unsafe extern "C" fn(*mut Sim, *mut CBuffer, u32, u32) -> u32,
    open: Option<unsafe extern "C" fn(*mut Sim, *mut CBuffer, u32, u32)>,
    report: Option<unsafe extern "C" fn(*mut Sim, *mut CBuffer, u32, u32)>,
}

/// A header of a policy.
pub type AdmissionHeader = Header<Admits>;

impl Functions for Admits {
    const KIND: (u64, &'static str, u64) = (
        3,
        "admission",
        (size_of::<CBuffer>() << 8 | size_of::<Queue>()) as u64,
    );

    unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
        Ok(Self {
            // SAFETY: as of `optional`.
            offer: unsafe { *library.get(c"admission_offer")? },
            open: optional(library, c"admission_open"),
            report: optional(library, c"admission_report"),
        })
    }
}

/// What a policy does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The packet joins its queue.
    Admit,
    /// The packet is refused.
    Refuse,
    /// The packet joins its queue, and the last packet of this user is dropped.
    InPlaceOf(u32),
}

/// A policy in a simulation.
#[derive(Debug)]
pub struct Admission {
    running: Running<Admits>,
    user_states: Memory,
    state: Memory,
    /// Time of the next calls, ps.
    pub now: u64,
}

impl Admission {
    /// Return a policy of so many users.
    pub fn new(header: AdmissionHeader, users: u32, seed: u64) -> Self {
        let facts = *header.facts();
        Self {
            running: Running::new(header, seed),
            user_states: Memory::new(facts.many as usize * users as usize),
            state: Memory::new(facts.other as usize),
            now: 0,
        }
    }

    /// Return the error that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.running.failure()
    }

    fn buffer(&self, buffer: Buffer, queues: &mut [Queue]) -> CBuffer {
        CBuffer {
            queues: queues.as_mut_ptr(),
            user_states: self.user_states.start(),
            state: self.state.start(),
            bytes: buffer.bytes,
            users: queues.len() as u32,
            packets: buffer.length,
            capacity: buffer.capacity,
            user_packets: buffer.user_limit,
        }
    }

    /// Decide on a packet of a user.
    pub fn offer(
        &mut self,
        buffer: Buffer,
        queues: &mut [Queue],
        user: u32,
        bytes: u32,
    ) -> Decision {
        let mut all = self.buffer(buffer, queues);
        // SAFETY: the states have the sizes that the header states; the function uses its arguments during the call.
        let call = |it: &Admits, sim| unsafe { (it.offer)(sim, &raw mut all, user, bytes) };
        let full = buffer.length >= buffer.capacity;
        let refused = match self.running.call(9, self.now, NONE, call) {
            Some(0xffff_ffff) if full => {
                format!(
                    "admits a packet into a full buffer of {} packets",
                    buffer.capacity
                )
            }
            Some(0xffff_ffff) => return Decision::Admit,
            None | Some(0xffff_fffe) => return Decision::Refuse,
            Some(other) if !self.running.header().option() => {
                format!(
                    "returned {other}: without ADMISSION_REPLACES, return ADMISSION_ADMIT or ADMISSION_REFUSE"
                )
            }
            Some(other) => match queues.get(other as usize).map(|it| it.length) {
                None => format!(
                    "drops a packet of user {other}: there are {} users",
                    queues.len()
                ),
                Some(0) => format!("drops a packet of user {other}, which has none"),
                Some(_) => return Decision::InPlaceOf(other),
            },
        };
        self.running.fail(9, &refused);
        Decision::Refuse
    }

    /// Take in that a user became one of `active` users.
    pub fn open(&mut self, buffer: Buffer, queues: &mut [Queue], user: u32, active: u32) {
        if let Some(open) = self.running.header().functions().open {
            let mut all = self.buffer(buffer, queues);
            // SAFETY: as of `offer`.
            let call = |_: &Admits, sim| unsafe { open(sim, &raw mut all, user, active) };
            self.running.call(10, self.now, NONE, call);
        }
    }

    /// Take in a report of the distributed unit.
    pub fn report(&mut self, buffer: Buffer, queues: &mut [Queue], user: u32, reported: u32) {
        if let Some(report) = self.running.header().functions().report {
            let mut all = self.buffer(buffer, queues);
            // SAFETY: as of `offer`.
            let call = |_: &Admits, sim| unsafe { report(sim, &raw mut all, user, reported) };
            self.running.call(11, self.now, NONE, call);
        }
    }
}
