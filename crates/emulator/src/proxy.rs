//! Proxies in real time. Packets at a tower become segments of [`cellbed_tcp::proxy`], and segments become packets.
//!
//! SYNs pass without a request for ECN and without unknown options (all but maximum segment size, SACK and window
//! scale). Connections without SACK, and packets that are not plain TCP, pass unchanged.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use cellbed_link::{Graph, Time};
use cellbed_tcp::proxy::{Output, Place, Proxy, ProxyTable, Side, What};
use cellbed_tcp::{Acknowledgement, BLOCKS, Segment, SegmentKind, Tcp};

use crate::offload::{
    ACK, CWR, ECE, FIN, PSH, RST, SYN, Transport, VNET_BYTES, View, get, is_intact, seal, word,
};
use crate::packet::TCP;
use crate::pool::{Pool, Segment as Held};

/// Kinds of options (RFC 9293 §3.1, RFC 7323, RFC 2018).
const END: u8 = 0;
const PADDING: u8 = 1;
const LARGEST: u8 = 2;
const SCALE: u8 = 3;
const PERMITTED: u8 = 4;
const SELECTIVE: u8 = 5;
/// Maximum segment size without the option (RFC 9293 §3.7.1).
const DEFAULT_LARGEST: u64 = 536;
/// Bytes of a TCP header without options.
const TCP_HEADER: usize = 20;
/// Minimum number of a packet that comes from no device.
const FIRST_MADE: u64 = 1 << 63;

/// A connection: addresses and ports of its ends, the endpoint's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([(IpAddr, u16); 2]);

/// An end of a connection. Its stream: the bytes that this end sends.
#[derive(Debug, Default)]
struct Origin {
    vertex: u16,
    /// Sequence number of the end's SYN.
    first: u32,
    /// Window scale in bits, if there is one; maximum segment size that the end accepts; support of SACK.
    scale: Option<u8>,
    largest: u64,
    selective: bool,
    /// The end's IP and TCP headers, without options.
    header: Vec<u8>,
    /// Number of the next IP packet.
    identification: u16,
    /// Offset of the end of the stream, after the FIN.
    finished: Option<u64>,
    /// Bytes of the stream not yet arrived at the other end. `base`: offset of the first.
    base: u64,
    bytes: VecDeque<u8>,
}

impl Origin {
    /// Return the end that a SYN comes from.
    fn new(packet: &Parsed<'_>, vertex: u16) -> Self {
        let mut header = packet.headers[..packet.network + TCP_HEADER].to_vec();
        header[1] &= if packet.network == 40 { 0xcf } else { 0xfc }; // Not ECN-capable.
        let mut origin = Self {
            vertex,
            first: packet.sequence,
            largest: DEFAULT_LARGEST,
            header,
            identification: 1,
            ..Self::default()
        };
        for (kind, value) in options(packet.options()) {
            match (kind, value) {
                (LARGEST, [high, low]) => {
                    origin.largest =
                        u64::from(u16::from_be_bytes([*high, *low])).max(DEFAULT_LARGEST);
                }
                (SCALE, [shift]) => origin.scale = Some((*shift).min(14)),
                (PERMITTED, []) => origin.selective = true,
                _ => {}
            }
        }
        origin
    }

    /// Return the stream offset of a sequence number near `near`.
    fn offset(&self, sequence: u32, near: u64) -> i64 {
        let there = self.number(near);
        near as i64 + i64::from(sequence.wrapping_sub(there) as i32)
    }

    fn number(&self, offset: u64) -> u32 {
        self.first.wrapping_add(1).wrapping_add(offset as u32)
    }

    /// Store bytes of the stream.
    fn store(&mut self, at: u64, data: &[u8]) {
        let known = self.base.saturating_sub(at).min(data.len() as u64) as usize;
        let (at, data) = ((at.max(self.base) - self.base) as usize, &data[known..]);
        if at == self.bytes.len() {
            self.bytes.extend(data);
        } else if !data.is_empty() {
            let length = self.bytes.len().max(at + data.len());
            self.bytes.resize(length, 0);
            for (byte, new) in self.bytes.range_mut(at..at + data.len()).zip(data) {
                *byte = *new;
            }
        }
    }

