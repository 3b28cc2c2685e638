//! The event loop in real time: packets from devices through the path model and back to devices.
//!
//! Inside, packets have the model's times: a packet that departs from one direction arrives at the next direction at
//! the same instant, even if the loop polls later. Only at the ends the clock decides. A packet arrives when a program
//! sends it, if the kernel has [stamped](crate::stamps) it, or else when it is read. It is written when the clock has
//! reached its departure, never before.

mod requests;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use cellbed_link::{Bytes, Duration, Fate, Graph, GraphConfig, Onward, Outcome, Packets, Time};
use cellbed_tcp::proxy::{Place, Side};

use crate::clock::{RealTime, now, sleep_until};
use crate::config::Config;
use crate::error::Result;
use crate::lateness::{Account, Lateness, Seconds};
use crate::log::Records;
use crate::mahimahi_log::Event;
use crate::offload::VNET_BYTES;
use crate::outbox::Outbox;
use crate::owners::Owners;
use crate::pace::{self, Pace};
use crate::packet::Header;
use crate::pool::{Packet, Pool, Segment};
use crate::process::{request_real_time, sleep_precisely, thread_accounts, total_memory};
use crate::proxy::{Made, Port, Verdict};
use crate::stages::bound_all;
use crate::stamps::Stamps;
use crate::tower::Towers;
use crate::tun::{Received, Tun};
use crate::wake::Wake;

pub use requests::{Request, Summary};

/// Maximum packets read from one device before the other devices are read.
const BATCH: usize = 64;

/// Maximum time for which a stamped packet stays unread: later ones must find room for their stamps.
const LONGEST_UNREAD: Duration = Duration::from_millis(8);

/// Time from reading a packet until its departure can be kept.
const AMPLE: Duration = Duration::from_millis(1);

/// Interval at which finished bins and records are written to their files.
const FLUSH: Duration = Duration::from_millis(100);

/// Token of the mailbox. The token of a device is the number of its vertex.
const MAILBOX: u64 = u64::MAX - 1;

/// A vertex with a device.
struct Device {
    tun: Option<Arc<Tun>>,
    stamps: Option<Stamps>,
    outbox: Outbox,
    /// Directions and outcomes of the segments in the outbox, in the same order.
    leaving: Vec<(u16, Outcome<Segment>)>,
}

/// The event loop and all its data. No data is shared with another thread.
pub struct Engine {
    devices: Vec<Device>,
    graph: Graph<Segment>,
    cells: usize,
    owners: Owners,
    pool: Pool,
    /// Maximum packets in an infinite queue.
    room: Packets,
    records: Records,
    requests: Receiver<Request>,
    mailbox: Arc<OwnedFd>,
    /// True if a request has stopped the loop.
    finished: bool,
    wake: Wake,
    real: RealTime,
    lateness: Lateness,
    seconds: Seconds,
    /// Returns the times of the loop's thread so far.
    account: Box<dyn Fn() -> Account + Send>,
    read: u64,
    unroutable: u64,
    refused: u64,
    /// True if no slot is free: devices are not read until one is.
    crowded: bool,
    /// Vertices whose outbox is not empty.
    waiting: Vec<usize>,
    pace: Pace,
    /// Time at which due packets are written, even if there is more to read.
    write_by: Time,
    proxies: Vec<Port>,
    /// Packets of proxies that have not left.
    made: VecDeque<Made>,
    /// Time for which a stamped packet may stay unread.
    unread: Duration,
    towers: Towers,
}

