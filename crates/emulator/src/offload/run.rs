//! Segments that leave together and can be written as one super-packet.

use super::header::{CWR, FIN, PSH, RST, SYN, URG, get, mark, put, sum, word, write_header};
use super::layout::{Layout, MOST_HEADER, Transport};
use super::vnet::{VNET_BYTES, Vnet};

/// Maximum bytes of an IP packet.
const LARGEST: usize = 65_535;

/// Maximum datagrams of a super-packet, as in the kernel's receive offload.
const MOST_DATAGRAMS: u16 = 64;

/// One segment of a packet, with the packet's data.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The segment's packet, from the IP header on.
    pub packet: &'a [u8],
    /// Layout of the packet.
    pub layout: &'a Layout,
    /// Index of the segment in the packet.
    pub index: u16,
    /// True if the path marked it "congestion experienced".
    pub marked: bool,
}

/// A run of segments so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first segment in its packet.
    pub(super) first: u16,
    pub(super) segments: u16,
    /// Payload bytes of each segment but the last, and of all segments.
    pub(super) segment: usize,
    pub(super) payload: usize,
    /// True if a segment shorter than the others ended the run.
    closed: bool,
    /// True if the path marked the segments "congestion experienced" (RFC 3168).
    pub(super) marked: bool,
}

impl Run {
    /// A run of one segment.
    pub fn new(view: View<'_>) -> Self {
        let opaque = view.layout.transport == Transport::Opaque;
        let payload = if opaque {
            0
        } else {
            view.layout.payload(view.index)
        };
        Self {
            first: view.index,
            segments: 1,
            segment: payload,
            payload,
            closed: opaque || payload == 0,
            marked: view.marked,
        }
    }

    /// Return the number of segments.
    pub fn segments(&self) -> u16 {
        self.segments
    }

    /// Add `next` after `last`, the last segment so far, if the kernel's segmentation of the longer super-packet
    /// yields `next` unchanged. `neighbours`: the two are neighbours in one packet.
    pub fn join(&mut self, last: View<'_>, next: View<'_>, neighbours: bool) -> bool {
        let layout = next.layout;
        if self.closed || layout.transport == Transport::Opaque || self.marked != next.marked {
            return false;
        }
        let payload = layout.payload(next.index);
        let fits = payload > 0
            && payload <= self.segment
            && usize::from(layout.header) + self.payload + payload <= LARGEST
            && (layout.transport == Transport::Tcp || self.segments < MOST_DATAGRAMS || neighbours);
        if !fits || !(neighbours || continues(&last, &next)) {
            return false;
        }
        self.segments += 1;
        self.payload += payload;
        self.closed = payload < self.segment;
        true
    }
}

/// Return whether a segment of another packet continues where `last` ends, under the same header.
fn continues(last: &View<'_>, next: &View<'_>) -> bool {
    let (one, two) = (last.layout, next.layout);
    let alike = one.plain
        && two.plain
        && one.transport == two.transport
        && one.v6 == two.v6
        && one.header == two.header;
    if !alike {
        return false;
    }
    let network = usize::from(one.network);
    let (a, b) = (
        &last.packet[..usize::from(one.header)],
        &next.packet[..usize::from(two.header)],
    );
    let ((a, a_transport), (b, b_transport)) = (a.split_at(network), b.split_at(network));
    let same_network = if one.v6 {
        a[..4] == b[..4] && a[6..] == b[6..]
    } else {
        let identification = |header: &[u8], index: u16| get(header, 4).wrapping_add(index);
        a[..2] == b[..2]
            && a[6..10] == b[6..10]
            && a[12..] == b[12..]
            && identification(a, last.index).wrapping_add(1) == identification(b, next.index)
    };
    same_network
        && match one.transport {
            Transport::Tcp => same_tcp(last, a_transport, next, b_transport),
            _ => a_transport[..4] == b_transport[..4],
        }
}

fn same_tcp(last: &View<'_>, a: &[u8], next: &View<'_>, b: &[u8]) -> bool {
    let sequence = |header: &[u8], view: &View<'_>, behind: usize| {
        let before = usize::from(view.index) * usize::from(view.layout.segment) + behind;
        word(header, 4).wrapping_add(before as u32)
    };
    let cwr = if next.index == 0 { b[13] & CWR } else { 0 };
    let own = FIN | PSH | CWR;
    a[..4] == b[..4]
        && sequence(a, last, last.layout.payload(last.index)) == sequence(b, next, 0)
        && a[8..13] == b[8..13]
        && a[13] & !own == b[13] & !own
        && a[13] & (SYN | RST | URG) == 0
        && ending(last) == 0
        && cwr == 0
        && a[14..16] == b[14..16]
        && a[18..] == b[18..]
}

/// Return FIN and PSH, set only in the last segment of a packet.
pub(super) fn ending(view: &View<'_>) -> u8 {
    let is_last = view.index + 1 == view.layout.segments();
    match view.layout.transport {
        Transport::Tcp if is_last => {
            view.packet[usize::from(view.layout.network) + 13] & (FIN | PSH)
        }
        _ => 0,
    }
}

/// Return the packet of a segment as on the wire, after the device's header. All checksums are complete, so that the
/// receiver verifies them.
///
/// `before`: the device's header of the segment's packet.
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
        let mut header = [0; MOST_HEADER];
        let (length, single) = write_header(&mut header, &Run::new(view), view, view);
        vnet = single;
        bytes.extend_from_slice(&header[..length]);
        let start = layout.start(view.index);
        bytes.extend_from_slice(&view.packet[start..start + layout.payload(view.index)]);
    }
    if !vnet.is_super() && finish(&mut bytes[VNET_BYTES..], vnet) {
        vnet = Vnet::default();
    }
    bytes[..VNET_BYTES].copy_from_slice(&vnet.to_bytes());
    bytes
}

/// Complete an open checksum (virtio 1.2, section 5.1.6.2); return `false` for an invalid position.
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
    let checksum = match !sum(transport) {
        0 => 0xffff, // zero means no checksum in UDP; equal for all others
        sum => sum,
    };
    put(transport, at, checksum);
    true
}
