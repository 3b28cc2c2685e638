//! No transport: every packet of a flow goes to the card at once, and one that is dropped is lost.

use super::{Constants, MobileUsers, Transport, packets, wire_size};
use crate::units::{FlowId, HostId};
use crate::{Fabric, FlowMap, HEADER, Kind, Packet};

const DATA: Kind = Kind(0);
const ACKNOWLEDGEMENT: Kind = Kind(1);

/// The transport without constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct BlindConfig {}

impl Constants for BlindConfig {
    type Hosts = Blind;
    const MOBILE: MobileUsers = MobileUsers::EndToEnd;

    fn hosts(self, _net: &Fabric) -> Blind {
        Blind::default()
    }
}

/// All hosts. A flow that loses a packet never ends.
#[derive(Debug, Default)]
pub struct Blind {
    /// Packets that have not arrived.
    missing: FlowMap<u32>,
}

impl Transport for Blind {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let packets = packets(flow.bytes);
        self.missing.insert(id, packets);
        for sequence in 0..packets {
            let size = wire_size(flow.bytes, sequence);
            let packet = Packet::new(id, flow.destination, DATA, size);
            net.send(
                flow.source,
                Packet {
                    sequence,
                    priority: 1,
                    ..packet
                },
            );
        }
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let id = packet.flow;
        if packet.kind == ACKNOWLEDGEMENT {
            return net.acknowledged(id);
        }
        let Some(missing) = self.missing.get_mut(&id) else {
            return;
        };
        *missing -= 1;
        if *missing == 0 {
            self.missing.remove(&id);
            net.finish(id);
            net.send(
                at,
                Packet::new(id, net.flow(id).source, ACKNOWLEDGEMENT, HEADER),
            );
        }
    }

    fn wake(&mut self, _: &mut Fabric, _: u64) {}
}
