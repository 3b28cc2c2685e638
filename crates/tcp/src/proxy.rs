//! A transparent proxy at the tower, which splits each connection between an endpoint and a server.
//!
//! Both parts have the sequence numbers, ports and addresses of the whole connection, and the handshake passes through:
//! an end notices the proxy only by its acknowledgements. Unknown connections, such as older ones, may therefore pass.
//! The proxy carries lengths; the caller keeps the bytes. A FIN is a byte of the stream, so half-closed connections
//! need no special case.
//!
//! [`Kind::Split`] is plain split TCP (I-TCP: Bakre & Badrinath, ICDCS 1995). [`Kind::Mmcptp`] releases data to the
//! endpoint by the queue and the rate of the radio link (mmCPTP: Netalkar et al., NOMS 2023), and the endpoint's
//! selective acknowledgements are its NACKs for packets that the link has lost.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use cellbed_link::agenda::Agenda;
use cellbed_link::graph::table::GraphTables;
use cellbed_link::graph::{Graph, Paths};
use cellbed_link::{Bytes, Duration, Time};
use serde::Deserialize;

use super::{Segment, SegmentKind, Socket, Tcp};

/// A side of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The endpoint, behind the radio link.
    Radio,
    /// The server, behind the core network.
    Core,
}

impl Side {
    /// Return the opposite side.
    pub const fn other(self) -> Self {
        match self {
            Self::Radio => Self::Core,
            Self::Core => Self::Radio,
        }
    }
}

/// The policy of releases to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Releases by TCP's congestion control.
    Split,
    /// Releases by the queue and the rate of the radio link.
    Mmcptp,
}

/// A proxy in a configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyTable {
    /// Name of the direction from the endpoint.
    pub uplink: String,
    /// Name of the direction to the endpoint; the proxy is at the vertex where the direction currently begins.
    pub downlink: String,
    /// The policy of releases to the endpoint.
    pub kind: Kind,
    /// Maximum buffered bytes of a stream.
    pub buffer_bytes: u64,
    /// Interval between two releases to the endpoint, ns.
    #[serde(default)]
    pub interval_ns: u64,
    /// Time for which the radio link must have data, ns.
    #[serde(default)]
    pub horizon_ns: u64,
}

/// The place of a proxy in a graph. It moves with the endpoint from one tower to another.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The vertex of the endpoint.
    pub endpoint: u16,
    /// The direction from the endpoint.
    pub uplink: usize,
    /// The direction to the endpoint.
    pub downlink: usize,
}

impl ProxyTable {
    /// Return the place in a graph.
    ///
    /// Errors: the name missing from the graph.
    pub fn place(&self, graph: &GraphTables<'_>) -> Result<Place, String> {
        let missing = |name: &str| format!("there is no {name}");
        let direction = |name: &str| {
            let found = graph.directions.iter().position(|it| it.name == name);
            found.ok_or_else(|| missing(name))
        };
        let (uplink, downlink) = (direction(&self.uplink)?, direction(&self.downlink)?);
        let endpoint = &graph.directions[downlink].to;
        let vertex = graph.vertices.iter().position(|it| it == endpoint);
        Ok(Place {
            endpoint: vertex.ok_or_else(|| missing(endpoint))? as u16,
            uplink,
            downlink,
        })
    }
}

impl Place {
    /// Return the vertex of the tower. paths: current ones.
    pub fn tower(&self, paths: Paths<'_>) -> u16 {
        paths.begin(self.downlink) as u16
    }

    /// Return the numbers of the proxies that a packet passes at a vertex: the proxy of the source endpoint,
    /// then the proxy of the destination endpoint on its other side.
    ///
    /// A packet that left the uplink before a handover meets the proxy at its exit, the old tower; a packet from the
    /// core network that arrives there continues to the new tower. direction: exited by the packet, `None` from a
    /// proxy; paths: current ones.
    pub fn passed<'a>(
        places: impl Iterator<Item = &'a Self> + Clone,
        paths: Paths<'_>,
        direction: Option<usize>,
        vertex: u16,
        destination: u16,
    ) -> [Option<(usize, Side)>; 2] {
        let near = places.clone().position(|it| Some(it.uplink) == direction);
        let is_far = |it: &Self| it.endpoint == destination && it.tower(paths) == vertex;
        let far = places.clone().position(is_far);
        [
            near.map(|it| (it, Side::Radio)),
            far.map(|it| (it, Side::Core)),
        ]
    }
}

