//! Limits of clients, and counters of the server's events.

use cellbed_link::{BitRate, Bytes, Duration};
use serde::Serialize;

use crate::wire::Offer;

/// Maximum rate in any configuration, bit/s: a packet then takes at least some nanoseconds.
const FASTEST: u64 = 100_000_000_000;

/// The limits of a server for its clients. All lengths are of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum sessions of all clients. With [`Limits::report_bytes`], this limits the server's memory.
    pub sessions: u32,
    /// Maximum sessions per address: per IPv4 address, or per IPv6 network of 64 bits.
    pub sessions_per_address: u32,
    /// Maximum connections without an authentic message, of all peers and per address; newer ones replace older ones.
    pub strangers: u32,
    /// See [`Limits::strangers`].
    pub strangers_per_address: u32,
    /// Maximum time of a connection until its session begins.
    pub handshake: Duration,
    /// Maximum rate that the server sends to one session.
    pub rate: BitRate,
    /// Maximum rate that the server sends to all sessions.
    pub total_rate: BitRate,
    /// Maximum total that a session may send and receive.
    pub bytes: Bytes,
    /// Maximum probing time of a session.
    pub duration: Duration,
    /// Maximum silence of a session before its removal: the longest outage that a session survives.
    pub idle: Duration,
    /// Maximum silence of a client before saturation pauses.
    pub silence: Duration,
    /// Maximum packets in the answer to a train.
    pub answer_packets: u16,
    /// Maximum IP length of the server's packets, bytes.
    pub packet_bytes: u16,
    /// Maximum size of a downloaded file.
    pub file_bytes: Bytes,
    /// Maximum runs of a session that are not both stopped and fetched.
    pub runs: u32,
    /// Maximum memory of a session for arrivals not yet fetched, some 7 bytes each.
    pub report_bytes: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 32,
            sessions_per_address: 8,
            strangers: 64,
            strangers_per_address: 16,
            handshake: Duration::from_secs(10),
            rate: BitRate(2_500_000_000),
            total_rate: BitRate(5_000_000_000),
            bytes: Bytes(1_000_000_000_000),
            duration: Duration::from_secs(4 * 3600),
            idle: Duration::from_secs(60),
            silence: Duration::from_secs(15),
            answer_packets: 1000,
            packet_bytes: 1500,
            file_bytes: Bytes(100_000_000),
            runs: 16,
            report_bytes: Bytes(16 << 20),
        }
    }
}

impl Limits {
    /// Limit the values to what the server can keep.
    pub(super) fn clamp(mut self) -> Self {
        for rate in [&mut self.rate, &mut self.total_rate] {
            rate.0 = rate.0.clamp(1, FASTEST);
        }
        self
    }

    /// Return the limits sent to a client.
    pub(super) fn offer(&self) -> Offer {
        Offer {
            rate_bps: self.rate.0,
            answer_packets: self.answer_packets,
        }
    }

    /// Return the maximum bytes of an answer to a train.
    pub(super) fn longest_answer(&self) -> Bytes {
        Bytes(u64::from(self.answer_packets) * u64::from(self.packet_bytes))
    }
}

/// Counts of datagrams, sessions and bytes since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Datagrams received.
    pub received: u64,
    /// UDP payload received, bytes.
    pub received_bytes: u64,
    /// Datagrams to be sent.
    pub sent: u64,
    /// UDP payload to be sent, bytes.
    pub sent_bytes: u64,
    /// Accepted TCP connections.
    pub connections: u64,
    /// Authentic first messages of another protocol version, from 2 on, each answered by a rejection.
    pub other_versions: u64,
    /// Files sent, or begun.
    pub files: u64,
    /// New sessions.
    pub sessions: u64,
    /// Recorded probes.
    pub recorded: u64,
    /// Answered trains.
    pub answered: u64,
    /// Datagrams that are no messages of this version.
    pub malformed: u64,
    /// Messages made or changed without the secret or the session's keys.
    pub forged: u64,
    /// Authentic messages seen before or too old, including copies of probes made by the network.
    pub replayed: u64,
    /// Messages of unknown sessions.
    pub strangers: u64,
    /// Authentic probes from another address than the one proved by the client; never answered.
    pub unproved: u64,
    /// Probes of unknown runs.
    pub stray: u64,
    /// Requests, answers to trains and probes refused because of a limit.
    pub refused: u64,
    /// Arrivals not recorded for lack of memory.
    pub unrecorded: u64,
}