impl Engine {
    /// Create an engine for a checked configuration. `tuns` has the device of each vertex, if there is one. `mailbox`
    /// is an event descriptor, signalled after each addition to `requests`.
    pub fn new(
        config: &Config,
        mut graph: GraphConfig,
        tuns: Vec<Option<Arc<Tun>>>,
        records: Records,
        requests: Receiver<Request>,
        mailbox: Arc<OwnedFd>,
    ) -> Result<Self> {
        let zero = now();
        let memory = total_memory();
        let room = bound_all(&mut graph.directions, memory);
        let graph = Graph::new(graph, zero).expect("the configuration was checked");
        let mut graph = graph.with_tallies().with_marks(config.marks());
        if config.series.is_some() {
            graph = graph.with_meters();
        }
        let wake = Wake::new()?;
        wake.watch(&*mailbox, MAILBOX)?;
        for (vertex, tun) in tuns.iter().enumerate() {
            if let Some(tun) = tun {
                wake.watch(&**tun, vertex as u64)?;
            }
        }
        let device = |tun| Device {
            tun,
            stamps: None,
            outbox: Outbox::default(),
            leaving: Vec::new(),
        };
        Ok(Self {
            graph,
            cells: config.cells.len(),
            owners: Owners::new(config),
            // A quarter of the memory, half of it for infinite queues.
            pool: Pool::new((memory / 4) as usize),
            room,
            records,
            real: RealTime::default(),
            lateness: Lateness::default(),
            seconds: Seconds::new(zero),
            account: Box::new(Account::default),
            read: 0,
            unroutable: 0,
            refused: 0,
            crowded: false,
            waiting: Vec::new(),
            pace: Pace::new(zero),
            write_by: zero,
            proxies: config
                .places()?
                .into_iter()
                .map(|(place, table)| Port::new(place, table))
                .collect(),
            made: VecDeque::new(),
            unread: Duration::ZERO,
            towers: Towers::new(config, zero)?,
            finished: false,
            devices: tuns.into_iter().map(device).collect(),
            requests,
            mailbox,
            wake,
        })
    }

    /// Run until a request stops it, or a system call fails.
    pub fn run(mut self) -> Result<()> {
        sleep_precisely();
        self.wake.exact = request_real_time();
        self.account = Box::new(thread_accounts());
        let mut called = Vec::with_capacity(64);
        let every = match self.records.is_empty() {
            true => Duration::from_secs(1),
            false => FLUSH,
        };
        let mut flush = now() + every;
        let mut drained = true;
        // Until then, packets need not be read.
        let mut quiet_until = now();
        loop {
            let event = self.next_event();
            let departure = event.map(|time| self.pace.deadline(time));
            let turn = flush.min(self.seconds.end());
            let work = self.towers.due().map_or(turn, |due| due.min(turn));
            let deadline = departure.map_or(work, |time| time.min(work));
            if std::mem::take(&mut self.crowded) {
                // Unread devices stay readable, so the loop waits for time alone to free slots.
                self.wake.nap(deadline, &*self.mailbox)?;
            }
            if drained && let Some(until) = self.pace.pause(deadline) {
                sleep_until(until);
            }
            let begun = now();
            self.seconds.on_sleep(begun, &self.account);
            // A departure that the pace does not delay is written to the microsecond, if the budget allows.
            let start = self.wake.start(begun, deadline, event == Some(deadline));
            let quiet = quiet_until.min(start);
            if drained && quiet > begun {
                self.wake.nap(quiet, &*self.mailbox)?;
            }
            // Packets sent before this instant are read in this turn, unless too many wait.
            let looked = now();
            self.wake.wait(looked, start, deadline, &mut called)?;
            drained = true;
            let mut packets = 0;
            for &token in called.iter().filter(|&&token| token != MAILBOX) {
                let count = self.ingest(token as usize)?;
                drained &= count < BATCH;
                packets += count;
            }
            if drained && packets > 0 {
                quiet_until = looked + self.unread;
            }
            // Requests come last: they end the time of earlier packets.
            if called.contains(&MAILBOX) && self.handle_requests() {
                return Ok(());
            }
            let now = now();
            self.seconds.on_look(now, deadline, &self.account);
            self.advance(now);
            if !called.is_empty() {
                self.pace.on_look(now, packets);
            }
            if !self.waiting.is_empty() {
                self.pace.on_departure(now);
                self.write_all();
            }
            if self.towers.due().is_some_and(|due| due <= now) {
                self.graph.catch_up(now);
                self.deliver_all(now, now);
                self.towers.write(now, &mut self.graph);
            }
            if now >= turn {
                self.flush(looked, now);
                flush = now + every;
            }
        }
    }

