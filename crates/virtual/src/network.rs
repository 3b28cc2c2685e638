//! Hosts on a graph of directions in virtual time, and the loop that moves packets.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use cellbed_link::agenda::Agenda;
use cellbed_link::records::{PacketRecord, RECORD_BYTES};
use cellbed_link::tally::Tally;
use cellbed_link::{
    Bin, Bytes, Change, ChangeError, Duration, Fate, Graph, GraphConfig, GraphError, Onward,
    Outcome, StageConfig, Tag, Time,
};

use crate::connection::Connection;
use crate::event::{ConnectionId, DatagramKind, End, Ends, Event, Room};
use crate::pool::{Content, Packet, Pool};
use cellbed_tcp::proxy::{Place, Proxy, ProxyTable, Side, What};
use cellbed_tcp::{Segment, SegmentKind, Sending, Tcp};

/// A program on all hosts, driven by events.
pub trait Application {
    /// Handles an event at [`Network::now`]. The first event is [`Event::Due`] with label 0, at the beginning.
    fn on_event(&mut self, event: Event, network: &mut Network);

    /// Return whether the traffic is complete.
    fn is_done(&self) -> bool;
}

/// The first two hosts.
const PAIR: Ends = Ends {
    client: (0, 0),
    server: (1, 0),
};

/// Hosts on a graph of directions, in virtual time; [`new`](Self::new) makes two and the path between them.
///
/// A packet takes its time from one direction to the next, by the shortest path. Applications run on it one after the
/// other; packets that one leaves in flight do not concern the next, but stay in the queues. A clone is an independent
/// network in the same state. Only the stages of the directions are random, and have seeds.
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
/// // Four round trips, and what it takes to send the packets of the last one.
/// assert!(taken > Duration::from_millis(160) && taken < Duration::from_millis(175));
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    /// The directions; packets are slots of the pool.
    graph: Graph<u32>,
    pool: Pool,
    /// Packets so far.
    sent: u64,
    now: Time,
    /// The time from a host's sending until a packet is on the path.
    turnaround: Duration,
    /// Packets on their way out of the hosts, in order.
    leaving: VecDeque<(Time, u32, Bytes)>,
    /// Connections of the running application, when each has a timer, and the number of the first of them.
    connections: Vec<Connection>,
    timers: Agenda,
    first: u64,
    /// Number of the running application.
    run: u64,
    due: BinaryHeap<Reverse<(Time, u64, u64)>>,
    asked: u64,
    events: VecDeque<Event>,
    /// Segments that arrive together, as one, and the size of the first.
    arriving: Option<(ConnectionId, End, Segment, u64)>,
    /// Ends that applications have written to since the last event, in this order.
    written: VecDeque<(ConnectionId, End)>,
    /// Ends at which the application waits for room.
    rooms: BTreeSet<(ConnectionId, End)>,
    /// Records of packets that have passed directions.
    log: Option<Vec<[u8; RECORD_BYTES]>>,
    /// Samples of flows.
    flows: Option<Vec<u8>>,
    /// Proxies, when the SYNs of connections that are being opened passed them, and what they have made.
    proxies: Vec<(Place, Proxy<u64>)>,
    asked_at: HashMap<(usize, u64), Time>,
    made: VecDeque<(u16, Side, u32, Bytes)>,
}

impl Network {
    /// A path at rest whose time begins at zero, from the client (vertex 0) to the server (vertex 1) and back.
    pub fn new(uplink: Vec<StageConfig>, downlink: Vec<StageConfig>) -> Self {
        Self::on(Graph::pair(uplink, downlink, Time::ZERO))
    }

    /// A graph at rest whose time begins at zero.
    ///
    /// Errors: a change or a cell that does not fit.
    pub fn graph(config: GraphConfig) -> Result<Self, GraphError> {
        Graph::new(config, Time::ZERO).map(Self::on)
    }

