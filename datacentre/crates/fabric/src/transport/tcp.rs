//! [`Tcp`](cellbed_tcp::Tcp) on the fabric, with a connection per flow: the same state machine as on paths.
//!
//! Connections fill their host's card only up to [`CARD`], then take turns whenever the card is idle, as Linux does
//! (TCP small queues and fair queueing). Further data within a window waits in the connection: the card neither drops
//! nor marks.

use std::collections::VecDeque;

use cellbed_link::{Duration, Time};

use super::{Constants, Keys, MobileUsers, Transport};
use crate::units::{FlowId, HostId, Picos};
use crate::{Fabric, FlowMap, Kind, Packet};
use cellbed_tcp::slab::Slab;
use cellbed_tcp::{Control, Segment, Socket, Tcp};

const SEGMENT: Kind = Kind(0);
const NEVER: Picos = Picos(u64::MAX);
/// Maximum waiting bytes at a card before another packet: Linux lets two packets of a connection wait.
const CARD: u64 = 3_000;

constants! {
    /// Constants of TCP and DCTCP.
    TcpConfig {
        /// Congestion control.
        control: Control = Control::NewReno,
        /// First window, segments.
        initial_window: u64 = 10; 1,
        /// Least variable part of the retransmission timeout, by default as in the data centre of Alizadeh et al.
        /// (SIGCOMM 2010, §4); Linux has 200 ms.
        least_timeout_ps: Picos = Picos::from_millis(10),
    }
}

impl Constants for TcpConfig {
    type Hosts = TcpHosts;
    const KEYS: Keys = Self::KEYS;
    const MOBILE: MobileUsers = MobileUsers::EndToEnd;

    fn hosts(self, net: &Fabric) -> TcpHosts {
        TcpHosts::new(self.control, self, net.topology().hosts())
    }
}

/// Constants of DCTCP: TCP's constants, without its law.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct DctcpConfig(TcpConfig);

impl Constants for DctcpConfig {
    type Hosts = TcpHosts;
    const KEYS: Keys = TcpConfig::KEYS.split_at(1).1; // without `control`
    const MOBILE: MobileUsers = MobileUsers::EndToEnd;
    /// Bytes above which Alizadeh et al. ("pFabric", SIGCOMM 2013, table 1) mark at 10 Gbit/s.
    const MARK_ABOVE: Option<u64> = Some(22_500);

    fn hosts(self, net: &Fabric) -> TcpHosts {
        TcpHosts::new(Control::Dctcp, self.0, net.topology().hosts())
    }
}

/// All hosts.
#[derive(Debug)]
pub struct TcpHosts {
    tcp: Tcp,
    flows: FlowMap<State>,
    /// Segments in transit; packets carry their place in the slab.
    segments: Slab<Segment>,
    /// By host, the connection ends that wait for its card.
    waiting: Vec<VecDeque<(FlowId, usize)>>,
}

#[derive(Debug)]
struct State {
    /// Sockets of the source and of the destination.
    sockets: Box<[Socket; 2]>,
    hosts: [HostId; 2],
    bytes: u64,
    /// Ends that wait for their cards.
    waits: [bool; 2],
    /// Time of the next requested wake-up.
    armed: Picos,
}

impl TcpHosts {
    pub(super) fn new(control: Control, constants: TcpConfig, hosts: u32) -> Self {
        let tcp = Tcp {
            control,
            initial_window: constants.initial_window,
            least_timeout: Duration::from_nanos(constants.least_timeout_ps.0 / 1_000),
            tick: Duration::ZERO,
            ..Tcp::default()
        };
        Self {
            tcp,
            flows: FlowMap::default(),
            segments: Slab::default(),
            waiting: vec![VecDeque::new(); hosts as usize],
        }
    }

