//! A packet whose journey is measured.

use std::net::IpAddr;

use super::{HEADER_BYTES, Malformed, TAG_BYTES};
use crate::field::Reader;

/// Length of a [`Probe`] on the wire, without header, tag and filler.
pub const PROBE_BYTES: usize = 24;

/// The sealed part of a probe. Behind it comes filler up to the wanted length, which nothing vouches for.
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

impl Probe {
    /// As it stands on the wire before it is sealed.
    pub fn to_bytes(&self) -> [u8; PROBE_BYTES] {
        let mut bytes = [0; PROBE_BYTES];
        bytes[..4].copy_from_slice(&self.run.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.train.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.index.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.answer_packets.to_be_bytes());
        bytes[14..16].copy_from_slice(&self.answer_bytes.to_be_bytes());
        bytes[16..].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes
    }

    /// The probe in an opened body.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let probe = Self {
            run: reader.take()?,
            train: reader.take()?,
            index: reader.take()?,
            answer_packets: reader.take()?,
            answer_bytes: reader.take()?,
            sent_ns: reader.take()?,
        };
        reader.end()?;
        Ok(probe)
    }
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
