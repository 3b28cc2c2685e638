//! Two hosts and the path between them in virtual time, and the loop that moves them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cellbed_link::{Bytes, Change, ChangeError, Direction, Duration, Fate, StageConfig, Tag, Time};

use crate::connection::Connection;
use crate::event::{ConnectionId, End, Event};
use crate::tcp::{Segment, Tcp};

/// A program on both hosts, driven by events.
pub trait Application {
    /// Handles an event at [`Network::now`]. The first event is [`Event::Due`] with label 0, at the beginning.
    fn on_event(&mut self, event: Event, network: &mut Network);

    /// Whether it is complete.
    fn is_done(&self) -> bool;
}

/// A packet.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Datagram { run: u64, label: u64 },
    Segment { connection: u64, segment: Segment },
}

/// Two hosts and the path between them, in virtual time.
///
/// Applications run on it one after the other; packets that one leaves in flight do not concern the next, but stay in
/// the queues. A clone is an independent path in the same state. Only the stages of the path are random, and have
/// seeds.
///
/// ```
/// use cellbed_link::{BitRate, BottleneckConfig, DelayConfig, Duration, Schedule, Time};
/// use cellbed_simulator::{Downloads, Network, Tcp};
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
    uplink: Direction<Packet>,
    downlink: Direction<Packet>,
    now: Time,
    /// The time from a host's sending until a packet is on the path.
    turnaround: Duration,
    /// Packets on their way out of the hosts, in order: time, destination, packet and size.
    leaving: VecDeque<(Time, End, Packet, Bytes)>,
    /// Connections of the running application, and the number of the first of them.
    connections: Vec<Connection>,
    first: u64,
    /// Number of the running application.
    run: u64,
    due: BinaryHeap<Reverse<(Time, u64, u64)>>,
    asked: u64,
    events: VecDeque<Event>,
    /// Ends that the application has written to since the last event.
    written: Vec<(ConnectionId, End)>,
}

impl Network {
    /// A path at rest whose time begins at zero.
    pub fn new(uplink: Vec<StageConfig>, downlink: Vec<StageConfig>) -> Self {
        Self {
            uplink: Direction::new(uplink, Time::ZERO),
            downlink: Direction::new(downlink, Time::ZERO),
            now: Time::ZERO,
            turnaround: Duration::ZERO,
            leaving: VecDeque::new(),
            connections: Vec::new(),
            first: 0,
            run: 0,
            due: BinaryHeap::new(),
            asked: 0,
            events: VecDeque::new(),
            written: Vec::new(),
        }
    }

    /// The same path with this time, instead of zero, from a host's sending until a packet is on the path.
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
        self.uplink = self.uplink.with_changes(uplink)?;
        self.downlink = self.downlink.with_changes(downlink)?;
        Ok(self)
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Packets that are on the path or on their way to it.
    pub fn held(&self) -> u64 {
        let leaving = self.leaving.len() as u64;
        leaving + self.uplink.held().packets.0 + self.downlink.held().packets.0
    }

    /// Runs an application from `start`, or from now if that is later, until it is done, nothing more can happen or it is
    /// later than `end`.
    pub fn run(&mut self, application: &mut impl Application, start: Time, end: Time) {
        self.clear();
        self.go_on(application, start, end);
    }

    /// Ends the previous application: its connections are removed, and its packets in flight are ignored.
    pub fn clear(&mut self) {
        self.first += self.connections.len() as u64;
        self.connections.clear();
        self.due.clear();
        self.run += 1;
    }

    /// Wakes the application at `at`, as [`run`](Self::run) does, but continues the previous, completed one with its
    /// connections.
    pub fn go_on(&mut self, application: &mut impl Application, at: Time, end: Time) {
        self.wake(at, 0);
        while !application.is_done() && self.step(end) {
            while let Some(event) = self.events.pop_front() {
                application.on_event(event, self);
                if self.events.is_empty() {
                    // Data written at one instant leaves in full segments.
                    while let Some((connection, from)) = self.written.pop() {
                        self.transmit(connection, from);
                    }
                    self.tell_of_room();
                }
            }
        }
    }

    /// Schedules an [`Event::Due`] at `at`, or now if that is past.
    pub fn wake(&mut self, at: Time, label: u64) {
        self.asked += 1;
        self.due
            .push(Reverse((at.max(self.now), self.asked, label)));
    }

    /// Sends a datagram of `size` bytes, its IP length.
    pub fn send(&mut self, from: End, size: Bytes, label: u64) {
        let packet = Packet::Datagram {
            run: self.run,
            label,
        };
        self.dispatch(from, packet, size);
    }

    fn dispatch(&mut self, from: End, packet: Packet, size: Bytes) {
        if self.turnaround.is_zero() {
            return self.enter(from.peer(), packet, size);
        }
        let at = self.now + self.turnaround;
        self.leaving.push_back((at, from.peer(), packet, size));
    }

    /// Lets a packet into the path.
    fn enter(&mut self, to: End, packet: Packet, size: Bytes) {
        let flow = match packet {
            Packet::Segment { connection, .. } => 1 + connection,
            Packet::Datagram { .. } => 0,
        };
        let tag = Tag {
            flow,
            ..Tag::default()
        };
        let now = self.now;
        self.towards(to).accept_tagged(now, packet, size, tag);
    }

