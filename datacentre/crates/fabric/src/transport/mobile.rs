//! Mobile users behind hosts that are the central units of their radio access networks.
//!
//! [`Mobile`] combines the networks with wired transports, as the paper on pDCell does with pHost and TCP (§2.2):
//!
//! * A transport of the data centre ends at the central unit. Packets for its receiver wait in the user's queue;
//!   refused packets are lost for the receiver.
//! * TCP runs end to end: its receiver is the user's device, and its acknowledgements use the radio uplink.

use std::collections::VecDeque;

use super::arrivals::Arrivals;
use super::{AnyTransport, Transport, packets};
use crate::ran::{Admission, Delivery, Ran, RanConfig, Sdu, Verdict};
use crate::random::nth_seed;
use crate::units::{FlowId, HostId};
use crate::{Fabric, FlowMap, HEADER, Packet};
use cellbed_tcp::slab::Slab;

/// Wake-ups of radio access networks, and of acknowledgements on their uplinks, by the number of the network.
/// Transports use the lower bits.
const RADIO: u64 = 1 << 61;
const UPLINK: u64 = 1 << 60;

/// Radio access networks driven by the events of the fabric.
#[derive(Debug)]
pub(super) struct Access {
    rans: Vec<Ran>,
    /// Networks with a requested wake-up.
    armed: Vec<bool>,
}

impl Access {
    pub(super) fn new(configs: Vec<RanConfig>, otherwise: Admission, seed: u64) -> Self {
        let numbered = (0..).zip(configs);
        let rans = numbered.map(|(it, config)| Ran::new(config, otherwise, nth_seed(seed, it)));
        let rans: Vec<Ran> = rans.collect();
        Self {
            armed: vec![false; rans.len()],
            rans,
        }
    }

    /// Return the networks.
    pub(super) fn rans(&self) -> &[Ran] {
        &self.rans
    }

    /// Return the number of the network whose central unit is this host; the first if none.
    fn number(&self, at: HostId) -> usize {
        let mut hosts = self.rans.iter().map(|it| it.config().host);
        hosts.position(|it| it == at.0).unwrap_or_default()
    }

    /// Return the network behind a central unit.
    pub(super) fn at(&self, unit: HostId) -> &Ran {
        &self.rans[self.number(unit)]
    }

    /// Open a flow to a user.
    pub(super) fn open(&mut self, net: &Fabric, id: FlowId, user: u32) {
        let flow = net.flow(id);
        let headers = u64::from(packets(flow.bytes)) * u64::from(HEADER);
        let number = self.number(flow.destination);
        self.rans[number].set_time(net.now());
        self.rans[number].open(user, id, flow.bytes + headers);
    }

    /// Close a flow to a user behind a central unit.
    pub(super) fn close(&mut self, unit: HostId, user: u32, id: FlowId) {
        let number = self.number(unit);
        self.rans[number].close(user, id);
    }

    /// Offer a packet for a user to its central unit. sequence: its number in the network.
    pub(super) fn offer(
        &mut self,
        net: &mut Fabric,
        unit: HostId,
        user: u32,
        packet: &Packet,
        sequence: u32,
    ) -> Verdict {
        let sdu = Sdu {
            flow: packet.flow,
            sequence,
            bytes: packet.size,
        };
        let number = self.number(unit);
        let verdict = self.rans[number].offer(net.now(), user, sdu);
        self.arm(net, number);
        verdict
    }

    fn arm(&mut self, net: &mut Fabric, number: usize) {
        let next = self.rans[number].next_event();
        if let Some(at) = next.filter(|_| !self.armed[number]) {
            self.armed[number] = true;
            net.wake(at, RADIO | number as u64);
        }
    }

    /// Process a wake-up; return the central unit if the wake-up belongs to one.
    pub(super) fn wake(
        &mut self,
        net: &mut Fabric,
        token: u64,
        delivered: &mut Vec<Delivery>,
    ) -> Option<HostId> {
        if token & RADIO == 0 {
            return None;
        }
        let number = (token & !RADIO) as usize;
        self.armed[number] = false;
        self.rans[number].step(net.now(), delivered);
        self.arm(net, number);
        Some(HostId(self.rans[number].config().host))
    }
}

/// A transport and the radio access networks behind some of its hosts.
#[derive(Debug)]
pub struct Mobile {
    inner: AnyTransport,
    access: Access,
    /// True if the receivers are the devices.
    end_to_end: bool,
    flows: FlowMap<State>,
    /// Packets in the radio access networks, by SDU number.
    packets: Slab<Packet>,
    /// Packets from devices on the uplink of each network.
    uplinks: Vec<VecDeque<(HostId, Packet)>>,
    delivered: Vec<Delivery>,
}