    /// Read at most a batch of packets from the device of `vertex` into the path model. Return their number.
    fn ingest(&mut self, vertex: usize) -> Result<usize> {
        self.write_by = now() + pace::READING;
        if let Some(stamps) = &mut self.devices[vertex].stamps
            && stamps.on_look(now(), self.real.look())
        {
            self.end_stamps(vertex);
        }
        for count in 0..BATCH {
            let Device { tun, stamps, .. } = &mut self.devices[vertex];
            let Some(device) = tun else {
                return Ok(count);
            };
            let ready = self.pool.make_ready();
            let Some([small, large]) = self.pool.landing().filter(|_| ready) else {
                self.crowded = true;
                return Ok(count);
            };
            let received = device.receive([&mut *small, large])?;
            let now = now();
            let length = match received {
                Received::Packet(length) => length,
                Received::Nothing => {
                    if let Some(stamps) = stamps {
                        stamps.on_empty(now, &self.real);
                    }
                    return Ok(count);
                }
                Received::Gone => {
                    // A deleted device would wake the loop for ever.
                    self.wake.forget(&**device)?;
                    *tun = None;
                    return Ok(count);
                }
            };
            let sent = stamps.as_mut().and_then(|stamps| {
                let head = small.get(VNET_BYTES..length.min(small.len()))?;
                stamps.take(head, length - VNET_BYTES, &self.real)
            });
            // Time does not run backwards: another packet may have been processed first.
            let at = sent.map_or(now, |sent| sent.max(self.graph.clock()).min(now));
            // The model first processes earlier events: they may free room for this packet.
            self.advance(at);
            if let Some(slot) = self.pool.keep(length) {
                match self.admit(vertex, slot, length, at) {
                    Some((direction, segments)) => self.enter(slot, segments, direction, at),
                    None => self.pool.release(slot, 1),
                }
            }
            self.advance(at);
            if now >= self.write_by {
                self.advance(now);
                if !self.waiting.is_empty() {
                    self.write_all();
                }
            }
        }
        Ok(BATCH)
    }

    /// Set the metadata of a packet. Return its direction, if there is one, and its segments.
    fn admit(
        &mut self,
        vertex: usize,
        slot: u32,
        length: usize,
        now: Time,
    ) -> Option<(usize, u16)> {
        let bytes = &self.pool.space(slot)[..length];
        let (mut packet, header) = Packet::parse(bytes, self.read + 1, vertex as u16);
        let segments = packet.layout.segments();
        self.read += u64::from(segments);
        let header = header.filter(|header| !header.is_link_chatter())?;
        let paths = self.graph.paths(now);
        let owner = self.owners.owner(paths, vertex, &header.destination);
        let route = owner.and_then(|to| Some((to, paths.next(vertex, to)?)));
        let Some((to, direction)) = route else {
            self.unroutable += u64::from(segments);
            return None;
        };
        packet.destination = to as u16;
        if self.towers.forwards(vertex)
            && let Some(source) = Header::source(&bytes[VNET_BYTES..])
        {
            let sender = self.owners.owner(paths, vertex, &source);
            packet.source = sender.unwrap_or(vertex) as u16;
        }
        packet.tag = self
            .graph
            .mark(packet.source, packet.destination, packet.tag);
        self.pool.describe(slot, packet);
        Some((direction, segments))
    }

    /// Pass all segments of a packet to a direction, in order.
    fn enter(&mut self, slot: u32, segments: u16, direction: usize, at: Time) {
        self.pool.refer(slot, u32::from(segments) - 1);
        let Packet { layout, tag, .. } = *self.pool.packet(slot);
        let by_segment = self.records.is_by_segment(direction);
        for index in 0..segments {
            let segment = Segment {
                index,
                ..Segment::first(slot)
            };
            let size = Bytes(layout.size(index) as u64);
            self.graph
                .accept_tagged(at, direction, segment, size, tag, None);
            if by_segment {
                self.records.report(direction, Event::Arrival { at, size });
                self.deliver_all(at, at);
            }
        }
    }