    /// Append stored bytes to a packet.
    fn copy(&self, start: u64, end: u64, packet: &mut Vec<u8>) {
        let at = |offset: u64| (offset.saturating_sub(self.base) as usize).min(self.bytes.len());
        let (front, back) = self.bytes.as_slices();
        let (start, end) = (at(start), at(end));
        packet.extend_from_slice(&front[start.min(front.len())..end.min(front.len())]);
        let behind = |it: usize| it.saturating_sub(front.len());
        packet.extend_from_slice(&back[behind(start)..behind(end)]);
    }

    fn forget_before(&mut self, offset: u64) {
        let gone = (offset.saturating_sub(self.base) as usize).min(self.bytes.len());
        self.bytes.drain(..gone);
        self.base += gone as u64;
    }
}

/// A connection. Arrays are by [`Side`].
#[derive(Debug)]
struct Flow {
    opener: Side,
    /// Time of the opener's SYN.
    asked: Time,
    ends: [Option<Origin>; 2],
}

impl Flow {
    /// Return sender and receiver of packets from a side, if both are known.
    fn ends_of(&mut self, from: Side) -> Option<(&mut Origin, &mut Origin)> {
        let [near, far] = &mut self.ends;
        let (source, target) = match from {
            Side::Radio => (near, far),
            Side::Core => (far, near),
        };
        source.as_mut().zip(target.as_mut())
    }
}

/// The proxy of an endpoint, with the bytes of the connections.
pub struct Port {
    /// Place of the proxy.
    pub place: Place,
    proxy: Proxy<Key>,
    flows: HashMap<Key, Flow>,
    made: u64,
}

/// The fate of a packet at a tower.
pub enum Verdict {
    /// The packet passes.
    Pass,
    /// The packet is replaced by this one, which passes.
    Replace(Vec<u8>),
    /// The proxy keeps the packet.
    Taken,
}

/// A packet that leaves a proxy.
pub struct Made {
    /// Vertex where the packet leaves the proxy.
    pub at: u16,
    /// Side of the proxy where the packet leaves.
    pub to: Side,
    /// The packet, after the device's header.
    pub bytes: Vec<u8>,
    /// Number of the packet.
    pub number: u64,
    /// Vertex that sent the packet.
    pub source: u16,
}

impl Port {
    /// Return the proxy of a configuration at its place.
    pub fn new(place: Place, table: &ProxyTable) -> Self {
        Self {
            place,
            proxy: Proxy::new(table),
            flows: HashMap::new(),
            made: FIRST_MADE + (u64::from(place.endpoint) << 44),
        }
    }

    /// Return the time of the next [`tick`](Self::tick).
    pub fn timer(&self) -> Option<Time> {
        self.proxy.timer()
    }

    /// Process the timers that are due.
    pub fn tick(&mut self, now: Time, graph: &mut Graph<Held>) {
        let radio = self.proxy.look(graph, self.place.downlink, now);
        self.proxy.tick(now, radio);
    }

    /// Receive a packet that reaches the tower from a side.
    pub fn receive(&mut self, now: Time, pool: &Pool, held: Held, from: Side) -> Verdict {
        let view = pool.view(held);
        let packet = pool.packet(held.slot);
        let Some(parsed) = Parsed::of(&view) else {
            return Verdict::Pass;
        };
        let key = parsed.key(from);
        match (parsed.flags & SYN != 0, parsed.flags & ACK != 0) {
            (true, false) => return self.syn(now, key, from, &parsed, packet.source),
            (true, true) if !self.proxy.is_open(key) => {
                self.answer(now, key, from, &parsed, packet.source);
                return Verdict::Pass;
            }
            _ => {}
        }
        if parsed.flags & RST != 0 && !self.proxy.is_open(key) {
            self.forget(key);
            return Verdict::Pass;
        }
        if !self.proxy.knows(key) {
            return Verdict::Pass;
        }
        let number = packet.number + u64::from(held.index);
        self.segment(now, key, from, &parsed, number);
        Verdict::Taken
    }

    fn forget(&mut self, key: Key) {
        self.flows.remove(&key);
        self.proxy.forget(key);
    }

