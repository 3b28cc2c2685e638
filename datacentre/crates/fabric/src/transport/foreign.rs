//! A transport of a C header: translates between the fabric and [`cellbed_foreign::Transport`], and checks packets.

use std::hash::BuildHasherDefault;

use cellbed_foreign as foreign;

use super::{MobileUsers, Transport, packets, wire_size};
use crate::units::{FlowId, HostId, Picos};
use crate::{Discipline, FULL_PACKET, Fabric, HEADER, Kind, Multiply, PRIORITIES, Packet};

/// Return the support of mobile users of a header.
pub(super) fn mobile_users(header: &foreign::TransportHeader) -> MobileUsers {
    match header.options().2 {
        1 => MobileUsers::CentralUnit,
        2 => MobileUsers::EndToEnd,
        _ => MobileUsers::None,
    }
}

/// Return the discipline of ports of a header.
pub(super) fn discipline(header: &foreign::TransportHeader) -> Discipline {
    match header.options().0 {
        1 => Discipline::Priority,
        2 => Discipline::Smallest,
        _ => Discipline::DropTail,
    }
}

/// All hosts.
#[derive(Debug)]
pub struct ForeignHosts {
    inner: foreign::Transport<BuildHasherDefault<Multiply>>,
    users: MobileUsers,
}

impl ForeignHosts {
    pub(super) fn new(header: &foreign::TransportHeader, net: &Fabric, seed: u64) -> Self {
        Self {
            inner: foreign::Transport::new(header.clone(), net.topology().hosts(), seed),
            users: mobile_users(header),
        }
    }

    pub(super) fn mobile_users(&self) -> MobileUsers {
        self.users
    }

    /// Return the error of the header that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.inner.failure()
    }
}

/// Reject a packet that no host could send.
fn check(
    net: &Fabric,
    flow: &foreign::Flow,
    from: u32,
    packet: &foreign::Packet,
) -> Result<(), String> {
    let (to, size, id) = (packet.to, packet.size, flow.id);
    let hosts = net.topology().hosts();
    if from.max(to) >= hosts || from == to {
        return Err(format!(
            "sends from host {from} to host {to}: hosts are 0 to {}",
            hosts - 1
        ));
    }
    if !(HEADER..=FULL_PACKET).contains(&size) {
        return Err(format!(
            "sends a packet of {size} bytes: write {HEADER} to {FULL_PACKET}"
        ));
    }
    if size > HEADER && packet.sequence >= flow.packets {
        let (sequence, packets) = (packet.sequence, flow.packets);
        return Err(format!(
            "sends data packet {sequence} of flow {id}, which has {packets} packets"
        ));
    }
    let most = if size > HEADER {
        wire_size(flow.bytes, packet.sequence)
    } else {
        HEADER
    };
    if size != most {
        let sequence = packet.sequence;
        return Err(format!(
            "sends data packet {sequence} of flow {id} with {size} bytes: it has {most}"
        ));
    }
    if usize::from(packet.priority) >= PRIORITIES {
        return Err(format!(
            "sends a packet of priority {}: write 0 to {}",
            packet.priority,
            PRIORITIES - 1
        ));
    }
    Ok(())
}

fn packet(flow: u32, packet: &foreign::Packet) -> Packet {
    Packet {
        flow: FlowId(flow),
        to: HostId(packet.to),
        kind: Kind(packet.kind),
        priority: packet.priority,
        size: packet.size,
        sequence: packet.sequence,
        rank: packet.rank,
        value: packet.value,
        ecn_capable: packet.ecn_capable != 0,
        ecn: false,
    }
}

impl foreign::Network for Fabric {
    fn send(
        &mut self,
        flow: &foreign::Flow,
        from: u32,
        sent: &foreign::Packet,
    ) -> Result<(), String> {
        check(self, flow, from, sent)?;
        Fabric::send(self, HostId(from), packet(flow.id, sent));
        Ok(())
    }

    fn wake(&mut self, at: u64, token: u64) {
        Fabric::wake(self, Picos(at), token);
    }

    fn kick(&mut self, host: u32) {
        Fabric::kick(self, HostId(host));
    }

    fn backlog(&mut self, host: u32) -> u64 {
        self.card_backlog(HostId(host))
    }

    fn packet_time(&self, host: u32, bytes: u16) -> u64 {
        self.card_rate(HostId(host)).time(bytes).0
    }

    fn close(&mut self, flow: u32) {
        Fabric::close(self, FlowId(flow));
    }
}

impl Transport for ForeignHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let described = foreign::Flow {
            id: id.0,
            source: flow.source.0,
            destination: flow.destination.0,
            packets: packets(flow.bytes),
            bytes: flow.bytes,
            start: flow.start.0,
            user: flow.user.unwrap_or(foreign::NO_USER),
        };
        let now = net.now().0;
        self.inner.start(net, now, &described);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let id = packet.flow;
        if !net.is_live(id) {
            return;
        }
        let to_destination = packet.size > HEADER && packet.to == net.flow(id).destination;
        if to_destination && self.inner.note(id.0, packet.sequence) {
            net.finish(id);
        }
        let received = foreign::Packet {
            rank: packet.rank,
            value: packet.value,
            to: at.0,
            sequence: packet.sequence,
            size: packet.size,
            kind: packet.kind.0,
            priority: packet.priority,
            ecn_capable: packet.ecn_capable.into(),
            ecn: packet.ecn.into(),
        };
        let now = net.now().0;
        self.inner.receive(net, now, id.0, &received);
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        let now = net.now().0;
        self.inner.wake(net, now, token);
    }

    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        let now = net.now().0;
        let checked = |net: &Fabric, flow: &foreign::Flow, sent: &foreign::Packet| {
            check(net, flow, host.0, sent)
        };
        let (id, pulled) = self.inner.pull(net, now, host.0, checked)?;
        Some(packet(id, &pulled))
    }
}
