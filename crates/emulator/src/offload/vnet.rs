//! The header before each packet of a device with `IFF_VNET_HDR`.

/// Length of the header in bytes.
pub const VNET_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;

/// Kinds of super-packets: TCP over IPv4, TCP over IPv6, and UDP, each segment a datagram.
pub const GSO_TCPV4: u8 = 1;
pub const GSO_TCPV6: u8 = 4;
pub const GSO_UDP: u8 = 5;
/// Flag in the kind of a super-packet where only the first segment has CWR.
pub const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr` (virtio 1.2, section 5.1.6), in the machine's byte order like in the TUN driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// True if the transport checksum is incomplete; its field holds the sum over the pseudo header.
    pub partial_checksum: bool,
    /// Kind of a super-packet, with [`GSO_ECN`] if CWR is set.
    pub kind: u8,
    /// Bytes of headers; only a hint.
    pub header: u16,
    /// Payload bytes of a segment.
    pub segment: u16,
    /// Offset of the transport header.
    pub checksum_start: u16,
    /// Offset of the checksum in the transport header.
    pub checksum_offset: u16,
}

impl Vnet {
    /// A header for a packet whose transport header begins at `start`, with an incomplete checksum at `offset` in it.
    pub fn unfinished(start: u16, offset: u16) -> Self {
        Self {
            partial_checksum: true,
            checksum_start: start,
            checksum_offset: offset,
            ..Self::default()
        }
    }

    /// Return whether the packet is a super-packet.
    pub fn is_super(&self) -> bool {
        self.kind & !GSO_ECN != 0
    }

    /// Read the header.
    pub fn parse(bytes: &[u8; VNET_BYTES]) -> Self {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            partial_checksum: bytes[0] & NEEDS_CHECKSUM != 0,
            kind: bytes[1],
            header: field(2),
            segment: field(4),
            checksum_start: field(6),
            checksum_offset: field(8),
        }
    }

    /// Return the header in the driver's format.
    pub fn to_bytes(self) -> [u8; VNET_BYTES] {
        let mut bytes = [0; VNET_BYTES];
        bytes[0] = u8::from(self.partial_checksum) * NEEDS_CHECKSUM;
        bytes[1] = self.kind;
        for (at, field) in [
            (2, self.header),
            (4, self.segment),
            (6, self.checksum_start),
            (8, self.checksum_offset),
        ] {
            bytes[at..at + 2].copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }
}
