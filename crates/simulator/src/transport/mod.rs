//! Transports: what hosts do to bring the bytes of flows to their destinations. One file each.

mod blind;

pub use blind::Blind;

use crate::fabric::{Discipline, Fabric, FlowId, HostId, Packet};

/// The actions of all hosts. A transport keeps its states in a [`FlowMap`](crate::fabric::FlowMap) or by host, and frees those
/// of a flow when it calls [`Fabric::acknowledged`].
pub trait Transport {
    /// A flow starts: its source has the bytes, its destination knows nothing.
    fn start(&mut self, net: &mut Fabric, flow: FlowId);

    /// A packet has reached a host, whole.
    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet);

    /// A time has come that was asked for by [`Fabric::wake`]. Times cannot be taken back: a transport ignores tokens that it
    /// no longer needs.
    fn wake(&mut self, net: &mut Fabric, token: u64);

    /// The card of a host is idle, after [`Fabric::kick`]: the next packet to send, or nothing until the next kick. It may
    /// [`send`](Fabric::send) others, which go first.
    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        let _ = (net, host);
        None
    }

    /// A port has dropped a packet. For counters only: a transport must not react, as no host knows.
    fn dropped(&mut self, net: &mut Fabric, packet: Packet) {
        let _ = (net, packet);
    }
}

/// The transport of a description, with its constants.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Protocol {
    /// All packets at once, none of them twice: to test the network.
    Blind {},
}

impl Protocol {
    /// The transport.
    pub fn transport(&self, net: &Fabric) -> AnyTransport {
        let _ = net;
        match self {
            Self::Blind {} => AnyTransport::Blind(Blind::default()),
        }
    }

    /// The discipline of the ports for which it was made.
    pub fn discipline(&self) -> Discipline {
        match self {
            Self::Blind {} => Discipline::DropTail,
        }
    }
}

/// One of the transports; calls are dispatched by a match.
#[derive(Debug)]
pub enum AnyTransport {
    /// See [`Protocol::Blind`].
    Blind(Blind),
}

macro_rules! dispatch {
    ($self:expr, $transport:ident => $call:expr) => {
        match $self {
            AnyTransport::Blind($transport) => $call,
        }
    };
}

impl Transport for AnyTransport {
    fn start(&mut self, net: &mut Fabric, flow: FlowId) {
        dispatch!(self, transport => transport.start(net, flow));
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        dispatch!(self, transport => transport.receive(net, at, packet));
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        dispatch!(self, transport => transport.wake(net, token));
    }

    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        dispatch!(self, transport => transport.pull(net, host))
    }

    fn dropped(&mut self, net: &mut Fabric, packet: Packet) {
        dispatch!(self, transport => transport.dropped(net, packet));
    }
}
