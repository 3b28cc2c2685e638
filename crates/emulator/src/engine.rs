//! The event loop: packets from devices through the path model and back, in real time.
//!
//! Inside, a packet's times are the model's: what departs from one direction at an instant arrives at the next one at
//! that very instant, however late the loop comes to look. Only at the edges does the clock rule: a packet arrives
//! when it was read, and is written when the clock has reached its departure, never before.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use cellbed_link::{Bytes, Direction, DropReason, Duration, Fate, Outcome, StageConfig, Time};
use rustix::event::epoll;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::agenda::Agenda;
use crate::clock::{Alarm, now};
use crate::config::Config;
use crate::error::{Result, Trying};
use crate::lateness::Lateness;
use crate::orders::{Account, Counters, Order, Status};
use crate::packet::Header;
use crate::pool::Pool;
use crate::process::{Scheduling, run_first, sleep_precisely, total_memory};
use crate::records::{PacketRecord, SeriesRecord};
use crate::router::Router;
use crate::tun::{Received, Tun};
use crate::writer::Records;

/// Packets read from one device before the others have their turn.
const BATCH: usize = 64;

/// Packet slots at the start (16 MiB).
const SLOTS: usize = 8192;

/// How often finished bins and records go to their files.
const FLUSH: Duration = Duration::from_millis(100);

const ALARM: u64 = u64::MAX;
const MAILBOX: u64 = u64::MAX - 1;

struct Lane {
    direction: Direction<u32>,
    to: usize,
    counters: Counters,
}

/// The event loop and all it owns. Nothing of it is shared with another thread.
pub struct Engine {
    tuns: Vec<Option<Arc<Tun>>>,
    lanes: Vec<Lane>,
    agenda: Agenda,
    router: Router,
    pool: Pool,
    records: Records,
    orders: Receiver<Order>,
    mailbox: Arc<OwnedFd>,
    alarm: Alarm,
    epoll: OwnedFd,
    lateness: Lateness,
    scheduling: Scheduling,
    read: u64,
    unroutable: u64,
    /// No slot is free: devices are not read until one is.
    crowded: bool,
}

