//! Transports (`transport.h`): states of flows and hosts, and the calls between a header and the network.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};

use libloading::Library;

use crate::NO_FLOW;
use crate::memory::Memory;
use crate::object::{Functions, Header, Running, Sim, optional};

/// No mobile user.
pub const NO_USER: u32 = u32::MAX;
/// Maximum bytes that a transport may have for its flows by `sim_memory`.
const MOST_MEMORY: u64 = 4 << 30;
/// Latest time of a timer, ps.
const LATEST: u64 = 1 << 62;
/// A timer of a host, above its number and the timer's.
const OF_HOST: u64 = 1 << 48;

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
#[derive(Debug)]
struct PacketSet {
    words: *mut u64,
    packets: u32,
    count: u32,
    upto: u32,
}

#[repr(C)]
#[derive(Debug)]
struct CFlow {
    bytes: u64,
    start: u64,
    state: *mut c_void,
    arrived: PacketSet,
    id: u32,
    source: u32,
    destination: u32,
    packets: u32,
    user: u32,
}

/// A flow that starts.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "transport.h has the meaning of each")]
pub struct Flow {
    pub id: u32,
    pub source: u32,
    pub destination: u32,
    pub packets: u32,
    pub bytes: u64,
    pub start: u64,
    pub user: u32,
}

/// The network as a transport uses it. Errors are sentences without a subject.
pub trait Network {
    /// Send a packet of a flow.
    fn send(&mut self, flow: &Flow, from: u32, packet: &Packet) -> Result<(), String>;
    /// Call [`Transport::wake`] at a time.
    fn wake(&mut self, at: u64, token: u64);
    /// Ask for packets of a host by [`Transport::pull`].
    fn kick(&mut self, host: u32);
    /// Return the bytes that wait at a host's card.
    fn backlog(&mut self, host: u32) -> u64;
    /// Return the transmission time of a packet at a host's card.
    fn packet_time(&self, host: u32, bytes: u16) -> u64;
    /// Close a flow.
    fn close(&mut self, flow: u32);
}

#[repr(C)]
struct Calls {
    send: extern "C" fn(*mut Sim, *mut CFlow, u32, *const Packet),
    set_timer: extern "C" fn(*mut Sim, *mut CFlow, u64, u32),
    set_host_timer: extern "C" fn(*mut Sim, u32, u64, u32),
    kick: extern "C" fn(*mut Sim, u32),
    backlog: extern "C" fn(*mut Sim, u32) -> u64,
    packet_time: extern "C" fn(*mut Sim, u32, u32) -> u64,
    close: extern "C" fn(*mut Sim, *mut CFlow),
    flow: extern "C" fn(*mut Sim, u32) -> *mut CFlow,
    host: extern "C" fn(*mut Sim, u32) -> *mut c_void,
    memory: extern "C" fn(*mut Sim, *mut CFlow, u64) -> *mut c_void,
}

/// The functions of a transport.
#[derive(Debug)]
pub struct Transports {
    start: unsafe extern "C" fn(*mut Sim, *mut CFlow),
    receive: unsafe extern "C" fn(*mut Sim, *mut CFlow, *const Packet),
    timer: Option<unsafe extern "C" fn(*mut Sim, *mut CFlow, u32)>,
    host_timer: Option<unsafe extern "C" fn(*mut Sim, u32, u32)>,
    pull: Option<unsafe extern "C" fn(*mut Sim, u32, *mut Packet) -> u32>,
}

/// A header of a transport.
pub type TransportHeader = Header<Transports>;

impl Functions for Transports {
    const KIND: (u64, &'static str, u64) = (
        1,
        "transport",
        (size_of::<CFlow>() << 16 | size_of::<Packet>() << 8 | size_of::<Calls>()) as u64,
    );

    unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: as of `optional`.
        let (start, receive) = unsafe {
            (
                *library.get(c"transport_start")?,
                *library.get(c"transport_receive")?,
            )
        };
        Ok(Self {
            start,
            receive,
            timer: optional(library, c"transport_timer"),
            host_timer: optional(library, c"transport_host_timer"),
            pull: optional(library, c"transport_pull"),
        })
    }
}

impl TransportHeader {
    /// Return `TRANSPORT_PORTS`, the bytes above which switches mark (0: never), and `TRANSPORT_USERS`.
    pub fn options(&self) -> (u64, u64, u64) {
        let facts = self.facts();
        (facts.ports, facts.mark_above, facts.users)
    }
}

/// Memory of an open flow.
#[derive(Debug)]
struct Open {
    /// `struct flow`, then the state, then the words of the set of arrived packets.
    block: Memory,
    more: Vec<Memory>,
    bytes: u64,
}