    fn on(graph: Graph<u32>) -> Self {
        Self {
            graph,
            pool: Pool::default(),
            sent: 0,
            now: Time::ZERO,
            turnaround: Duration::ZERO,
            leaving: VecDeque::new(),
            connections: Vec::new(),
            timers: Agenda::default(),
            first: 0,
            run: 0,
            due: BinaryHeap::new(),
            asked: 0,
            events: VecDeque::new(),
            arriving: None,
            written: VecDeque::new(),
            rooms: BTreeSet::new(),
            log: None,
            flows: None,
            proxies: Vec::new(),
            asked_at: HashMap::new(),
            made: VecDeque::new(),
        }
    }

    /// Set the time, zero by default, from a host's sending until a packet is on the path.
    ///
    /// Where all opportunities of a bottleneck lie on whole milliseconds and the delays are whole ones too, an instant
    /// answer uses an opportunity that any real one misses.
    pub fn with_turnaround(mut self, turnaround: Duration) -> Self {
        self.turnaround = turnaround;
        self
    }

    /// The same path with changes of its directions over time.
    ///
    /// Errors: a change to a missing stage, or to another kind of stage.
    pub fn with_changes(
        mut self,
        uplink: Vec<Change>,
        downlink: Vec<Change>,
    ) -> Result<Self, ChangeError> {
        let mut changes = [uplink, downlink].into_iter();
        self.graph = self
            .graph
            .try_map(|_, direction| direction.with_changes(changes.next().unwrap_or_default()))?;
        Ok(self)
    }

    /// The same network with a meter and a tally for each direction, and a packet log.
    pub fn with_log(mut self) -> Self {
        self.log = Some(Vec::new());
        self.graph = self.graph.with_meters().with_tallies();
        self
    }

    /// The same network with proxies at their places.
    pub fn with_proxies(mut self, proxies: Vec<(Place, ProxyTable)>) -> Self {
        let made = |(place, table): (Place, ProxyTable)| (place, Proxy::new(&table));
        self.proxies = proxies.into_iter().map(made).collect();
        self
    }

    /// Takes the records of the packet log since the last call; see [`with_log`](Self::with_log).
    pub fn drain_packets(&mut self, take: impl FnMut([u8; RECORD_BYTES])) {
        if let Some(log) = &mut self.log {
            log.drain(..).for_each(take);
        }
    }

    /// The same network, which samples the senders of flows.
    pub fn with_flows(mut self) -> Self {
        self.flows = Some(Vec::new());
        self
    }

