//! A second, plain implementation of segmentation by the RFCs, written independently: the reference of the tests.

use crate::offload::{VNET_BYTES, Vnet};

/// Return the packets on the wire for a packet with the device's header, all checksums complete.
pub fn wire(bytes: &[u8]) -> Vec<Vec<u8>> {
    let vnet = Vnet::parse(bytes[..VNET_BYTES].try_into().unwrap());
    let packet = &bytes[VNET_BYTES..];
    if !vnet.partial_checksum {
        assert!(!vnet.is_super(), "only unfinished packets can be cut");
        return vec![packet.to_vec()];
    }
    let v4 = packet[0] >> 4 == 4;
    let transport = usize::from(vnet.checksum_start);
    let tcp = vnet.checksum_offset == 16;
    let headers = transport
        + if tcp {
            usize::from(packet[transport + 12] >> 4) * 4
        } else {
            8
        };
    let payload = &packet[headers..];
    let parts: Vec<&[u8]> = match vnet.is_super() {
        false => vec![payload],
        true => payload.chunks(usize::from(vnet.segment)).collect(),
    };
    let last = parts.len() - 1;
    let mut sent = 0;
    let mut packets = Vec::new();
    for (number, part) in parts.into_iter().enumerate() {
        let mut one = packet[..headers].to_vec();
        one.extend(part);
        let total = one.len();
        if v4 {
            one[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            let identification = u16::from_be_bytes([packet[4], packet[5]]) as usize + number;
            one[4..6].copy_from_slice(&(identification as u16).to_be_bytes());
            one[10..12].fill(0);
            let checksum = !ones_complement(&one[..transport], 0);
            one[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            one[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        }
        if tcp {
            let first =
                u32::from_be_bytes(packet[transport + 4..transport + 8].try_into().unwrap());
            one[transport + 4..transport + 8]
                .copy_from_slice(&first.wrapping_add(sent).to_be_bytes());
            if number != last {
                one[transport + 13] &= !0b0000_1001; // clear FIN and PSH
            }
            if number != 0 {
                one[transport + 13] &= !0b1000_0000; // clear CWR
            }
        } else {
            one[transport + 4..transport + 6]
                .copy_from_slice(&((total - transport) as u16).to_be_bytes());
        }
        finish(&mut one, transport, usize::from(vnet.checksum_offset), v4);
        sent += part.len() as u32;
        packets.push(one);
    }
    packets
}

/// Writes the transport checksum, computed from the packet alone. A sum of zero is written as `0xffff`, because zero
/// means "no checksum" in UDP (RFC 768). Linux does the same for TCP, where both forms are valid.
fn finish(packet: &mut [u8], transport: usize, offset: usize, v4: bool) {
    packet[transport + offset..transport + offset + 2].fill(0);
    let pseudo = pseudo_header(packet, transport, offset, v4);
    let checksum = match !ones_complement(&packet[transport..], pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    packet[transport + offset..transport + offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Return the sum over the pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1).
pub fn pseudo_header(packet: &[u8], transport: usize, offset: usize, v4: bool) -> u64 {
    let addresses = if v4 { &packet[12..20] } else { &packet[8..40] };
    let protocol = if offset == 16 { 6 } else { 17 };
    u64::from(ones_complement(addresses, 0)) + protocol + (packet.len() - transport) as u64
}

/// Return the ones' complement sum of RFC 1071, plus `add`.
pub fn ones_complement(bytes: &[u8], add: u64) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum = words.sum::<u64>() + add;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Panics unless lengths, checksums and device header of a packet for the kernel are consistent.
pub fn check(bytes: &[u8]) {
    let vnet = Vnet::parse(bytes[..VNET_BYTES].try_into().unwrap());
    let packet = &bytes[VNET_BYTES..];
    if !vnet.partial_checksum {
        assert!(!vnet.is_super());
        return;
    }
    let transport = usize::from(vnet.checksum_start);
    let offset = usize::from(vnet.checksum_offset);
    let field = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let v4 = packet[0] >> 4 == 4;
    assert!(packet.len() <= 65_535);
    if v4 {
        assert_eq!(field(2), packet.len(), "total length");
        let sum = ones_complement(&packet[..transport], 0);
        assert_eq!(sum, 0xffff, "header checksum");
    } else {
        assert_eq!(field(4), packet.len() - 40, "payload length");
    }
    let headers = if offset == 16 {
        transport + usize::from(packet[transport + 12] >> 4) * 4
    } else {
        assert_eq!(field(transport + 4), packet.len() - transport, "UDP length");
        transport + 8
    };
    // Initial sum from which the kernel completes the checksum: 0 and 0xffff are the same number.
    let open = field(transport + offset) % 0xffff;
    let pseudo = ones_complement(&[], pseudo_header(packet, transport, offset, v4));
    assert_eq!(open, usize::from(pseudo) % 0xffff, "pseudo header");
    if vnet.is_super() {
        assert_eq!(usize::from(vnet.header), headers, "length of the headers");
        assert!(vnet.segment > 0 && packet.len() - headers > usize::from(vnet.segment));
    }
}