/// An output of the proxy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output<K> {
    /// The connection.
    pub key: K,
    /// The side that receives the output.
    pub to: Side,
    /// Its content.
    pub what: What,
}

/// The content of an output of the proxy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A segment, and the packet that brought the same bytes if sent for the first time.
    Segment(Segment, Option<u64>),
    /// A reset at this offset, after the last byte, and the bytes received; the connection is forgotten.
    Reset(u64, u64),
    /// Both ends have closed; the connection is forgotten.
    Closed,
}

/// The state of the radio link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Radio {
    /// Bytes in the queue.
    pub queued: u64,
    /// Bytes that the queue must have: the link's rate over the [horizon](ProxyTable::horizon_ns).
    pub offered: u64,
}

/// A split connection. Arrays are by side; a stream belongs to its source side.
#[derive(Clone, Debug)]
struct Relay {
    /// The ends that face the sides.
    sockets: [Socket; 2],
    /// The opening side, until its first segment after the SYN, and when the answer to the SYN passed.
    opening: Option<(Side, Time)>,
    /// Ends of packets that arrived and have not been written to the other side, with the packets.
    waiting: [BTreeMap<u64, Option<u64>>; 2],
    /// Ends of packets that have been written and not sent, with the packets.
    written: [VecDeque<(u64, Option<u64>)>; 2],
    /// Bytes of the stream that have been sent at least once.
    sent: [u64; 2],
    /// End of the stream, after the FIN.
    finished: [Option<u64>; 2],
    /// The side that has reset the connection.
    reset: Option<Side>,
}

impl Relay {
    fn socket(&mut self, side: Side) -> &mut Socket {
        &mut self.sockets[side as usize]
    }

    /// Return whether bytes of a stream have arrived in order and have not been written to the other side.
    fn has_backlog(&self, from: Side) -> bool {
        let first = self.waiting[from as usize].first_key_value();
        first.is_some_and(|(&end, _)| end <= self.sockets[from as usize].receiver.received())
    }

    /// Write the next packet of a stream to the other side; return its bytes.
    fn write_next(&mut self, from: Side, now: Time) -> Option<u64> {
        let received = self.socket(from).receiver.received();
        let first = self.waiting[from as usize].first_entry();
        let (end, packet) = first.filter(|it| *it.key() <= received)?.remove_entry();
        let sender = &mut self.socket(from.other()).sender;
        let bytes = end.saturating_sub(sender.written());
        if bytes > 0 {
            sender.write(now, bytes);
            sender.cut();
            self.written[from as usize].push_back((end, packet));
        }
        Some(bytes)
    }

    /// Open the window of a side as far as the buffer permits.
    fn offer(&mut self, from: Side, buffer: u64) {
        let gone = self.sockets[from.other() as usize].sender.acknowledged();
        let receiver = &mut self.socket(from).receiver;
        let held = receiver.received().saturating_sub(gone);
        receiver.offer(buffer.saturating_sub(held));
    }

    /// Return the packet that brought a segment's bytes, if they leave for the first time and with the same
    /// boundaries.
    fn brought_by(&mut self, from: Side, segment: &Segment) -> Option<u64> {
        let (written, sent) = (
            &mut self.written[from as usize],
            &mut self.sent[from as usize],
        );
        let (mut begin, mut found) = (*sent, None);
        while let Some(&(end, packet)) = written.front().filter(|it| it.0 <= segment.end()) {
            written.pop_front();
            found = packet.filter(|_| (begin, end) == (segment.start, segment.end()));
            begin = end;
        }
        *sent = (*sent).max(segment.end());
        found
    }