    fn syn(
        &mut self,
        now: Time,
        key: Key,
        from: Side,
        parsed: &Parsed<'_>,
        vertex: u16,
    ) -> Verdict {
        let repeats = self.flows.get(&key).is_some_and(|flow| {
            let end = flow.ends[from as usize].as_ref();
            flow.opener == from && end.is_some_and(|end| end.first == parsed.sequence)
        });
        if repeats && self.proxy.is_open(key) {
            return Verdict::Pass; // A retransmission; the other end acknowledges it.
        }
        let origin = Origin::new(parsed, vertex);
        if !origin.selective || !parsed.payload.is_empty() {
            self.forget(key);
            return Verdict::Pass;
        }
        if !repeats {
            self.proxy.forget(key);
            let mut ends = [None, None];
            ends[from as usize] = Some(origin);
            let flow = Flow {
                opener: from,
                asked: now,
                ends,
            };
            self.flows.insert(key, flow);
        }
        Verdict::Replace(parsed.plain_syn())
    }

    fn answer(&mut self, now: Time, key: Key, from: Side, parsed: &Parsed<'_>, vertex: u16) {
        let Some(flow) = self.flows.get_mut(&key).filter(|it| it.opener != from) else {
            return;
        };
        let mut origin = Origin::new(parsed, vertex);
        let Some(other) = flow.ends[from.other() as usize].as_mut() else {
            return;
        };
        if !origin.selective {
            return self.forget(key);
        }
        if origin.scale.and(other.scale).is_none() {
            (origin.scale, other.scale) = (None, None); // RFC 7323 §2.2.
        }
        let tcp = Tcp {
            segment: origin.largest.min(other.largest),
            ..Tcp::default()
        };
        flow.ends[from as usize] = Some(origin);
        let window = u64::from(parsed.window);
        let answer = Segment {
            kind: SegmentKind::SynAck,
            acknowledgement: Acknowledgement {
                window,
                ..Acknowledgement::default()
            },
            ..bare(now)
        };
        let (opener, asked) = (flow.opener, flow.asked);
        self.proxy.open(now, key, opener, asked, tcp, &answer);
    }

    /// Receive a packet of a connection after the handshake.
    fn segment(&mut self, now: Time, key: Key, from: Side, parsed: &Parsed<'_>, number: u64) {
        let (arrived, _) = self.proxy.passed(key, from);
        let (_, acknowledged) = self.proxy.passed(key, from.other());
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let Some((source, target)) = flow.ends_of(from) else {
            return;
        };
        if parsed.flags & SYN != 0 {
            let again = Segment {
                kind: SegmentKind::SynAck,
                ..bare(now)
            };
            return self.proxy.receive(now, key, from, &again, None, false);
        }
        let start = source.offset(parsed.sequence, arrived);
        let ahead = start - arrived as i64;
        if ahead > FARTHEST || start + FARTHEST < arrived as i64 {
            return;
        }
        if parsed.flags & RST != 0 {
            return self.proxy.reset(now, key, from);
        }
        // Skips bytes before offset 0, as in a probe of a live connection.
        let skipped = (-start).clamp(0, parsed.payload.len() as i64) as usize;
        let (start, payload) = (start.max(0) as u64, &parsed.payload[skipped..]);
        source.store(start, payload);
        let fin = parsed.flags & FIN != 0;
        let length = payload.len() as u64 + u64::from(fin);
        if fin {
            source.finished = Some(start + length);
        }
        let upto = target.offset(parsed.acknowledgement, acknowledged).max(0) as u64;
        let mut blocks = [(0, 0); BLOCKS];
        let mut duplicate = false;
        for (kind, value) in options(parsed.options()) {
            if kind == SELECTIVE {
                let edges = value.chunks_exact(8).map(|block| {
                    let edge = |at| target.offset(word(block, at), acknowledged).max(0) as u64;
                    (edge(0), edge(4))
                });
                let (old, new): (Vec<_>, Vec<_>) = edges.partition(|&(_, end)| end <= upto);
                duplicate = !old.is_empty();
                for (block, edges) in blocks.iter_mut().zip(new) {
                    *block = edges;
                }
            }
        }
        let probe = parsed.sequence == source.number(arrived).wrapping_sub(1) && length == 0;
        let segment = Segment {
            // Answered at once, like a repeated SYN.
            kind: if probe {
                SegmentKind::SynAck
            } else {
                SegmentKind::Data
            },
            start,
            length,
            acknowledgement: Acknowledgement {
                upto,
                blocks,
                duplicate,
                echo: Time::MAX, // No time stamps.
                window: u64::from(parsed.window) << source.scale.unwrap_or(0),
                marked: 0,
            },
            ..bare(now)
        };
        self.proxy
            .receive(now, key, from, &segment, Some(number), fin);
        for side in [Side::Radio, Side::Core] {
            let (_, passed) = self.proxy.passed(key, side);
            if let Some(Some(end)) = self
                .flows
                .get_mut(&key)
                .map(|it| it.ends[side as usize].as_mut())
            {
                end.forget_before(passed);
            }
        }
    }

