//! Hosts on a graph of directions in virtual time, and the loop that moves packets.

mod outside;
mod proxies;
mod sockets;
mod wire;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex};

use cellbed_link::records::RECORD_BYTES;
use cellbed_link::tally::Tally;
use cellbed_link::{
    Bin, Bytes, DirectionConfig, Duration, Fate, Graph, GraphConfig, GraphError, Onward, Outcome,
    StageConfig, Time,
};

use crate::connection::Connection;
use crate::event::{ConnectionId, DatagramKind, End, Ends, Event, Room};
use cellbed_tcp::proxy::{Place, ProxyTable};
use cellbed_tcp::{Sending, Tcp};
use outside::Edge;
pub use outside::Outside;
use proxies::Proxies;
use sockets::Sockets;
use wire::{Content, Wire, record};

/// A program on all hosts, driven by events.
pub trait Application {
    /// Handle an event at [`Network::now`]. The first event is [`Event::Due`] with label 0, at the beginning.
    fn on_event(&mut self, event: Event, network: &mut Network);

    /// Return whether the traffic is complete.
    fn is_done(&self) -> bool;
}

/// The first two hosts.
const PAIR: Ends = Ends::new((0, 0), (1, 0));

/// Hosts on a graph of directions, in virtual time; [`new`](Self::new) makes two and the path between them.
///
/// Packets pass from direction to direction by the shortest path. Applications run one after the other: packets in
/// flight of one application are ignored by the next, but stay in the queues. A clone is an independent network in the
/// same state. Only the stages of the directions are random, and have seeds.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, DelayConfig, Duration, Schedule, Time};
/// use cellbed_tcp::Tcp;
/// use cellbed_virtual::{Downloads, Network};
///
/// let stages = || {
///     let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(50_000_000)));
///     vec![bottleneck.into(), DelayConfig::Fixed(Duration::from_millis(20)).into()]
/// };
/// let mut network = Network::new(stages(), stages());
/// let mut downloads = Downloads::new(&[100_000], Tcp::default());
/// network.run(&mut downloads, Time::ZERO, Time::from_millis(10_000));
/// let taken = downloads.results()[0].taken().unwrap();
/// // Four round trips, and the transmission time of the last one's packets.
/// assert!(taken > Duration::from_millis(160) && taken < Duration::from_millis(175));
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    wire: Wire,
    sockets: Sockets,
    proxies: Proxies,
    /// Number of the running application.
    run: u64,
    due: BinaryHeap<Reverse<(Time, u64, u64)>>,
    asked: u64,
    events: VecDeque<Event>,
    /// Records of packets that have passed directions.
    log: Option<Vec<[u8; RECORD_BYTES]>>,
}

impl Network {
    /// Return an idle path at time zero, from the client (vertex 0) to the server (vertex 1) and back.
    pub fn new(uplink: Vec<StageConfig>, downlink: Vec<StageConfig>) -> Self {
        Self::pair(uplink.into(), downlink.into()).expect("no change and no cell")
    }

    /// Return an idle path of two directions that may change.
    ///
    /// Errors: a change to a missing stage, or to another kind of stage.
    pub fn pair(uplink: DirectionConfig, downlink: DirectionConfig) -> Result<Self, GraphError> {
        let (from, to) = (PAIR.client.0, PAIR.server.0);
        let uplink = DirectionConfig { from, to, ..uplink };
        let (from, to) = (to, from);
        let downlink = DirectionConfig {
            from,
            to,
            ..downlink
        };
        Self::graph(GraphConfig {
            vertices: 2,
            directions: vec![uplink, downlink],
            cells: Vec::new(),
        })
    }

    /// Return an idle graph at time zero.
    ///
    /// Errors: a change or a cell that does not fit.
    pub fn graph(config: GraphConfig) -> Result<Self, GraphError> {
        Ok(Self {
            wire: Wire::new(Graph::new(config, Time::ZERO)?),
            sockets: Sockets::default(),
            proxies: Proxies::default(),
            run: 0,
            due: BinaryHeap::new(),
            asked: 0,
            events: VecDeque::new(),
            log: None,
        })
    }

