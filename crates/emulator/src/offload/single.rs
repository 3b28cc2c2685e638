//! A segment as a separate packet with complete checksums.

use super::header::{Shape, fold, mark, put, write_header};
use super::layout::Transport;
use super::run::View;
use super::vnet::{VNET_BYTES, Vnet};
use super::{MOST_HEADER, Run};

/// The packet that a segment is on the wire, with the device's header before it: all checksums are finished, so that
/// whoever gets it looks at them.
///
/// `before` is the device's header of the packet that the segment belongs to.
pub fn single(before: &[u8; VNET_BYTES], view: View<'_>) -> Vec<u8> {
    let layout = view.layout;
    let mut vnet = Vnet::parse(before);
    let mut bytes = vec![0; VNET_BYTES];
    if layout.transport == Transport::Opaque {
        bytes.extend_from_slice(view.packet);
        if view.marked {
            mark(&mut bytes[VNET_BYTES..]);
        }
    } else {
        let shape: Shape = Run::new(view).shape(view);
        let mut header = [0; MOST_HEADER];
        let (length, single) = write_header(&mut header, view.packet, layout, &shape);
        vnet = single;
        bytes.extend_from_slice(&header[..length]);
        let start = layout.start(view.index);
        bytes.extend_from_slice(&view.packet[start..start + layout.payload(view.index)]);
    }
    if vnet.cut.is_none() && finish(&mut bytes[VNET_BYTES..], vnet) {
        vnet = Vnet::default();
    }
    bytes[..VNET_BYTES].copy_from_slice(&vnet.to_bytes());
    bytes
}

/// Finishes the open checksum of a packet behind the device's header, for a device that does not.
pub fn complete(bytes: &mut [u8]) {
    if let Some((before, packet)) = bytes.split_first_chunk_mut::<VNET_BYTES>()
        && finish(packet, Vnet::parse(before))
    {
        *before = Vnet::default().to_bytes();
    }
}

/// Finishes an open checksum (virtio 1.2, section 5.1.6.2); `false` if the header points at nothing.
fn finish(packet: &mut [u8], vnet: Vnet) -> bool {
    if !vnet.partial_checksum {
        return true;
    }
    let at = usize::from(vnet.checksum_offset);
    let Some(transport) = packet.get_mut(usize::from(vnet.checksum_start)..) else {
        return false;
    };
    if transport.len() < at + 2 {
        return false;
    }
    let words = transport.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(*high) << 8 | u32::from(*low),
        _ => u32::from(pair[0]) << 8,
    });
    let checksum = match !fold(words.sum()) {
        0 => 0xffff, // none, to UDP; the same number to all others
        sum => sum,
    };
    put(transport, at, checksum);
    true
}