/// States of flows and hosts.
#[derive(Debug)]
struct States<S> {
    flows: HashMap<u32, Open, S>,
    hosts: Memory,
    host_bytes: usize,
    count: u32,
    /// Flows that were closed in the present call.
    closed: Vec<u32>,
    /// Bytes of `Open::more` of all flows.
    memory: u64,
}

/// A transport in a simulation. S: a hash of flow numbers.
#[derive(Debug)]
pub struct Transport<S = RandomState> {
    running: Running<Transports>,
    states: States<S>,
}

/// The simulator's side of a call.
struct Context<'a, N, S> {
    net: &'a mut N,
    states: &'a mut States<S>,
}

impl<S: BuildHasher + Default> Transport<S> {
    /// Return the transport of so many hosts.
    pub fn new(header: TransportHeader, hosts: u32, seed: u64) -> Self {
        let host_bytes = (header.facts().other as usize).next_multiple_of(8);
        Self {
            running: Running::new(header, seed),
            states: States {
                flows: HashMap::default(),
                hosts: Memory::new(host_bytes * hosts as usize),
                host_bytes,
                count: hosts,
                closed: Vec::new(),
                memory: 0,
            },
        }
    }

    /// Return the error that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.running.failure()
    }

    fn call<N: Network, R>(
        &mut self,
        number: u32,
        now: u64,
        net: &mut N,
        call: impl FnOnce(&Transports, *mut Sim) -> R,
    ) -> Option<R> {
        let states = &mut self.states;
        let mut context = Context { net, states };
        let calls: &Calls = &Calls {
            send: send::<N, S>,
            set_timer: set_timer::<N, S>,
            set_host_timer: set_host_timer::<N, S>,
            kick: kick::<N, S>,
            backlog: backlog::<N, S>,
            packet_time: packet_time::<N, S>,
            close: close::<N, S>,
            flow: flow::<N, S>,
            host: host::<N, S>,
            memory: memory::<N, S>,
        };
        let sides = ((&raw const *calls).cast(), (&raw mut context).cast());
        let found = self.running.call(number, now, sides, call);
        for id in self.states.closed.drain(..) {
            if let Some(open) = self.states.flows.remove(&id) {
                self.states.memory -= open.bytes;
            }
        }
        found
    }

    /// Return the address of an open flow.
    fn find(&self, id: u32) -> Option<*mut CFlow> {
        self.states.flows.get(&id).map(|it| it.block.start().cast())
    }

    /// Start a flow.
    pub fn start(&mut self, net: &mut impl Network, now: u64, flow: &Flow) {
        let state = (self.running.header().facts().many as usize).next_multiple_of(8);
        let words = flow.packets as usize / 64 + 1;
        let block = Memory::new(size_of::<CFlow>() + state + words * 8);
        let at: *mut CFlow = block.start().cast();
        // SAFETY: the block has the three parts in this order, all aligned to 8 bytes.
        unsafe {
            let state_at = at.add(1).cast::<u8>();
            at.write(CFlow {
                bytes: flow.bytes,
                start: flow.start,
                state: state_at.cast(),
                arrived: PacketSet {
                    words: state_at.add(state).cast(),
                    packets: flow.packets,
                    count: 0,
                    upto: 0,
                },
                id: flow.id,
                source: flow.source,
                destination: flow.destination,
                packets: flow.packets,
                user: flow.user,
            });
        }
        let open = Open {
            block,
            more: Vec::new(),
            bytes: 0,
        };
        self.states.flows.insert(flow.id, open);
        // SAFETY: the flow stays at its address until the call has ended.
        self.call(1, now, net, |it, sim| unsafe { (it.start)(sim, at) });
    }

    /// Note that a data packet has reached the destination. Return whether all packets of the flow have.
    pub fn note(&mut self, id: u32, packet: u32) -> bool {
        let Some(flow) = self.find(id) else {
            return false;
        };
        // SAFETY: no call of the header is running, and packets were checked when they were sent.
        let set = unsafe { &mut (*flow).arrived };
        let (word, bit) = (packet as usize / 64, 1u64 << (packet % 64));
        // SAFETY: the set has a word for each 64 packets of the flow.
        let words =
            unsafe { std::slice::from_raw_parts_mut(set.words, set.packets as usize / 64 + 1) };
        set.count += u32::from(words[word] & bit == 0);
        words[word] |= bit;
        while set.upto < set.packets && words[set.upto as usize / 64] >> (set.upto % 64) & 1 == 1 {
            set.upto += 1;
        }
        set.count == set.packets
    }

    /// Pass a packet to its host.
    pub fn receive(&mut self, net: &mut impl Network, now: u64, id: u32, packet: &Packet) {
        if let Some(flow) = self.find(id) {
            // SAFETY: as of `start`.
            self.call(2, now, net, |it, sim| unsafe {
                (it.receive)(sim, flow, packet)
            });
        }
    }

    /// Process a wake-up.
    pub fn wake(&mut self, net: &mut impl Network, now: u64, token: u64) {
        let (number, timer) = (token as u32, (token >> 32) as u32 & 0xffff);
        if token & OF_HOST != 0 {
            match self.running.header().functions().host_timer {
                // SAFETY: as of `start`.
                Some(call) => {
                    _ = self.call(4, now, net, |_, sim| unsafe { call(sim, number, timer) })
                }
                None => self
                    .running
                    .fail(4, "set, but the header does not define the function"),
            }
        } else if let Some(flow) = self.find(number) {
            match self.running.header().functions().timer {
                // SAFETY: as of `start`.
                Some(call) => {
                    _ = self.call(3, now, net, |_, sim| unsafe { call(sim, flow, timer) })
                }
                None => self
                    .running
                    .fail(3, "set, but the header does not define the function"),
            }
        }
    }

    /// Return the next packet of a host, with the number of its flow.
    pub fn pull<N: Network>(
        &mut self,
        net: &mut N,
        now: u64,
        host: u32,
        check: impl FnOnce(&N, &Flow, &Packet) -> Result<(), String>,
    ) -> Option<(u32, Packet)> {
        let Some(pull) = self.running.header().functions().pull else {
            self.running
                .fail(5, "sim_kick, but the header does not define the function");
            return None;
        };
        let mut packet = Packet::default();
        // SAFETY: as of `start`.
        let id = self.call(5, now, net, |_, sim| unsafe {
            pull(sim, host, &raw mut packet)
        })?;
        if id == NO_FLOW {
            return None;
        }
        let checked = match self.find(id) {
            None => Err(format!("returns flow {id}, which is not open")),
            // SAFETY: an open flow.
            Some(flow) => check(net, &unsafe { describe(flow) }, &packet),
        };
        match checked {
            Ok(()) => Some((id, packet)),
            Err(text) => {
                self.running.fail(5, &text);
                None
            }
        }
    }
}

