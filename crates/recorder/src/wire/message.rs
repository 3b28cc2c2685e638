//! Messages of a session: requests, replies and probes, after a header in clear.

use std::net::IpAddr;

use postcard::fixint::be;
use serde::{Deserialize, Serialize};

use super::{Malformed, Report};

/// Kind of a datagram or of a frame: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client requests a session; the first frame of a connection.
    Hello = 0x01,
    /// The session now assigned to the client.
    Welcome = 0x03,
    /// The reason why the client gets no session.
    Rejection = 0x04,
    /// A client requests a file; the first frame of a connection.
    Download = 0x06,
    /// A sealed [`Request`] or [`Reply`], in a frame.
    Control = 0x10,
    /// A sealed [`Probe`] of a train, and filler, in a datagram.
    Train = 0x11,
    /// A sealed [`Probe`] of a saturation, and filler, in a datagram.
    Saturation = 0x12,
    /// A sealed [`Echo`], in a datagram.
    Echo = 0x13,
    /// The sealed size of a file, in a frame.
    File = 0x14,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Hello,
        Self::Welcome,
        Self::Rejection,
        Self::Download,
        Self::Control,
        Self::Train,
        Self::Saturation,
        Self::Echo,
        Self::File,
    ];

    /// The kind in the first byte of a message.
    pub fn of(message: &[u8]) -> Result<Self, Malformed> {
        let kind = message.first().ok_or(Malformed)?;
        let mut all = Self::ALL.into_iter();
        all.find(|it| *it as u8 == *kind).ok_or(Malformed)
    }

    /// Return whether messages of this kind are sealed with a session's keys.
    pub fn is_sealed(self) -> bool {
        self as u8 >= Self::Control as u8
    }

    /// Return whether messages of this kind are datagrams; otherwise they are frames.
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Train | Self::Saturation | Self::Echo)
    }

    /// Return whether messages of this kind are measured packets.
    pub fn is_probe(self) -> bool {
        matches!(self, Self::Train | Self::Saturation)
    }

    /// Return the length of the sealed part of a datagram of this kind, without tag.
    pub fn body_bytes(self) -> usize {
        match self {
            Self::Echo => ECHO_BYTES,
            _ => PROBE_BYTES,
        }
    }
}

/// Identifier of a message's session, and of the connection that carries its control; never 0, not secret.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct SessionId(pub u32);

/// Length of a [`Header`] on the wire.
pub const HEADER_BYTES: usize = 11;

/// Length of the authentication tag after a sealed body.
pub const TAG_BYTES: usize = 16;

/// Number of sequence numbers (48 bits on the wire).
pub const SEQUENCES: u64 = 1 << 48;

/// Kind, session and sequence number of a sealed message. All three are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of the sealed kinds.
    pub kind: Kind,
    /// Session whose keys seal the message.
    pub session: SessionId,
    /// Number of the message in its series of the session, below [`SEQUENCES`]; each is used once. The datagrams of a
    /// direction are one series; control and requests for files are two others.
    pub sequence: u64,
}

impl Header {
    /// Append the header: kind, session and sequence number, big-endian.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        out.extend_from_slice(&self.session.0.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes()[2..]);
    }

    /// Split a sealed message into header and rest.
    pub fn split(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let kind = Kind::of(message)?;
        let (header, rest) = message.split_first_chunk().ok_or(Malformed)?;
        let [_, session @ .., s5, s4, s3, s2, s1, s0]: &[u8; HEADER_BYTES] = header;
        let header = Self {
            kind,
            session: SessionId(u32::from_be_bytes(*session)),
            sequence: u64::from_be_bytes([0, 0, *s5, *s4, *s3, *s2, *s1, *s0]),
        };
        match kind.is_sealed() {
            true => Ok((header, rest)),
            false => Err(Malformed),
        }
    }
}

/// Length of a [`Probe`] on the wire, without header, tag and filler.
pub const PROBE_BYTES: usize = 24;

/// The sealed part of a measured packet. Filler up to the wanted length follows; the filler is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Number of the probe's run; chosen by the client.
    #[serde(with = "be")]
    pub run: u32,
    /// Number of the train; 0 for saturation. Trains count up.
    #[serde(with = "be")]
    pub train: u32,
    /// Position in the train, or in the saturation.
    #[serde(with = "be")]
    pub index: u32,
    /// Number of packets in the server's answer to the train, the same in all its packets; 0 in packets of the server.
    #[serde(with = "be")]
    pub answer_packets: u16,
    /// IP length of each packet of the answer, bytes.
    #[serde(with = "be")]
    pub answer_bytes: u16,
    /// Time of sending, ns on the sender's clock.
    #[serde(with = "be")]
    pub sent_ns: u64,
}

