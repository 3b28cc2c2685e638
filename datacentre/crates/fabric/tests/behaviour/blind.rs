//! No transport: every packet of a flow goes to the card at once, and a dropped packet is lost.

use cellbed_fabric::units::{FlowId, HostId};
use cellbed_fabric::{FULL_PAYLOAD, Fabric, FlowMap, HEADER, Kind, Packet, Transport};

const DATA: Kind = Kind(0);
const ACKNOWLEDGEMENT: Kind = Kind(1);

/// All hosts. A flow that loses a packet never ends.
#[derive(Debug, Default)]
pub struct Blind {
    /// Number of packets that have not arrived, by flow.
    missing: FlowMap<u32>,
}

impl Transport for Blind {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let full = u64::from(FULL_PAYLOAD);
        let packets = flow.bytes.div_ceil(full) as u32;
        self.missing.insert(id, packets);
        for sequence in 0..packets {
            let rest = flow.bytes - u64::from(sequence) * full;
            let size = rest.min(full) as u16 + HEADER;
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
            return net.close(id);
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