    /// Return whether all data from a side has arrived at the other one.
    fn is_drained(&self, from: Side) -> bool {
        let (source, target) = (
            &self.sockets[from as usize],
            &self.sockets[from.other() as usize],
        );
        target.sender.acknowledged() >= source.receiver.received()
    }

    fn is_finished(&self, from: Side) -> bool {
        let acknowledged = self.sockets[from.other() as usize].sender.acknowledged();
        self.finished[from as usize].is_some_and(|end| acknowledged >= end)
    }

    fn timer(&self) -> Option<Time> {
        if self.opening.is_some() {
            return None;
        }
        let live = |side: &Side| self.reset != Some(*side);
        let sides = [Side::Radio, Side::Core].into_iter().filter(live);
        sides
            .filter_map(|side| self.sockets[side as usize].timer())
            .min()
    }
}

/// The proxy of one endpoint. `K` names a connection.
///
/// The contract: [`open`](Self::open) a connection when the answer to its SYN passes, then [`receive`](Self::receive)
/// its segments and [`tick`](Self::tick) at [`timer`](Self::timer). After each call, take outputs from
/// [`poll`](Self::poll) until there are none. Time never decreases.
#[derive(Clone, Debug)]
pub struct Proxy<K> {
    kind: Kind,
    buffer: u64,
    interval: Duration,
    horizon: Duration,
    places: HashMap<K, usize>,
    relays: Vec<Option<(K, Relay)>>,
    free: Vec<usize>,
    timers: Agenda,
    /// Connections with data to release; the next one follows `turn`.
    backlog: BTreeSet<usize>,
    turn: usize,
    /// Connections with released data that the endpoint's window holds back.
    held_back: BTreeSet<usize>,
    released: Time,
    outputs: VecDeque<Output<K>>,
}

impl<K: Copy + Eq + Hash> Proxy<K> {
    /// Return a proxy without connections.
    pub fn new(table: &ProxyTable) -> Self {
        Self {
            kind: table.kind,
            buffer: table.buffer_bytes,
            interval: Duration::from_nanos(table.interval_ns),
            horizon: Duration::from_nanos(table.horizon_ns),
            places: HashMap::new(),
            relays: Vec::new(),
            free: Vec::new(),
            timers: Agenda::default(),
            backlog: BTreeSet::new(),
            turn: 0,
            held_back: BTreeSet::new(),
            released: Time::ZERO,
            outputs: VecDeque::new(),
        }
    }

    /// Return the state of a radio link.
    ///
    /// The rate is the mean of the last horizon. In a cell, it is divided by the number of users with waiting packets,
    /// as under round robin and proportional fair. But the queue must last for a slot and until the release after it,
    /// so that other users get no part of the slot, however many they are.
    pub fn look<P: Clone>(&self, graph: &mut Graph<P>, downlink: usize, now: Time) -> Radio {
        let turn = graph.turn(now, downlink);
        let radio = &graph.directions()[downlink];
        let Bytes(queued) = radio.queue().bytes;
        let horizon = self.horizon.as_nanos();
        let from = Time::from_nanos(now.as_nanos().saturating_sub(horizon));
        let mut offered = 0.0;
        if !radio.is_closed() {
            offered = radio.offered(from, now);
        }
        if let Some((users, slot)) = turn {
            let least = (slot + self.interval).as_nanos() as f64 / horizon.max(1) as f64;
            offered *= (1.0 / users as f64).max(least.min(1.0));
        }
        Radio {
            queued,
            offered: offered as u64,
        }
    }

    /// Return whether the proxy splits a connection.
    pub fn knows(&self, key: K) -> bool {
        self.places.contains_key(&key)
    }

    /// Return whether both ends of a connection have exchanged their SYNs and the first acknowledgement.
    pub fn is_open(&mut self, key: K) -> bool {
        self.relay(key).is_some_and(|relay| relay.opening.is_none())
    }