    /// Takes the samples of flows since the last call; see [`with_flows`](Self::with_flows).
    pub fn drain_flows(&mut self) -> Vec<u8> {
        self.flows.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Of each direction what has happened in it; see [`with_log`](Self::with_log).
    pub fn tallies(&self) -> &[Tally] {
        self.graph.tallies()
    }

    /// Takes the bins of the meters that have ended by now, with the number of their direction.
    pub fn finished_bins(&mut self, mut take: impl FnMut(usize, &Bin)) {
        for direction in 0..self.graph.directions().len() {
            let take = |bin: Bin| take(direction, &bin);
            self.graph.finished_bins(direction, self.now, take);
        }
    }

    /// Return the time that each user of a cell has had it with packets waiting since the last start.
    pub fn served(&mut self, cell: usize) -> Vec<Duration> {
        self.graph.served(cell).collect()
    }

    /// Starts all schedules and moves anew at `zero`; see [`Direction::restart`].
    pub fn restart(&mut self, zero: Time) {
        self.graph.restart(self.now, zero, Duration::ZERO);
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Packets that are on the path or on their way to it.
    pub fn held(&self) -> u64 {
        let directions = self.graph.directions().iter();
        let held = directions.map(|direction| direction.held().packets.0);
        self.leaving.len() as u64 + held.sum::<u64>()
    }

    /// Runs an application from `start`, or from now if that is later, until it is done, nothing more can happen or it
    /// is later than `end`.
    pub fn run(&mut self, application: &mut impl Application, start: Time, end: Time) {
        self.begin();
        self.wake(start, 0);
        while !application.is_done() && self.step(end) {
            while let Some(event) = self.events.pop_front() {
                application.on_event(event, self);
                if self.events.is_empty() {
                    self.send_written();
                }
            }
        }
    }

    /// Begins a new application: connections of the previous one are removed, and its packets in flight are ignored.
    pub fn begin(&mut self) {
        self.first += self.connections.len() as u64;
        self.connections.clear();
        self.proxies.iter_mut().for_each(|(_, proxy)| proxy.clear());
        self.asked_at.clear();
        self.timers.clear();
        self.rooms.clear();
        self.due.clear();
        self.run += 1;
    }

    /// The next event by `end`, for an application with a loop; without one the time is `end`.
    pub fn next_event(&mut self, end: Time) -> Option<Event> {
        loop {
            if self.events.is_empty() {
                self.send_written();
            }
            let event = self.events.pop_front();
            if event.is_some() {
                return event;
            }
            if !self.step(end) {
                self.now = self.now.max(end);
                return None;
            }
        }
    }

    /// Data written at one instant leaves in full segments, and in the order of the writes.
    fn send_written(&mut self) {
        while let Some((connection, from)) = self.written.pop_front() {
            self.transmit(connection, from);
        }
        if !self.rooms.is_empty() {
            self.report_room();
        }
    }

    /// Schedules an [`Event::Due`] at `at`, or now if that is past.
    pub fn wake(&mut self, at: Time, label: u64) {
        self.asked += 1;
        self.due
            .push(Reverse((at.max(self.now), self.asked, label)));
    }

    /// Sends a UDP datagram of `size` bytes, its IP length, between the first two hosts.
    pub fn send(&mut self, from: End, size: Bytes, label: u64) {
        self.send_ends(DatagramKind::Udp, PAIR, from, size, label);
    }

    /// Sends a datagram of `size` bytes, its IP length, between two hosts.
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
        self.dispatch(ends, from, content, size);
    }

    fn dispatch(&mut self, ends: Ends, from: End, content: Content, size: Bytes) {
        self.sent += 1;
        let (source, destination) = (ends.of(from), ends.of(from.peer()));
        let slot = self.pool.insert(Packet {
            number: self.sent,
            from: source.0,
            to: destination.0,
            ports: (source.1, destination.1),
            corrupt: false,
            content,
        });
        if self.turnaround.is_zero() {
            return self.enter(source.0, slot, self.now, size);
        }
        let at = self.now + self.turnaround;
        self.leaving.push_back((at, slot, size));
    }

    /// Sends a packet from a host to its destination; without a path it is lost.
    fn enter(&mut self, host: u16, slot: u32, at: Time, size: Bytes) {
        let destination = self.pool.get(slot).to;
        match self.graph.paths(at).next(host.into(), destination.into()) {
            Some(direction) => self.accept(direction, slot, at, size),
            None => self.pool.release(slot),
        }
    }

    /// A packet reaches a direction.
    fn accept(&mut self, direction: usize, slot: u32, at: Time, size: Bytes) {
        let packet = self.pool.get(slot);
        let flow = match packet.content {
            Content::Segment { connection, .. } | Content::Reset { connection, .. } => {
                1 + connection
            }
            Content::Datagram { .. } => {
                // Those with the same ports are one flow, apart from all connections.
                (u64::from(packet.ports.0) << 16 | u64::from(packet.ports.1)).wrapping_neg()
            }
        };
        let tag = Tag {
            flow,
            ..Tag::default()
        };
        self.graph
            .accept_tagged(at, direction, slot, size, tag, None);
    }

    /// Opens a connection between the first two hosts, from the client to the server.
    pub fn connect(&mut self, tcp: Tcp) -> ConnectionId {
        self.connect_ends(PAIR, tcp)
    }

    /// Opens a connection between two hosts with the same settings.
    pub fn connect_ends(&mut self, ends: Ends, tcp: Tcp) -> ConnectionId {
        self.connect_hosts(ends, tcp, tcp)
    }

    /// Opens a connection between two hosts with these settings.
    pub fn connect_hosts(&mut self, ends: Ends, client: Tcp, server: Tcp) -> ConnectionId {
        let id = ConnectionId(self.first + self.connections.len() as u64);
        self.connections
            .push(Connection::open(ends, client, server, self.now));
        self.timers.push();
        self.transmit(id, End::Client);
        id
    }

    /// Writes a message to a connection, from this end to the other, where it will be an [`Event::Message`].
    pub fn write(&mut self, connection: ConnectionId, from: End, bytes: u64, label: u64) {
        let now = self.now;
        if let Some(open) = self.connection_mut(connection) {
            open.write(from, now, bytes, label);
            self.written.push_back((connection, from));
        }
    }

    /// Lets this end hold back short segments, as a program that leaves Nagle's algorithm on (RFC 896).
    pub fn use_nagle(&mut self, connection: ConnectionId, at: End) {
        if let Some(open) = self.connection_mut(connection) {
            open.use_nagle(at);
        }
    }

    /// Closes an end at once: what it has not sent is discarded, and it answers what still arrives with a reset, which
    /// closes the other end.
    pub fn close(&mut self, connection: ConnectionId, at: End) {
        if let Some(open) = self.connection_mut(connection) {
            open.close(at);
            self.rooms.remove(&(connection, at));
            self.set_timer(connection);
        }
    }

    /// Bytes that have arrived in order at this end.
    pub fn received(&self, connection: ConnectionId, at: End) -> u64 {
        let open = self.connection(connection);
        open.map_or(0, |open| open.socket(at).received())
    }

    /// Bytes that were written at this end and have not been sent.
    pub fn unsent(&self, connection: ConnectionId, from: End) -> u64 {
        let open = self.connection(connection);
        open.map_or(0, |open| open.socket(from).unsent())
    }

    /// Bytes that were written at this end and are not acknowledged.
    pub fn buffered(&self, connection: ConnectionId, from: End) -> u64 {
        let open = self.connection(connection);
        open.map_or(0, |open| open.socket(from).buffered())
    }

    /// The size of the send buffer at this end, bytes, between a least and a largest one.
    pub fn send_buffer(&self, connection: ConnectionId, from: End, least: u64, most: u64) -> u64 {
        let open = self.connection(connection);
        open.map_or(least, |open| open.send_buffer(from, least, most))
    }

    /// Schedules one event when this end of a connection has room.
    pub fn want_room(&mut self, connection: ConnectionId, from: End, room: Room) {
        if let Some(open) = self.connection_mut(connection) {
            open.want_room(from, room);
            self.rooms.insert((connection, from));
        }
    }

    /// The state of the sender at this end.
    pub fn sending(&self, connection: ConnectionId, from: End) -> Option<Sending> {
        Some(self.connection(connection)?.socket(from).sending())
    }

    /// Segments that were sent more than once, and timeouts, at both ends of all connections of the application.
    pub fn repairs(&self) -> (u64, u64) {
        let counters = self.connections.iter().flat_map(Connection::counters);
        counters.fold((0, 0), |sum, it| (sum.0 + it.repairs, sum.1 + it.timeouts))
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(self.place(id)?)
    }

    fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let place = self.place(id)?;
        self.connections.get_mut(place)
    }

