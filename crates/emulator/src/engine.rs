//! The event loop: packets from devices through the path model and back, in real time.
//!
//! Inside, a packet's times are the model's: what departs from one direction at an instant arrives at the next one at
//! that instant, even if the loop polls later. Only at the ends the clock decides: a packet arrives
//! when it was read, and is written when the clock has reached its departure, never before.

mod handle;
mod sharing;

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use cellbed_link::agenda::Agenda;
use cellbed_link::tally::Tally;
use cellbed_link::{Bytes, Direction, Duration, Fate, Outcome, Packets, Tag, Time};

use crate::clock::now;
use crate::config::Config;
use crate::error::Result;
use crate::flow::tag;
use crate::journal;
use crate::journal::Records;
use crate::lateness::{Lateness, Seconds};
use crate::offload::{Layout, VNET_BYTES, Vnet};
use crate::orders::Order;
use crate::outbox::Outbox;
use crate::pace::Pace;
use crate::packet::Header;
use crate::pool::{Packet, Pool, Segment};
use crate::process::{Scheduling, run_first, sleep_precisely, total_memory};
use crate::router::Router;
use crate::stages::{Course, infinite_room};
use crate::tun::{Received, Tun};
use crate::wake::Wake;
use sharing::SharedCell;

/// Packets read from one device before the others have their turn.
const BATCH: usize = 64;

/// How often finished bins and records go to their files.
const FLUSH: Duration = Duration::from_millis(100);

/// The token of the mailbox; a device has the number of its vertex.
const MAILBOX: u64 = u64::MAX - 1;

struct Lane {
    direction: Direction<Segment>,
    tally: Tally,
    /// Of each visit to a cell, the number of the cell and that of the user in it.
    visits: Vec<(usize, usize)>,
}

/// A vertex with a device.
struct Port {
    tun: Option<Arc<Tun>>,
    outbox: Outbox,
    /// What is in the outbox came out of these directions, in the same order.
    leaving: Vec<(u16, Outcome<Segment>)>,
}

/// The event loop and all it owns. Nothing of it is shared with another thread.
pub struct Engine {
    ports: Vec<Port>,
    lanes: Vec<Lane>,
    cells: Vec<SharedCell>,
    /// Events of the cells, then those of the lanes: at one instant those of the cells come first.
    agenda: Agenda,
    router: Router,
    pool: Pool,
    /// Packets that an infinite queue holds at most.
    room: Packets,
    records: Records,
    orders: Receiver<Order>,
    mailbox: Arc<OwnedFd>,
    wake: Wake,
    lateness: Lateness,
    seconds: Seconds,
    scheduling: Scheduling,
    read: u64,
    unroutable: u64,
    refused: u64,
    /// No slot is free: devices are not read until one is.
    crowded: bool,
    /// Vertices of which the outbox is not empty.
    waiting: Vec<usize>,
    pace: Pace,
    /// By when to write what waits, even if there is more to read.
    write_by: Time,
}

impl Engine {
    /// An engine for a checked configuration. `tuns` has a device for each vertex that has one; `mailbox` is an event
    /// descriptor that is signalled after something was put into `orders`.
    pub fn new(
        config: &Config,
        courses: Vec<Course>,
        tuns: Vec<Option<Arc<Tun>>>,
        records: Records,
        orders: Receiver<Order>,
        mailbox: Arc<OwnedFd>,
    ) -> Result<Self> {
        let zero = now();
        const CHECKED: &str = "the configuration was checked";
        let memory = total_memory();
        let infinite = courses.iter().filter(|course| course.is_infinite());
        let room = infinite_room(memory, infinite.count());
        let mut lanes: Vec<Lane> = courses
            .into_iter()
            .map(|course| {
                let course = course.bounded(room);
                let mut direction = Direction::new(course.stages, zero);
                if config.series.is_some() {
                    direction = direction.with_meter();
                }
                Lane {
                    direction: direction.with_changes(course.changes).expect(CHECKED),
                    tally: Tally::default(),
                    visits: Vec::new(),
                }
            })
            .collect();
        let cells = sharing::cells(config, zero, &mut lanes);
        let wake = Wake::new(Duration::from_nanos(config.spin_ns))?;
        wake.watch(&*mailbox, MAILBOX)?;
        for (vertex, tun) in tuns.iter().enumerate() {
            if let Some(tun) = tun {
                wake.watch(&**tun, vertex as u64)?;
            }
        }
        let port = |tun| Port {
            tun,
            outbox: Outbox::default(),
            leaving: Vec::new(),
        };
        Ok(Self {
            agenda: Agenda::new(cells.len() + lanes.len()),
            router: Router::new(config, zero),
            // A quarter of the memory; infinite queues get half of that.
            pool: Pool::new((memory / 4) as usize),
            room,
            records,
            lateness: Lateness::default(),
            seconds: Seconds::new(zero),
            scheduling: Scheduling::Ordinary,
            read: 0,
            unroutable: 0,
            refused: 0,
            crowded: false,
            waiting: Vec::new(),
            pace: Pace::new(Duration::from_nanos(config.release_batch_ns), zero),
            write_by: zero,
            ports: tuns.into_iter().map(port).collect(),
            lanes,
            cells,
            orders,
            mailbox,
            wake,
        })
    }

