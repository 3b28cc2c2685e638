//! Transports, by which hosts deliver the bytes of flows to their destinations. A transport is a file here, and a line
//! in the list `transports!`.
//!
//! A [`TransportConfig`] makes an [`AnyTransport`], which [`Mobile`] may combine with a [radio access
//! network](crate::ran).

/// Constants of a transport in a table: key, documentation and minimum, 0 if unknown.
pub type Keys = &'static [(&'static str, &'static str, u64)];

/// Defines the constants of a transport: documentation, `KEY: TYPE = DEFAULT`, and `; MINIMUM` if it is above 0. The
/// documentation describes the keys of simulation files.
macro_rules! constants {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[doc = $text:literal])+ $key:ident: $type:ty = $default:expr $(; $least:literal)?,)*
        }
    ) => {
        settings! {
            $(#[$doc])*
            #[derive(Copy, serde::Serialize)]
            $name { $($(#[doc = $text])+ $key: $type = $default,)* }
        }

        impl $name {
            const KEYS: Keys = &[$((stringify!($key), concat!($($text),+), 0 $(+ $least)?),)*];
        }
    };
}

mod arrivals;
mod foreign;
mod mobile;
mod pdcell;
mod pfabric;
mod phost;
mod receiver_driven;
mod tcp;

pub use foreign::ForeignHosts;
pub use mobile::Mobile;
pub use pdcell::{PdcellConfig, PdcellHosts};
pub use pfabric::{PfabricConfig, PfabricHosts};
pub use phost::{PhostConfig, PhostHosts};
pub use tcp::{DctcpConfig, TcpConfig, TcpHosts};

use crate::error::{DescriptionError, refuse};
use crate::ran::{Ran, RanConfig, Table};
use crate::units::{FlowId, HostId};
use crate::{Discipline, FULL_PAYLOAD, Fabric, HEADER, Packet, Transport};

/// The constants that configure a transport's hosts.
pub trait Constants: Copy {
    /// The type of all hosts.
    type Hosts: Transport;

    /// The constants in a description of the transport.
    const KEYS: Keys;

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
    /// No support: the transport retransmits packets long before a device can answer.
    None,
}

/// Defines [`TransportConfig`] and [`AnyTransport`] from a list of transports: documentation in a line,
/// `NAME(CONSTANTS)`. The kind of a transport in descriptions is `NAME` in kebab case.
macro_rules! transports {
    ($(#[doc = $text:literal] $name:ident($constants:ty),)*) => {
        /// The transport of a description, with its constants.
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
        pub enum TransportConfig {
            $(#[doc = $text] $name($constants),)*
            /// The transport of a C header.
            #[serde(skip_serializing)]
            Foreign(cellbed_foreign::TransportHeader),
        }

        impl TransportConfig {
            /// Return each transport with its default constants.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$name(<$constants>::default()),)*]
            }

            /// Return one sentence of documentation, and the constants.
            pub fn documentation(&self) -> (&'static str, Keys) {
                match self {
                    $(Self::$name(_) => ($text, <$constants as Constants>::KEYS),)*
                    Self::Foreign(_) => ("", &[]),
                }
            }

            /// Return the transport on a network. seed: of its random numbers.
            pub fn transport(&self, net: &Fabric, seed: u64) -> AnyTransport {
                match self {
                    $(Self::$name(constants) => AnyTransport::$name(constants.hosts(net)),)*
                    Self::Foreign(header) => AnyTransport::Foreign(ForeignHosts::new(header, net, seed)),
                }
            }

            /// Return the discipline of the ports for which it was made.
            pub fn discipline(&self) -> Discipline {
                match self {
                    $(Self::$name(_) => <$constants>::PORTS,)*
                    Self::Foreign(header) => match header.facts().ports {
                        1 => Discipline::Priority,
                        2 => Discipline::Smallest,
                        _ => Discipline::DropTail,
                    },
                }
            }

            /// Return the bytes above which ports mark packets, for which it was made.
            pub fn mark_above(&self) -> Option<u64> {
                match self {
                    $(Self::$name(_) => <$constants>::MARK_ABOVE,)*
                    Self::Foreign(header) => Some(header.facts().mark_above).filter(|&bytes| bytes > 0),
                }
            }

            /// Return the support of mobile users behind one of the hosts.
            pub fn mobile_users(&self) -> MobileUsers {
                match self {
                    $(Self::$name(_) => <$constants>::MOBILE,)*
                    Self::Foreign(header) => match header.facts().users {
                        1 => MobileUsers::CentralUnit,
                        2 => MobileUsers::EndToEnd,
                        _ => MobileUsers::None,
                    },
                }
            }
        }

        /// One of the transports; calls are dispatched by a match.
        #[derive(Debug)]
        pub enum AnyTransport {
            $(#[doc = $text] $name(<$constants as Constants>::Hosts),)*
            /// The transport of a C header.
            Foreign(ForeignHosts),
            /// Another transport, with mobile users.
            Mobile(Box<Mobile>),
        }

        /// Calls a method of the variant's transport.
        macro_rules! dispatch {
            ($on:expr, $it:ident => $call:expr) => {
                match $on {
                    $(AnyTransport::$name($it) => $call,)*
                    AnyTransport::Foreign($it) => $call,
                    AnyTransport::Mobile($it) => $call,
                }
            };
        }
    };
}

transports! {
    /// TCP, a connection for each flow.
    Tcp(TcpConfig),
    /// DCTCP: TCP that reacts to the share of marked packets (RFC 8257).
    Dctcp(DctcpConfig),
    /// pDCell: a transport that follows the radio channels of mobile users (Fiandrino et al., ICDCN 2019).
    Pdcell(PdcellConfig),
    /// pHost: destinations grant a token for each packet (Gao et al., CoNEXT 2015).
    Phost(PhostConfig),
    /// pFabric: ports send the flow with the fewest remaining bytes first (Alizadeh et al., SIGCOMM 2013).
    Pfabric(PfabricConfig),
}

impl AnyTransport {
    /// Return the transport with mobile users behind some of the hosts. configs: [checked](RanConfig::check) ones.
    /// users: support of the transport.
    pub fn with_rans(
        self,
        users: MobileUsers,
        configs: Vec<RanConfig>,
        seed: u64,
    ) -> Result<Self, DescriptionError> {
        let drops = configs.iter().any(RanConfig::drops_admitted);
        let text = match (self, users) {
            (Self::Pdcell(hosts), _) => return Ok(Self::Pdcell(hosts.with_rans(configs, seed))),
            (_, MobileUsers::None) => {
                "the transport repeats packets after microseconds, long before a device can answer: use another"
            }
            (_, MobileUsers::CentralUnit) if drops => {
                "LQD and ADMISSION_REPLACES drop packets that a transport ending at the central unit will not send again"
            }
            (inner, _) => {
                let mobile = Mobile::new(inner, users == MobileUsers::EndToEnd, configs, seed);
                return Ok(Self::Mobile(Box::new(mobile)));
            }
        };
        refuse(text)
    }

    /// Return the measurements of each radio access network, with the host of its central unit.
    pub fn tables(&self) -> impl Iterator<Item = (u32, Vec<Table>)> {
        let rans = self.rans();
        let by_unit = rans.iter().map(Ran::unit_count).sum::<usize>() > 1;
        rans.iter()
            .map(move |ran| (ran.config().host, ran.tables(by_unit)))
    }

    /// Return the radio access networks.
    pub fn rans(&self) -> &[Ran] {
        match self {
            Self::Pdcell(hosts) => hosts.rans(),
            Self::Mobile(mobile) => mobile.rans(),
            _ => &[],
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