    fn place(&self, id: ConnectionId) -> Option<usize> {
        Some(id.0.checked_sub(self.first)? as usize)
    }

    /// Advances to the next event. False if there is none until `end`.
    fn step(&mut self, end: Time) -> bool {
        let events = [
            self.graph.next_event(),
            self.timers.first().map(|next| next.0),
            self.due.peek().map(|Reverse(next)| next.0),
            self.leaving.front().map(|packet| packet.0),
        ];
        let proxies = self.proxies.iter().filter_map(|(_, proxy)| proxy.timer());
        let next = events.into_iter().flatten().chain(proxies).min();
        let Some(next) = next.filter(|&next| next <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(&(at, slot, size)) = self.leaving.front().filter(|it| it.0 <= next) {
            self.leaving.pop_front();
            self.enter(self.pool.get(slot).from, slot, at, size);
        }
        while let Some((direction, outcome)) = self.graph.poll(self.now) {
            self.deliver(direction, &outcome);
        }
        self.receive();
        self.tick();
        self.tick_proxies();
        while let Some(&Reverse((at, _, label))) = self.due.peek().filter(|it| it.0.0 <= self.now) {
            debug_assert!(at <= self.now);
            self.due.pop();
            self.events.push_back(Event::Due { label });
        }
        true
    }

    /// A packet has come out of a direction, or was dropped in it.
    fn deliver(&mut self, direction: usize, outcome: &Outcome<u32>) {
        let slot = outcome.packet;
        if let Some(log) = &mut self.log
            && outcome.fate != Fate::Doubled
        {
            log.push(record(self.pool.get(slot), direction, outcome).to_bytes());
        }
        match outcome.fate {
            Fate::Doubled => return self.pool.double(slot),
            Fate::Dropped(_) => return self.pool.release(slot),
            Fate::Delivered => {}
        }
        let packet = self.pool.get_mut(slot);
        packet.corrupt |= outcome.corrupt_bit.is_some();
        let packet = *packet;
        match self.graph.onward(direction, outcome, packet.to.into()) {
            Onward::Next(next) => {
                if !self.proxies.is_empty() {
                    let vertex = self.graph.paths(outcome.released).end(direction) as u16;
                    if self.divide(Some(direction), vertex, slot) {
                        return self.send_made();
                    }
                }
                return self.accept(next, slot, outcome.departed, outcome.size);
            }
            Onward::Lost => return self.pool.release(slot),
            Onward::Arrived => {}
        }
        self.pool.release(slot);
        if packet.corrupt {
            return; // The checksum detects it.
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
            } => self.arrive(ConnectionId(connection), at, segment),
            Content::Reset { connection, at, .. } => self.close(ConnectionId(connection), at),
        }
    }