    /// Works until an order stops it, or the kernel refuses something.
    pub fn run(mut self) -> Result<()> {
        sleep_precisely();
        self.scheduling = run_first();
        self.wake.scheduled(self.scheduling);
        let mut called = Vec::with_capacity(64);
        let mut flush = now() + FLUSH;
        let mut drained = true;
        loop {
            let departure = self
                .agenda
                .first()
                .map(|(time, _)| self.pace.deadline(time));
            let turn = flush.min(self.seconds.end());
            let deadline = departure.map_or(turn, |time| time.min(turn));
            if std::mem::take(&mut self.crowded) {
                // Devices stay readable while they are not read; only time makes room.
                self.wake.nap(deadline, &*self.mailbox)?;
            }
            if drained && let Some(until) = self.pace.pause(deadline) {
                self.wake.pause(until);
            }
            self.wake.wait(deadline, &mut called)?;
            drained = true;
            let mut packets = 0;
            for &token in &called {
                if token != MAILBOX {
                    let count = self.ingest(token as usize)?;
                    drained &= count < BATCH;
                    packets += count;
                } else if self.handle_orders() {
                    return Ok(());
                }
            }
            let now = now();
            self.seconds.looked(now, deadline);
            self.advance(now);
            if !called.is_empty() {
                self.pace.looked(now, packets);
            }
            if !self.waiting.is_empty() {
                self.pace.departed(now);
                self.write_all();
            }
            if now >= turn {
                self.flush(now);
                flush = now + FLUSH;
            }
        }
    }

    /// Reads what waits at the device of `vertex` into the path model, a batch at most; how many packets.
    fn ingest(&mut self, vertex: usize) -> Result<usize> {
        self.write_by = now() + self.pace.reading();
        for count in 0..BATCH {
            let Some(tun) = &self.ports[vertex].tun else {
                return Ok(count);
            };
            let ready = self.pool.make_ready();
            let Some(space) = self.pool.landing().filter(|_| ready) else {
                self.crowded = true;
                return Ok(count);
            };
            let length = match tun.receive(space)? {
                Received::Packet(length) => length,
                Received::Nothing => return Ok(count),
                Received::Gone => {
                    // Its descriptor would call for ever.
                    self.wake.forget(&**tun)?;
                    self.ports[vertex].tun = None;
                    return Ok(count);
                }
            };
            let now = now();
            // What the model had to do before this packet came comes first: it may make room for it.
            self.advance(now);
            if let Some(slot) = self.pool.keep(length) {
                match self.admit(vertex, slot, length, now) {
                    Some((lane, segments)) => self.enter(slot, segments, lane, now),
                    None => self.pool.release(slot, 1),
                }
            }
            self.advance(now);
            if now >= self.write_by && !self.waiting.is_empty() {
                self.write_all();
            }
        }
        Ok(BATCH)
    }

    /// Notes what is known of a packet; the direction it takes, if there is one, and its segments.
    fn admit(
        &mut self,
        vertex: usize,
        slot: u32,
        length: usize,
        now: Time,
    ) -> Option<(usize, u16)> {
        let (vnet, packet) = self.pool.space(slot)[..length].split_first_chunk::<VNET_BYTES>()?;
        let header = Header::parse(packet);
        let layout = Layout::of(Vnet::parse(vnet), packet);
        let number = self.read + 1;
        let segments = layout.segments();
        self.read += u64::from(segments);
        let header = header.filter(|header| !header.is_link_chatter())?;
        let paths = self.router.at(now);
        let way = paths.owner(vertex, &header.destination);
        let way = way.and_then(|to| paths.next(vertex, to).map(|lane| (to, lane)));
        let Some((to, lane)) = way else {
            self.unroutable += u64::from(segments);
            return None;
        };
        let tag = tag(packet, &header);
        let packet = self.pool.packet_mut(slot);
        packet.number = number;
        packet.layout = layout;
        packet.source = vertex as u16;
        packet.destination = to as u16;
        packet.protocol = header.protocol;
        packet.source_port = header.source_port;
        packet.destination_port = header.destination_port;
        packet.tcp_sequence = header.tcp_sequence;
        packet.payload = header.payload;
        packet.tag = tag;
        Some((lane, segments))
    }

