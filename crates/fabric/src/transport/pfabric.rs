//! pFabric: ports send the packet of the flow with the fewest remaining bytes first (Alizadeh et al., "pFabric: Minimal
//! near-optimal datacenter transport", SIGCOMM 2013).
//!
//! The ports do the work: [`Discipline::Smallest`](crate::Discipline::Smallest) is §4.2, with its rule against
//! starvation: of the flow of the best packet the oldest one is sent. Sources only keep a flow from flooding the ports
//! (§4.3): a window that begins at line rate, a fixed short timeout, slow start after it, and probes after many of them.

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

#[cfg(test)]
mod tests {
    use crate::transport::testing::{FULL, T, run, with_buffer};

    #[test]
    fn a_flow_alone_sends_at_line_rate_from_its_first_packet() {
        let records = run(r#"{"kind": "pfabric"}"#, &[(50 * 1460, 0, 1, 0)]);
        assert_eq!(records[0].end.0, 49 * T + FULL);
        assert_eq!(records[0].slowdown(), 1.0);
    }

    #[test]
    fn a_short_flow_waits_only_for_the_packet_in_transmission() {
        let flows = [(100 * 1460, 0, 1, 0), (1460, 2, 1, 20_000_000)];
        let records = run(r#"{"kind": "pfabric"}"#, &flows);
        assert!(records[0].completion().0 <= FULL + T, "{records:?}");
    }

    #[test]
    fn a_starved_flow_probes_without_data() {
        // The port to host 1 drops all packets of the longer flow while the shorter one fills it.
        let flows = [(300 * 1460, 0, 1, 0), (299 * 1460, 2, 1, 0)];
        let bytes = |probe_after: u32| {
            let transport = format!(r#"{{"kind": "pfabric", "probe_after": {probe_after}}}"#);
            let mut sim = with_buffer(&transport, &flows, 0);
            let mut finished = 0;
            sim.run(|_| finished += 1);
            assert_eq!(finished, 2);
            sim.fabric().counters().dropped
        };
        assert!(bytes(1) < bytes(0));
    }
}
