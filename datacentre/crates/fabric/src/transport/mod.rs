//! Transports, by which hosts deliver the bytes of flows to their destinations. A transport is a file here, and a line
//! in the list `transports!`.
//!
//! A [`TransportConfig`] makes an [`AnyTransport`], which [`Mobile`] may combine with a [radio access
//! network](crate::ran).

mod arrivals;
mod mobile;
mod pdcell;
mod pfabric;
mod phost;
mod receiver_driven;
mod tcp;

pub use mobile::Mobile;
pub use pdcell::{PdcellConfig, PdcellHosts};
pub use pfabric::{PfabricConfig, PfabricHosts};
pub use phost::{PhostConfig, PhostHosts};
pub use tcp::{DctcpConfig, TcpConfig, TcpHosts};

use crate::error::{DescriptionError, refuse};
use crate::ran::{Admission, Ran, RanConfig, Table};
use crate::units::{FlowId, HostId};
use crate::{Discipline, FULL_PAYLOAD, Fabric, HEADER, Packet, Transport};

/// The constants that configure a transport's hosts.
pub trait Constants: Copy {
    /// The type of all hosts.
    type Hosts: Transport;

    /// Support of mobile users behind one of the hosts.
    const MOBILE: MobileUsers;

    /// Discipline of the ports for which the transport was made.
    const PORTS: Discipline = Discipline::DropTail;

    /// Bytes above which ports mark packets, for which the transport was made.
    const MARK_ABOVE: Option<u64> = None;

    /// Return the hosts of a network.
    fn hosts(self, net: &Fabric) -> Self::Hosts;
}

/// Support of a transport for [mobile users](crate::ran) behind one of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MobileUsers {
    /// The transport ends at the users' devices.
    EndToEnd,
    /// The transport ends at the central unit.
    CentralUnit,
    /// The transport already has a radio access network.
    Own,
    /// No support: the transport retransmits packets long before a device can answer.
    None,
}

/// Defines [`TransportConfig`] and [`AnyTransport`] from a list of transports: documentation, `NAME(CONSTANTS)`. The
/// kind of a transport in descriptions is `NAME` in kebab case.
macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident($constants:ty),)*) => {
        /// The transport of a description, with its constants.
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
        pub enum TransportConfig { $($(#[$doc])* $name($constants),)* }

        impl TransportConfig {
            /// Return each transport with its default constants.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$name(<$constants>::default()),)*]
            }

            /// Return the transport on a network.
            pub fn transport(&self, net: &Fabric) -> AnyTransport {
                match self { $(Self::$name(constants) => AnyTransport::$name(constants.hosts(net)),)* }
            }

            /// Return the discipline of the ports for which it was made.
            pub fn discipline(&self) -> Discipline {
                match self { $(Self::$name(_) => <$constants>::PORTS,)* }
            }

            /// Return the bytes above which ports mark packets, for which it was made.
            pub fn mark_above(&self) -> Option<u64> {
                match self { $(Self::$name(_) => <$constants>::MARK_ABOVE,)* }
            }

            /// Return the support of mobile users behind one of the hosts.
            pub fn mobile_users(&self) -> MobileUsers {
                match self { $(Self::$name(_) => <$constants>::MOBILE,)* }
            }
        }

        /// One of the transports; calls are dispatched by a match.
        #[derive(Debug)]
        pub enum AnyTransport {
            $($(#[$doc])* $name(<$constants as Constants>::Hosts),)*
            /// Another transport, with mobile users.
            Mobile(Box<Mobile>),
        }

        impl AnyTransport {
            fn mobile_users(&self) -> MobileUsers {
                match self {
                    $(Self::$name(_) => <$constants>::MOBILE,)*
                    Self::Mobile(_) => MobileUsers::Own,
                }
            }
        }

        /// Calls a method of the variant's transport.
        macro_rules! dispatch {
            ($on:expr, $it:ident => $call:expr) => {
                match $on {
                    $(AnyTransport::$name($it) => $call,)*
                    AnyTransport::Mobile($it) => $call,
                }
            };
        }
    };
}

transports! {
    /// TCP, a connection for each flow.
    Tcp(TcpConfig),
    /// DCTCP (RFC 8257) likewise.
    Dctcp(DctcpConfig),
    /// pDCell.
    Pdcell(PdcellConfig),
    /// pHost.
    Phost(PhostConfig),
    /// pFabric.
    Pfabric(PfabricConfig),
}

impl AnyTransport {
    /// Return the transport with mobile users behind one of the hosts. config: a [checked](RanConfig::check) one.
    pub fn with_ran(self, config: RanConfig, seed: u64) -> Result<Self, DescriptionError> {
        let lqd = config.admission == Some(Admission::Lqd);
        let users = self.mobile_users();
        let text = match (self, users) {
            (Self::Pdcell(hosts), _) => return Ok(Self::Pdcell(hosts.with_ran(config, seed))),
            (_, MobileUsers::Own) => "there is one already",
            (_, MobileUsers::None) => {
                "the transport repeats packets after microseconds, long before a device can answer: use another"
            }
            (_, MobileUsers::CentralUnit) if lqd => {
                "LQD drops packets that a transport ending at the central unit will not send again"
            }
            (inner, _) => {
                let mobile = Mobile::new(inner, users == MobileUsers::EndToEnd, config, seed);
                return Ok(Self::Mobile(Box::new(mobile)));
            }
        };
        refuse(text)
    }

    /// Return the measurements besides flows and ports.
    pub fn tables(&self) -> Vec<Table> {
        self.ran().map_or_else(Vec::new, Ran::tables)
    }

    /// Return the radio access network, if any.
    pub fn ran(&self) -> Option<&Ran> {
        match self {
            Self::Pdcell(hosts) => hosts.ran(),
            Self::Mobile(mobile) => Some(mobile.ran()),
            _ => None,
        }
    }
}

/// Return the number of packets of a flow.
fn packets(bytes: u64) -> u32 {
    bytes.div_ceil(u64::from(FULL_PAYLOAD)) as u32
}

/// Return the bytes on the wire of a packet of a flow: all packets except the last are full.
fn wire_size(bytes: u64, packet: u32) -> u16 {
    let rest = bytes - u64::from(packet) * u64::from(FULL_PAYLOAD);
    rest.min(u64::from(FULL_PAYLOAD)) as u16 + HEADER
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

    fn on_drop(&mut self, net: &mut Fabric, packet: Packet) {
        dispatch!(self, transport => transport.on_drop(net, packet));
    }
}
