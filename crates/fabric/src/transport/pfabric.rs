//! pFabric: ports send the packet of the flow with the fewest remaining bytes first (Alizadeh et al., "pFabric: Minimal
//! near-optimal datacenter transport", SIGCOMM 2013).
//!
//! The ports do the work: [`Discipline::Smallest`](crate::Discipline::Smallest) is §4.2, with its rule against
//! starvation: of the flow of the best packet the oldest one is sent. Sources only keep a flow from flooding the ports
//! (§4.3): a window that begins at line rate, a fixed short timeout, slow start after it, and probes after many of
//! them.

use super::window::{Rules, WindowHosts};
use super::{Constants, MobileUsers};
use crate::units::Picos;
use crate::{Discipline, Fabric};

/// Constants, with the paper's for links of 10 Gbit/s.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PfabricConfig {
    /// The first window, packets: what the path holds.
    pub initial_window: u32,
    /// The largest window, packets.
    pub largest_window: u32,
    /// The retransmission timeout: three round trips.
    pub timeout_ps: Picos,
    /// After so many timeouts in a row a source sends packets without data until one is answered; 0 for never.
    pub probe_after: u32,
}

impl Default for PfabricConfig {
    fn default() -> Self {
        Self {
            initial_window: 12,
            largest_window: 15,
            timeout_ps: Picos::from_micros(45),
            probe_after: 5,
        }
    }
}

impl Constants for PfabricConfig {
    type Hosts = WindowHosts;
    const MOBILE: MobileUsers = MobileUsers::None;
    const PORTS: Discipline = Discipline::Smallest;

    fn hosts(self, _net: &Fabric) -> WindowHosts {
        WindowHosts::new(Rules {
            handshake: false,
            initial: self.initial_window,
            largest: self.largest_window,
            timeout: self.timeout_ps,
            avoids: true,
            probe_after: self.probe_after,
        })
    }
}
