//! The packets of a capture, pcap or pcapng, one after the other.

use std::io::{self, Read};
use std::net::IpAddr;

use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};

use super::claims::{LARGEST_PACKET, Layout};
use super::link_layer::LinkType;
use crate::error::{ImportError, LeftOut, Place, Result};

/// Bytes of a capture in memory; more where a block is larger.
const BUFFER: usize = 1 << 20;
/// Bytes of a buffer beyond a whole capture, so that its end is seen.
const SPARE: usize = 1 << 10;
/// The largest plausible block: the largest packet that any tool captures has 256 KiB.
const LARGEST_BLOCK: usize = 1 << 24;
/// The largest packet that was captured in part: twice what Linux puts together before a network card cuts
/// it up (IPv6 jumbograms of 512 KiB). Each 1500 bytes become an opportunity, so that a few damaged lengths would fill
/// a disk.
const LARGEST_WHOLE: u32 = 1 << 20;
const NANOS: i128 = 1_000_000_000;

/// An IP packet of a capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// ns since 1970.
    pub stamp_ns: i64,
    pub from: IpAddr,
    pub to: IpAddr,
    pub from_port: u16,
    pub to_port: u16,
    pub protocol: u8,
    pub bytes: u32,
    pub hop_limit: u8,
    pub opens: bool,
}

/// Facts about a capture beside its packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub packets: u64,
    /// IP packets.
    pub flows: u64,
    pub fragments: u64,
    pub unstamped: u64,
    pub unknown_link: Option<u32>,
    /// True if the capture ends in the middle of a packet.
    pub cut: bool,
    /// Why it cannot be read to its end.
    pub damage: Option<String>,
    /// Packets whose length on the wire was lost, so that the IP header's counts.
    pub short: u64,
    pub left_out: LeftOut,
}

#[derive(Clone, Copy)]
struct Interface {
    link: u32,
    /// Units of its stamps in a second.
    resolution: u128,
    offset_s: i64,
}

/// Passes each IP packet to `take`, with its number in the capture of this size.
pub(super) fn each_packet(
    source: impl Read,
    length: u64,
    mut take: impl FnMut(u64, Packet) -> Result<()>,
) -> Result<Survey> {
    let mut failure = None;
    let kept = Kept {
        source,
        failure: &mut failure,
    };
    // The buffer is zeroed first, which takes longer than a small capture.
    let buffer = usize::try_from(length).map_or(BUFFER, |it| BUFFER.min(it.saturating_add(SPARE)));
    let done = read(kept, buffer, &mut take);
    match failure {
        Some(error) => Err(error.into()),
        None => done,
    }
}

fn read(
    mut source: impl Read,
    buffer: usize,
    take: &mut impl FnMut(u64, Packet) -> Result<()>,
) -> Result<Survey> {
    let mut magic = Vec::new();
    (&mut source).take(4).read_to_end(&mut magic)?;
    let whole = io::Cursor::new(magic.clone()).chain(source);
    let newer = magic == [0x0a, 0x0d, 0x0d, 0x0a];
    let filled = Filled(whole);
    let layout = Layout {
        newer,
        big_endian: magic.first() == Some(&0xa1),
    };
    if newer {
        each_block(PcapNGReader::new(buffer, filled), buffer, layout, take)
    } else {
        each_block(LegacyPcapReader::new(buffer, filled), buffer, layout, take)
    }
}

fn each_block<R: PcapReaderIterator>(
    reader: std::result::Result<R, PcapError<&'static [u8]>>,
    mut capacity: usize,
    mut layout: Layout,
    take: &mut impl FnMut(u64, Packet) -> Result<()>,
) -> Result<Survey> {
    let mut reader = reader.map_err(|error| match error {
        PcapError::Incomplete(_) | PcapError::Eof => {
            ImportError::at(Place::Whole, "capture truncated in its header")
        }
        _ => ImportError::at(
            Place::Whole,
            "its header is not one of a pcap or pcapng capture",
        ),
    })?;
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
    /// Ends before damaged data. Errors if no packet was before it.
    fn end(mut self, how: &str) -> Result<Self> {
        let place = Place::Packet(self.packets + 1);
        let reason = format!("the data there {how}: the capture cannot be read beyond this point");
        if self.flows == 0 {
            return Err(ImportError::at(place, reason));
        }
        self.damage = Some(format!("{place}: {reason}"));
        Ok(self)
    }
}

/// Reads a block. Returns the damage behind which nothing can be read.
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
                survey.left_out.add(Place::Packet(survey.packets), &reason);
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
        survey.left_out.add(Place::Packet(number), &reason);
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
    take(
        survey.packets,
        Packet {
            stamp_ns,
            from: header.from,
            to: header.to,
            from_port: header.from_port,
            to_port: header.to_port,
            protocol: header.protocol,
            bytes: header.bytes,
            hop_limit: header.hop_limit,
            opens: header.opens,
        },
    )
}

/// A source that keeps its error, since `pcap_parser` reports only that there was one.
struct Kept<'a, R> {
    source: R,
    failure: &'a mut Option<io::Error>,
}

impl<R: Read> Read for Kept<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.read(buffer).map_err(|error| {
            let kind = error.kind();
            *self.failure = Some(error);
            kind.into()
        })
    }
}

/// A source that fills each read until its end: `pcap_parser` expects the header in the first read.
struct Filled<R>(R);

impl<R: Read> Read for Filled<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < buffer.len() {
            match self.0.read(&mut buffer[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}
