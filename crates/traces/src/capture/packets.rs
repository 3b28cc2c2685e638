//! The packets of a capture, pcap or pcapng, one after the other.

use std::io::{self, Read};

use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};

use super::link_layer::{Header, LinkType};
use crate::error::{LeftOut, Result, refuse};

/// Size of the read buffer, bytes; larger if a block is.
const BUFFER: usize = 1 << 20;
/// Size of the buffer beyond a small capture, bytes, so that its end is seen.
const SPARE: usize = 1 << 10;
/// Maximum plausible block, bytes: no tool captures packets above 256 KiB.
const LARGEST_BLOCK: usize = 1 << 24;
/// Maximum length of a partly captured packet, bytes: twice the largest packet that Linux passes to a network card for
/// segmentation (IPv6 jumbograms of 512 KiB). Each 1500 bytes become an opportunity: a few damaged lengths would fill a
/// disk.
const LARGEST_WHOLE: u32 = 1 << 20;
const NANOS: i128 = 1_000_000_000;

/// An IP packet of a capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Time stamp, ns since 1970.
    pub stamp_ns: i64,
    pub header: Header,
}

/// Facts about a capture besides its packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub packets: u64,
    /// Number of IP packets.
    pub flows: u64,
    pub fragments: u64,
    pub unstamped: u64,
    pub unknown_link: Option<u32>,
    /// True if the capture ends in the middle of a packet.
    pub cut: bool,
    /// Reason why the rest is unreadable.
    pub damage: Option<String>,
    /// Packets without a length on the wire; the IP header's length counts.
    pub short: u64,
    pub left_out: LeftOut,
}

#[derive(Clone, Copy)]
struct Interface {
    link: u32,
    /// Units of its stamps per second.
    resolution: u128,
    offset_s: i64,
}

/// Pass each IP packet of a capture to `take`, with its number.
pub(super) fn each_packet(
    mut source: impl Read,
    length: u64,
    mut take: impl FnMut(u64, Packet) -> Result<()>,
) -> Result<Survey> {
    let mut magic = Vec::new();
    (&mut source).take(4).read_to_end(&mut magic)?;
    let layout = Layout {
        newer: magic == [0x0a, 0x0d, 0x0d, 0x0a],
        big_endian: magic.first() == Some(&0xa1),
    };
    let mut failure = None;
    let source = Filled {
        source: io::Cursor::new(magic).chain(source),
        failure: &mut failure,
    };
    // Zeroing a whole buffer takes longer than reading a small capture.
    let buffer = usize::try_from(length).map_or(BUFFER, |it| BUFFER.min(it.saturating_add(SPARE)));
    let done = if layout.newer {
        each_block(PcapNGReader::new(buffer, source), buffer, layout, &mut take)
    } else {
        each_block(
            LegacyPcapReader::new(buffer, source),
            buffer,
            layout,
            &mut take,
        )
    };
    match failure {
        Some(error) => Err(error.into()),
        None => done,
    }
}

