//! Requests of a client to a server within its session.

use super::{Malformed, SessionId};
use crate::field::{Field, Reader};

/// A request of a client. Each is answered by one [`Reply`](super::Reply) (a [`Request::Reports`] by as many reports as
/// there are) and may be repeated until it is: doing it twice is doing it once, and of two that contradict each other
/// the later sent holds.
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

/// Encoding and decoding by the code of each request and its fields, in the order that is written here.
macro_rules! requests {
    ($($code:literal $name:ident { $($field:ident),* })*) => {
        impl Request {
            /// Appends it, to be sealed.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name { $($field),* } => {
                        out.push($code);
                        $($field.put(out);)*
                    })*
                }
            }

            /// Returns the request in an opened body.
            pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
                let mut reader = Reader::new(body);
                let request = match reader.u8()? {
                    $($code => Self::$name { $($field: reader.take()?),* },)*
                    _ => return Err(Malformed("an unknown request")),
                };
                reader.end()?;
                Ok(request)
            }
        }
    };
}

requests! {
    1 Group { token }
    2 Start { of, run }
    3 Stop { of, run }
    4 Saturate { of, run, rate_bps, bytes, for_ns }
    5 Reports { of, run, from, most }
    6 ClockPing { client_ns }
    7 Bye {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_and_nothing_shorter_or_longer_does() {
        let of = SessionId(3);
        for request in [
            Request::Group { token: [9; 16] },
            Request::Start { of, run: 1 },
            Request::Stop { of, run: u32::MAX },
            Request::Saturate {
                of,
                run: 1,
                rate_bps: 1 << 33,
                bytes: 1400,
                for_ns: u64::MAX,
            },
            Request::Reports {
                of,
                run: 1,
                from: 7,
                most: 16,
            },
            Request::ClockPing { client_ns: 12 },
            Request::Bye,
        ] {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert_eq!(Request::decode(&bytes), Ok(request));
            assert!(Request::decode(&bytes[..bytes.len() - 1]).is_err());
            bytes.push(0);
            assert!(Request::decode(&bytes).is_err());
        }
    }
}