    /// Run the model until `now`, event by event in order of time over all directions.
    fn advance(&mut self, now: Time) {
        while let Some(time) = self.next_event().filter(|&time| time <= now) {
            self.deliver_all(time, now);
            for number in 0..self.proxies.len() {
                if self.proxies[number].timer().is_some_and(|due| due <= time) {
                    self.proxies[number].tick(time, &mut self.graph);
                    self.collect_made(number, time);
                    self.send_made(time);
                }
            }
        }
    }

    /// Return the time of the next event of the model or a proxy.
    fn next_event(&self) -> Option<Time> {
        let proxies = self.proxies.iter().filter_map(Port::timer);
        self.graph.next_event().into_iter().chain(proxies).min()
    }

    /// Pass a segment that reaches a vertex to the proxies there. Return the segment, unless a proxy keeps it.
    /// direction: the direction that it leaves; none if it comes from a proxy.
    fn divide(
        &mut self,
        direction: Option<usize>,
        vertex: u16,
        at: Time,
        mut segment: Segment,
    ) -> Option<Segment> {
        let Packet {
            source,
            destination,
            number,
            ..
        } = *self.pool.packet(segment.slot);
        let places = self.proxies.iter().map(|port| &port.place);
        let paths = self.graph.paths(at);
        let passed = Place::passed(places, paths, direction, vertex, destination);
        for (port, from) in passed.into_iter().flatten() {
            match self.proxies[port].receive(at, &self.pool, segment, from) {
                Verdict::Pass => {}
                Verdict::Replace(bytes) => {
                    self.pool.release(segment.slot, 1);
                    segment = self.insert(&bytes, number, source, destination)?;
                }
                Verdict::Taken => {
                    self.pool.release(segment.slot, 1);
                    self.collect_made(port, at);
                    return None;
                }
            }
        }
        Some(segment)
    }

    /// Store a packet of a proxy in the pool.
    fn insert(&mut self, bytes: &[u8], number: u64, source: u16, to: u16) -> Option<Segment> {
        let (mut packet, _) = Packet::parse(bytes, number, source);
        packet.destination = to;
        packet.tag = self.graph.mark(source, to, packet.tag);
        self.pool.insert(bytes, packet).map(Segment::first)
    }

    /// Collect the packets that leave a proxy at the endpoint's current tower.
    fn collect_made(&mut self, port: usize, at: Time) {
        let port = &mut self.proxies[port];
        let tower = port.place.tower(self.graph.paths(at));
        port.send(tower, &mut self.made);
    }

    /// Send packets of proxies into their directions, through the proxies of other endpoints.
    fn send_made(&mut self, at: Time) {
        while let Some(it) = self.made.pop_front() {
            let vertex = usize::from(it.at);
            let paths = self.graph.paths(at);
            let header = Header::parse(&it.bytes[VNET_BYTES..]);
            let owner = header.and_then(|it| self.owners.owner(paths, vertex, &it.destination));
            let Some((to, next)) = owner.and_then(|to| Some((to, paths.next(vertex, to)?))) else {
                continue;
            };
            let mut segment = self.insert(&it.bytes, it.number, it.source, to as u16);
            if it.to == Side::Core {
                segment = segment.and_then(|it| self.divide(None, vertex as u16, at, it));
            }
            let Some(segment) = segment else {
                continue;
            };
            let Packet { layout, tag, .. } = *self.pool.packet(segment.slot);
            let size = Bytes(layout.size(0) as u64);
            self.records.report(next, Event::Arrival { at, size });
            self.graph.accept_tagged(at, next, segment, size, tag, None);
        }
    }