fn each_block<R: PcapReaderIterator>(
    reader: std::result::Result<R, PcapError<&'static [u8]>>,
    mut capacity: usize,
    mut layout: Layout,
    take: &mut impl FnMut(u64, Packet) -> Result<()>,
) -> Result<Survey> {
    let reader = reader.map_err(|error| match error {
        PcapError::Incomplete(_) | PcapError::Eof => "capture truncated in its header",
        _ => "its header is not one of a pcap or pcapng capture",
    });
    let mut reader = reader.or_else(refuse)?;
    let mut survey = Survey::default();
    let mut interfaces: Vec<Option<Interface>> = Vec::new();
    loop {
        if layout.too_short(reader.data()) {
            return survey.end("claims to be shorter than any block");
        }
        match reader.next() {
            Ok((length, block)) => {
                if let PcapBlockOwned::NG(Block::SectionHeader(section)) = &block {
                    layout.big_endian = section.big_endian();
                }
                if let Some(how) = block_read(&block, &mut interfaces, &mut survey, take)? {
                    return survey.end(how);
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return Ok(survey),
            Err(PcapError::Incomplete(_)) => refill(&mut reader)?,
            Err(PcapError::UnexpectedEof) => {
                if let Some(how) = layout.impossible(reader.data()) {
                    return survey.end(how);
                }
                survey.cut = true;
                return Ok(survey);
            }
            Err(PcapError::BufferTooSmall) => {
                if let Some(how) = layout.impossible(reader.data()) {
                    return survey.end(how);
                }
                capacity *= 2;
                if capacity > LARGEST_BLOCK {
                    return survey.end("claims to be larger than any packet");
                }
                reader.grow(capacity);
                refill(&mut reader)?;
            }
            Err(_) => return survey.end("is damaged"),
        }
    }
}

fn refill<R: PcapReaderIterator>(reader: &mut R) -> Result<()> {
    match reader.refill() {
        Ok(()) => Ok(()),
        Err(_) => Err(io::Error::other("the source failed").into()),
    }
}

impl Survey {
    /// End before damaged data. Errors if no packet precedes them.
    fn end(mut self, how: &str) -> Result<Self> {
        let number = self.packets + 1;
        let reason = format!(
            "packet {number}: the data there {how}: the capture cannot be read beyond this point"
        );
        if self.flows == 0 {
            return refuse(reason);
        }
        self.damage = Some(reason);
        Ok(self)
    }
}

/// Read a block. Return damage that prevents further reading.
fn block_read(
    block: &PcapBlockOwned<'_>,
    interfaces: &mut Vec<Option<Interface>>,
    survey: &mut Survey,
    take: &mut impl FnMut(u64, Packet) -> Result<()>,
) -> Result<Option<&'static str>> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let resolution = if header.is_nanosecond_precision() {
                1_000_000_000
            } else {
                1_000_000
            };
            interfaces.push(Some(Interface {
                // The upper half may describe a frame check sequence.
                link: header.network.0 as u32 & 0xffff,
                resolution,
                offset_s: 0,
            }));
        }
        PcapBlockOwned::Legacy(packet) => {
            if packet.caplen > LARGEST_PACKET {
                return Ok(Some("claims to be larger than any packet"));
            }
            survey.packets += 1;
            let Some(interface) = interfaces[0] else {
                return Ok(None);
            };
            let stamp = i128::from(packet.ts_sec) * NANOS
                + i128::from(packet.ts_usec) * NANOS / interface.resolution as i128;
            frame(
                interface.link,
                stamp,
                packet.data,
                packet.origlen,
                survey,
                take,
            )?;
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(it)) => {
            let resolution = match it.if_tsresol {
                power @ 0..=19 => Some(10u128.pow(power.into())),
                power @ 0x80..=0xbf => Some(1 << (power & 0x7f)),
                _ => None,
            };
            interfaces.push(resolution.map(|resolution| Interface {
                link: it.linktype.0 as u32,
                resolution,
                offset_s: it.if_tsoffset,
            }));
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            survey.packets += 1;
            let interface = interfaces.get(packet.if_id as usize).copied().flatten();
            let Some(interface) = interface else {
                let reason = format!(
                    "it is of interface {}, which the capture does not describe with a possible unit of time",
                    packet.if_id
                );
                survey.left_out.add_packet(survey.packets, &reason);
                return Ok(None);
            };
            let ticks = (u128::from(packet.ts_high) << 32) | u128::from(packet.ts_low);
            let stamp = (ticks * NANOS as u128 / interface.resolution) as i128
                + i128::from(interface.offset_s) * NANOS;
            frame(
                interface.link,
                stamp,
                packet.packet_data(),
                packet.origlen,
                survey,
                take,
            )?;
        }
        PcapBlockOwned::NG(Block::SimplePacket(_)) => {
            survey.packets += 1;
            survey.unstamped += 1;
        }
        PcapBlockOwned::NG(_) => {}
    }
    Ok(None)
}