/// A flow to a user.
#[derive(Debug)]
struct State {
    unit: HostId,
    user: u32,
    /// Packets that the central unit has received.
    admitted: Arrivals,
    /// Number of packets missing at the device.
    missing: u32,
}

impl Mobile {
    pub(super) fn new(
        inner: AnyTransport,
        end_to_end: bool,
        configs: Vec<RanConfig>,
        seed: u64,
    ) -> Self {
        Self {
            inner,
            uplinks: vec![VecDeque::new(); configs.len()],
            access: Access::new(configs, Admission::Tail, seed),
            end_to_end,
            flows: FlowMap::default(),
            packets: Slab::default(),
            delivered: Vec::new(),
        }
    }

    /// Return the radio access networks.
    pub fn rans(&self) -> &[Ran] {
        self.access.rans()
    }

    /// Send any packet of an end-to-end transport to a user's device.
    fn send_to_device(&mut self, net: &mut Fabric, at: HostId, user: u32, packet: Packet) {
        let sequence = self.packets.insert(packet);
        match self.access.offer(net, at, user, &packet, sequence) {
            Verdict::Admitted => {}
            Verdict::Refused => self.drop(net, sequence),
            Verdict::InPlaceOf(_, dropped) => self.drop(net, dropped.sequence),
        }
    }

    fn drop(&mut self, net: &mut Fabric, place: u32) {
        let packet = self.packets.remove(place);
        self.inner.on_drop(net, packet);
    }

    /// Pass a data packet to a receiver in the central unit.
    fn pass_to_receiver(&mut self, net: &mut Fabric, at: HostId, user: u32, packet: Packet) {
        let Some(state) = self.flows.get_mut(&packet.flow) else {
            return self.inner.receive(net, at, packet);
        };
        if !state.admitted.contains(packet.sequence) {
            let verdict = self.access.offer(net, at, user, &packet, packet.sequence);
            if verdict != Verdict::Admitted {
                return self.inner.on_drop(net, packet);
            }
            state.admitted.insert(packet.sequence);
        }
        self.inner.receive(net, at, packet);
    }

    fn deliver(&mut self, net: &mut Fabric, at: HostId, delivery: Delivery) {
        let id = delivery.sdu.flow;
        if self.end_to_end {
            let packet = self.packets.remove(delivery.sdu.sequence);
            return self.inner.receive(net, at, packet);
        }
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        state.missing -= 1;
        if state.missing == 0 {
            self.close(net, id);
        }
    }

    /// Close a finished flow.
    fn close(&mut self, net: &mut Fabric, id: FlowId) {
        if let Some(state) = self.flows.remove(&id) {
            self.access.close(state.unit, state.user, id);
            net.release(id);
        }
    }
}

impl Transport for Mobile {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        if let Some(user) = flow.user {
            self.access.open(net, id, user);
            let state = State {
                unit: flow.destination,
                user,
                admitted: Arrivals::default(),
                missing: packets(flow.bytes),
            };
            self.flows.insert(id, state);
            if !self.end_to_end {
                net.hold(id);
            }
        }
        self.inner.start(net, id);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let Some(state) = self.flows.get(&packet.flow) else {
            return self.inner.receive(net, at, packet);
        };
        let user = state.user;
        let unit = state.unit;
        let at_unit = at == unit;
        match (at_unit, self.end_to_end) {
            (true, true) => self.send_to_device(net, at, user, packet),
            (false, true) => {
                let number = self.access.number(unit);
                let due = net.now() + self.rans()[number].config().uplink_ps;
                self.uplinks[number].push_back((at, packet));
                net.wake(due, UPLINK | number as u64);
            }
            (true, false) if packet.size > HEADER => self.pass_to_receiver(net, at, user, packet),
            _ => self.inner.receive(net, at, packet),
        }
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        if token & UPLINK != 0 {
            let number = (token & !UPLINK) as usize;
            if let Some((at, packet)) = self.uplinks[number].pop_front() {
                self.inner.receive(net, at, packet);
                if !net.is_live(packet.flow) {
                    self.close(net, packet.flow);
                }
            }
            return;
        }
        let mut delivered = std::mem::take(&mut self.delivered);
        if let Some(at) = self.access.wake(net, token, &mut delivered) {
            for delivery in delivered.drain(..) {
                self.deliver(net, at, delivery);
            }
        } else {
            self.inner.wake(net, token);
        }
        self.delivered = delivered;
    }

    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        self.inner.pull(net, host)
    }

    fn on_drop(&mut self, net: &mut Fabric, packet: Packet) {
        self.inner.on_drop(net, packet);
    }
}
