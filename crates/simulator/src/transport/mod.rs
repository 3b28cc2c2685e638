//! Transports: what hosts do to bring the bytes of flows to their destinations. One file each.

mod arrivals;
mod blind;
mod fastpass;
mod mobile;
mod pdcell;
mod pfabric;
mod phost;
mod tcp;
#[cfg(test)]
mod testing;
mod window;

pub use blind::Blind;
pub use fastpass::{Fastpass, FastpassHosts, Objective};
pub use mobile::Mobile;
pub use pdcell::{Pdcell, PdcellHosts};
pub use pfabric::Pfabric;
pub use phost::{Phost, PhostHosts};
pub use tcp::{TcpConstants, TcpHosts};
pub use window::{SlowStart, WindowHosts};

use crate::fabric::{Discipline, Fabric, FlowId, HEADER, HostId, Packet, SEGMENT};
use crate::radio::{Admission, Radio, RadioConfig, RadioError};
use crate::tcp::Control;

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

/// A table of measurements, such as of radio cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns, of one length, by names that end in the unit.
    pub columns: Vec<(&'static str, Vec<f64>)>,
}

/// The transport of a description, with its constants.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Protocol {
    /// All packets at once, none of them twice: to test the network.
    Blind {},
    /// TCP, a connection for each flow.
    Tcp(TcpConstants),
    /// DCTCP (RFC 8257) likewise.
    Dctcp(TcpConstants),
    /// An ideal Fastpass.
    Fastpass(Fastpass),
    /// pDCell.
    Pdcell(Pdcell),
    /// pHost.
    Phost(Phost),
    /// pFabric.
    Pfabric(Pfabric),
    /// A TCP reduced to slow start.
    SlowStart(SlowStart),
}

/// Alizadeh et al. ("pFabric", SIGCOMM 2013, table 1) mark above this at 10 Gbit/s.
const MARK_ABOVE: u64 = 22_500;

impl Protocol {
    /// The transport.
    pub fn transport(&self, net: &Fabric) -> AnyTransport {
        match *self {
            Self::Blind {} => AnyTransport::Blind(Blind::default()),
            Self::Tcp(constants) => AnyTransport::Tcp(TcpHosts::new(constants.control, constants)),
            Self::Dctcp(constants) => AnyTransport::Tcp(TcpHosts::new(Control::Dctcp, constants)),
            Self::Fastpass(constants) => AnyTransport::Fastpass(FastpassHosts::new(constants, net)),
            Self::Pdcell(constants) => AnyTransport::Pdcell(PdcellHosts::new(constants, net)),
            Self::Phost(constants) => AnyTransport::Phost(PhostHosts::new(constants, net)),
            Self::Pfabric(constants) => AnyTransport::Window(WindowHosts::new(constants.rules())),
            Self::SlowStart(constants) => AnyTransport::Window(WindowHosts::new(constants.rules())),
        }
    }

    /// The discipline of the ports for which it was made.
    pub fn discipline(&self) -> Discipline {
        match self {
            Self::Blind {}
            | Self::Tcp(_)
            | Self::Dctcp(_)
            | Self::SlowStart(_)
            | Self::Fastpass(_) => Discipline::DropTail,
            Self::Pdcell(_) => Discipline::Priority,
            Self::Phost(_) | Self::Pfabric(_) => Discipline::Smallest,
        }
    }

    /// Bytes above which ports mark packets, for which it was made.
    pub fn mark_above(&self) -> Option<u64> {
        matches!(self, Self::Dctcp(_)).then_some(MARK_ABOVE)
    }
}

/// One of the transports; calls are dispatched by a match.
#[derive(Debug)]
pub enum AnyTransport {
    /// See [`Protocol::Blind`].
    Blind(Blind),
    /// See [`Protocol::Tcp`] and [`Protocol::Dctcp`].
    Tcp(TcpHosts),
    /// See [`Protocol::Fastpass`].
    Fastpass(FastpassHosts),
    /// See [`Protocol::Pdcell`].
    Pdcell(PdcellHosts),
    /// See [`Protocol::Phost`].
    Phost(PhostHosts),
    /// See [`Protocol::Pfabric`] and [`Protocol::SlowStart`].
    Window(WindowHosts),
    /// One of the others, with mobile users.
    Mobile(Box<Mobile>),
}

impl AnyTransport {
    /// With mobile users behind one of the hosts. config: has been [checked](RadioConfig::check).
    pub fn with_radio(self, config: RadioConfig, seed: u64) -> Result<Self, RadioError> {
        let lqd = config.admission == Some(Admission::Lqd);
        let end_to_end = match self {
            Self::Pdcell(hosts) => return Ok(Self::Pdcell(hosts.with_radio(config, seed))),
            Self::Blind(_) | Self::Tcp(_) => true,
            Self::Window(_) => {
                let text = "pfabric and slow-start repeat packets after microseconds, long before a device can answer: \
                    use pdcell, phost, fastpass, tcp or dctcp";
                return Err(RadioError::new(text));
            }
            Self::Fastpass(_) | Self::Phost(_) => false,
            Self::Mobile(_) => return Err(RadioError::new("there is one already")),
        };
        if lqd && !end_to_end {
            let text =
                "LQD drops packets that a transport ending at the central unit will not send again";
            return Err(RadioError::new(text));
        }
        let mobile = Mobile::new(self, end_to_end, config, seed);
        Ok(Self::Mobile(Box::new(mobile)))
    }

    /// What it has measured beside flows and ports.
    pub fn tables(&self) -> Vec<Table> {
        self.radio().map_or_else(Vec::new, Radio::tables)
    }

    /// The radio access network, if there is one.
    pub fn radio(&self) -> Option<&Radio> {
        match self {
            Self::Pdcell(hosts) => hosts.radio(),
            Self::Mobile(mobile) => Some(mobile.radio()),
            _ => None,
        }
    }
}

/// Packets of a flow.
fn packets(bytes: u64) -> u32 {
    bytes.div_ceil(u64::from(SEGMENT)) as u32
}

/// Bytes on the wire of a packet of a flow: all are full but the last.
fn wire_size(bytes: u64, packet: u32) -> u16 {
    let rest = bytes - u64::from(packet) * u64::from(SEGMENT);
    rest.min(u64::from(SEGMENT)) as u16 + HEADER
}

macro_rules! dispatch {
    ($self:expr, $transport:ident => $call:expr) => {
        match $self {
            AnyTransport::Blind($transport) => $call,
            AnyTransport::Tcp($transport) => $call,
            AnyTransport::Fastpass($transport) => $call,
            AnyTransport::Pdcell($transport) => $call,
            AnyTransport::Mobile($transport) => $call,
            AnyTransport::Phost($transport) => $call,
            AnyTransport::Window($transport) => $call,
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