    /// Gives all segments of a packet to a direction, in order.
    fn enter(&mut self, slot: u32, segments: u16, lane: usize, at: Time) {
        self.pool.refer(slot, u32::from(segments) - 1);
        let Packet { layout, tag, .. } = *self.pool.packet(slot);
        let each_by_itself = journal::is_told_by_segment(&self.records, lane);
        for index in 0..segments {
            let segment = Segment {
                slot,
                index,
                marked: false,
            };
            let size = Bytes(layout.size(index) as u64);
            self.accept(lane, at, segment, size, tag);
            if each_by_itself {
                journal::arrival(&mut self.records, lane, at, size);
                while let Some(outcome) = self.lanes[lane].direction.poll(at) {
                    self.settle(lane, outcome, at);
                }
            }
        }
        self.plan(lane);
    }

    /// A segment reaches a direction.
    #[inline]
    fn accept(&mut self, lane: usize, at: Time, segment: Segment, size: Bytes, tag: Tag) {
        if let Some((cell, user)) = self.cell_of(lane) {
            return self.accept_shared(cell, user, at, |direction| {
                direction.accept_tagged(at, segment, size, tag);
            });
        }
        let direction = &mut self.lanes[lane].direction;
        direction.accept_tagged(at, segment, size, tag);
    }

    /// Puts the next event of a direction on the agenda.
    #[inline]
    fn plan(&mut self, lane: usize) {
        let next = self.lanes[lane].direction.next_event();
        self.agenda.set(self.cells.len() + lane, next);
    }

    /// Lets the model run up to `now`, event by event in order of time over all directions.
    fn advance(&mut self, now: Time) {
        while let Some((time, index)) = self.agenda.first() {
            if time > now {
                return;
            }
            let Some(lane) = index.checked_sub(self.cells.len()) else {
                self.step_cell(index, time);
                continue;
            };
            while let Some(outcome) = self.lanes[lane].direction.poll(time) {
                self.settle(lane, outcome, now);
            }
            self.plan(lane);
        }
    }

    /// A segment came out of a direction, or died in it, as is seen at `now`.
    fn settle(&mut self, lane: usize, mut outcome: Outcome<Segment>, now: Time) {
        journal::outcome(&mut self.records, lane, &outcome);
        let to = self.router.at(outcome.released).end(lane);
        self.lanes[lane].tally.count(&outcome);
        if let Fate::Dropped(_) = outcome.fate {
            journal::passage(&mut self.records, &self.pool, lane as u16, &outcome, now);
        }
        let Some(segment) = self.pool.settle(&outcome) else {
            return;
        };
        outcome.packet = segment;
        let destination = usize::from(self.pool.packet(segment.slot).destination);
        if to == destination {
            let port = &mut self.ports[to];
            if port.outbox.is_empty() {
                self.waiting.push(to);
            }
            port.outbox.push(segment, &self.pool);
            port.leaving.push((lane as u16, outcome));
            return;
        }
        journal::passage(&mut self.records, &self.pool, lane as u16, &outcome, now);
        match self.router.at(outcome.departed).next(to, destination) {
            Some(next) => {
                journal::arrival(&mut self.records, next, outcome.departed, outcome.size);
                let tag = self.pool.tag(segment);
                self.accept(next, outcome.departed, segment, outcome.size, tag);
                self.plan(next);
            }
            None => self.pool.release(segment.slot, 1),
        }
    }

    /// Writes what has left the model.
    fn write_all(&mut self) {
        for vertex in self.waiting.drain(..) {
            let Port {
                tun,
                outbox,
                leaving,
            } = &mut self.ports[vertex];
            let mut leaving = leaving.drain(..);
            let about_to = |pool: &Pool, segments: u16| {
                let observed = now();
                for (lane, outcome) in leaving.by_ref().take(usize::from(segments)) {
                    journal::passage(&mut self.records, pool, lane, &outcome, observed);
                    let late = observed.since(outcome.departed);
                    self.lateness.record(late);
                    self.seconds.record(late);
                }
            };
            // Packets to a deleted device have no receiver.
            let send = |parts: &[IoSlice<'_>]| tun.as_ref().is_none_or(|tun| tun.send(parts));
            self.refused += outbox.write(&mut self.pool, about_to, send);
        }
        self.write_by = now() + self.pace.reading();
    }

    /// Sends finished bins and records to their files.
    fn flush(&mut self, now: Time) {
        for index in 0..self.lanes.len() {
            let direction = &mut self.lanes[index].direction;
            journal::bins(&mut self.records, index, direction, now);
            // Looking made the direction's clock catch up, which may have brought a drop to light.
            self.plan(index);
        }
        if let Some(second) = self.seconds.next(now) {
            journal::second(&mut self.records, second);
        }
        journal::told_until(&mut self.records, now);
        self.records.flush();
    }
}
