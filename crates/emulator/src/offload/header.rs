//! The header of one segment, or of a run of segments, derived from the whole packet's header.

use super::layout::{CHECKSUM_OF_TCP, CHECKSUM_OF_UDP, MOST_HEADER, Transport};
use super::run::{Run, View, ending};
use super::vnet::{GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP, VNET_BYTES, Vnet};
use crate::packet::TCP;

/// Flags of TCP (RFC 9293 §3.1, RFC 3168 §6.1).
pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const URG: u8 = 0x20;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;

/// Write the header of a run of segments, from `first` to `last`, into `out`. Return the length, and the header for
/// the device.
///
/// Like the kernel's segmentation: IPv4 identification and TCP sequence continue from segment to segment. FIN and PSH
/// are in the last segment only, CWR in the first. The transport checksum stays open: its field holds the sum over the
/// pseudo header, in which only the length changes.
pub fn write_header(
    out: &mut [u8; MOST_HEADER],
    run: &Run,
    first: View<'_>,
    last: View<'_>,
) -> (usize, Vnet) {
    let (packet, layout) = (first.packet, first.layout);
    let length = usize::from(layout.header);
    let header = &mut out[..length];
    header.copy_from_slice(&packet[..length]);
    let (network, transport) = header.split_at_mut(usize::from(layout.network));
    if run.marked {
        mark(network);
    }
    if layout.v6 {
        put(network, 4, (length - 40 + run.payload) as u16);
    } else {
        put(network, 2, (length + run.payload) as u16);
        put(network, 4, get(network, 4).wrapping_add(run.first));
        put(network, 10, 0);
        put(network, 10, !sum(network));
    }

    let before = layout.length - u32::from(layout.network);
    let after = transport.len() + run.payload;
    let mut vnet = Vnet::unfinished(layout.network, CHECKSUM_OF_UDP);
    let mut kind = GSO_UDP;
    if layout.transport == Transport::Tcp {
        let sequence = word(transport, 4);
        let skipped = u32::from(run.first) * u32::from(layout.segment);
        transport[4..8].copy_from_slice(&sequence.wrapping_add(skipped).to_be_bytes());
        let flags = &mut transport[13];
        *flags = *flags & !(FIN | PSH) | ending(&last);
        if run.first > 0 {
            *flags &= !CWR;
        }
        kind = if layout.v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        if *flags & CWR != 0 {
            kind |= GSO_ECN;
        }
        vnet.checksum_offset = CHECKSUM_OF_TCP;
    } else {
        put(transport, 4, after as u16);
    }
    let at = usize::from(vnet.checksum_offset);
    let pseudo = u32::from(get(transport, at)) + u32::from(!(before as u16)) + after as u32;
    put(transport, at, fold(pseudo));
    if run.segments > 1 {
        vnet.kind = kind;
        vnet.header = layout.header;
        vnet.segment = run.segment as u16;
    }
    (length, vnet)
}

/// Set the ECN field of an IP header to "congestion experienced" (RFC 3168, section 5); the first 12 bytes are enough.
/// The IPv4 checksum is updated, not recomputed (RFC 1624, equation 3), so that a wrong checksum stays wrong.
pub fn mark(header: &mut [u8]) {
    if header[0] >> 4 == 6 {
        header[1] |= 0x30;
        return;
    }
    let before = get(header, 0);
    header[1] |= 0x03;
    let sum = u32::from(!get(header, 10)) + u32::from(!before) + u32::from(get(header, 0));
    put(header, 10, !fold(sum));
}

/// Complete the headers of a TCP packet made here, after the device's header: the IP length, the IPv4 checksum, and
/// the sum over the pseudo header. The device completes the TCP checksum. network: bytes of the IP header, without
/// options.
pub fn seal(bytes: &mut [u8], network: usize) {
    let (vnet, packet) = bytes.split_at_mut(VNET_BYTES);
    let length = packet.len();
    if network == 40 {
        put(packet, 4, (length - network) as u16);
    } else {
        put(packet, 2, length as u16);
        put(packet, 10, 0);
        put(packet, 10, !sum(&packet[..network]));
    }
    let pseudo = fold(pseudo_sum(packet, network));
    put(packet, network + usize::from(CHECKSUM_OF_TCP), pseudo);
    vnet.copy_from_slice(&Vnet::unfinished(network as u16, CHECKSUM_OF_TCP).to_bytes());
}

/// Return whether a TCP packet's checksum is right. network: bytes of the IP header, without options.
pub fn is_intact(packet: &[u8], network: usize) -> bool {
    fold(pseudo_sum(packet, network) + u32::from(sum(&packet[network..]))) == 0xffff
}

/// Return the sum over the pseudo header of a TCP packet (RFC 9293 §3.1).
fn pseudo_sum(packet: &[u8], network: usize) -> u32 {
    let addresses = if network == 40 { 8..40 } else { 12..20 };
    let after = (packet.len() - network) as u32;
    u32::from(sum(&packet[addresses])) + u32::from(TCP) + after
}

/// Read 16 bits.
pub fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Read 32 bits.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(get(bytes, at)) << 16 | u32::from(get(bytes, at + 2))
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Return the ones' complement sum of RFC 1071.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let words = pairs.iter().map(|pair| u32::from(get(pair, 0)));
    let last = odd.first().map_or(0, |byte| u32::from(*byte) << 8);
    fold(words.sum::<u32>() + last)
}

/// Fold a sum into 16 bits.
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