impl Engine {
    /// An engine for a checked configuration. `tuns` has a device for each vertex that has one; `mailbox` is an event
    /// descriptor that is signalled after something was put into `orders`.
    pub fn new(
        config: &Config,
        stages: Vec<Vec<StageConfig>>,
        tuns: Vec<Option<Arc<Tun>>>,
        records: Records,
        orders: Receiver<Order>,
        mailbox: Arc<OwnedFd>,
    ) -> Result<Self> {
        let zero = now();
        let lanes: Vec<Lane> = stages
            .into_iter()
            .zip(&config.directions)
            .map(|(stages, way)| Lane {
                direction: match config.series {
                    Some(_) => Direction::new(stages, zero).with_meter(),
                    None => Direction::new(stages, zero),
                },
                to: config
                    .vertex(&way.to)
                    .expect("the configuration was checked"),
                counters: Counters::default(),
            })
            .collect();
        let alarm = Alarm::new()?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).trying(|| "create an event queue".into())?;
        let watch = |descriptor: &dyn AsFd, token| {
            epoll::add(
                &epoll,
                descriptor.as_fd(),
                epoll::EventData::new_u64(token),
                epoll::EventFlags::IN,
            )
            .trying(|| "watch a device".into())
        };
        watch(&alarm, ALARM)?;
        watch(&mailbox, MAILBOX)?;
        for (vertex, tun) in tuns.iter().enumerate() {
            if let Some(tun) = tun {
                watch(&**tun, vertex as u64)?;
            }
        }
        Ok(Self {
            agenda: Agenda::new(lanes.len()),
            router: Router::new(config),
            // A quarter of the memory, so that an infinite queue under a flood cannot take the machine down.
            pool: Pool::new(
                SLOTS,
                (total_memory() / 4 / crate::pool::SLOT_BYTES as u64) as usize,
            ),
            records,
            lateness: Lateness::default(),
            scheduling: Scheduling::Ordinary,
            read: 0,
            unroutable: 0,
            crowded: false,
            tuns,
            lanes,
            orders,
            mailbox,
            alarm,
            epoll,
        })
    }

    /// Works until an order stops it, or the kernel refuses something.
    pub fn run(mut self) -> Result<()> {
        sleep_precisely();
        self.scheduling = run_first();
        let mut events = Vec::with_capacity(64);
        let mut flush = now() + FLUSH;
        loop {
            let deadline = self
                .agenda
                .first()
                .map_or(flush, |(time, _)| time.min(flush));
            self.alarm.set(Some(deadline))?;
            self.wait(&mut events)?;
            for event in events.drain(..) {
                match event.data.u64() {
                    ALARM => self.alarm.acknowledge(),
                    MAILBOX => {
                        let _ = rustix::io::read(&self.mailbox, &mut [0u8; 8]);
                        while let Ok(order) = self.orders.try_recv() {
                            match order {
                                Order::Restart { zero, offset, done } => {
                                    self.restart(zero, offset);
                                    let _ = done.send(());
                                }
                                Order::Status(answer) => {
                                    let _ = answer.send(self.status());
                                }
                                Order::Stop(answer) => {
                                    let _ = answer.send(self.finish());
                                    return Ok(());
                                }
                            }
                        }
                    }
                    vertex => self.ingest(vertex as usize)?,
                }
            }
            let now = now();
            self.advance(now);
            if now >= flush {
                self.flush(now);
                flush = now + FLUSH;
            }
        }
    }

    /// Sleeps until a device, the alarm or an order calls.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<()> {
        if self.crowded {
            // Devices stay readable while nobody reads them; only time makes room.
            let mut watched = [
                PollFd::new(&self.alarm, PollFlags::IN),
                PollFd::new(&self.mailbox, PollFlags::IN),
            ];
            let waited = poll(&mut watched, None);
            self.crowded = false;
            interrupted_is_fine(waited).trying(|| "wait for room".into())?;
        }
        let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), None);
        interrupted_is_fine(waited).trying(|| "wait for packets".into())
    }

    /// Reads what waits at the device of `vertex` into the path model.
    fn ingest(&mut self, vertex: usize) -> Result<()> {
        for _ in 0..BATCH {
            let Some(tun) = &self.tuns[vertex] else {
                return Ok(());
            };
            let Some(slot) = self.pool.take() else {
                self.crowded = true;
                return Ok(());
            };
            let length = match tun.receive(self.pool.space(slot))? {
                Received::Packet(length) => length,
                Received::Nothing => return self.leave(slot),
                Received::Gone => {
                    // Its descriptor would call for ever.
                    epoll::delete(&self.epoll, &**tun)
                        .trying(|| format!("leave interface {}", tun.name()))?;
                    self.tuns[vertex] = None;
                    return self.leave(slot);
                }
            };
            let now = now();
            // What the model had to do before this packet came comes first: it may make room for it.
            self.advance(now);
            self.read += 1;
            match self.admit(vertex, slot, length) {
                Some(lane) => self.pass_on(slot, lane, now),
                None => self.pool.release(slot),
            }
            self.advance(now);
        }
        Ok(())
    }

    /// Gives an unused slot back.
    fn leave(&mut self, slot: u32) -> Result<()> {
        self.pool.release(slot);
        Ok(())
    }

    /// Notes what is known of a packet; the direction it takes, if there is one.
    fn admit(&mut self, vertex: usize, slot: u32, length: usize) -> Option<usize> {
        let header = Header::parse(&self.pool.space(slot)[..length])?;
        if header.is_link_chatter() {
            return None;
        }
        let way = self.router.owner(&header.destination);
        let way = way.and_then(|to| self.router.next(vertex, to).map(|lane| (to, lane)));
        let Some((to, lane)) = way else {
            self.unroutable += 1;
            return None;
        };
        let number = self.read;
        let packet = self.pool.packet_mut(slot);
        packet.number = number;
        packet.length = length as u16;
        packet.source = vertex as u16;
        packet.destination = to as u16;
        packet.protocol = header.protocol;
        packet.source_port = header.source_port;
        packet.destination_port = header.destination_port;
        packet.tcp_sequence = header.tcp_sequence;
        packet.payload = header.payload;
        Some(lane)
    }

    /// Gives a packet to a direction at a time of the model.
    fn pass_on(&mut self, slot: u32, lane: usize, at: Time) {
        let size = Bytes(u64::from(self.pool.packet(slot).length));
        self.lanes[lane].direction.accept(at, slot, size);
        self.agenda
            .set(lane, self.lanes[lane].direction.next_event());
    }

    /// Lets the model run up to `now`, event by event in order of time over all directions.
    fn advance(&mut self, now: Time) {
        while let Some((time, lane)) = self.agenda.first() {
            if time > now {
                return;
            }
            while let Some(outcome) = self.lanes[lane].direction.poll(time) {
                self.settle(lane, &outcome);
            }
            self.agenda
                .set(lane, self.lanes[lane].direction.next_event());
        }
    }

    /// A packet came out of a direction, or died in it.
    fn settle(&mut self, lane: usize, outcome: &Outcome<u32>) {
        let slot = outcome.packet;
        let observed = now();
        let Lane { to, counters, .. } = &mut self.lanes[lane];
        let (to, destination) = (*to, usize::from(self.pool.packet(slot).destination));
        let drop = match outcome.fate {
            Fate::Delivered => {
                counters.delivered += 1;
                0
            }
            Fate::Dropped(reason @ (DropReason::QueueFull | DropReason::Congestion)) => {
                counters.queue_full += 1;
                reason as u8
            }
            Fate::Dropped(reason @ DropReason::Loss) => {
                counters.lost += 1;
                reason as u8
            }
            Fate::Doubled => return, // no configuration makes a direction double packets yet
        };
        self.record(lane, outcome, observed, drop);
        if drop != 0 {
            self.pool.release(slot);
        } else if to == destination {
            if let Some(tun) = &self.tuns[to] {
                // What the kernel refuses it counts as a drop of the device.
                tun.send(self.pool.bytes(slot));
            }
            self.lateness.record(observed.since(outcome.departed));
            self.pool.release(slot);
        } else if let Some(next) = self.router.next(to, destination) {
            self.pass_on(slot, next, outcome.departed);
        } else {
            self.pool.release(slot);
        }
    }

    fn record(&mut self, lane: usize, outcome: &Outcome<u32>, observed: Time, drop: u8) {
        let Some(file) = &mut self.records.packets else {
            return;
        };
        let packet = self.pool.packet(outcome.packet);
        let record = PacketRecord {
            packet: packet.number,
            arrived: outcome.arrived,
            released: outcome.released,
            departed: outcome.departed,
            observed,
            direction: lane as u16,
            drop,
            protocol: packet.protocol,
            bytes: u32::from(packet.length),
            source_port: packet.source_port,
            destination_port: packet.destination_port,
            tcp_sequence: packet.tcp_sequence,
            payload: packet.payload,
            source_vertex: packet.source,
            destination_vertex: packet.destination,
        };
        file.push(record.to_bytes());
    }

    fn restart(&mut self, zero: Time, offset: Duration) {
        let now = now();
        self.advance(now);
        for lane in 0..self.lanes.len() {
            self.lanes[lane].direction.restart(zero, offset);
            self.agenda
                .set(lane, self.lanes[lane].direction.next_event());
        }
    }

    fn status(&self) -> Status {
        let counters = |lane: &Lane| Counters {
            queue_bytes: lane.direction.queue().bytes.0,
            ..lane.counters
        };
        Status {
            directions: self.lanes.iter().map(counters).collect(),
            unroutable: self.unroutable,
        }
    }

    /// Sends finished bins and records to their files.
    fn flush(&mut self, now: Time) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let Some(series) = &mut self.records.series else {
                break;
            };
            for bin in lane.direction.finished_bins(now) {
                let record = SeriesRecord {
                    start: bin.start,
                    direction: index as u32,
                    queue_packets: bin.queue.packets.0 as u32,
                    queue_bytes: bin.queue.bytes.0,
                    queue_peak_bytes: bin.peak.0,
                    capacity: bin.capacity.map(|bytes| bytes.0),
                    used: bin.used.0,
                    arrived: bin.arrived.0,
                    dropped_queue: bin.queue_full.0 as u32,
                    dropped_loss: bin.lost.0 as u32,
                };
                series.push(record.to_bytes());
            }
            // Looking made the direction's clock catch up, which may have brought a drop to light.
            self.agenda.set(index, lane.direction.next_event());
        }
        self.records.flush();
    }

    fn finish(&mut self) -> Result<Account> {
        let now = now();
        self.advance(now);
        self.flush(now);
        let records_lost = self.records.finish()?;
        Ok(Account {
            lateness: std::mem::take(&mut self.lateness),
            packets: self.read,
            records_lost,
            scheduling: self.scheduling,
        })
    }
}

fn interrupted_is_fine<T>(waited: std::result::Result<T, Errno>) -> io::Result<()> {
    match waited {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
