//! Transports: what hosts do to bring the bytes of flows to their destinations. One file each; the shortest is `blind.rs`.
//!
//! A [`TransportConfig`] makes an [`AnyTransport`], which [`Mobile`] may put in front of a [radio access network](crate::ran).

mod arrivals;
mod blind;
mod fastpass;
mod mobile;
mod pdcell;
mod pfabric;
mod phost;
mod receiver_driven;
mod tcp;
#[cfg(test)]
mod testing;
mod window;

pub use blind::Blind;
pub use fastpass::{FastpassConfig, FastpassHosts, Objective};
pub use mobile::Mobile;
pub use pdcell::{PdcellConfig, PdcellHosts};
pub use pfabric::PfabricConfig;
pub use phost::{PhostConfig, PhostHosts};
pub use tcp::{TcpConfig, TcpHosts};
pub use window::{SlowStartConfig, WindowHosts};

use crate::fabric::{Discipline, FULL_PAYLOAD, Fabric, HEADER, Packet, Transport};
use crate::ran::{Admission, Ran, RanConfig, RanError, Table};
use crate::tcp::Control;
use crate::units::{FlowId, HostId};

/// The transport of a description, with its constants.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TransportConfig {
    /// All packets at once, none of them twice: to test the network.
    Blind {},
    /// TCP, a connection for each flow.
    Tcp(TcpConfig),
    /// DCTCP (RFC 8257) likewise.
    Dctcp(TcpConfig),
    /// An ideal Fastpass.
    Fastpass(FastpassConfig),
    /// pDCell.
    Pdcell(PdcellConfig),
    /// pHost.
    Phost(PhostConfig),
    /// pFabric.
    Pfabric(PfabricConfig),
    /// A TCP reduced to slow start.
    SlowStart(SlowStartConfig),
}

/// Alizadeh et al. ("pFabric", SIGCOMM 2013, table 1) mark above this at 10 Gbit/s.
const MARK_ABOVE: u64 = 22_500;

impl TransportConfig {
    /// The transport.
    pub fn transport(&self, net: &Fabric) -> AnyTransport {
        match *self {
            Self::Blind {} => AnyTransport::Blind(Blind::default()),
            Self::Tcp(constants) => AnyTransport::Tcp(TcpHosts::new(
                constants.control,
                constants,
                net.topology().hosts(),
            )),
            Self::Dctcp(constants) => AnyTransport::Tcp(TcpHosts::new(
                Control::Dctcp,
                constants,
                net.topology().hosts(),
            )),
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
    /// See [`TransportConfig::Blind`].
    Blind(Blind),
    /// See [`TransportConfig::Tcp`] and [`TransportConfig::Dctcp`].
    Tcp(TcpHosts),
    /// See [`TransportConfig::Fastpass`].
    Fastpass(FastpassHosts),
    /// See [`TransportConfig::Pdcell`].
    Pdcell(PdcellHosts),
    /// See [`TransportConfig::Phost`].
    Phost(PhostHosts),
    /// See [`TransportConfig::Pfabric`] and [`TransportConfig::SlowStart`].
    Window(WindowHosts),
    /// One of the others, with mobile users.
    Mobile(Box<Mobile>),
}

impl AnyTransport {
    /// With mobile users behind one of the hosts. config: has been [checked](RanConfig::check).
    pub fn with_ran(self, config: RanConfig, seed: u64) -> Result<Self, RanError> {
        let lqd = config.admission == Some(Admission::Lqd);
        let end_to_end = match self {
            Self::Pdcell(hosts) => return Ok(Self::Pdcell(hosts.with_ran(config, seed))),
            Self::Blind(_) | Self::Tcp(_) => true,
            Self::Window(_) => {
                let text = "pfabric and slow-start repeat packets after microseconds, long before a device can answer: \
                    use pdcell, phost, fastpass, tcp or dctcp";
                return Err(RanError::new(text));
            }
            Self::Fastpass(_) | Self::Phost(_) => false,
            Self::Mobile(_) => return Err(RanError::new("there is one already")),
        };
        if lqd && !end_to_end {
            let text =
                "LQD drops packets that a transport ending at the central unit will not send again";
            return Err(RanError::new(text));
        }
        let mobile = Mobile::new(self, end_to_end, config, seed);
        Ok(Self::Mobile(Box::new(mobile)))
    }

    /// What it has measured beside flows and ports.
    pub fn tables(&self) -> Vec<Table> {
        self.ran().map_or_else(Vec::new, Ran::tables)
    }

    /// The radio access network, if there is one.
    pub fn ran(&self) -> Option<&Ran> {
        match self {
            Self::Pdcell(hosts) => hosts.ran(),
            Self::Mobile(mobile) => Some(mobile.ran()),
            _ => None,
        }
    }
}

/// Packets of a flow.
fn packets(bytes: u64) -> u32 {
    bytes.div_ceil(u64::from(FULL_PAYLOAD)) as u32
}

/// Bytes on the wire of a packet of a flow: all are full but the last.
fn wire_size(bytes: u64, packet: u32) -> u16 {
    let rest = bytes - u64::from(packet) * u64::from(FULL_PAYLOAD);
    rest.min(u64::from(FULL_PAYLOAD)) as u16 + HEADER
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