    /// Opens a connection from the client to the server.
    pub fn connect(&mut self, tcp: Tcp) -> ConnectionId {
        let id = ConnectionId(self.first + self.connections.len() as u64);
        self.connections.push(Connection::open(tcp, self.now));
        self.transmit(id, End::Client);
        id
    }

    /// Writes a message to a connection, from this end to the other, where it will be an [`Event::Message`].
    pub fn write(&mut self, connection: ConnectionId, from: End, bytes: u64, label: u64) {
        let now = self.now;
        if let Some(open) = self.connection(connection) {
            open.write(from, now, bytes, label);
            self.written.push((connection, from));
        }
    }

    /// Bytes that were written at this end and have not been sent.
    pub fn unsent(&self, connection: ConnectionId, from: End) -> u64 {
        let found = connection.0.checked_sub(self.first);
        let open = found.and_then(|index| self.connections.get(index as usize));
        open.map_or(0, |open| open.socket(from).unsent())
    }

    /// Schedules one event when fewer than `bytes` are unsent at this end.
    pub fn want_room(&mut self, connection: ConnectionId, from: End, bytes: u64) {
        if let Some(open) = self.connection(connection) {
            open.want_room(from, bytes);
        }
    }

    /// Segments that were sent more than once, and timeouts, at both ends of all connections of the application.
    pub fn repairs(&self) -> (u64, u64) {
        let counters = self.connections.iter().flat_map(Connection::counters);
        counters.fold((0, 0), |sum, it| (sum.0 + it.repairs, sum.1 + it.timeouts))
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let index = id.0.checked_sub(self.first)?;
        self.connections.get_mut(index as usize)
    }

    fn towards(&mut self, end: End) -> &mut Direction<Packet> {
        match end {
            End::Server => &mut self.uplink,
            End::Client => &mut self.downlink,
        }
    }

    /// Advances to the next event. False if there is none until `end`.
    fn step(&mut self, end: Time) -> bool {
        let timers = self.connections.iter().filter_map(Connection::timer).min();
        let due = self.due.peek().map(|Reverse(next)| next.0);
        let events = [
            self.uplink.next_event(),
            self.downlink.next_event(),
            timers,
            due,
            self.leaving.front().map(|packet| packet.0),
        ];
        let Some(next) = events
            .into_iter()
            .flatten()
            .min()
            .filter(|&next| next <= end)
        else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(&(_, to, packet, size)) = self.leaving.front().filter(|it| it.0 <= next) {
            self.leaving.pop_front();
            self.enter(to, packet, size);
        }
        for end in [End::Server, End::Client] {
            self.arrivals(end);
        }
        self.timers();
        while let Some(&Reverse((at, _, label))) = self.due.peek().filter(|it| it.0.0 <= self.now) {
            debug_assert!(at <= self.now);
            self.due.pop();
            self.events.push_back(Event::Due { label });
        }
        true
    }

    fn arrivals(&mut self, at: End) {
        let now = self.now;
        while let Some(outcome) = self.towards(at).poll(now) {
            // The checksum detects a corrupted packet.
            if outcome.fate != Fate::Delivered || outcome.corrupt_bit.is_some() {
                continue;
            }
            match outcome.packet {
                Packet::Datagram { run, label } if run == self.run => {
                    self.events.push_back(Event::Datagram { at, label });
                }
                Packet::Segment {
                    connection,
                    segment,
                } => {
                    self.receive(ConnectionId(connection), at, &segment);
                }
                Packet::Datagram { .. } => {}
            }
        }
    }

    fn receive(&mut self, id: ConnectionId, at: End, segment: &Segment) {
        let now = self.now;
        let Some(connection) = self.connection(id) else {
            return; // Its application is over.
        };
        let opened = connection.receive(at, now, segment);
        // Before the application learns of it: what it answers does not carry this acknowledgement.
        self.transmit(id, at);
        if opened {
            let connection = id;
            self.events.push_back(Event::Open { connection, at });
        }
        while let Some(label) = self.connection(id).and_then(|open| open.next_message(at)) {
            let connection = id;
            self.events.push_back(Event::Message {
                connection,
                at,
                label,
            });
        }
    }

    fn timers(&mut self) {
        let now = self.now;
        for index in 0..self.connections.len() {
            if self.connections[index]
                .timer()
                .is_some_and(|due| due <= now)
            {
                self.connections[index].tick(now);
                for end in [End::Client, End::Server] {
                    self.transmit(ConnectionId(self.first + index as u64), end);
                }
            }
        }
    }

    fn tell_of_room(&mut self) {
        for (index, connection) in self.connections.iter_mut().enumerate() {
            for at in [End::Client, End::Server] {
                if connection.has_room(at) {
                    let connection = ConnectionId(self.first + index as u64);
                    self.events.push_back(Event::Room { connection, at });
                }
            }
        }
    }

    /// Sends the pending segments of an end of a connection.
    fn transmit(&mut self, id: ConnectionId, from: End) {
        let now = self.now;
        while let Some(segment) = self.connection(id).and_then(|it| it.transmit(from, now)) {
            let packet = Packet::Segment {
                connection: id.0,
                segment,
            };
            self.dispatch(from, packet, segment.size());
        }
    }
}