/// Return a copy of a flow.
///
/// # Safety
/// The flow is open.
unsafe fn describe(flow: *const CFlow) -> Flow {
    // SAFETY: of the caller.
    let flow = unsafe { &*flow };
    Flow {
        id: flow.id,
        source: flow.source,
        destination: flow.destination,
        packets: flow.packets,
        bytes: flow.bytes,
        start: flow.start,
        user: flow.user,
    }
}

/// Return the parts of a call from C.
///
/// # Safety
/// `sim` is the `struct sim` of a call of a transport over these types, which has no other reference to these parts
/// while it waits for this call.
unsafe fn sides<'a, N, S>(sim: *mut Sim) -> (&'a mut Sim, &'a mut Context<'a, N, S>) {
    // SAFETY: of the caller.
    unsafe {
        let sim = &mut *sim;
        let context = &mut *sim.simulator.cast();
        (sim, context)
    }
}

/// Return a flow that C passes, if it is open.
///
/// # Safety
/// C passes a pointer that it got from here, or null.
unsafe fn open<N, S: BuildHasher>(
    sim: &mut Sim,
    context: &Context<'_, N, S>,
    flow: *const CFlow,
) -> Option<Flow> {
    // SAFETY: of the caller; a closed flow stays in memory during the call that closed it.
    let found = (!flow.is_null()).then(|| unsafe { describe(flow) });
    match found {
        Some(found) if !context.states.closed.contains(&found.id) => return Some(found),
        Some(found) => sim.refuse(format!("uses flow {} after sim_close", found.id)),
        None => sim.refuse("passes NULL instead of a flow"),
    }
    None
}

/// Return a host's number if it exists.
fn checked_host<N, S>(sim: &mut Sim, context: &Context<'_, N, S>, host: u32) -> Option<u32> {
    let known = host < context.states.count;
    if !known {
        sim.refuse(format!(
            "names host {host}: there are {}",
            context.states.count
        ));
    }
    known.then_some(host)
}

/// Return the token of a wake-up.
fn token(sim: &mut Sim, number: u32, at: u64, timer: u32) -> u64 {
    if timer > 0xffff {
        sim.refuse(format!("sets timer {timer}: write a number below 65536"));
    }
    if at > LATEST {
        sim.refuse(format!(
            "sets a timer at {at} ps: write at most 2^62, 53 days"
        ));
    }
    u64::from(timer & 0xffff) << 32 | u64::from(number)
}

