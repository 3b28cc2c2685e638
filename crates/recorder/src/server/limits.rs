//! Limits of clients, and counters of the server's events.

use cellbed_link::{BitRate, Bytes, Duration};
use serde::Serialize;

use crate::wire::Offer;

/// No rate is higher, for any configuration: a packet then takes at least some nanoseconds.
const FASTEST: u64 = 100_000_000_000;

/// The limits of a server for its clients. All lengths are of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions of all clients together. With [`Limits::report_bytes`] it bounds the server's memory.
    pub sessions: u32,
    /// Sessions of one address: of one IPv4 address, or of one IPv6 network of 64 bits.
    pub sessions_per_address: u32,
    /// Maximum rate that the server sends to one session.
    pub rate: BitRate,
    /// Maximum rate that the server sends to all sessions.
    pub total_rate: BitRate,
    /// Maximum total that a session may send and receive.
    pub bytes: Bytes,
    /// Maximum probing time of a session.
    pub duration: Duration,
    /// A session that is silent for so long is forgotten: the longest outage that a recording survives.
    pub idle: Duration,
    /// Saturation pauses when its client has been silent for so long.
    pub silence: Duration,
    /// Packets that answer one train.
    pub answer_packets: u16,
    /// The longest packet of the server, bytes.
    pub packet_bytes: u16,
    /// Runs of one session that are not both stopped and fetched.
    pub runs: u32,
    /// Memory for the arrivals of one session that are not yet fetched, some 5 bytes each.
    pub report_bytes: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 32,
            sessions_per_address: 8,
            rate: BitRate(2_500_000_000),
            total_rate: BitRate(5_000_000_000),
            bytes: Bytes(1_000_000_000_000),
            duration: Duration::from_secs(4 * 3600),
            idle: Duration::from_secs(60),
            silence: Duration::from_secs(15),
            answer_packets: 1000,
            packet_bytes: 1500,
            runs: 16,
            report_bytes: Bytes(16 << 20),
        }
    }
}

impl Limits {
    /// Within what the server can keep to.
    pub(super) fn clamp(mut self) -> Self {
        for rate in [&mut self.rate, &mut self.total_rate] {
            rate.0 = rate.0.clamp(1, FASTEST);
        }
        self
    }

    /// Limits sent to a client.
    pub(super) fn offer(&self) -> Offer {
        Offer {
            rate_bps: self.rate.0,
            bytes: self.bytes.0,
            duration_ns: self.duration.as_nanos(),
            answer_packets: self.answer_packets,
            packet_bytes: self.packet_bytes,
        }
    }

    /// The longest answer to a train.
    pub(super) fn longest_answer(&self) -> Bytes {
        Bytes(u64::from(self.answer_packets) * u64::from(self.packet_bytes))
    }
}

/// Counts of datagrams, sessions and bytes since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Datagrams that arrived.
    pub received: u64,
    /// UDP payload that arrived, bytes.
    pub received_bytes: u64,
    /// Datagrams to be sent.
    pub sent: u64,
    /// UDP payload to be sent, bytes.
    pub sent_bytes: u64,
    /// Hellos by who knows the secret.
    pub hellos: u64,
    /// Hellos without proof of their address: each was answered by a cookie and nothing else.
    pub unproved_hellos: u64,
    /// Hellos of another version of the protocol. They get a rejection if they are authentic and of version 2 or later.
    pub other_versions: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Sessions that went on, mostly at another address.
    pub resumed: u64,
    /// Probes that were recorded.
    pub recorded: u64,
    /// Trains that were answered.
    pub answered: u64,
    /// No messages of this version.
    pub malformed: u64,
    /// Made or changed by who does not know the secret, or the session's keys.
    pub forged: u64,
    /// Authentic, but seen before or too old. Copies of probes that the network made are among them.
    pub replayed: u64,
    /// Of sessions that do not exist.
    pub strangers: u64,
    /// Authentic messages from an address that is not the one their client has proved. They get no answer.
    pub unproved: u64,
    /// Probes of runs that do not exist.
    pub stray: u64,
    /// Requests, answers to trains and probes refused because of a limit.
    pub refused: u64,
    /// Arrivals that were not recorded for lack of memory.
    pub unrecorded: u64,
}