fn frame(
    link: u32,
    stamp: i128,
    data: &[u8],
    whole: u32,
    survey: &mut Survey,
    take: &mut impl FnMut(u64, Packet) -> Result<()>,
) -> Result<()> {
    let number = survey.packets;
    let mut leave_out = |reason: String| {
        survey.left_out.add_packet(number, &reason);
        Ok(())
    };
    let Some(kind) = LinkType::of(link) else {
        survey.unknown_link = Some(link);
        return Ok(());
    };
    // Some programs write the length of the captured bytes, or none, as the length on the wire.
    let captured = data.len() as u32;
    let Some(header) = kind.header(data, whole.max(captured)) else {
        return Ok(());
    };
    let Ok(stamp_ns) = i64::try_from(stamp) else {
        return leave_out("its timestamp is centuries away".into());
    };
    if header.bytes > LARGEST_WHOLE {
        let bytes = header.bytes;
        return leave_out(format!(
            "it claims to have {bytes} bytes, more than any packet"
        ));
    }
    if header.bytes > header.room && whole > captured {
        return leave_out(format!(
            "its IP header claims {} bytes, and its frame has room for {}",
            header.bytes, header.room
        ));
    }
    survey.short += u64::from(header.bytes > header.room);
    survey.flows += 1;
    survey.fragments += u64::from(header.fragment);
    take(survey.packets, Packet { stamp_ns, header })
}

/// A source that fills each read until its end, because `pcap_parser` expects the header in the first read. It keeps
/// its error, because `pcap_parser` only reports that there was one.
struct Filled<'a, R> {
    source: R,
    failure: &'a mut Option<io::Error>,
}

impl<R: Read> Read for Filled<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < buffer.len() {
            match self.source.read(&mut buffer[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    *self.failure = Some(error);
                    return Err(kind.into());
                }
            }
        }
        Ok(count)
    }
}

/// Maximum packet that any tool captures, bytes (`MAXIMUM_SNAPLEN` of libpcap).
pub(super) const LARGEST_PACKET: u32 = 1 << 18;
/// Maximum total size of a pcapng packet's options, bytes.
const LARGEST_OPTIONS: u32 = 1 << 16;
/// Bytes around the content of a pcapng block: its type, and its length twice.
const BLOCK_BYTES: u32 = 12;
/// Type of pcapng's enhanced packet block, and its bytes besides data and options.
const ENHANCED_PACKET: u32 = 6;
const ENHANCED_BYTES: u32 = 32;

/// Layout of a capture's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// True for pcapng.
    pub newer: bool,
    pub big_endian: bool,
}

impl Layout {
    /// Return whether the data begins with a pcapng block shorter than the minimum, which breaks the arithmetic of
    /// `pcap_parser`.
    pub(super) fn too_short(self, data: &[u8]) -> bool {
        self.newer
            && self
                .number(data, 4)
                .is_some_and(|length| length < BLOCK_BYTES)
    }

    /// Return why a block with this beginning cannot be a packet, even an incomplete one.
    pub(super) fn impossible(self, data: &[u8]) -> Option<&'static str> {
        let (captured, whole) = if self.newer {
            if self.number(data, 0)? != ENHANCED_PACKET {
                return None;
            }
            let block = self.number(data, 4)?;
            let captured = self.number(data, 20)?;
            let room = block.checked_sub(ENHANCED_BYTES);
            let fits = room.and_then(|room| room.checked_sub(captured));
            if captured <= LARGEST_PACKET && fits.is_none_or(|rest| rest > LARGEST_OPTIONS) {
                return Some("has a length that does not fit its packet's");
            }
            (captured, self.number(data, 24)?)
        } else {
            (self.number(data, 8)?, self.number(data, 12)?)
        };
        if captured > LARGEST_PACKET {
            Some("claims to be larger than any packet")
        } else if captured > whole {
            Some("claims to hold more than its packet had")
        } else {
            None
        }
    }

    fn number(self, data: &[u8], at: usize) -> Option<u32> {
        let bytes = *data.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }
}