    /// Append the packets that leave now, at vertex `at`, to `leaving`.
    pub fn send(&mut self, at: u16, leaving: &mut VecDeque<Made>) {
        while let Some(Output { key, to, what }) = self.proxy.poll() {
            let Some(flow) = self.flows.get_mut(&key) else {
                continue;
            };
            let Some((source, target)) = flow.ends_of(to.other()) else {
                continue;
            };
            match what {
                What::Segment(segment, packet) => {
                    let selective = segment.acknowledgement.blocks[0].1 > 0;
                    let mut make = |segment: Segment, number: Option<u64>| {
                        self.made += u64::from(number.is_none());
                        let number = number.unwrap_or(self.made);
                        leaving.push_back(make_packet(at, to, source, target, &segment, 0, number));
                    };
                    make(segment, packet);
                    if selective && segment.length > 0 {
                        // Full packets have no room for the blocks.
                        let rest = Segment {
                            start: segment.end(),
                            length: 0,
                            ..segment
                        };
                        make(rest, None);
                    }
                }
                What::Reset(start, upto) => {
                    self.made += 1;
                    let acknowledgement = Acknowledgement {
                        upto,
                        ..Acknowledgement::default()
                    };
                    let segment = Segment {
                        start,
                        acknowledgement,
                        ..bare(Time::ZERO)
                    };
                    leaving.push_back(make_packet(
                        at, to, source, target, &segment, RST, self.made,
                    ));
                    self.flows.remove(&key);
                }
                What::Closed => drop(self.flows.remove(&key)),
            }
        }
    }
}

/// Maximum distance of a segment from the bytes that have arrived.
const FARTHEST: i64 = 1 << 30;

fn bare(now: Time) -> Segment {
    Segment {
        stamp: now,
        ..Segment::default()
    }
}

/// Convert a segment into a packet from `source`.
fn make_packet(
    at: u16,
    to: Side,
    source: &mut Origin,
    target: &Origin,
    segment: &Segment,
    flags: u8,
    number: u64,
) -> Made {
    let network = source.header.len() - TCP_HEADER;
    let mut bytes = vec![0; VNET_BYTES];
    bytes.extend_from_slice(&source.header);
    let ends = segment.length > 0 && source.finished == Some(segment.end());
    let data = segment.length - u64::from(ends);
    let heard = &segment.acknowledgement;
    let blocks: Vec<_> = heard
        .blocks
        .iter()
        .filter(|(start, end)| end > start)
        .collect();
    if segment.length == 0 && !blocks.is_empty() {
        bytes.extend([PADDING, PADDING, SELECTIVE, (2 + 8 * blocks.len()) as u8]);
        for (start, end) in blocks {
            bytes.extend(target.number(*start).to_be_bytes());
            bytes.extend(target.number(*end).to_be_bytes());
        }
    }
    let header = bytes.len() - VNET_BYTES;
    source.copy(segment.start, segment.start + data, &mut bytes);
    let packet = &mut bytes[VNET_BYTES..];
    if network == 20 {
        packet[4..6].copy_from_slice(&source.identification.to_be_bytes());
        source.identification = source.identification.wrapping_add(1);
    }
    let tcp = &mut packet[network..];
    tcp[4..8].copy_from_slice(&source.number(segment.start).to_be_bytes());
    tcp[8..12].copy_from_slice(&target.number(heard.upto).to_be_bytes());
    tcp[12] = ((header - network) as u8 / 4) << 4;
    let pushes = if data > 0 { PSH } else { 0 };
    tcp[13] = flags | ACK | pushes | if ends { FIN } else { 0 };
    // The window that the other end would offer, scaled for `source`.
    let window = (heard.window >> source.scale.unwrap_or(0)).min(u64::from(u16::MAX)) as u16;
    tcp[14..16].copy_from_slice(&window.to_be_bytes());
    tcp[18..20].copy_from_slice(&[0, 0]);
    seal(&mut bytes, network);
    Made {
        at,
        to,
        bytes,
        number,
        source: source.vertex,
    }
}

