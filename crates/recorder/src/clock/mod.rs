//! The server's clock against the client's, from one-way stamps in both directions.
//!
//! With θ(t) what the server's clock is ahead of the client's at t, a packet that goes up in d shows a difference of
//! stamps of θ + d, one that comes down one of θ − d. The line θ(t) = offset + drift · t therefore lies below all
//! points of the uplink and above all of the downlink: between the lower convex hull of the ones and the upper hull of
//! the others. Moon, Skelly & Towsley ("Estimation and removal of clock skew from network delay measurements", INFOCOM
//! 1999, §III) lay a line against one hull, as close to the points as it can be. Here two parallel lines are laid
//! against both, each as close as the other's closeness allows: each direction counts as far as its
//! packets are near their minimum, so that neither a queue nor a step of the delay in one direction bends the drift. As
//! in Paxson ("On calibrating measurements of packet transit times", SIGMETRICS 1998, §4), the offset lies in the
//! middle: how the least round trip is divided between the directions cannot be known from stamps, and so half of it is
//! uncertain.

mod hull;

use serde::{Deserialize, Serialize};

use hull::Hull;

/// Estimate of the server's clock relative to the client's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockEstimate {
    /// Reading of the server's clock when the client's is 0, ns.
    pub offset_ns: i64,
    /// Drift of the server's clock relative to the client's, millionths.
    pub drift_ppm: f64,
    /// No line that agrees with all stamps is farther from this one at any time that was observed, ns. The true one may
    /// be as far off only if all of the least round-trip time is on one direction.
    pub uncertainty_ns: u64,
}

impl ClockEstimate {
    /// Convert `server_ns` to the client's clock.
    pub fn to_client(self, server_ns: i64) -> i64 {
        let since = server_ns.saturating_sub(self.offset_ns);
        // of the span's drift only, so that no precision of the span itself is lost
        let drift = self.drift_ppm * 1e-6;
        since.saturating_sub((since as f64 * (drift / (1.0 + drift))).round() as i64)
    }
}

/// Gathers stamps and gives an estimate at any time. Keeps only what can still count, a few hundred points.
#[derive(Clone, Debug, Default)]
pub struct ClockEstimator {
    /// Difference of the first stamps, server − client: taken off all, so that floating point has nothing large to
    /// carry.
    origin: Option<i64>,
    uplink: Hull,
    downlink: Hull,
}

impl ClockEstimator {
    /// A packet left at `sent_ns` of the client's clock and came at `arrived_ns` of the server's.
    pub fn uplink(&mut self, sent_ns: i64, arrived_ns: i64) {
        let difference = self.difference(arrived_ns, sent_ns);
        self.uplink.add(sent_ns as f64, difference);
    }

    /// A packet left at `sent_ns` of the server's clock and came at `arrived_ns` of the client's.
    pub fn downlink(&mut self, sent_ns: i64, arrived_ns: i64) {
        let difference = self.difference(sent_ns, arrived_ns);
        self.downlink.add(arrived_ns as f64, -difference); // mirrored: its upper hull is a lower one
    }

    fn difference(&mut self, server_ns: i64, client_ns: i64) -> f64 {
        let difference = server_ns.wrapping_sub(client_ns);
        let origin = *self.origin.get_or_insert(difference);
        difference.wrapping_sub(origin) as f64
    }

    /// The estimate, once there were packets in both directions.
    pub fn estimate(&self) -> Option<ClockEstimate> {
        let strip = hull::strip(&self.uplink, &self.downlink)?;
        Some(ClockEstimate {
            offset_ns: self.origin?.wrapping_add(strip.middle.round() as i64),
            drift_ppm: strip.slope * 1e6,
            uncertainty_ns: strip.uncertainty.ceil() as u64,
        })
    }
}

#[cfg(test)]
mod tests;
