//! The server's clock relative to the client's, from one-way stamps in both directions.
//!
//! Let θ(t) be the lead of the server's clock at t. A packet with one-way delay d has a difference of stamps of θ + d
//! on the uplink, and of θ − d on the downlink. The line θ(t) = offset + drift · t therefore lies below all uplink
//! points and above all downlink points: between the lower hull of the former and the upper hull of the latter. Moon,
//! Skelly & Towsley ("Estimation and removal of clock skew from network delay measurements", INFOCOM 1999, §III) fit a
//! line to one hull, as close to the points as possible. Here two parallel lines are fitted to both hulls. Each
//! direction has weight according to how near its packets are to their minimum delay: neither a queue nor a step of one
//! direction's delay bends the drift. As in Paxson ("On calibrating measurements of packet transit times", SIGMETRICS
//! 1998, §4), the offset lies in the middle. Stamps cannot show how the minimum round trip is divided between the
//! directions, so half of it is uncertain.

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
    /// Maximum distance of any other line that agrees with all stamps, at any observed time, ns. The true line is that
    /// far off only if one direction has all of the minimum round-trip time.
    pub uncertainty_ns: u64,
}

impl ClockEstimate {
    /// Convert `server_ns` to the client's clock.
    pub fn to_client(self, server_ns: i64) -> i64 {
        let since = server_ns.saturating_sub(self.offset_ns);
        // Only of the span's drift: the span keeps its full precision.
        let drift = self.drift_ppm * 1e-6;
        since.saturating_sub((since as f64 * (drift / (1.0 + drift))).round() as i64)
    }
}

/// Collects stamps and returns an estimate at any time. Keeps only relevant points, a few hundred.
#[derive(Clone, Debug, Default)]
pub struct ClockEstimator {
    /// Difference of the first stamps, server − client, subtracted from all differences to keep floating-point numbers
    /// small.
    origin: Option<i64>,
    uplink: Hull,
    downlink: Hull,
}

impl ClockEstimator {
    /// Add a packet sent at `sent_ns` on the client's clock, arrived at `arrived_ns` on the server's.
    pub fn uplink(&mut self, sent_ns: i64, arrived_ns: i64) {
        let difference = self.difference(arrived_ns, sent_ns);
        self.uplink.add(sent_ns as f64, difference);
    }

    /// Add a packet sent at `sent_ns` on the server's clock, arrived at `arrived_ns` on the client's.
    pub fn downlink(&mut self, sent_ns: i64, arrived_ns: i64) {
        let difference = self.difference(sent_ns, arrived_ns);
        self.downlink.add(arrived_ns as f64, -difference); // mirrored: the upper hull becomes a lower one
    }

    fn difference(&mut self, server_ns: i64, client_ns: i64) -> f64 {
        let difference = server_ns.wrapping_sub(client_ns);
        let origin = *self.origin.get_or_insert(difference);
        difference.wrapping_sub(origin) as f64
    }

    /// Return the estimate; `None` before packets in both directions.
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