/// A plain TCP packet: no IPv4 options, no IPv6 extension headers, no fragment.
struct Parsed<'a> {
    /// Headers from the IP header on, the same for all segments of a super-packet.
    headers: &'a [u8],
    network: usize,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    payload: &'a [u8],
}

impl<'a> Parsed<'a> {
    /// Read a segment; `None` for other packets and for a wrong checksum.
    fn of(view: &View<'a>) -> Option<Self> {
        let (packet, layout) = (view.packet, view.layout);
        let (network, length, protocol) = match packet.first()? >> 4 {
            4 if packet[0] & 0x0f == 5 && packet.len() >= 40 => {
                let is_fragment = get(packet, 6) & 0x3fff != 0;
                let length = if is_fragment { 0 } else { get(packet, 2) };
                (20, usize::from(length), packet[9])
            }
            6 if packet.len() >= 60 => (40, 40 + usize::from(get(packet, 4)), packet[6]),
            _ => return None,
        };
        if protocol != TCP || length != packet.len() {
            return None;
        }
        let tcp = &packet[network..];
        let header = network + usize::from(tcp[12] >> 4) * 4;
        if header < network + TCP_HEADER || header > packet.len() {
            return None;
        }
        let mut flags = tcp[13];
        let (payload, before) = match layout.transport {
            Transport::Tcp => {
                if view.index + 1 < layout.segments() {
                    flags &= !(FIN | PSH);
                }
                let start = layout.start(view.index);
                (
                    &packet[start..start + layout.payload(view.index)],
                    start - header,
                )
            }
            Transport::Opaque if is_intact(packet, network) => (&packet[header..], 0),
            _ => return None,
        };
        Some(Self {
            headers: &packet[..header],
            network,
            sequence: word(tcp, 4).wrapping_add(before as u32),
            acknowledgement: word(tcp, 8),
            flags,
            window: get(tcp, 14),
            payload,
        })
    }

    fn options(&self) -> &'a [u8] {
        &self.headers[self.network + TCP_HEADER..]
    }

    /// Return the connection of a packet that comes from a side.
    fn key(&self, from: Side) -> Key {
        let (ip, tcp) = self.headers.split_at(self.network);
        let size = if self.network == 20 { 4 } else { 16 };
        let end = |which: usize| {
            let address = &ip[self.network - (2 - which) * size..][..size];
            let address = match <[u8; 4]>::try_from(address) {
                Ok(v4) => IpAddr::from(v4),
                Err(_) => <[u8; 16]>::try_from(address).unwrap_or_default().into(),
            };
            (address, get(tcp, 2 * which))
        };
        match from {
            Side::Radio => Key([end(0), end(1)]),
            Side::Core => Key([end(1), end(0)]),
        }
    }

    /// Return a SYN with the device's header, without ECN and without options unknown to the proxy.
    fn plain_syn(&self) -> Vec<u8> {
        let mut bytes = vec![0; VNET_BYTES];
        bytes.extend_from_slice(self.headers);
        let packet = &mut bytes[VNET_BYTES..];
        packet[self.network + 13] &= !(ECE | CWR); // No request for ECN (RFC 3168 §6.1.1).
        let mut at = self.network + TCP_HEADER;
        while at < packet.len() {
            let length = match packet[at] {
                END => break,
                PADDING => 1,
                _ => usize::from(packet.get(at + 1).copied().unwrap_or(0)).max(2),
            };
            let end = (at + length).min(packet.len());
            if ![PADDING, LARGEST, SCALE, PERMITTED].contains(&packet[at]) {
                packet[at..end].fill(PADDING);
            }
            at = end;
        }
        seal(&mut bytes, self.network);
        bytes
    }
}

/// Return the options of a TCP header, as kinds and values.
fn options(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let (&kind, behind) = rest.split_first()?;
            match kind {
                END => return None,
                PADDING => rest = behind,
                _ => {
                    let length = usize::from(*behind.first()?);
                    let value = rest.get(2..length)?;
                    rest = &rest[length..];
                    return Some((kind, value));
                }
            }
        }
    })
}
