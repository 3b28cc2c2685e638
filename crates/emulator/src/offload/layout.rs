//! Layout of a packet: payload, and headers that each segment repeats.

use super::vnet::{GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP, Vnet};
use crate::packet::{TCP, UDP, u16_at};

/// Maximum bytes of headers (network and transport together) of a segmented packet.
pub const MOST_HEADER: usize = 192;

/// Offset of the checksum in the headers of TCP and of UDP.
pub(super) const CHECKSUM_OF_TCP: u16 = 16;
pub(super) const CHECKSUM_OF_UDP: u16 = 6;

/// Transport protocol of a packet, if it can be segmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Not segmented: passes unchanged.
    #[default]
    Opaque,
    /// TCP with an open checksum.
    Tcp,
    /// UDP with an open checksum.
    Udp,
}

/// The parts of a packet. A packet that is no super-packet has one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Transport protocol.
    pub transport: Transport,
    /// True for IPv6.
    pub v6: bool,
    /// True without IPv4 options, IPv6 extension headers and fragmentation: segments may join another packet.
    pub plain: bool,
    /// Bytes before the transport header.
    pub network: u16,
    /// Bytes before the payload, repeated in each segment.
    pub header: u16,
    /// Payload of each segment but the last, which has the remaining bytes.
    pub segment: u16,
    /// IP length, bytes.
    pub length: u32,
}

impl Layout {
    /// Return the layout of a packet from the device.
    ///
    /// Only packets that the kernel may have left unfinished are segmented: TCP and UDP with an open checksum and
    /// consistent lengths. All others are opaque, have one segment, and pass unchanged.
    pub fn of(vnet: Vnet, packet: &[u8]) -> Self {
        Self::of_unfinished(vnet, packet).unwrap_or(Self {
            length: packet.len() as u32,
            ..Self::default()
        })
    }

    fn of_unfinished(vnet: Vnet, packet: &[u8]) -> Option<Self> {
        if !vnet.partial_checksum {
            return None;
        }
        let network = usize::from(vnet.checksum_start);
        let (v6, protocol, plain) = match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 0x0f) * 4;
                let fragment = u16_at(packet, 6)? & 0x3fff != 0;
                if usize::from(u16_at(packet, 2)?) != packet.len() || header != network || fragment
                {
                    return None;
                }
                (false, *packet.get(9)?, header == 20)
            }
            6 => {
                if usize::from(u16_at(packet, 4)?) + 40 != packet.len() || network < 40 {
                    return None;
                }
                let plain = network == 40;
                // After extension headers, only the position of the checksum shows the protocol.
                let protocol = match vnet.checksum_offset {
                    CHECKSUM_OF_TCP => TCP,
                    CHECKSUM_OF_UDP => UDP,
                    _ => return None,
                };
                (true, if plain { *packet.get(6)? } else { protocol }, plain)
            }
            _ => return None,
        };
        let transport = packet.get(network..)?;
        let (kind, header) = match (protocol, vnet.checksum_offset) {
            (TCP, CHECKSUM_OF_TCP) => (Transport::Tcp, usize::from(*transport.get(12)? >> 4) * 4),
            (UDP, CHECKSUM_OF_UDP) => (Transport::Udp, 8),
            _ => return None,
        };
        let least = if kind == Transport::Tcp { 20 } else { 8 };
        let payload = transport.len().checked_sub(header)?;
        if header < least || network + header > MOST_HEADER {
            return None;
        }
        let segment = match (vnet.kind & !GSO_ECN, kind, v6) {
            (0, ..) => payload as u16, // consistent lengths: at most 65535 bytes
            (GSO_TCPV4, Transport::Tcp, false)
            | (GSO_TCPV6, Transport::Tcp, true)
            | (GSO_UDP, Transport::Udp, _)
                if vnet.segment > 0 =>
            {
                vnet.segment
            }
            _ => return None,
        };
        Some(Self {
            transport: kind,
            v6,
            plain,
            network: network as u16,
            header: (network + header) as u16,
            segment,
            length: packet.len() as u32,
        })
    }

    /// Return the number of segments.
    pub fn segments(&self) -> u16 {
        let payload = self.length - u32::from(self.header);
        match (self.transport, self.segment) {
            (Transport::Opaque, _) | (_, 0) => 1,
            (_, segment) => payload.div_ceil(u32::from(segment)).max(1) as u16,
        }
    }

    /// Return the offset of the payload of the segment at `index` in a packet that is not opaque.
    pub fn start(&self, index: u16) -> usize {
        usize::from(self.header) + usize::from(index) * usize::from(self.segment)
    }

    /// Return the payload bytes of the segment at `index`; unknown for an opaque packet.
    pub fn payload(&self, index: u16) -> usize {
        (self.length as usize - self.start(index)).min(usize::from(self.segment))
    }

    /// Return the IP length of the segment at `index`.
    pub fn size(&self, index: u16) -> usize {
        match self.transport {
            Transport::Opaque => self.length as usize,
            Transport::Tcp | Transport::Udp => usize::from(self.header) + self.payload(index),
        }
    }
}
