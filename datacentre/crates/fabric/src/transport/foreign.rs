//! A transport of a C header: translates between the fabric and [`cellbed_foreign::Transport`], and checks packets.

use std::hash::BuildHasherDefault;

use cellbed_foreign::{self as foreign, Ask};

use super::{Transport, packets, wire_size};
use crate::units::{FlowId, HostId, Picos};
use crate::{FULL_PACKET, Fabric, HEADER, Kind, Multiply, PRIORITIES, Packet};

/// All hosts.
#[derive(Debug)]
pub struct ForeignHosts(foreign::Transport<BuildHasherDefault<Multiply>>);

impl ForeignHosts {
    pub(super) fn new(header: &foreign::TransportHeader, net: &Fabric, seed: u64) -> Self {
        let hosts = net.topology().hosts();
        Self(foreign::Transport::new(header, hosts, seed))
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
    let (id, packets) = (flow.id, flow.packets);
    let ends = (flow.source, flow.destination);
    let data = size > HEADER;
    Err(if (from, to) != ends && (to, from) != ends {
        let (source, destination) = ends;
        format!(
            "sends a packet of flow {id} from host {from} to host {to}: its hosts are {source} and {destination}"
        )
    } else if !(HEADER..=FULL_PACKET).contains(&size) {
        format!("sends a packet of {size} bytes: write {HEADER} to {FULL_PACKET}")
    } else if data && sequence >= packets {
        format!("sends data packet {sequence} of flow {id}, which has {packets} packets")
    } else if data && size != wire_size(flow.bytes, sequence) {
        let right = wire_size(flow.bytes, sequence);
        format!("sends data packet {sequence} of flow {id} with {size} bytes: it has {right}")
    } else if usize::from(priority) >= PRIORITIES {
        let most = PRIORITIES - 1;
        format!("sends a packet of priority {priority}: write 0 to {most}")
    } else {
        return Ok(Packet {
            priority,
            sequence,
            rank: sent.rank,
            value: sent.value,
            ecn_capable: sent.ecn_capable != 0,
            ..Packet::new(FlowId(id), HostId(to), Kind(sent.kind), size)
        });
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
        self.0.start(&mut network(net), described, now);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let (id, now) = (packet.flow, net.now().0);
        if !net.is_live(id) {
            return;
        }
        let arrives = packet.size > HEADER && packet.to == net.flow(id).destination;
        if arrives && self.0.note(&mut network(net), id.0, packet.sequence, now) {
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
        self.0.receive(&mut network(net), id.0, &received, now);
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        let now = net.now().0;
        self.0.wake(&mut network(net), token, now);
    }

    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        let now = net.now().0;
        let (flow, packet) = self.0.pull(&mut network(net), host.0, now)?;
        let checked = check(&flow, host.0, &packet);
        checked.map_err(|text| self.0.refuse(&text)).ok()
    }
}