    /// A segment arrives. Linux receives those that arrive together as one super-packet, with one acknowledgement.
    fn arrive(&mut self, id: ConnectionId, at: End, segment: Segment) {
        if let Some((connection, end, before, size)) = &mut self.arriving
            && (*connection, *end) == (id, at)
            && before.join(&segment, *size)
        {
            return;
        }
        self.receive();
        self.arriving = Some((id, at, segment, segment.length));
    }

    /// Hands what arrives to its connection.
    fn receive(&mut self) {
        let Some((id, at, segment, _)) = self.arriving.take() else {
            return;
        };
        let now = self.now;
        self.sample(id, at); // as in the kernel, before it is taken in
        let Some(connection) = self.connection_mut(id) else {
            return; // Its application is over.
        };
        if connection.is_closed(at) {
            let (ends, socket) = (connection.ends, connection.socket(at));
            let content = Content::Reset {
                connection: id.0,
                sequence: (socket.written() - socket.unsent()) as u32 + 1,
                at: at.peer(),
            };
            return self.dispatch(ends, at, content, RESET);
        }
        let opened = connection.receive(at, now, &segment);
        // Before the application learns of it: what it answers does not carry this acknowledgement.
        self.transmit(id, at);
        if opened {
            let connection = id;
            self.events.push_back(Event::Open { connection, at });
        }
        while let Some(label) = self
            .connection_mut(id)
            .and_then(|open| open.next_message(at))
        {
            let connection = id;
            self.events.push_back(Event::Message {
                connection,
                at,
                label,
            });
        }
    }