    /// Set the time from a host's sending until the packet is on the path; zero by default.
    ///
    /// If all opportunities and delays of a path are whole milliseconds, an instant answer uses an opportunity that a
    /// real answer misses.
    pub fn with_turnaround(mut self, turnaround: Duration) -> Self {
        self.wire.turnaround = turnaround;
        self
    }

    /// Add an outside network before the graph. Clones of this network use the same outside network.
    pub fn with_outside(mut self, outside: Arc<Mutex<dyn Outside>>) -> Self {
        self.wire.edge = Some(Edge::new(outside));
        self
    }

    /// Let hosts set the DSCP of packets from and to them; see [`Graph::with_marks`].
    pub fn with_marks(mut self, marks: Vec<Option<u8>>) -> Self {
        self.wire.graph = self.wire.graph.with_marks(marks);
        self
    }

    /// Add a meter and a tally for each direction, and a packet log.
    pub fn with_log(mut self) -> Self {
        self.log = Some(Vec::new());
        self.wire.graph = self.wire.graph.with_meters().with_tallies();
        self
    }

    /// Add proxies at their places.
    pub fn with_proxies(mut self, proxies: Vec<(Place, ProxyTable)>) -> Self {
        self.proxies = Proxies::new(proxies);
        self
    }

    /// Take the records of the packet log since the last call; see [`with_log`](Self::with_log).
    pub fn drain_packets(&mut self, take: impl FnMut([u8; RECORD_BYTES])) {
        if let Some(log) = &mut self.log {
            log.drain(..).for_each(take);
        }
    }

    /// Add sampling of the senders of flows.
    pub fn with_flows(mut self) -> Self {
        self.sockets.samples = Some(Vec::new());
        self
    }

    /// Take the samples of flows since the last call; see [`with_flows`](Self::with_flows).
    pub fn drain_flows(&mut self) -> Vec<u8> {
        let samples = self.sockets.samples.as_mut();
        samples.map_or_else(Vec::new, std::mem::take)
    }

    /// Return the tally of each direction; see [`with_log`](Self::with_log).
    pub fn tallies(&self) -> &[Tally] {
        self.wire.graph.tallies()
    }

    /// Take the ended bins of the meters, with the number of the direction.
    pub fn finished_bins(&mut self, mut take: impl FnMut(usize, &Bin)) {
        let Wire { graph, now, .. } = &mut self.wire;
        for direction in 0..graph.directions().len() {
            graph.finished_bins(direction, *now, |bin: Bin| take(direction, &bin));
        }
    }

    /// Return the time that each user has had a cell with packets waiting since the last start.
    pub fn served(&mut self, cell: usize) -> Vec<Duration> {
        self.wire.graph.served(cell).collect()
    }

    /// Restart all schedules and moves at `zero`; see [`Direction::restart`].
    pub fn restart(&mut self, zero: Time) {
        let Wire { graph, now, .. } = &mut self.wire;
        graph.restart(*now, zero, Duration::ZERO);
    }

    /// Return the current time.
    pub fn now(&self) -> Time {
        self.wire.now
    }

    /// Return the number of packets on the path or on their way to it.
    pub fn held(&self) -> u64 {
        self.wire.held()
    }

    /// Run an application from `start`, or from now if later, until it is done, no event is left or `end` has passed.
    pub fn run(&mut self, application: &mut impl Application, start: Time, end: Time) {
        self.begin();
        self.wake(start, 0);
        while !application.is_done() && self.step(end) {
            while let Some(event) = self.events.pop_front() {
                application.on_event(event, self);
                if self.events.is_empty() {
                    self.sockets.send_written(&mut self.wire, &mut self.events);
                }
            }
        }
    }

    /// Begin a new application: connections of the previous one are removed, and its packets in flight are ignored.
    pub fn begin(&mut self) {
        self.sockets.clear();
        self.proxies.clear();
        self.due.clear();
        self.run += 1;
    }

