//! A transport of a C header: translates between the fabric and [`cellbed_foreign::Transport`], and checks packets.

use std::hash::BuildHasherDefault;

use cellbed_foreign::{self as foreign, Ask};

use super::{MobileUsers, Transport, packets, wire_size};
use crate::units::{FlowId, HostId, Picos};
use crate::{Discipline, FULL_PACKET, Fabric, HEADER, Kind, Multiply, PRIORITIES, Packet};

/// Return the support of mobile users of a header.
pub(super) fn mobile_users(header: &foreign::TransportHeader) -> MobileUsers {
    match header.facts().users {
        1 => MobileUsers::CentralUnit,
        2 => MobileUsers::EndToEnd,
        _ => MobileUsers::None,
    }
}

/// Return the discipline of ports of a header.
pub(super) fn discipline(header: &foreign::TransportHeader) -> Discipline {
    match header.facts().ports {
        1 => Discipline::Priority,
        2 => Discipline::Smallest,
        _ => Discipline::DropTail,
    }
}

/// All hosts.
#[derive(Debug)]
pub struct ForeignHosts {
    inner: foreign::Transport<BuildHasherDefault<Multiply>>,
    pub(super) users: MobileUsers,
}

impl ForeignHosts {
    pub(super) fn new(header: &foreign::TransportHeader, net: &Fabric, seed: u64) -> Self {
        Self {
            inner: foreign::Transport::new(header, net.topology().hosts(), seed),
            users: mobile_users(header),
        }
    }

    /// Return the error of the header that ended its use.
    pub fn failure(&self) -> Option<&str> {
        self.inner.failure()
    }
}

/// Return the packet of a header, or an error if no host could send it.
fn check(flow: &foreign::Flow, from: u32, sent: &foreign::Packet) -> Result<Packet, String> {
    let foreign::Packet {
        to,
        size,
        sequence,
        priority,
        ..
    } = *sent;
    let (id, ends) = (flow.id, (flow.source, flow.destination));
    if (from, to) != ends && (to, from) != ends {
        return Err(format!(
            "sends a packet of flow {id} from host {from} to host {to}: its hosts are {} and {}",
            ends.0, ends.1
        ));
    }
    if !(HEADER..=FULL_PACKET).contains(&size) {
        return Err(format!(
            "sends a packet of {size} bytes: write {HEADER} to {FULL_PACKET}"
        ));
    }
    if size > HEADER && sequence >= flow.packets {
        return Err(format!(
            "sends data packet {sequence} of flow {id}, which has {} packets",
            flow.packets
        ));
    }
    if size > HEADER && size != wire_size(flow.bytes, sequence) {
        let right = wire_size(flow.bytes, sequence);
        return Err(format!(
            "sends data packet {sequence} of flow {id} with {size} bytes: it has {right}"
        ));
    }
    if usize::from(priority) >= PRIORITIES {
        return Err(format!(
            "sends a packet of priority {priority}: write 0 to {}",
            PRIORITIES - 1
        ));
    }
    Ok(Packet {
        priority,
        sequence,
        rank: sent.rank,
        value: sent.value,
        ecn_capable: sent.ecn_capable != 0,
        ..Packet::new(FlowId(id), HostId(to), Kind(sent.kind), size)
    })
}

/// Return the network's side of a call.
fn network(net: &mut Fabric) -> impl FnMut(Ask<'_>) -> Result<u64, String> {
    |ask| {
        match ask {
            Ask::Send(flow, from, packet) => net.send(HostId(from), check(flow, from, packet)?),
            Ask::Wake(at, token) => net.wake(Picos(at), token),
            Ask::Kick(host) => net.kick(HostId(host)),
            Ask::Backlog(host) => return Ok(net.card_backlog(HostId(host))),
            Ask::PacketTime(host, bytes) => return Ok(net.card_rate(HostId(host)).time(bytes).0),
            Ask::Close(flow) => net.close(FlowId(flow)),
        }
        Ok(0)
    }
}

impl Transport for ForeignHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let hosts = (flow.source.0, flow.destination.0);
        let mut described = foreign::Flow::new(id.0, hosts, packets(flow.bytes), flow.bytes);
        described.user = flow.user.unwrap_or(foreign::NONE);
        let now = net.now().0;
        self.inner.start(&mut network(net), described, now);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let (id, now) = (packet.flow, net.now().0);
        if !net.is_live(id) {
            return;
        }
        let arrives = packet.size > HEADER && packet.to == net.flow(id).destination;
        if arrives && self.inner.note(id.0, packet.sequence) {
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
        self.inner.receive(&mut network(net), id.0, &received, now);
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        let now = net.now().0;
        self.inner.wake(&mut network(net), token, now);
    }

    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        let now = net.now().0;
        let (flow, packet) = self.inner.pull(&mut network(net), host.0, now)?;
        let checked = check(&flow, host.0, &packet);
        checked.map_err(|text| self.inner.refuse(&text)).ok()
    }
}