    /// Timers of connections that are due.
    fn tick(&mut self) {
        while let Some((_, place)) = self.timers.first().filter(|&(due, _)| due <= self.now) {
            self.connections[place].tick(self.now);
            let id = ConnectionId(self.first + place as u64);
            for end in [End::Client, End::Server] {
                self.sample(id, end);
                self.transmit(id, end);
            }
        }
    }

    fn sample(&mut self, id: ConnectionId, at: End) {
        let (now, place) = (self.now, self.place(id));
        if let Some(samples) = &mut self.flows
            && let Some(open) = place.and_then(|place| self.connections.get_mut(place))
        {
            open.sample(at, now, id.0, samples);
        }
    }

    /// Hands a packet that reaches a vertex to the proxies there, if it belongs to a connection of one; else it passes.
    /// Returns whether one has it. direction: which it comes out of, none from a proxy.
    fn divide(&mut self, direction: Option<usize>, vertex: u16, slot: u32) -> bool {
        let (now, destination) = (self.now, self.pool.get(slot).to);
        let places = self.proxies.iter().map(|(place, _)| place);
        let paths = self.graph.paths(now);
        let passed = Place::passed(places, paths, direction, vertex, destination);
        for (number, from) in passed.into_iter().flatten() {
            if self.take_in(number, from, slot) {
                self.pool.release(slot);
                self.collect_made(number);
                return true;
            }
        }
        false
    }

    /// Hands a packet to a proxy; returns whether that keeps it.
    fn take_in(&mut self, number: usize, from: Side, slot: u32) -> bool {
        let (now, packet) = (self.now, *self.pool.get(slot));
        let proxy = &mut self.proxies[number].1;
        match packet.content {
            Content::Segment {
                connection,
                segment,
                ..
            } => match segment.kind {
                SegmentKind::Syn => {
                    self.asked_at.insert((number, connection), now);
                    return false;
                }
                SegmentKind::SynAck if !proxy.is_open(connection) => {
                    if let Some(&asked) = self.asked_at.get(&(number, connection)) {
                        proxy.open(
                            now,
                            connection,
                            from.other(),
                            asked,
                            Tcp::default(),
                            &segment,
                        );
                    }
                    return false;
                }
                _ if !proxy.knows(connection) || packet.corrupt => return false,
                _ => {
                    self.asked_at.remove(&(number, connection));
                    proxy.receive(now, connection, from, &segment, Some(packet.number), false);
                }
            },
            Content::Reset { connection, .. } if proxy.is_open(connection) => {
                proxy.reset(now, connection, from);
            }
            _ => return false,
        }
        true
    }

    /// Timers of proxies that are due.
    fn tick_proxies(&mut self) {
        for number in 0..self.proxies.len() {
            let (place, proxy) = &mut self.proxies[number];
            if proxy.timer().is_some_and(|due| due <= self.now) {
                let radio = proxy.look(&mut self.graph, place.downlink, self.now);
                proxy.tick(self.now, radio);
                self.collect_made(number);
            }
        }
        self.send_made();
    }

    /// Takes what leaves a proxy, as if it came from the other end.
    fn collect_made(&mut self, number: usize) {
        while let Some(output) = self.proxies[number].1.poll() {
            let Some(open) = self.connection(ConnectionId(output.key)) else {
                continue;
            };
            let (place, connection, ends) = (self.proxies[number].0, output.key, open.ends);
            let is_radio = ends.client.0 == place.endpoint;
            let at = if is_radio == (output.to == Side::Radio) {
                End::Client
            } else {
                End::Server
            };
            let (content, size, packet) = match output.what {
                What::Segment(segment, packet) => (
                    Content::Segment {
                        connection,
                        segment,
                        at,
                    },
                    segment.size(),
                    packet,
                ),
                What::Reset(sequence, _) => {
                    let sequence = sequence as u32 + 1;
                    (
                        Content::Reset {
                            connection,
                            sequence,
                            at,
                        },
                        RESET,
                        None,
                    )
                }
                What::Closed => continue,
            };
            self.sent += u64::from(packet.is_none());
            let (source, target) = (ends.of(at.peer()), ends.of(at));
            let slot = self.pool.insert(Packet {
                number: packet.unwrap_or(FIRST_MADE | self.sent),
                from: source.0,
                to: target.0,
                ports: (source.1, target.1),
                corrupt: false,
                content,
            });
            let tower = place.tower(self.graph.paths(self.now));
            self.made.push_back((tower, output.to, slot, size));
        }
    }

