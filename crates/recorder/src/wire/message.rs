//! The messages of a session: requests, replies and probes, behind a header in clear.

use std::net::IpAddr;

use super::{Field, Malformed, Reader, Report, fields, variants};

/// Kind of a datagram: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client asks for a session or resumes one.
    Hello = 0x01,
    /// The server asks for proof of the client's address.
    CookieAnswer = 0x02,
    /// The session that the client has now.
    Welcome = 0x03,
    /// Why it gets none.
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

/// Identifier of the session that a message belongs to; never 0. Drawn by the server, and no secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// Length of a [`Header`] on the wire.
pub const HEADER_BYTES: usize = 11;

/// Length of the authentication tag behind a sealed body.
pub const TAG_BYTES: usize = 16;

/// Sequence numbers are below it: they have 48 bits on the wire.
pub const SEQUENCES: u64 = 1 << 48;

/// Kind, session and sequence number of a sealed message. All of it is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of the sealed kinds.
    pub kind: Kind,
    /// Session whose keys seal the message.
    pub session: SessionId,
    /// The number of the message in its direction of its session, below [`SEQUENCES`]; each is used once.
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

/// The sealed part of a packet whose journey is measured. Behind it comes filler up to the wanted length, which nothing
/// vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the run that it belongs to; the client's choice.
    pub run: u32,
    /// Number of the train; 0 for saturation. Trains count up.
    pub train: u32,
    /// Position in the train, or in the saturation.
    pub index: u32,
    /// With how many packets the server shall answer the train; 0 from the server. The same in every packet of a train.
    pub answer_packets: u16,
    /// IP length of each of them, bytes.
    pub answer_bytes: u16,
    /// When it was sent, ns on the sender's clock.
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

/// A request of a client. Each is answered by one [`Reply`] (a [`Request::Reports`] by as many reports as there are),
/// and may be repeated until then: doing it twice is doing it once, and of two that contradict each other the later
/// sent holds.
///
/// `of` names the session that has the run: the client's own, or one of the same group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Lets sessions that know the same token read each other's reports and steer each other's saturation, so that one
    /// device of a client can speak for another whose queue is long.
    Group {
        /// Random bytes of the client.
        token: [u8; 16],
    },
    /// The run's probes are recorded and answered from now on.
    Start {
        /// Session of the run.
        of: SessionId,
        /// The client's number for it.
        run: u32,
    },
    /// They are no longer, and its saturation ends. What has been recorded stays until it is acknowledged.
    Stop {
        /// Session of the run.
        of: SessionId,
        /// Number of the run.
        run: u32,
    },
    /// The server's saturation of the run has this rate and length of packets from now on, for so long.
    Saturate {
        /// Session of the run.
        of: SessionId,
        /// Number of the run.
        run: u32,
        /// Counting IP lengths, bit/s; 0 for silence.
        rate_bps: u64,
        /// IP length of each packet, bytes.
        bytes: u16,
        /// From the arrival of this request, ns.
        for_ns: u64,
    },
    /// Asks for the run's chunks of arrivals from number `from` on; all chunks before it are acknowledged, and
    /// forgotten.
    Reports {
        /// Session of the run.
        of: SessionId,
        /// Number of the run.
        run: u32,
        /// The first chunk that the client does not have.
        from: u32,
        /// Maximum number of chunks to send.
        most: u16,
    },
    /// Asks for the server's time.
    ClockPing {
        /// The client's time, ns; comes back in the answer.
        client_ns: u64,
    },
    /// The session ends, and everything of it is forgotten; so it is answered only once.
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
    /// It is done.
    Done {
        /// Of the request.
        to: u64,
    },
    /// It is not done.
    Refused {
        /// Of the request.
        to: u64,
        /// Why not.
        reason: Refusal,
    },
    /// The server's time.
    ClockPong {
        /// Of the request.
        to: u64,
        /// The client's time in the request, ns.
        client_ns: u64,
        /// When the request arrived, by the kernel's stamp, ns on the server's clock.
        received_ns: u64,
        /// When this was sent, ns on the server's clock.
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

/// Why a server does not do what it is asked, with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has ended, was idle for too long, or the server was started again.
    #[error("the server does not know the session (any more); start a new one")]
    NoSuchSession,
    /// Of all clients together.
    #[error("the server has {0} sessions, its limit; try again later")]
    SessionsFull(u64),
    /// Of all clients of the same address.
    #[error("the server has {0} sessions with this address, the limit; end one of them")]
    AddressFull(u64),
    /// Never started, or of another client, or ended and fetched.
    #[error("the server does not know the run")]
    NoSuchRun,
    /// Runs whose arrivals are not yet fetched count.
    #[error("the session has {0} runs not yet ended and fetched, its limit")]
    RunsFull(u64),
    /// More than one session may be sent.
    #[error("the server sends at most {0} bit/s to a session; ask for less")]
    RateOverLimit(u64),
    /// A length that the server does not send: less than the first or more than the second.
    #[error("the server sends packets of {0} to {1} bytes; ask for such a length")]
    PacketOutOfRange(u64, u16),
    /// The session has been sent and has sent what it may.
    #[error("the session has used its {0} bytes; start another later")]
    BytesSpent(u64),
    /// The session may no longer probe.
    #[error("the session has probed for {0} ns, its limit; start another")]
    TimeSpent(u64),
    /// Client and server are not of the same version of the protocol.
    #[error(
        "the server speaks version {0} of the recorder's protocol, this program version {own}; update the older of the two",
        own = super::VERSION
    )]
    OtherVersion(u64),
}

