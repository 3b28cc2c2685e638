//! Transports (`transport.h`): states of flows and hosts, and questions of a header about the network.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::ptr;
use std::sync::atomic::AtomicU64;

use crate::NONE;
use crate::object::{Header, Running};

/// Maximum bytes of `sim_memory` of all flows.
const MOST_MEMORY: u64 = 4 << 30;
/// Latest time of a timer, ps.
const LATEST: u64 = 1 << 62;
/// In the token of a wake-up, the timer of a host, above the number of flow or host and of the timer.
const OF_HOST: u64 = 1 << 48;

/// A header of a transport.
pub type TransportHeader = Header<1, { (size_of::<Flow>() << 8 | size_of::<Packet>()) as u64 }>;

/// A packet (`struct packet`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "transport.h has the meaning of each")]
pub struct Packet {
    pub rank: u64,
    pub value: u64,
    pub to: u32,
    pub sequence: u32,
    pub size: u16,
    pub kind: u8,
    pub priority: u8,
    pub ecn_capable: u8,
    pub ecn: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct PacketSet {
    words: *mut u64,
    packets: u32,
    count: u32,
    upto: u32,
}

/// A flow (`struct flow`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "transport.h has the meaning of each")]
pub struct Flow {
    pub bytes: u64,
    pub start: u64,
    state: *mut c_void,
    arrived: PacketSet,
    pub id: u32,
    pub source: u32,
    pub destination: u32,
    pub packets: u32,
    pub user: u32,
}

impl Flow {
    /// Return a flow of so many packets between two hosts.
    pub fn new(id: u32, (source, destination): (u32, u32), packets: u32, bytes: u64) -> Self {
        Self {
            bytes,
            start: 0,
            state: ptr::null_mut(),
            arrived: PacketSet {
                words: ptr::null_mut(),
                packets,
                count: 0,
                upto: 0,
            },
            id,
            source,
            destination,
            packets,
            user: NONE,
        }
    }
}

/// A question of a header to the network, whose answer is a number (0 if there is none) or an error without a subject.
#[derive(Debug)]
pub enum Ask<'a> {
    /// Send a packet of a flow from a host.
    Send(&'a Flow, u32, &'a Packet),
    /// Call [`Transport::wake`] at a time with a token.
    Wake(u64, u64),
    /// Call [`Transport::pull`] for a host.
    Kick(u32),
    /// Bytes that wait at a host's card.
    Backlog(u32),
    /// Transmission time of a packet at a host's card.
    PacketTime(u32, u16),
    /// Close a flow.
    Close(u32),
}

