//! The header before each packet of a device with `IFF_VNET_HDR`.

/// Length of the header in bytes.
pub const VNET_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;

const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Flag in the type of a super-packet where only the first segment has CWR.
const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr` (virtio 1.2, section 5.1.6), in the machine's byte order like in the TUN driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// True if the transport checksum is incomplete; its field holds the sum over the pseudo header.
    pub partial_checksum: bool,
    /// Segmentation of a super-packet; `None` for any other packet.
    pub cut: Option<Cut>,
    /// Bytes of headers; only a hint.
    pub header: u16,
    /// Payload bytes of a segment.
    pub segment: u16,
    /// Offset of the transport header.
    pub checksum_start: u16,
    /// Offset of the checksum in the transport header.
    pub checksum_offset: u16,
}

/// Kind of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// TCP over IPv4.
    Tcp4 {
        /// True if CWR is set.
        cwr: bool,
    },
    /// TCP over IPv6.
    Tcp6 {
        /// True if CWR is set.
        cwr: bool,
    },
    /// UDP, each segment a datagram.
    Udp,
    /// An unknown type.
    Other(u8),
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

    /// Reads the header.
    pub fn parse(bytes: &[u8; VNET_BYTES]) -> Self {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let cwr = bytes[1] & GSO_ECN != 0;
        Self {
            partial_checksum: bytes[0] & NEEDS_CHECKSUM != 0,
            cut: match bytes[1] & !GSO_ECN {
                0 => None,
                GSO_TCPV4 => Some(Cut::Tcp4 { cwr }),
                GSO_TCPV6 => Some(Cut::Tcp6 { cwr }),
                GSO_UDP => Some(Cut::Udp),
                other => Some(Cut::Other(other)),
            },
            header: field(2),
            segment: field(4),
            checksum_start: field(6),
            checksum_offset: field(8),
        }
    }

    /// Return the header in the driver's format.
    pub fn to_bytes(self) -> [u8; VNET_BYTES] {
        let ecn = |cwr: bool| if cwr { GSO_ECN } else { 0 };
        let mut bytes = [0; VNET_BYTES];
        bytes[0] = u8::from(self.partial_checksum) * NEEDS_CHECKSUM;
        bytes[1] = match self.cut {
            None => 0,
            Some(Cut::Tcp4 { cwr }) => GSO_TCPV4 | ecn(cwr),
            Some(Cut::Tcp6 { cwr }) => GSO_TCPV6 | ecn(cwr),
            Some(Cut::Udp) => GSO_UDP,
            Some(Cut::Other(other)) => other,
        };
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
