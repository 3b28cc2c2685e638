//! Common parts of transports whose destinations grant packets (pHost, pDCell): kinds of packets, and the request with
//! which a source announces a flow.

use super::Packet;
use crate::units::{FlowId, Picos};
use crate::{Fabric, HEADER, Kind};

pub(super) const REQUEST: Kind = Kind(0);
/// Permits the source to send a packet: a token of pHost, a credit of pDCell.
pub(super) const GRANT: Kind = Kind(1);
pub(super) const DATA: Kind = Kind(2);
pub(super) const ACKNOWLEDGEMENT: Kind = Kind(3);

/// Bits of a wake-up token for requests, above the number of the flow.
pub(super) const REPEAT: u64 = 3 << 32;

/// The request of a flow. Its source repeats the request while the destination is silent.
#[derive(Debug)]
pub(super) struct Request {
    /// Last time when the destination answered the source.
    pub heard: Picos,
    /// Time without an answer until the next repeat, doubled each time, and its maximum.
    patience: Picos,
    longest: Picos,
}

impl Request {
    /// Send the first request.
    pub fn new(net: &mut Fabric, id: FlowId, patience: Picos, longest: Picos) -> Self {
        let request = Self {
            heard: net.now(),
            patience,
            longest,
        };
        request.send(net, id, false);
        request
    }

    fn send(&self, net: &mut Fabric, id: FlowId, repeated: bool) {
        let flow = *net.flow(id);
        let packet = Packet {
            sequence: repeated.into(),
            ..Packet::new(id, flow.destination, REQUEST, HEADER)
        };
        net.send(flow.source, packet);
        net.wake(net.now() + self.patience, REPEAT | u64::from(id.0));
    }

    /// Process a wake-up: repeats the request if no answer came within `patience`.
    pub fn wake(&mut self, net: &mut Fabric, id: FlowId) {
        let due = self.heard + self.patience;
        if due > net.now() {
            return net.wake(due, REPEAT | u64::from(id.0));
        }
        self.heard = net.now();
        self.patience = Picos(self.patience.0 * 2).min(self.longest);
        self.send(net, id, true);
    }
}

/// Send the acknowledgement of a complete flow.
pub(super) fn acknowledge(net: &mut Fabric, id: FlowId) {
    let flow = *net.flow(id);
    let packet = Packet::new(id, flow.source, ACKNOWLEDGEMENT, HEADER);
    net.send(flow.destination, packet);
}

/// Return the rank of data by its flow's packets: flows of at most `short_flow` are first; 0 for one rank.
pub(super) fn rank(packets: u32, short_flow: u32) -> u8 {
    1 + u8::from(short_flow > 0 && packets > short_flow)
}