    /// Return the next event by `end`, for an application with a loop. Without an event, time advances to `end`.
    pub fn next_event(&mut self, end: Time) -> Option<Event> {
        loop {
            if self.events.is_empty() {
                self.sockets.send_written(&mut self.wire, &mut self.events);
            }
            let event = self.events.pop_front();
            if event.is_some() {
                return event;
            }
            if !self.step(end) {
                self.wire.now = self.wire.now.max(end);
                return None;
            }
        }
    }

    /// Schedule an [`Event::Due`] at `at`, or now if that is past.
    pub fn wake(&mut self, at: Time, label: u64) {
        self.asked += 1;
        self.due
            .push(Reverse((at.max(self.now()), self.asked, label)));
    }

    /// Send a UDP datagram of `size` bytes, its IP length, between the first two hosts.
    pub fn send(&mut self, from: End, size: Bytes, label: u64) {
        self.send_ends(DatagramKind::Udp, PAIR, from, size, label);
    }

    /// Send a datagram of `size` bytes, its IP length, between two hosts.
    pub fn send_ends(
        &mut self,
        kind: DatagramKind,
        ends: Ends,
        from: End,
        size: Bytes,
        label: u64,
    ) {
        let content = Content::Datagram {
            run: self.run,
            kind,
            label,
            at: from.peer(),
        };
        self.wire.dispatch(ends, from, content, size);
    }

    /// Open a connection between the first two hosts, from the client to the server.
    pub fn connect(&mut self, tcp: Tcp) -> ConnectionId {
        self.connect_hosts(PAIR, tcp, tcp)
    }

    /// Open a connection between two hosts with these settings.
    pub fn connect_hosts(&mut self, ends: Ends, client: Tcp, server: Tcp) -> ConnectionId {
        let opened = Connection::open(ends, client, server, self.wire.now);
        self.sockets.connect(opened, &mut self.wire)
    }

    /// Continue a connection between two hosts without a handshake, after `carried` bytes from and to its client: one
    /// end has moved to its host. Offsets continue.
    pub fn resume(&mut self, ends: Ends, tcp: [Tcp; 2], carried: (u64, u64)) -> ConnectionId {
        let resumed = Connection::resume(ends, tcp, self.wire.now, carried);
        self.sockets.connect(resumed, &mut self.wire)
    }

    /// Write a message from this end of a connection to the other, which gets an [`Event::Message`].
    pub fn write(&mut self, connection: ConnectionId, from: End, bytes: u64, label: u64) {
        self.sockets
            .write(connection, from, bytes, label, self.wire.now);
    }

    /// Send written data now, as at the end of a system call. Data written later in this instant leaves in other
    /// segments.
    pub fn push(&mut self) {
        self.sockets.send_written(&mut self.wire, &mut self.events);
    }

    /// Turn on Nagle's algorithm at this end, which holds back short segments (RFC 896).
    pub fn use_nagle(&mut self, connection: ConnectionId, at: End) {
        if let Some(open) = self.sockets.get_mut(connection) {
            open.use_nagle(at);
        }
    }

    /// Close an end at once: it discards unsent data, and answers later segments with a reset, which closes the other
    /// end.
    pub fn close(&mut self, connection: ConnectionId, at: End) {
        self.sockets.close(connection, at);
    }

    /// Return the bytes that have arrived in order at this end.
    pub fn received(&self, connection: ConnectionId, at: End) -> u64 {
        let open = self.sockets.get(connection);
        open.map_or(0, |open| open.socket(at).receiver.received())
    }

    /// Return the unsent bytes written at this end.
    pub fn unsent(&self, connection: ConnectionId, from: End) -> u64 {
        let open = self.sockets.get(connection);
        open.map_or(0, |open| open.socket(from).sender.unsent())
    }

    /// Return the unacknowledged bytes written at this end.
    pub fn buffered(&self, connection: ConnectionId, from: End) -> u64 {
        let open = self.sockets.get(connection);
        open.map_or(0, |open| open.socket(from).sender.buffered())
    }