    /// Sends what proxies have made, past those of other endpoints.
    fn send_made(&mut self) {
        while let Some((tower, to, slot, size)) = self.made.pop_front() {
            if to == Side::Radio || !self.divide(None, tower, slot) {
                self.enter(tower, slot, self.now, size);
            }
        }
    }

    fn report_room(&mut self) {
        let Self {
            rooms,
            connections,
            first,
            events,
            ..
        } = self;
        rooms.retain(|&(connection, at)| {
            let waits = !connections[(connection.0 - *first) as usize].has_room(at);
            if !waits {
                events.push_back(Event::Room { connection, at });
            }
            waits
        });
    }

    /// Sends the pending segments of an end of a connection.
    fn transmit(&mut self, id: ConnectionId, from: End) {
        let (now, Some(place)) = (self.now, self.place(id)) else {
            return;
        };
        while let Some(open) = self.connections.get_mut(place)
            && let Some(segment) = open.transmit(from, now)
        {
            let ends = open.ends;
            let content = Content::Segment {
                connection: id.0,
                segment,
                at: from.peer(),
            };
            self.dispatch(ends, from, content, segment.size());
        }
        self.set_timer(id);
    }

    fn set_timer(&mut self, id: ConnectionId) {
        if let Some(place) = self.place(id) {
            let timer = self.connections.get(place).and_then(Connection::timer);
            self.timers.set(place, timer);
        }
    }
}

/// The record of a packet that came out of a direction, or was dropped in it.
fn record(packet: &Packet, direction: usize, outcome: &Outcome<u32>) -> PacketRecord {
    let (protocol, tcp_sequence, payload) = match packet.content {
        Content::Segment { segment, .. } => {
            let opening = segment.kind != SegmentKind::Data;
            // A SYN takes the number before the first byte.
            let sequence = segment.start as u32 + u32::from(!opening);
            (TCP, sequence, segment.length as u32)
        }
        Content::Reset { sequence, .. } => (TCP, sequence, 0),
        Content::Datagram { kind, .. } => {
            let protocol = match kind {
                DatagramKind::Icmp => ICMP,
                DatagramKind::Udp => UDP,
            };
            let payload = (outcome.size.0 as u32).saturating_sub(DATAGRAM_HEADERS);
            (protocol, 0, payload)
        }
    };
    PacketRecord {
        packet: packet.number,
        arrived: outcome.arrived,
        released: outcome.released,
        departed: outcome.departed,
        observed: outcome.departed,
        direction: direction as u16,
        drop: match outcome.fate {
            Fate::Delivered | Fate::Doubled => 0,
            Fate::Dropped(reason) => reason as u8,
        },
        protocol,
        bytes: outcome.size.0 as u32,
        source_port: packet.ports.0,
        destination_port: packet.ports.1,
        tcp_sequence,
        payload,
        source_vertex: packet.from,
        destination_vertex: packet.to,
    }
}

/// The first number of packets that come from no host.
const FIRST_MADE: u64 = 1 << 63;
/// Transport protocols (IANA numbers).
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Length of a reset: headers without options.
const RESET: Bytes = Bytes(40);
/// Of IPv4 and of UDP or an ICMP echo.
const DATAGRAM_HEADERS: u32 = 28;