/// The answers of the network.
pub type Network<'a> = &'a mut dyn FnMut(Ask<'_>) -> Result<u64, String>;

/// An open flow: `struct flow`, its state and the words of its set in a first block, then memory of `sim_memory`.
#[derive(Debug)]
struct Open(Vec<Vec<AtomicU64>>);

impl Open {
    /// Add zeroed memory, aligned to 8 bytes; return its beginning.
    fn add(&mut self, bytes: usize) -> *mut c_void {
        let words = std::iter::repeat_with(AtomicU64::default);
        self.0.push(words.take(bytes.div_ceil(8)).collect());
        start(self.0.last())
    }

    fn flow(&self) -> *mut Flow {
        start(self.0.first()).cast()
    }

    /// Return the bytes of `sim_memory`.
    fn memory(&self) -> u64 {
        self.0.iter().skip(1).map(|it| it.len() as u64 * 8).sum()
    }
}

fn start(block: Option<&Vec<AtomicU64>>) -> *mut c_void {
    block.map_or(ptr::null_mut(), |it| it.as_ptr().cast_mut().cast())
}

#[derive(Debug)]
struct States<S> {
    flows: HashMap<u32, Open, S>,
    /// Address of the hosts' states, bytes of each, and their number.
    hosts: [u64; 3],
    /// Flows closed in the running call.
    closed: Vec<u32>,
    /// Bytes of `sim_memory` of all flows.
    memory: u64,
}

impl<S: BuildHasher> States<S> {
    /// Return an open flow that C passes.
    ///
    /// # Safety
    /// C got the pointer here, or it is null.
    unsafe fn open(&self, flow: *const c_void) -> Result<Flow, String> {
        if flow.is_null() {
            return Err("passes NULL instead of a flow".to_owned());
        }
        // SAFETY: of the caller. A closed flow stays in memory until the call that closed it has returned.
        let flow = unsafe { *flow.cast::<Flow>() };
        match self.closed.contains(&flow.id) {
            true => Err(format!("uses flow {} after sim_close", flow.id)),
            false => Ok(flow),
        }
    }

    fn host(&self, host: u64) -> Result<u32, String> {
        let [_, _, count] = self.hosts;
        let known = (host < count).then_some(host as u32);
        known.ok_or_else(|| format!("names host {host}: there are {count} hosts"))
    }

    /// Return memory of a flow.
    fn allocate(&mut self, id: u32, bytes: u64) -> Result<u64, String> {
        if bytes > MOST_MEMORY.saturating_sub(self.memory) {
            return Err("needs more than 4 GiB of sim_memory".to_owned());
        }
        let Some(open) = self.flows.get_mut(&id) else {
            return Ok(0);
        };
        self.memory += bytes.next_multiple_of(8);
        Ok(address(open.add(bytes as usize)))
    }

    /// Answer a question of C.
    ///
    /// # Safety
    /// The values are a question of `transport.h`.
    unsafe fn answer(
        &mut self,
        ask: Network<'_>,
        (question, a, b, c): (u32, *mut c_void, u64, u64),
    ) -> Result<u64, String> {
        match question {
            // SAFETY: a flow and a packet.
            1 => unsafe { ask(Ask::Send(&self.open(a)?, b as u32, &*pointer(c))) },
            // SAFETY: a flow.
            2 => ask(wake(u64::from(unsafe { self.open(a) }?.id), b, c)?),
            // SAFETY: a time.
            3 => ask(wake(
                OF_HOST | u64::from(self.host(b)?),
                unsafe { *a.cast() },
                c,
            )?),
            4 => ask(Ask::Kick(self.host(b)?)),
            5 => ask(Ask::Backlog(self.host(b)?)),
            6 => ask(Ask::PacketTime(
                self.host(b)?,
                c.min(u64::from(u16::MAX)) as u16,
            )),
            7 => {
                // SAFETY: a flow.
                let flow = unsafe { self.open(a) }?;
                let (id, packets, count) = (flow.id, flow.packets, flow.arrived.count);
                if count < packets {
                    return Err(format!(
                        "closes flow {id} after {count} of {packets} packets have arrived"
                    ));
                }
                self.closed.push(id);
                ask(Ask::Close(id))
            }
            8 => {
                let open = self.flows.get(&(b as u32));
                let open = open.filter(|_| !self.closed.contains(&(b as u32)));
                Ok(open.map_or(0, |it| address(it.flow().cast())))
            }
            9 => {
                let [states, bytes, _] = self.hosts;
                Ok(states + bytes * u64::from(self.host(b)?))
            }
            // SAFETY: a flow.
            10 => self.allocate(unsafe { self.open(a) }?.id, b),
            _ => Err("asks an unknown question".to_owned()),
        }
    }
}

fn address(pointer: *mut c_void) -> u64 {
    pointer.expose_provenance() as u64
}

fn pointer<T>(address: u64) -> *const T {
    ptr::with_exposed_provenance(address as usize)
}

/// Return the wake-up of a timer.
fn wake<'a>(number: u64, at: u64, timer: u64) -> Result<Ask<'a>, String> {
    match (at <= LATEST, timer <= 0xffff) {
        (true, true) => Ok(Ask::Wake(at, timer << 32 | number)),
        (false, _) => Err(format!(
            "sets a timer at {at} ps: write at most 2^62, 53 days"
        )),
        (_, false) => Err(format!("sets timer {timer}: write a number below 65536")),
    }
}

/// A transport in a simulation. S: a hash of flow numbers.
#[derive(Debug)]
pub struct Transport<S = RandomState> {
    running: Running,
    states: States<S>,
}

impl<S: BuildHasher + Default> Transport<S> {
    /// Return the transport of so many hosts.
    pub fn new(header: &TransportHeader, hosts: u32, seed: u64) -> Self {
        let running = header.running(0, hosts, seed);
        let states = address(running.others.start());
        Self {
            states: States {
                flows: HashMap::default(),
                hosts: [states, header.facts().other, hosts.into()],
                closed: Vec::new(),
                memory: 0,
            },
            running,
        }
    }

    /// Call a function.
    ///
    /// # Safety
    /// The values fit the function in `object.c`.
    unsafe fn call(
        &mut self,
        function: u32,
        now: u64,
        ask: Network<'_>,
        values: (*mut c_void, u64, u64),
    ) -> Option<u64> {
        let states = &mut self.states;
        let mut answers = |question, a, b, c| {
            // SAFETY: a question of this kind of header.
            unsafe { states.answer(ask, (question, a, b, c)) }
        };
        // SAFETY: of the caller.
        let found = unsafe { self.running.call(function, now, &mut answers, values) };
        for id in self.states.closed.drain(..) {
            if let Some(open) = self.states.flows.remove(&id) {
                self.states.memory -= open.memory();
            }
        }
        found
    }

    /// Start a flow.
    pub fn start(&mut self, ask: Network<'_>, mut flow: Flow, now: u64) {
        let state = (self.running.facts().many as usize).next_multiple_of(8);
        let words = flow.packets as usize / 64 + 1;
        let mut open = Open(Vec::new());
        let at: *mut Flow = open.add(size_of::<Flow>() + state + words * 8).cast();
        // SAFETY: the block has the three parts in this order, all aligned to 8 bytes.
        unsafe {
            flow.start = now;
            flow.state = at.add(1).cast();
            flow.arrived.words = flow.state.byte_add(state).cast();
            at.write(flow);
        }
        self.states.flows.insert(flow.id, open);
        // SAFETY: an open flow.
        unsafe { self.call(1, now, ask, (at.cast(), 0, 0)) };
    }

    /// Note that a data packet has reached the destination. Return whether all packets of the flow have.
    pub fn note(&mut self, ask: Network<'_>, id: u32, packet: u32, now: u64) -> bool {
        let flow = self.states.flows.get(&id).map(Open::flow);
        // SAFETY: the set of an open flow, and a number.
        flow.is_some_and(|flow| unsafe {
            let set = (&raw mut (*flow).arrived).cast();
            self.call(0, now, ask, (set, packet.into(), 0)) == Some(1)
        })
    }

    /// Pass a packet to its host.
    pub fn receive(&mut self, ask: Network<'_>, id: u32, packet: &Packet, now: u64) {
        if let Some(open) = self.states.flows.get(&id) {
            let packet = ptr::from_ref(packet).expose_provenance() as u64;
            let flow = open.flow().cast();
            // SAFETY: an open flow and a packet.
            unsafe { self.call(2, now, ask, (flow, packet, 0)) };
        }
    }

    /// Process a wake-up.
    pub fn wake(&mut self, ask: Network<'_>, token: u64, now: u64) {
        let (number, timer) = (token as u32, token >> 32 & 0xffff);
        if token & OF_HOST != 0 {
            // SAFETY: a host and a timer.
            unsafe { self.call(4, now, ask, (ptr::null_mut(), number.into(), timer)) };
        } else if let Some(open) = self.states.flows.get(&number) {
            let flow = open.flow().cast();
            // SAFETY: an open flow and a timer.
            unsafe { self.call(3, now, ask, (flow, timer, 0)) };
        }
    }

    /// Return the next packet of a host, with its flow.
    pub fn pull(&mut self, ask: Network<'_>, host: u32, now: u64) -> Option<(Flow, Packet)> {
        let mut packet = Packet::default();
        let place = (&raw mut packet).cast();
        // SAFETY: a packet and a host.
        let id = unsafe { self.call(5, now, ask, (place, host.into(), 0)) }? as u32;
        let open = self.states.flows.get(&id);
        if id != NONE && open.is_none() {
            self.refuse(&format!("returns flow {id}, which is not open"));
            return None;
        }
        // SAFETY: no call is running.
        open.map(|it| (unsafe { *it.flow() }, packet))
    }

    /// End the use of the transport by an error of its pulled packet.
    pub fn refuse(&mut self, text: &str) {
        self.running.fail(5, text);
    }
}
