//! Replies of a server to requests.

use super::{Malformed, Report, SEQUENCES};
use crate::field::{Field, Reader};

/// The server's answer to a [`Request`](super::Request). `to` is the sequence number of the request.
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

impl Reply {
    /// Appends it, to be sealed.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Done { to } => {
                out.push(1);
                to.put(out);
            }
            Self::Refused { to, reason } => {
                out.push(2);
                to.put(out);
                reason.put(out);
            }
            Self::ClockPong {
                to,
                client_ns,
                received_ns,
                sent_ns,
            } => {
                out.push(3);
                for number in [to, client_ns, received_ns, sent_ns] {
                    number.put(out);
                }
            }
            Self::Report(report) => {
                out.push(4);
                report.put(out);
            }
        }
    }

    /// The reply in an opened body.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let reply = match reader.u8()? {
            1 => Self::Done {
                to: sequence(&mut reader)?,
            },
            2 => Self::Refused {
                to: sequence(&mut reader)?,
                reason: Refusal::take(&mut reader)?,
            },
            3 => Self::ClockPong {
                to: sequence(&mut reader)?,
                client_ns: reader.take()?,
                received_ns: reader.take()?,
                sent_ns: reader.take()?,
            },
            4 => return Report::take(reader).map(Self::Report),
            _ => return Err(Malformed("an unknown reply")),
        };
        reader.end()?;
        Ok(reply)
    }
}

fn sequence(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let number = reader.take()?;
    if number < SEQUENCES {
        Ok(number)
    } else {
        Err(Malformed("a sequence number of more than 48 bits"))
    }
}

/// Why a server does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has ended, was idle for too long, or the server was started again.
    #[error("the server does not know the session (any more); start a new one")]
    NoSuchSession,
    /// Of all clients together.
    #[error("the server has {most} sessions, its limit; try again later")]
    SessionsFull {
        /// The limit.
        most: u32,
    },
    /// Of all clients of the same address.
    #[error("the server has {most} sessions with this address, the limit; end one of them")]
    AddressFull {
        /// The limit.
        most: u32,
    },
    /// Never started, or of another client, or ended and fetched.
    #[error("the server does not know the run")]
    NoSuchRun,
    /// Runs whose arrivals are not yet fetched count.
    #[error("the session has {most} runs not yet ended and fetched, its limit")]
    RunsFull {
        /// The limit.
        most: u32,
    },
    /// More than one session may be sent.
    #[error("the server sends at most {rate_bps} bit/s to a session; ask for less")]
    RateOverLimit {
        /// The limit, bit/s.
        rate_bps: u64,
    },
    /// A length that the server does not send.
    #[error("the server sends packets of {least} to {most} bytes; ask for such a length")]
    PacketOutOfRange {
        /// The shortest IP length, bytes.
        least: u16,
        /// The longest IP length, bytes.
        most: u16,
    },
    /// The session has been sent and has sent what it may.
    #[error("the session has used its {bytes} bytes; start another later")]
    BytesSpent {
        /// The limit.
        bytes: u64,
    },
    /// The session may no longer probe.
    #[error("the session has probed for {duration_ns} ns, its limit; start another")]
    TimeSpent {
        /// The limit, ns.
        duration_ns: u64,
    },
    /// Client and server are not of the same version of the protocol.
    #[error(
        "the server speaks version {version} of the recorder's protocol, this program version {}; update the older of the two",
        super::VERSION
    )]
    OtherVersion {
        /// The server's version.
        version: u8,
    },
}

impl Refusal {
    /// A code and two numbers, whichever it is.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let (code, first, second) = match self {
            Self::NoSuchSession => (1, 0, 0),
            Self::SessionsFull { most } => (2, u64::from(most), 0),
            Self::AddressFull { most } => (3, u64::from(most), 0),
            Self::NoSuchRun => (4, 0, 0),
            Self::RunsFull { most } => (5, u64::from(most), 0),
            Self::RateOverLimit { rate_bps } => (6, rate_bps, 0),
            Self::PacketOutOfRange { least, most } => (7, u64::from(least), most),
            Self::BytesSpent { bytes } => (8, bytes, 0),
            Self::TimeSpent { duration_ns } => (9, duration_ns, 0),
            Self::OtherVersion { version } => (10, u64::from(version), 0),
        };
        out.push(code);
        u64::put(&first, out);
        u16::put(&second, out);
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (code, first, second): (u8, u64, u16) =
            (reader.take()?, reader.take()?, reader.take()?);
        let most = u32::try_from(first).unwrap_or(u32::MAX);
        Ok(match code {
            1 => Self::NoSuchSession,
            2 => Self::SessionsFull { most },
            3 => Self::AddressFull { most },
            4 => Self::NoSuchRun,
            5 => Self::RunsFull { most },
            6 => Self::RateOverLimit { rate_bps: first },
            7 => Self::PacketOutOfRange {
                least: u16::try_from(first).unwrap_or(u16::MAX),
                most: second,
            },
            8 => Self::BytesSpent { bytes: first },
            9 => Self::TimeSpent { duration_ns: first },
            10 => Self::OtherVersion {
                version: u8::try_from(first).unwrap_or(u8::MAX),
            },
            _ => return Err(Malformed("an unknown reason")),
        })
    }
}
