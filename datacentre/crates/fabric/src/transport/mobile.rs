//! Mobile users behind a host that is the central unit of their radio access network.
//!
//! [`Mobile`] combines the network with wired transports, as the paper on pDCell does with pHost and TCP (§2.2):
//!
//! * A transport of the data centre ends at the central unit. Packets for its receiver wait in the user's queue;
//!   refused packets are lost for the receiver.
//! * TCP runs end to end: its receiver is the user's device, and its acknowledgements use the radio uplink.

use std::collections::VecDeque;

use super::arrivals::Arrivals;
use super::{AnyTransport, Transport, packets};
use crate::ran::{Admission, Delivery, Ran, RanConfig, Sdu, Verdict};
use crate::units::{FlowId, HostId, Picos};
use crate::{Fabric, FlowMap, HEADER, Packet};
use cellbed_tcp::slab::Slab;

/// Wake-ups of the radio access network, and of acknowledgements on the uplink. Transports use the lower bits.
const RADIO: u64 = 1 << 61;
const UPLINK: u64 = 1 << 60;

/// A radio access network driven by the events of the fabric.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) ran: Box<Ran>,
    armed: bool,
}

impl Access {
    pub(super) fn new(config: RanConfig, otherwise: Admission, seed: u64) -> Self {
        Self {
            ran: Box::new(Ran::new(config, otherwise, seed)),
            armed: false,
        }
    }

    /// Return the central unit's host.
    pub(super) fn host(&self) -> HostId {
        HostId(self.ran.config().host)
    }

    /// Open a flow to a user.
    pub(super) fn open(&mut self, net: &Fabric, id: FlowId, user: u32) {
        let bytes = net.flow(id).bytes;
        let headers = u64::from(packets(bytes)) * u64::from(HEADER);
        self.ran.set_time(net.now());
        self.ran.open(user, id, bytes + headers);
    }

    /// Offer a packet for a user to the central unit.
    pub(super) fn offer(&mut self, net: &mut Fabric, user: u32, sdu: Sdu) -> Verdict {
        let verdict = self.ran.offer(net.now(), user, sdu);
        self.arm(net);
        verdict
    }

    fn arm(&mut self, net: &mut Fabric) {
        if let Some(at) = self.ran.next_event().filter(|_| !self.armed) {
            self.armed = true;
            net.wake(at, RADIO);
        }
    }

    /// Process a wake-up; return whether it belongs to the radio access network.
    pub(super) fn wake(
        &mut self,
        net: &mut Fabric,
        token: u64,
        delivered: &mut Vec<Delivery>,
    ) -> bool {
        if token != RADIO {
            return false;
        }
        self.armed = false;
        self.ran.step(net.now(), delivered);
        self.arm(net);
        true
    }
}

/// A transport and the radio access network behind one of its hosts.
#[derive(Debug)]
pub struct Mobile {
    inner: AnyTransport,
    access: Access,
    /// True if the receivers are the devices.
    end_to_end: bool,
    flows: FlowMap<State>,
    /// Packets in the radio access network, by SDU number.
    packets: Slab<Packet>,
    /// Packets from devices on the uplink.
    uplink: VecDeque<(Picos, HostId, Packet)>,
    delivered: Vec<Delivery>,
}

/// A flow to a user.
#[derive(Debug)]
struct State {
    user: u32,
    /// Packets that the central unit has received.
    admitted: Arrivals,
    /// Number of packets missing at the device.
    missing: u32,
}

impl Mobile {
    pub(super) fn new(inner: AnyTransport, end_to_end: bool, config: RanConfig, seed: u64) -> Self {
        Self {
            inner,
            access: Access::new(config, Admission::Tail, seed),
            end_to_end,
            flows: FlowMap::default(),
            packets: Slab::default(),
            uplink: VecDeque::new(),
            delivered: Vec::new(),
        }
    }

    /// Return the error of the transport's header that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.inner.failure()
    }

    /// Return the radio access network.
    pub fn ran(&self) -> &Ran {
        &self.access.ran
    }

    /// Send any packet of an end-to-end transport to a user's device.
    fn send_to_device(&mut self, net: &mut Fabric, user: u32, packet: Packet) {
        let sequence = self.packets.insert(packet);
        let sdu = Sdu {
            flow: packet.flow,
            sequence,
            bytes: packet.size,
        };
        match self.access.offer(net, user, sdu) {
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
    fn pass_to_receiver(&mut self, net: &mut Fabric, user: u32, packet: Packet) {
        let at = self.access.host();
        let Some(state) = self.flows.get_mut(&packet.flow) else {
            return self.inner.receive(net, at, packet);
        };
        if !state.admitted.contains(packet.sequence) {
            let sdu = Sdu {
                flow: packet.flow,
                sequence: packet.sequence,
                bytes: packet.size,
            };
            if self.access.offer(net, user, sdu) != Verdict::Admitted {
                return self.inner.on_drop(net, packet);
            }
            state.admitted.insert(packet.sequence);
        }
        self.inner.receive(net, at, packet);
    }

    fn deliver(&mut self, net: &mut Fabric, delivery: Delivery) {
        let id = delivery.sdu.flow;
        if self.end_to_end {
            let packet = self.packets.remove(delivery.sdu.sequence);
            return self.inner.receive(net, self.access.host(), packet);
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
            self.access.ran.close(state.user, id);
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
        let at_unit = at == self.access.host();
        match (at_unit, self.end_to_end) {
            (true, true) => self.send_to_device(net, user, packet),
            (false, true) => {
                let due = net.now() + self.access.ran.config().uplink_ps;
                self.uplink.push_back((due, at, packet));
                net.wake(due, UPLINK);
            }
            (true, false) if packet.size > HEADER => self.pass_to_receiver(net, user, packet),
            _ => self.inner.receive(net, at, packet),
        }
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        if token == UPLINK {
            if let Some((_, at, packet)) = self.uplink.pop_front() {
                self.inner.receive(net, at, packet);
                if !net.is_live(packet.flow) {
                    self.close(net, packet.flow);
                }
            }
            return;
        }
        let mut delivered = std::mem::take(&mut self.delivered);
        if self.access.wake(net, token, &mut delivered) {
            for delivery in delivered.drain(..) {
                self.deliver(net, delivery);
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