    /// Return the size of the send buffer at this end, bytes, from `least` to `most`.
    pub fn send_buffer(&self, connection: ConnectionId, from: End, least: u64, most: u64) -> u64 {
        let open = self.sockets.get(connection);
        open.map_or(least, |open| open.send_buffer(from, least, most))
    }

    /// Schedule one [`Event::Room`] when this end of a connection has room.
    pub fn want_room(&mut self, connection: ConnectionId, from: End, room: Room) {
        self.sockets.want_room(connection, from, room);
    }

    /// Return the state of the sender at this end.
    pub fn sending(&self, connection: ConnectionId, from: End) -> Option<Sending> {
        Some(self.sockets.get(connection)?.socket(from).sender.state())
    }

    /// Return the numbers of retransmissions and timeouts at both ends of all connections of the application.
    pub fn repairs(&self) -> (u64, u64) {
        let senders = self.sockets.all().flat_map(Connection::senders);
        senders.fold((0, 0), |sum, it| (sum.0 + it.repairs, sum.1 + it.timeouts))
    }

    /// Advance to the next event; return false if there is none by `end`.
    fn step(&mut self, end: Time) -> bool {
        let events = [
            self.wire.next_event(),
            self.sockets.timer(),
            self.due.peek().map(|Reverse(next)| next.0),
            self.proxies.timer(),
        ];
        let next = events.into_iter().flatten().min();
        let limit = next.map_or(end, |next| next.min(end));
        let next = self.wire.advance_outside(limit).or(next);
        let Some(next) = next.filter(|&next| next <= end) else {
            return false;
        };
        let now = self.now().max(next);
        self.wire.now = now;
        self.wire.leave(next);
        while let Some((direction, outcome)) = self.wire.graph.poll(now) {
            self.deliver(direction, &outcome);
        }
        self.sockets.receive(&mut self.wire, &mut self.events);
        self.sockets.tick(&mut self.wire);
        self.proxies.tick(&mut self.wire, &self.sockets);
        while let Some(&Reverse((_, _, label))) = self.due.peek().filter(|it| it.0.0 <= now) {
            self.due.pop();
            self.events.push_back(Event::Due { label });
        }
        true
    }

    /// Process a packet that left a direction or was dropped in it.
    fn deliver(&mut self, direction: usize, outcome: &Outcome<u32>) {
        let (wire, slot) = (&mut self.wire, outcome.packet);
        if let Some(log) = &mut self.log
            && outcome.fate != Fate::Doubled
        {
            log.push(record(wire.pool.get(slot), direction, outcome).to_bytes());
        }
        match outcome.fate {
            Fate::Doubled => return wire.pool.double(slot),
            Fate::Dropped(_) => return wire.pool.release(slot),
            Fate::Delivered => {}
        }
        let packet = wire.pool.get_mut(slot);
        packet.corrupt |= outcome.corrupt_bit.is_some();
        let packet = *packet;
        match wire.graph.onward(direction, outcome, packet.to.into()) {
            Onward::Next(next) => {
                let (proxies, sockets) = (&mut self.proxies, &self.sockets);
                if !proxies.is_empty() {
                    let vertex = wire.graph.paths(outcome.released).end(direction) as u16;
                    if proxies.divide(Some(direction), vertex, slot, wire, sockets) {
                        return proxies.send_made(wire, sockets);
                    }
                }
                return wire.accept(next, slot, outcome.departed, outcome.size);
            }
            Onward::Lost => return wire.pool.release(slot),
            Onward::Arrived => {}
        }
        wire.pool.release(slot);
        if packet.corrupt {
            return; // The checksum detects the damage.
        }
        match packet.content {
            Content::Datagram { run, label, at, .. } => {
                if run == self.run {
                    self.events.push_back(Event::Datagram { at, label });
                }
            }
            Content::Segment {
                connection,
                segment,
                at,
            } => {
                let to = (ConnectionId(connection), at);
                self.sockets.arrive(to, segment, wire, &mut self.events);
            }
            Content::Reset { connection, at, .. } => {
                self.sockets.close(ConnectionId(connection), at);
            }
        }
    }
}
