//! pFabric: ports first send the packet of the flow with the fewest remaining bytes (Alizadeh et al., "pFabric: Minimal
//! near-optimal datacenter transport", SIGCOMM 2013).
//!
//! The ports do most of the work: [`Discipline::Smallest`](crate::Discipline::Smallest) implements §4.2, with its rule
//! against starvation: the oldest packet of the best packet's flow is sent. Sources only prevent a flow from flooding
//! the ports (§4.3): by a window that begins at line rate, a fixed short timeout, slow start after a timeout, and
//! probes after many timeouts.

use super::arrivals::Arrivals;
use super::{Constants, Keys, MobileUsers, Transport, packets, wire_size};
use crate::units::{FlowId, HostId, Picos};
use crate::{Discipline, FULL_PAYLOAD, Fabric, FlowMap, HEADER, Kind, Packet};

const DATA: Kind = Kind(0);
const PROBE: Kind = Kind(1);
const ACKNOWLEDGEMENT: Kind = Kind(2);

constants! {
    /// Constants, by default the paper's for links of 10 Gbit/s.
    PfabricConfig {
        /// First window, packets: the capacity of the path.
        initial_window: u32 = 12; 1,
        /// Largest window, packets.
        largest_window: u32 = 15; 1,
        /// Retransmission timeout: three round trips.
        timeout_ps: Picos = Picos::from_micros(45),
        /// Timeouts in a row until only probes are sent; 0 for never.
        probe_after: u32 = 5,
    }
}

impl Constants for PfabricConfig {
    type Hosts = PfabricHosts;
    const KEYS: Keys = Self::KEYS;
    const MOBILE: MobileUsers = MobileUsers::None;
    const PORTS: Discipline = Discipline::Smallest;

    fn hosts(mut self, _net: &Fabric) -> PfabricHosts {
        self.largest_window = self.largest_window.max(1);
        self.initial_window = self.initial_window.clamp(1, self.largest_window);
        self.timeout_ps = self.timeout_ps.max(Picos::from_nanos(1));
        PfabricHosts {
            config: self,
            flows: FlowMap::default(),
        }
    }
}

/// All hosts.
#[derive(Debug)]
pub struct PfabricHosts {
    config: PfabricConfig,
    flows: FlowMap<State>,
}

/// State of a flow at both ends.
#[derive(Debug)]
struct State {
    packets: u32,
    // The source.
    /// Next packet to send; all earlier packets have been sent since the last timeout.
    next: u32,
    /// Packets known to have arrived, and how many of these followed the first missing one at the last acknowledgement.
    known: Arrivals,
    selected: u32,
    window: u32,
    threshold: u32,
    /// Acknowledgements since the last growth of the window in congestion avoidance.
    grown: u32,
    /// Timeouts since a new packet was acknowledged.
    timeouts: u32,
    probing: bool,
    /// End of the timeout.
    due: Picos,
    // The destination.
    arrived: Arrivals,
}

impl State {
    /// Send packets within the window.
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

    /// Return the bytes not known to have arrived, by which pFabric's ports order flows.
    fn remaining(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(u64::from(self.known.upto() + self.selected) * u64::from(FULL_PAYLOAD))
    }

    /// Request a wake-up. The timer only moves to later times: one wake-up at a time suffices.
    fn arm(&self, net: &mut Fabric, id: FlowId) {
        net.wake(self.due, u64::from(id.0));
    }

    fn on_acknowledgement(&mut self, net: &mut Fabric, config: &PfabricConfig, packet: &Packet) {
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
            self.grow(config);
        } else if !std::mem::take(&mut self.probing) {
            return;
        }
        self.due = net.now() + config.timeout_ps;
        self.send(net, packet.flow);
    }

    fn grow(&mut self, config: &PfabricConfig) {
        self.grown += 1;
        if self.window < self.threshold || self.grown >= self.window {
            self.grown = 0;
            self.window = (self.window + 1).min(config.largest_window);
        }
    }

    fn on_timeout(&mut self, net: &mut Fabric, config: &PfabricConfig, id: FlowId) {
        let flow = *net.flow(id);
        self.due = net.now() + config.timeout_ps;
        self.arm(net, id);
        self.timeouts += 1;
        self.next = self.known.upto();
        self.threshold = (self.window / 2).max(2);
        self.window = 1;
        if config.probe_after > 0 && self.timeouts > config.probe_after {
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

impl Transport for PfabricHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let mut state = State {
            packets: packets(net.flow(id).bytes),
            next: 0,
            known: Arrivals::default(),
            selected: 0,
            window: self.config.initial_window,
            threshold: u32::MAX,
            grown: 0,
            timeouts: 0,
            probing: false,
            due: net.now() + self.config.timeout_ps,
            arrived: Arrivals::default(),
        };
        state.arm(net, id);
        state.send(net, id);
        self.flows.insert(id, state);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let id = packet.flow;
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        match packet.kind {
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
                net.close(id);
            }
            _ => state.on_acknowledgement(net, &self.config, &packet),
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
            state.on_timeout(net, &self.config, id);
        }
    }
}