    /// Split a connection whose SYN came from `by` at `asked`, and whose answer passes now. tcp: settings of the
    /// proxy's ends; the maximum segment of both fits the path.
    pub fn open(&mut self, now: Time, key: K, by: Side, asked: Time, tcp: Tcp, answer: &Segment) {
        self.forget(key);
        let mut sockets = [Socket::joining(tcp), Socket::joining(tcp)];
        if self.kind == Kind::Mmcptp {
            sockets[Side::Radio as usize].sender.release_all();
        }
        let far = &mut sockets[by.other() as usize];
        far.sender.opened(now, now - asked);
        far.receiver.offer(self.buffer);
        far.receive(now, answer, false);
        let relay = Relay {
            sockets,
            opening: Some((by, now)),
            waiting: Default::default(),
            written: Default::default(),
            sent: [0; 2],
            finished: [None; 2],
            reset: None,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.relays.push(None);
            self.timers.push();
            self.relays.len() - 1
        });
        self.relays[place] = Some((key, relay));
        self.places.insert(key, place);
    }

    /// Forget a connection, whose packets then pass.
    pub fn forget(&mut self, key: K) {
        if let Some(place) = self.places.remove(&key) {
            self.relays[place] = None;
            self.timers.set(place, None);
            self.backlog.remove(&place);
            self.held_back.remove(&place);
            self.free.push(place);
        }
    }

    /// Forget all connections.
    pub fn clear(&mut self) {
        for key in self.places.keys().copied().collect::<Vec<_>>() {
            self.forget(key);
        }
    }

    fn relay(&mut self, key: K) -> Option<&mut Relay> {
        let place = *self.places.get(&key)?;
        self.relays[place].as_mut().map(|(_, relay)| relay)
    }

    /// Return the bytes of the stream from a side that have arrived in order here, and at the other side.
    pub fn passed(&mut self, key: K, from: Side) -> (u64, u64) {
        self.relay(key).map_or((0, 0), |relay| {
            let (source, target) = (from as usize, from.other() as usize);
            (
                relay.sockets[source].receiver.received(),
                relay.sockets[target].sender.acknowledged(),
            )
        })
    }

    /// Process a segment from a side, after the handshake. packet: carrier of the bytes; fin: whether the last byte
    /// is a FIN.
    pub fn receive(
        &mut self,
        now: Time,
        key: K,
        from: Side,
        segment: &Segment,
        packet: Option<u64>,
        fin: bool,
    ) {
        let buffer = self.buffer;
        let Some(relay) = self.relay(key).filter(|it| it.reset != Some(from)) else {
            return;
        };
        if let Some((_, since)) = relay.opening.take_if(|it| it.0 == from) {
            let socket = relay.socket(from);
            socket.sender.opened(now, now - since);
        }
        let end = segment.end();
        let before = relay.socket(from).receiver.received();
        if segment.length == 0 && segment.start < before {
            relay.socket(from).receiver.acknowledge(); // A probe of a live connection or of a window.
        }
        if segment.length > 0 && segment.kind == SegmentKind::Data && end > before {
            let waiting = &mut relay.waiting[from as usize];
            if fin {
                waiting.insert(end, None);
                relay.finished[from as usize] = Some(end);
                if segment.length > 1 {
                    waiting.entry(end - 1).or_insert(packet);
                }
            } else {
                waiting.entry(end).or_insert(packet);
            }
        }
        relay.offer(from, buffer);
        relay.socket(from).receive(now, segment, false);
        self.pump(now, key);
    }

    /// Process a reset from a side: the other side gets it after the data before it.
    pub fn reset(&mut self, now: Time, key: K, from: Side) {
        if let Some(relay) = self.relay(key) {
            relay.reset.get_or_insert(from);
            self.pump(now, key);
        }
    }

    /// Return when the next timer or the next release is due.
    pub fn timer(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(at, _)| at);
        let release = (!self.backlog.is_empty()).then(|| self.released + self.interval);
        match (timer, release) {
            (Some(timer), Some(release)) => Some(timer.min(release)),
            (timer, release) => timer.or(release),
        }
    }

    /// Process due timers, and release data for the radio link.
    pub fn tick(&mut self, now: Time, radio: Radio) {
        while let Some((_, place)) = self.timers.first().filter(|&(at, _)| at <= now) {
            let Some((key, relay)) = &mut self.relays[place] else {
                self.timers.set(place, None);
                continue;
            };
            let key = *key;
            relay.sockets.iter_mut().for_each(|socket| socket.tick(now));
            self.pump(now, key);
        }
        if !self.backlog.is_empty() && self.released + self.interval <= now {
            self.release(now, radio);
        }
    }

    /// Release packets of all connections in turn: `rate · T − radio queue − not yet queued` bytes, and the rest of
    /// the last packet. A link without a known rate above 0 always gets one packet.
    fn release(&mut self, now: Time, radio: Radio) {
        self.released = now;
        let held_back = self
            .held_back
            .iter()
            .filter_map(|&place| self.relays[place].as_ref());
        let unsent: u64 = held_back
            .map(|(_, relay)| relay.sockets[Side::Radio as usize].sender.unsent())
            .sum();
        let mut room = radio.offered.max(1).saturating_sub(radio.queued + unsent);
        let mut touched = BTreeMap::new();
        while room > 0 {
            let behind = self.backlog.range(self.turn + 1..).next();
            let Some(&place) = behind.or_else(|| self.backlog.first()) else {
                break;
            };
            self.turn = place;
            let Some((key, relay)) = &mut self.relays[place] else {
                break;
            };
            touched.insert(place, *key);
            let bytes = relay.write_next(Side::Core, now).unwrap_or(0);
            room = room.saturating_sub(bytes + HEADERS);
            if !relay.has_backlog(Side::Core) {
                self.backlog.remove(&place);
            }
        }
        for key in touched.into_values() {
            self.pump(now, key);
        }
    }

    /// Return the next output.
    pub fn poll(&mut self) -> Option<Output<K>> {
        self.outputs.pop_front()
    }

    /// Forward data of a connection, and let segments leave.
    fn pump(&mut self, now: Time, key: K) {
        let Some(&place) = self.places.get(&key) else {
            return;
        };
        let (buffer, kind) = (self.buffer, self.kind);
        let Some((_, relay)) = &mut self.relays[place] else {
            return;
        };
        for from in [Side::Radio, Side::Core] {
            if kind == Kind::Split || from == Side::Radio {
                while relay.write_next(from, now).is_some() {}
            } else if relay.has_backlog(from) && relay.reset != Some(Side::Radio) {
                self.backlog.insert(place);
            }
            relay.offer(from, buffer);
        }
        if relay.opening.is_some() {
            return;
        }
        for to in [Side::Radio, Side::Core] {
            if relay.reset == Some(to) {
                continue;
            }
            while let Some(segment) = relay.socket(to).transmit(now) {
                let packet = (segment.length > 0)
                    .then(|| relay.brought_by(to.other(), &segment))
                    .flatten();
                let what = What::Segment(segment, packet);
                self.outputs.push_back(Output { key, to, what });
            }
        }
        let last = match relay.reset {
            Some(from) if relay.is_drained(from) => {
                let socket = &relay.sockets[from.other() as usize];
                let what = What::Reset(socket.sender.acknowledged(), socket.receiver.received());
                Some(Output {
                    key,
                    to: from.other(),
                    what,
                })
            }
            None if relay.is_finished(Side::Radio) && relay.is_finished(Side::Core) => {
                let what = What::Closed;
                Some(Output {
                    key,
                    to: Side::Core,
                    what,
                })
            }
            _ => None,
        };
        if let Some(last) = last {
            self.outputs.push_back(last);
            return self.forget(key);
        }
        let timer = relay.timer();
        if relay.reset == Some(Side::Radio) {
            self.backlog.remove(&place);
        } else if relay.socket(Side::Radio).sender.unsent() > 0 {
            self.held_back.insert(place);
        } else {
            self.held_back.remove(&place);
        }
        self.timers.set(place, timer);
    }
}

/// Bytes of headers counted per released packet.
const HEADERS: u64 = 52;