/// Length of an [`Echo`] on the wire, without header and tag.
pub const ECHO_BYTES: usize = 8 + 8 + 8 + 8 + 1;

/// A request for the server's time and for proof of the client's address, and its answer of the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// The client's time, ns; repeated in the answer.
    #[serde(with = "be")]
    pub client_ns: u64,
    /// Arrival time of the request by the kernel's stamp, ns on the server's clock; 0 in a request.
    #[serde(with = "be")]
    pub received_ns: u64,
    /// Time of sending the answer, ns on the server's clock; 0 in a request.
    #[serde(with = "be")]
    pub sent_ns: u64,
    /// In an answer, a random number for the address of the request; in a request, that of the last answer.
    #[serde(with = "be")]
    pub challenge: u64,
    /// In an answer: whether the server now sends probes to the address of the request.
    pub proved: bool,
}

/// Return the length of the IP and UDP headers of a datagram to or from `address`, bytes: 28 over IPv4, 48 over IPv6.
pub fn ip_overhead(address: IpAddr) -> u16 {
    match address.to_canonical() {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => 48,
    }
}

/// The IP length of a probe without filler to or from `address`, bytes: 79 over IPv4, 99 over IPv6.
pub fn least_probe_bytes(address: IpAddr) -> u16 {
    (HEADER_BYTES + PROBE_BYTES + TAG_BYTES) as u16 + ip_overhead(address)
}

/// A request of a client. The server answers all in order, each with one [`Reply`], after the reports if it has
/// requested them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Has no effect but the reply: the first request, which begins the session, and a test of the connection.
    Check,
    /// Starts recording and answering the run's probes.
    Start {
        /// The client's number of the run.
        run: u32,
    },
    /// Stops recording and answering, and ends the saturation. Records remain until fetched.
    Stop {
        /// Number of the run.
        run: u32,
    },
    /// Sets rate, packet length and remaining duration of the server's saturation of the run.
    Saturate {
        /// Number of the run.
        run: u32,
        /// Rate of IP lengths, bit/s; 0 for silence.
        rate_bps: u64,
        /// IP length of each packet, bytes.
        bytes: u16,
        /// Duration from the arrival of this request, ns.
        for_ns: u64,
    },
    /// Requests the run's arrivals that were not sent yet.
    Reports {
        /// Number of the run.
        run: u32,
    },
    /// Ends the session and deletes all its data.
    Bye,
}

/// The server's answer to the earliest [`Request`] without one, or a report before that answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Executed.
    Done,
    /// Not executed.
    Refused(Refusal),
    /// Arrivals.
    Report(Report),
}

/// Reason why a server refuses a request, with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// Limit for all clients together.
    #[error("the server has {0} sessions, its limit; try again later")]
    SessionsFull(u64),
    /// Limit for all clients of the same address.
    #[error("the server has {0} sessions with this address, the limit; end one of them")]
    AddressFull(u64),
    /// Never started, of another client, or ended and fetched.
    #[error("the server does not know the run")]
    NoSuchRun,
    /// Runs with arrivals not yet fetched also count.
    #[error("the session has {0} runs not yet ended and fetched, its limit")]
    RunsFull(u64),
    /// Maximum rate of a session.
    #[error("the server sends at most {0} bit/s to a session; ask for less")]
    RateOverLimit(u64),
    /// Minimum and maximum length of the server's packets.
    #[error("the server sends packets of {0} to {1} bytes; ask for such a length")]
    PacketOutOfRange(u64, u16),
    /// Maximum bytes that a session may send and receive.
    #[error("the session has used its {0} bytes; start another later")]
    BytesSpent(u64),
    /// Maximum probing time of the session.
    #[error("the session has probed for {0} ns, its limit; start another")]
    TimeSpent(u64),
    /// Client and server have different protocol versions.
    #[error(
        "the server speaks version {0} of the recorder's protocol, this program version {own}; update the older of the two",
        own = super::VERSION
    )]
    OtherVersion(u8),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_100_bytes_is_possible_over_either_protocol() {
        assert!(least_probe_bytes("::1".parse().unwrap()) <= 100);
        assert_eq!(least_probe_bytes("127.0.0.1".parse().unwrap()), 79);
        assert_eq!(ip_overhead("::ffff:127.0.0.1".parse().unwrap()), 28);
    }
}
