//! A window of packets with selective acknowledgements, where only a fixed timeout finds losses.
//!
//! This is the rate control of [pFabric](super::PfabricConfig), and a TCP reduced to [slow start](SlowStartConfig), the
//! "TCP" of the public pHost simulator.

use super::arrivals::Arrivals;
use super::{Constants, MobileUsers, Transport, packets, wire_size};
use crate::units::{FlowId, HostId, Picos};
use crate::{FULL_PAYLOAD, Fabric, FlowMap, HEADER, Kind, Packet};

const OPEN: Kind = Kind(0);
const OPENED: Kind = Kind(1);
const DATA: Kind = Kind(2);
const PROBE: Kind = Kind(3);
const ACKNOWLEDGEMENT: Kind = Kind(4);

/// A TCP that knows slow start alone: the window begins with 1 packet after a handshake, grows by 1 with every
/// acknowledgement of new data up to a limit, and begins again after a timeout. It has neither congestion avoidance nor
/// fast retransmit nor an estimate of the round trip, so that it is far from New Reno (RFC 6582) and RFC 6298: it is
/// here for the comparison with the public pHost simulator, whose TCP it is.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlowStartConfig {
    /// The largest window, packets.
    pub largest_window: u32,
    /// The retransmission timeout.
    pub timeout_ps: Picos,
}

impl Default for SlowStartConfig {
    fn default() -> Self {
        Self {
            largest_window: 15,
            timeout_ps: Picos::from_micros(200),
        }
    }
}

impl Constants for SlowStartConfig {
    type Hosts = WindowHosts;
    const MOBILE: MobileUsers = MobileUsers::None;

    fn hosts(self, _net: &Fabric) -> WindowHosts {
        WindowHosts::new(Rules {
            handshake: true,
            initial: 1,
            largest: self.largest_window,
            timeout: self.timeout_ps,
            avoids: false,
            probe_after: 0,
        })
    }
}

/// Rules of the window's growth and reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// True if data waits for the answer to a first packet.
    pub handshake: bool,
    pub initial: u32,
    pub largest: u32,
    pub timeout: Picos,
    /// True if the window grows slower from half of its size at the last timeout on.
    pub avoids: bool,
    /// After so many timeouts in a row only probes are sent, 0 for never.
    pub probe_after: u32,
}

/// All hosts.
#[derive(Debug)]
pub struct WindowHosts {
    rules: Rules,
    flows: FlowMap<State>,
}

/// State of a flow at both ends.
#[derive(Debug)]
struct State {
    packets: u32,
    // The source.
    open: bool,
    /// The packet to be sent next; all before have been sent, since the last timeout.
    next: u32,
    /// Packets that it knows to have arrived, and how many had arrived behind the first missing one as of the last
    /// news.
    known: Arrivals,
    selected: u32,
    window: u32,
    threshold: u32,
    /// Acknowledgements since the window last grew in congestion avoidance.
    grown: u32,
    /// Timeouts since something new arrived.
    timeouts: u32,
    probing: bool,
    /// When the timeout ends.
    due: Picos,
    // The destination.
    arrived: Arrivals,
}

impl WindowHosts {
    pub(super) fn new(mut rules: Rules) -> Self {
        rules.largest = rules.largest.max(1);
        rules.initial = rules.initial.clamp(1, rules.largest);
        rules.timeout = rules.timeout.max(Picos::from_nanos(1));
        Self {
            rules,
            flows: FlowMap::default(),
        }
    }
}

impl State {
    /// Sends what the window allows.
    fn send(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let end = self.known.upto() + self.window + self.selected;
        while self.next < self.packets.min(end) {
            if !self.known.contains(self.next) {
                let data =
                    Packet::new(id, flow.destination, DATA, wire_size(flow.bytes, self.next));
                net.send(
                    flow.source,
                    Packet {
                        sequence: self.next,
                        rank: self.remaining(flow.bytes),
                        ..data
                    },
                );
            }
            self.next += 1;
        }
    }