    /// Deliver all segments that left directions until `time`, observed at `now`.
    fn deliver_all(&mut self, time: Time, now: Time) {
        while let Some((direction, outcome)) = self.graph.poll(time) {
            self.deliver(direction, outcome, now);
        }
    }

    /// Handle a segment that left a direction or was dropped in it, observed at `now`.
    fn deliver(&mut self, direction: usize, mut outcome: Outcome<Segment>, now: Time) {
        self.records.report_outcome(direction, &outcome);
        if let Fate::Dropped(_) = outcome.fate {
            self.records
                .passage(&self.pool, direction as u16, &outcome, now);
        }
        let Some(segment) = self.pool.apply(&outcome) else {
            return;
        };
        outcome.packet = segment;
        let destination = usize::from(self.pool.packet(segment.slot).destination);
        let onward = self.graph.onward(direction, &outcome, destination);
        if let Some(vertex) = self.device_of(direction, &outcome, destination, onward) {
            let device = &mut self.devices[vertex];
            if device.outbox.is_empty() {
                self.waiting.push(vertex);
            }
            device.outbox.push(segment, &self.pool);
            device.leaving.push((direction as u16, outcome));
            return;
        }
        self.records
            .passage(&self.pool, direction as u16, &outcome, now);
        let (at, mut segment, mut size) = (outcome.departed, segment, outcome.size);
        if let Onward::Next(_) = onward
            && !self.proxies.is_empty()
        {
            let vertex = self.graph.paths(outcome.released).end(direction) as u16;
            match self.divide(Some(direction), vertex, at, segment) {
                Some(same) if same == segment => {}
                Some(other) => {
                    segment = other;
                    size = Bytes(self.pool.packet(other.slot).layout.size(0) as u64);
                }
                None => return self.send_made(at),
            }
        }
        if let Onward::Next(next) = onward {
            self.records.report(next, Event::Arrival { at, size });
            let tag = self.pool.tag(segment);
            self.graph.accept_tagged(at, next, segment, size, tag, None);
        } else {
            self.pool.release(segment.slot, 1);
        }
    }

    /// Return the vertex whose device receives a segment that has left a direction: its destination, or a tower's
    /// node.
    #[inline]
    fn device_of(
        &self,
        direction: usize,
        outcome: &Outcome<Segment>,
        destination: usize,
        onward: Onward,
    ) -> Option<usize> {
        match onward {
            Onward::Arrived => Some(destination),
            Onward::Next(next) if !self.towers.is_empty() => {
                let vertex = self.graph.paths(outcome.released).end(direction);
                let taken = self.towers.takes(vertex, direction, next);
                taken.then_some(vertex)
            }
            Onward::Next(_) | Onward::Lost => None,
        }
    }

    /// Write the packets that have left the model.
    fn write_all(&mut self) {
        for vertex in self.waiting.drain(..) {
            let Device {
                tun,
                outbox,
                leaving,
                ..
            } = &mut self.devices[vertex];
            let mut leaving = leaving.drain(..);
            let about_to = |pool: &Pool, segments: u16| {
                let observed = now();
                for (direction, outcome) in leaving.by_ref().take(usize::from(segments)) {
                    self.records.passage(pool, direction, &outcome, observed);
                    let late = observed.since(outcome.departed);
                    self.lateness.record(late);
                    self.seconds.record(late, &self.account);
                }
            };
            // Packets to a deleted device have no receiver.
            let send = |parts: &[IoSlice<'_>]| tun.as_ref().is_none_or(|tun| tun.send(parts));
            self.refused += outbox.write(&mut self.pool, about_to, send);
        }
        self.write_by = now() + pace::READING;
    }

    /// Send finished bins and record to their files, as of `settled`: later packets may not be read yet.
    fn flush(&mut self, settled: Time, now: Time) {
        self.deliver_all(settled, now);
        self.records.bins(&mut self.graph, settled);
        if let Some(second) = self.seconds.next(now) {
            self.records.second(second);
        }
        self.records.report_all(Event::Now(settled));
        self.records.flush();
    }
}
