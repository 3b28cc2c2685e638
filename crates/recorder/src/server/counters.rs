//! Counters of the server's events.

use serde::Serialize;

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