    /// Send the pending segments of one end (0: the source) as far as its card has room; the others wait for the card.
    fn transmit(&mut self, net: &mut Fabric, id: FlowId, end: usize) {
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        if state.waits[end] {
            return;
        }
        let host = state.hosts[end];
        while self.waiting[host.index()].is_empty() && net.card_backlog(host) < CARD {
            let Some(packet) = self.next(net, id, end) else {
                return;
            };
            net.send(host, packet);
        }
        if let Some(state) = self.flows.get_mut(&id) {
            state.waits[end] = true;
            self.waiting[host.index()].push_back((id, end));
            net.kick(host);
        }
    }

    /// Return the next packet of one end.
    fn next(&mut self, net: &Fabric, id: FlowId, end: usize) -> Option<Packet> {
        let state = self.flows.get_mut(&id)?;
        let segment = state.sockets[end].transmit(time(net))?;
        let place = self.segments.insert(segment);
        let size = segment.size().0 as u16;
        let packet = Packet::new(id, state.hosts[1 - end], SEGMENT, size);
        Some(Packet {
            value: u64::from(place),
            rank: state.bytes - segment.start.min(state.bytes),
            ecn_capable: state.sockets[end].sender.uses_ecn() && segment.length > 0,
            ..packet
        })
    }

    /// Request a wake-up at the next timer, unless an earlier one is pending.
    fn arm(&mut self, net: &mut Fabric, id: FlowId) {
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        let timers = state.sockets.iter().filter_map(Socket::timer);
        if let Some(due) = timers.min().map(|due| Picos::from_nanos(due.as_nanos()))
            && due < state.armed
        {
            state.armed = due;
            net.wake(due, u64::from(id.0));
        }
    }
}

impl Transport for TcpHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let (flow, now) = (*net.flow(id), time(net));
        let mut source = Socket::connecting(self.tcp, now);
        source.sender.write(now, flow.bytes);
        let state = State {
            sockets: Box::new([source, Socket::listening(self.tcp)]),
            hosts: [flow.source, flow.destination],
            bytes: flow.bytes,
            waits: [false; 2],
            armed: NEVER,
        };
        self.flows.insert(id, state);
        self.transmit(net, id, 0);
        self.arm(net, id);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let id = packet.flow;
        let segment = self.segments.remove(packet.value as u32);
        let Some(state) = self.flows.get_mut(&id) else {
            return; // a duplicate after the end
        };
        let end = usize::from(at == state.hosts[1]);
        let socket = &mut state.sockets[end];
        let before = socket.receiver.received();
        socket.receive(time(net), &segment, packet.ecn);
        if end == 1 && socket.receiver.received() >= state.bytes {
            if before < state.bytes {
                net.finish(id);
            }
            socket.receiver.acknowledge(); // acknowledges the end of the connection at once
        }
        if end == 0 && socket.sender.acknowledged() >= state.bytes {
            self.flows.remove(&id);
            return net.close(id);
        }
        self.transmit(net, id, end);
        self.arm(net, id);
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        let id = FlowId(token as u32);
        let now = time(net);
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        if state.armed > net.now() {
            return; // an earlier wake-up has been requested since
        }
        state.armed = NEVER;
        for end in 0..2 {
            let socket = &mut self.flows.get_mut(&id).expect("it lives").sockets[end];
            if socket.timer().is_some_and(|due| due <= now) {
                socket.tick(now);
                self.transmit(net, id, end);
            }
        }
        self.arm(net, id);
    }

    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        while let Some((id, end)) = self.waiting[host.index()].pop_front() {
            let packet = self.next(net, id, end);
            if packet.is_some() {
                self.waiting[host.index()].push_back((id, end));
            } else if let Some(state) = self.flows.get_mut(&id) {
                state.waits[end] = false;
            }
            self.arm(net, id);
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    fn on_drop(&mut self, _: &mut Fabric, packet: Packet) {
        self.segments.remove(packet.value as u32);
    }
}

/// Return the time on the sockets' clock, rounded up.
fn time(net: &Fabric) -> Time {
    Time::from_nanos(net.now().0.div_ceil(1_000))
}