/// A code and two numbers, in all versions.
impl Field for Refusal {
    fn put(&self, out: &mut Vec<u8>) {
        let (code, limit, most): (u8, u64, u16) = match *self {
            Self::NoSuchSession => (1, 0, 0),
            Self::SessionsFull(limit) => (2, limit, 0),
            Self::AddressFull(limit) => (3, limit, 0),
            Self::NoSuchRun => (4, 0, 0),
            Self::RunsFull(limit) => (5, limit, 0),
            Self::RateOverLimit(limit) => (6, limit, 0),
            Self::PacketOutOfRange(least, most) => (7, least, most),
            Self::BytesSpent(limit) => (8, limit, 0),
            Self::TimeSpent(limit) => (9, limit, 0),
            Self::OtherVersion(version) => (10, version, 0),
        };
        code.put(out);
        limit.put(out);
        most.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (code, limit, most): (u8, _, _) = (reader.take()?, reader.take()?, reader.take()?);
        Ok(match code {
            1 => Self::NoSuchSession,
            2 => Self::SessionsFull(limit),
            3 => Self::AddressFull(limit),
            4 => Self::NoSuchRun,
            5 => Self::RunsFull(limit),
            6 => Self::RateOverLimit(limit),
            7 => Self::PacketOutOfRange(limit, most),
            8 => Self::BytesSpent(limit),
            9 => Self::TimeSpent(limit),
            10 => Self::OtherVersion(limit),
            _ => return Err(Malformed("an unknown reason")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_and_nothing_shorter_or_longer_does() {
        let (of, run) = (SessionId(3), u32::MAX);
        for request in [
            Request::Group { token: [9; 16] },
            Request::Start { of, run },
            Request::Stop { of, run },
            Request::Saturate {
                of,
                run,
                rate_bps: 1 << 33,
                bytes: 1400,
                for_ns: u64::MAX,
            },
            Request::Reports {
                of,
                run,
                from: 7,
                most: 16,
            },
            Request::ClockPing { client_ns: 12 },
            Request::Bye,
        ] {
            let mut bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            assert!(Request::decode(&bytes[..bytes.len() - 1]).is_err());
            bytes.push(0);
            assert!(Request::decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_probe_of_100_bytes_is_possible_over_either_protocol() {
        assert!(least_probe_bytes("::1".parse().unwrap()) <= 100);
        assert_eq!(least_probe_bytes("127.0.0.1".parse().unwrap()), 79);
        assert_eq!(ip_overhead("::ffff:127.0.0.1".parse().unwrap()), 28);
    }
}
