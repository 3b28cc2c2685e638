//! Records of the packet log.

use cellbed_link::records::PacketRecord;
use cellbed_link::{Fate, Outcome};
use cellbed_tcp::SegmentKind;

use crate::event::DatagramKind;
use crate::pool::{Content, Packet};

/// Transport protocols (IANA numbers).
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Length of the headers of IPv4 and of UDP or an ICMP echo.
const DATAGRAM_HEADERS: u32 = 28;

/// Return the record of a packet that came out of a direction, or was dropped in it.
pub(super) fn record(packet: &Packet, direction: usize, outcome: &Outcome<u32>) -> PacketRecord {
    let (protocol, tcp_sequence, payload) = match packet.content {
        Content::Segment { segment, .. } => {
            let opening = segment.kind != SegmentKind::Data;
            // A SYN takes the number before the first byte.
            let sequence = segment.start as u32 + u32::from(!opening);
            (TCP, sequence, segment.length as u32)
        }
        Content::Reset { sequence, .. } => (TCP, sequence, 0),
        Content::Datagram { kind, .. } => {
            let protocol = match kind {
                DatagramKind::Icmp => ICMP,
                DatagramKind::Udp => UDP,
            };
            let payload = (outcome.size.0 as u32).saturating_sub(DATAGRAM_HEADERS);
            (protocol, 0, payload)
        }
    };
    PacketRecord {
        packet: packet.number,
        arrived: outcome.arrived,
        released: outcome.released,
        departed: outcome.departed,
        observed: outcome.departed,
        direction: direction as u16,
        drop: match outcome.fate {
            Fate::Delivered | Fate::Doubled => 0,
            Fate::Dropped(reason) => reason as u8,
        },
        protocol,
        bytes: outcome.size.0 as u32,
        source_port: packet.ports.0,
        destination_port: packet.ports.1,
        tcp_sequence,
        payload,
        source_vertex: packet.from,
        destination_vertex: packet.to,
    }
}