    /// Bytes that are not known to have arrived: the order of pFabric's ports.
    fn remaining(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(u64::from(self.known.upto() + self.selected) * u64::from(FULL_PAYLOAD))
    }

    /// A timer that only moves to later times needs one wake-up at a time.
    fn arm(&self, net: &mut Fabric, id: FlowId) {
        net.wake(self.due, u64::from(id.0));
    }

    fn on_acknowledgement(&mut self, net: &mut Fabric, rules: &Rules, packet: &Packet) {
        let before = self.known.upto();
        let latest = packet.value as u32;
        self.selected = (packet.value >> 32) as u32;
        self.known.insert_before(packet.sequence);
        if latest < self.packets {
            self.known.insert(latest);
        }
        self.next = self.next.max(packet.sequence);
        let advanced = packet.sequence > before;
        if advanced {
            self.timeouts = 0;
            self.grow(rules);
        } else if !std::mem::take(&mut self.probing) {
            return;
        }
        self.due = net.now() + rules.timeout;
        self.send(net, packet.flow);
    }

    fn grow(&mut self, rules: &Rules) {
        self.grown += 1;
        if self.window < self.threshold || self.grown >= self.window {
            self.grown = 0;
            self.window = (self.window + 1).min(rules.largest);
        }
    }

    fn on_timeout(&mut self, net: &mut Fabric, rules: &Rules, id: FlowId) {
        let flow = *net.flow(id);
        self.due = net.now() + rules.timeout;
        self.arm(net, id);
        if !self.open {
            return net.send(flow.source, Packet::new(id, flow.destination, OPEN, HEADER));
        }
        self.timeouts += 1;
        self.next = self.known.upto();
        if rules.avoids {
            self.threshold = (self.window / 2).max(2);
        }
        self.window = 1;
        if rules.probe_after > 0 && self.timeouts > rules.probe_after {
            self.probing = true;
            let probe = Packet::new(id, flow.destination, PROBE, HEADER);
            net.send(
                flow.source,
                Packet {
                    rank: self.remaining(flow.bytes),
                    ..probe
                },
            );
        } else {
            self.send(net, id);
        }
    }
}

impl Transport for WindowHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let mut state = State {
            packets: packets(flow.bytes),
            open: !self.rules.handshake,
            next: 0,
            known: Arrivals::default(),
            selected: 0,
            window: self.rules.initial,
            threshold: u32::MAX,
            grown: 0,
            timeouts: 0,
            probing: false,
            due: net.now() + self.rules.timeout,
            arrived: Arrivals::default(),
        };
        state.arm(net, id);
        if state.open {
            state.send(net, id);
        } else {
            net.send(flow.source, Packet::new(id, flow.destination, OPEN, HEADER));
        }
        self.flows.insert(id, state);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let id = packet.flow;
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        match packet.kind {
            OPEN => net.send(at, Packet::new(id, net.flow(id).source, OPENED, HEADER)),
            OPENED if state.open => {}
            OPENED => {
                state.open = true;
                state.due = net.now() + self.rules.timeout;
                state.send(net, id);
            }
            DATA | PROBE => {
                let mut latest = u32::MAX;
                if packet.kind == DATA {
                    latest = packet.sequence;
                    state.arrived.insert(latest);
                    if state.arrived.upto() == state.packets {
                        net.finish(id);
                    }
                }
                let upto = state.arrived.upto();
                let selected = state.arrived.count() - upto;
                let answer = Packet::new(id, net.flow(id).source, ACKNOWLEDGEMENT, HEADER);
                net.send(
                    at,
                    Packet {
                        sequence: upto,
                        value: u64::from(selected) << 32 | u64::from(latest),
                        ..answer
                    },
                );
            }
            _ if packet.sequence == state.packets => {
                self.flows.remove(&id);
                net.acknowledged(id);
            }
            _ => state.on_acknowledgement(net, &self.rules, &packet),
        }
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        let id = FlowId(token as u32);
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        if state.due > net.now() {
            state.arm(net, id);
        } else {
            state.on_timeout(net, &self.rules, id);
        }
    }
}