extern "C" fn send<N: Network, S: BuildHasher>(
    sim: *mut Sim,
    flow: *mut CFlow,
    from: u32,
    packet: *const Packet,
) {
    // SAFETY: as of `sides` and `open`; C passes a packet.
    unsafe {
        let (sim, context) = sides::<N, S>(sim);
        let Some(flow) = open(sim, context, flow) else {
            return;
        };
        if packet.is_null() {
            return sim.refuse("passes NULL instead of a packet");
        }
        if let Err(text) = context.net.send(&flow, from, &*packet) {
            sim.refuse(text);
        }
    }
}

extern "C" fn set_timer<N: Network, S: BuildHasher>(
    sim: *mut Sim,
    flow: *mut CFlow,
    at: u64,
    timer: u32,
) {
    // SAFETY: as of `sides` and `open`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    // SAFETY: the same.
    if let Some(flow) = unsafe { open(sim, context, flow) } {
        let token = token(sim, flow.id, at, timer);
        context.net.wake(at.min(LATEST), token);
    }
}

extern "C" fn set_host_timer<N: Network, S: BuildHasher>(
    sim: *mut Sim,
    host: u32,
    at: u64,
    timer: u32,
) {
    // SAFETY: as of `sides`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    if let Some(host) = checked_host(sim, context, host) {
        let token = token(sim, host, at, timer);
        context.net.wake(at.min(LATEST), OF_HOST | token);
    }
}

extern "C" fn kick<N: Network, S: BuildHasher>(sim: *mut Sim, host: u32) {
    // SAFETY: as of `sides`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    if let Some(host) = checked_host(sim, context, host) {
        context.net.kick(host);
    }
}

extern "C" fn backlog<N: Network, S: BuildHasher>(sim: *mut Sim, host: u32) -> u64 {
    // SAFETY: as of `sides`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    checked_host(sim, context, host).map_or(0, |host| context.net.backlog(host))
}

extern "C" fn packet_time<N: Network, S: BuildHasher>(sim: *mut Sim, host: u32, bytes: u32) -> u64 {
    // SAFETY: as of `sides`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    let bytes = bytes.min(u32::from(u16::MAX)) as u16;
    checked_host(sim, context, host).map_or(0, |host| context.net.packet_time(host, bytes))
}

extern "C" fn close<N: Network, S: BuildHasher>(sim: *mut Sim, flow: *mut CFlow) {
    // SAFETY: as of `sides` and `open`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    // SAFETY: the same.
    let Some(found) = (unsafe { open(sim, context, flow) }) else {
        return;
    };
    // SAFETY: the flow is open.
    let arrived = unsafe { (*flow).arrived.count };
    if arrived < found.packets {
        let (id, packets) = (found.id, found.packets);
        return sim.refuse(format!(
            "closes flow {id} after {arrived} of {packets} packets have arrived"
        ));
    }
    context.states.closed.push(found.id);
    context.net.close(found.id);
}

extern "C" fn flow<N: Network, S: BuildHasher>(sim: *mut Sim, id: u32) -> *mut CFlow {
    // SAFETY: as of `sides`.
    let (_, context) = unsafe { sides::<N, S>(sim) };
    let open = context.states.flows.get(&id);
    let open = open.filter(|_| !context.states.closed.contains(&id));
    open.map_or(std::ptr::null_mut(), |it| it.block.start().cast())
}

extern "C" fn host<N: Network, S: BuildHasher>(sim: *mut Sim, host: u32) -> *mut c_void {
    // SAFETY: as of `sides`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    // A header that asks for a host that does not exist gets the first: C would crash before the error is shown.
    let host = checked_host(sim, context, host).unwrap_or(0);
    let states = &context.states;
    // SAFETY: the memory has a state for each host.
    unsafe {
        states
            .hosts
            .start()
            .byte_add(states.host_bytes * host as usize)
    }
}

extern "C" fn memory<N: Network, S: BuildHasher>(
    sim: *mut Sim,
    flow: *mut CFlow,
    bytes: u64,
) -> *mut c_void {
    // SAFETY: as of `sides` and `open`.
    let (sim, context) = unsafe { sides::<N, S>(sim) };
    // SAFETY: the same.
    let Some(found) = (unsafe { open(sim, context, flow) }) else {
        return std::ptr::null_mut();
    };
    let states = &mut context.states;
    if bytes > MOST_MEMORY - states.memory {
        sim.refuse(format!(
            "needs more than {} GiB of sim_memory",
            MOST_MEMORY >> 30
        ));
        return std::ptr::null_mut();
    }
    let Some(open) = states.flows.get_mut(&found.id) else {
        return std::ptr::null_mut();
    };
    let memory = Memory::new(bytes as usize);
    let start = memory.start();
    open.more.push(memory);
    open.bytes += bytes;
    states.memory += bytes;
    start
}
