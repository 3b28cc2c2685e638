//! Messages of a session: requests, replies and probes, after a header in clear.

use std::net::IpAddr;

use super::{Field, Malformed, Reader, Report, fields, variants};

/// Kind of a datagram: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client requests or resumes a session.
    Hello = 0x01,
    /// The server requests proof of the client's address.
    CookieAnswer = 0x02,
    /// The session now assigned to the client.
    Welcome = 0x03,
    /// The reason why the client gets no session.
    Rejection = 0x04,
    /// A sealed [`Request`] or [`Reply`].
    Control = 0x10,
    /// A sealed [`Probe`] of a train, and filler.
    Train = 0x11,
    /// A sealed [`Probe`] of a saturation, and filler.
    Saturation = 0x12,
}

variants! { Kind:
    0x01 Hello;
    0x02 CookieAnswer;
    0x03 Welcome;
    0x04 Rejection;
    0x10 Control;
    0x11 Train;
    0x12 Saturation;
}

impl Kind {
    /// The kind in the first byte of a datagram.
    pub fn of(datagram: &[u8]) -> Result<Self, Malformed> {
        Reader::new(datagram).take()
    }

    /// Return whether messages of this kind are sealed with a session's keys.
    pub fn is_sealed(self) -> bool {
        matches!(self, Self::Control | Self::Train | Self::Saturation)
    }
}

/// Identifier of a message's session; never 0. Drawn by the server, not secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// Number of the message in its direction of the session, below [`SEQUENCES`]; each is used once.
    pub sequence: u64,
}

impl Field for Header {
    fn put(&self, out: &mut Vec<u8>) {
        self.kind.put(out);
        self.session.put(out);
        out.extend_from_slice(&self.sequence.to_be_bytes()[2..]);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind: Kind = reader.take()?;
        if !kind.is_sealed() {
            return Err(Malformed("its kind is not sealed"));
        }
        let (session, high, low): (_, u16, u32) = (reader.take()?, reader.take()?, reader.take()?);
        Ok(Self {
            kind,
            session,
            sequence: u64::from(high) << 32 | u64::from(low),
        })
    }
}

/// Length of a [`Probe`] on the wire, without header, tag and filler.
pub const PROBE_BYTES: usize = 24;

/// The sealed part of a measured packet. Filler up to the wanted length follows; the filler is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the probe's run; chosen by the client.
    pub run: u32,
    /// Number of the train; 0 for saturation. Trains count up.
    pub train: u32,
    /// Position in the train, or in the saturation.
    pub index: u32,
    /// Number of packets in the server's answer to the train, the same in all its packets; 0 in packets of the server.
    pub answer_packets: u16,
    /// IP length of each packet of the answer, bytes.
    pub answer_bytes: u16,
    /// Time of sending, ns on the sender's clock.
    pub sent_ns: u64,
}

fields! {
    SessionId { 0 };
    Probe { run, train, index, answer_packets, answer_bytes, sent_ns };
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

/// A request of a client. The server answers with one [`Reply`], or to [`Request::Reports`] with a report per chunk.
/// Until then the client may repeat the request. Repeated requests have no further effect; of contradictory requests
/// the one sent last holds.
///
/// `of` names the session that has the run: the client's own, or one of the same group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Lets sessions with the same token read each other's reports and steer each other's saturation. So one device of
    /// a client can act for another device with a long queue.
    Group {
        /// Random bytes of the client.
        token: [u8; 16],
    },
    /// Starts recording and answering the run's probes.
    Start {
        /// Session of the run.
        of: SessionId,
        /// The client's number of the run.
        run: u32,
    },
    /// Stops recording and answering, and ends the saturation. Records remain until acknowledged.
    Stop {
        /// Session of the run.
        of: SessionId,
        /// Number of the run.
        run: u32,
    },
    /// Sets rate, packet length and remaining duration of the server's saturation of the run.
    Saturate {
        /// Session of the run.
        of: SessionId,
        /// Number of the run.
        run: u32,
        /// Rate of IP lengths, bit/s; 0 for silence.
        rate_bps: u64,
        /// IP length of each packet, bytes.
        bytes: u16,
        /// Duration from the arrival of this request, ns.
        for_ns: u64,
    },
    /// Requests the run's chunks of arrivals from number `from` on. Previous chunks are acknowledged, and deleted by
    /// the server.
    Reports {
        /// Session of the run.
        of: SessionId,
        /// Number of the run.
        run: u32,
        /// The first chunk that the client lacks.
        from: u32,
        /// Maximum number of chunks to send.
        most: u16,
    },
    /// Requests the server's time.
    ClockPing {
        /// The client's time, ns; repeated in the answer.
        client_ns: u64,
    },
    /// Ends the session and deletes all its data. Only the first such request is answered.
    Bye,
}

variants! { Request:
    1 Group { token };
    2 Start { of, run };
    3 Stop { of, run };
    4 Saturate { of, run, rate_bps, bytes, for_ns };
    5 Reports { of, run, from, most };
    6 ClockPing { client_ns };
    7 Bye;
}

/// The server's answer to a [`Request`]. `to` is the sequence number of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Executed.
    Done {
        /// Number of the request.
        to: u64,
    },
    /// Not executed.
    Refused {
        /// Number of the request.
        to: u64,
        /// The reason.
        reason: Refusal,
    },
    /// The server's time.
    ClockPong {
        /// Number of the request.
        to: u64,
        /// The client's time in the request, ns.
        client_ns: u64,
        /// Arrival time of the request by the kernel's stamp, ns on the server's clock.
        received_ns: u64,
        /// Time of sending the reply, ns on the server's clock.
        sent_ns: u64,
    },
    /// One chunk of arrivals.
    Report(Report),
}

variants! { Reply:
    1 Done { to };
    2 Refused { to, reason };
    3 ClockPong { to, client_ns, received_ns, sent_ns };
    4 Report(report);
}

/// Reason why a server refuses a request, with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session has ended, was idle for too long, or the server was restarted.
    #[error("the session is unknown or has expired; start a new one")]
    NoSuchSession,
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
    OtherVersion(u64),
}

// A code and two numbers, the same in all versions.
variants! { Refusal of 11 bytes:
    1 NoSuchSession;
    2 SessionsFull(limit);
    3 AddressFull(limit);
    4 NoSuchRun;
    5 RunsFull(limit);
    6 RateOverLimit(limit);
    7 PacketOutOfRange(least, most);
    8 BytesSpent(limit);
    9 TimeSpent(limit);
    10 OtherVersion(version);
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
