//! Super-packets through the segmentation code, compared with plain segmentation.

use cellbed_link::{Bytes, DropReason, Fate, Outcome, Time};

use super::choices::Choices;
use crate::offload::drafts::{Draft, Flow, build, mark, read_all, written};
use crate::offload::reference::{ones_complement, pseudo_header, wire};
use crate::offload::{VNET_BYTES, Vnet};
use crate::outbox::Outbox;
use crate::pool::{Pool, Segment};

/// Counters of the operations so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Cases.
    pub cases: u64,
    /// Packets that came in, most of them super-packets.
    pub packets: u64,
    /// Segments of these.
    pub segments: u64,
    /// Segments that were dropped, marked, doubled, damaged or overtaken.
    pub meddled: u64,
    /// Packets that went out.
    pub written: u64,
    /// Of these, super-packets.
    pub super_packets: u64,
}

/// Runs cases, one after another through the same memory, so that a slot that is never given back is found.
pub struct Segmentation {
    pool: Pool,
    outbox: Outbox,
    figures: Figures,
}

impl Default for Segmentation {
    fn default() -> Self {
        Self {
            pool: Pool::new(0),
            outbox: Outbox::default(),
            figures: Figures::default(),
        }
    }
}

impl Segmentation {
    /// Builds packets of one or two flows, drops segments of them, marked, doubled, damaged, overtaken and written
    /// together or apart, all as `bytes` say, and panics unless what is written is, cut by the rules of the RFCs, the
    /// packets that should be left, with right lengths and checksums throughout.
    pub fn case(&mut self, bytes: &[u8]) {
        let mut choices = Choices::new(bytes);
        let packets = packets(&mut choices);
        let segments = read_all(&mut self.pool, &packets);
        let expected = packets.iter().flat_map(|bytes| {
            let cut = wire(bytes);
            cut.into_iter().map(|packet| (packet, Checksum::of(bytes)))
        });
        let expected: Vec<(Vec<u8>, Checksum)> = expected.collect();
        assert_eq!(segments.len(), expected.len());
        self.figures.cases += 1;
        self.figures.packets += packets.len() as u64;
        self.figures.segments += segments.len() as u64;

        let (mut left, mut out, mut behind) = (Vec::new(), Vec::new(), Vec::new());
        for (segment, (packet, checksum)) in segments.into_iter().zip(expected) {
            let fate = choices.next();
            self.figures.meddled += u64::from((144..208).contains(&fate));
            match fate {
                144..=159 => {
                    self.apply(segment, Fate::Dropped(DropReason::Loss), false, None);
                }
                160..=175 => {
                    self.apply(segment, Fate::Doubled, false, None);
                    self.pass(segment, packet.clone(), &mut left);
                    self.pass(segment, packet, &mut left);
                }
                176..=191 => behind.push((segment, packet)),
                192..=207 => {
                    let bit = choices.wide() % (packet.len() * 8);
                    let (marked, damaged) =
                        [(false, true), (true, false), (true, true)][usize::from(fate % 3)];
                    let mut packet = packet;
                    if marked {
                        mark(&mut packet);
                    }
                    if damaged {
                        checksum.finish(&mut packet);
                        packet[bit / 8] ^= 0x80 >> (bit % 8);
                    }
                    let turned = damaged.then_some(bit as u32);
                    let segment = self.apply(segment, Fate::Delivered, marked, turned);
                    self.push(segment, packet, &mut left);
                }
                _ => {
                    if (208..224).contains(&fate) {
                        out.extend(written(&mut self.outbox, &mut self.pool));
                    }
                    self.pass(segment, packet, &mut left);
                }
            }
            if fate >= 224 {
                for (segment, packet) in behind.drain(..) {
                    self.pass(segment, packet, &mut left);
                }
            }
        }
        for (segment, packet) in behind {
            self.pass(segment, packet, &mut left);
        }
        out.extend(written(&mut self.outbox, &mut self.pool));
        self.figures.written += out.len() as u64;
        for bytes in &out {
            self.figures.super_packets += u64::from(check(bytes));
        }
        let on_the_wire: Vec<Vec<u8>> = out.iter().flat_map(|bytes| wire(bytes)).collect();
        assert_eq!(on_the_wire, left);
    }

    /// Return the counters of the operations so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    fn apply(
        &mut self,
        packet: Segment,
        fate: Fate,
        marked: bool,
        corrupt_bit: Option<u32>,
    ) -> Option<Segment> {
        let at = Time::ZERO;
        let size = Bytes(self.pool.packet(packet.slot).layout.size(packet.index) as u64);
        self.pool.apply(&Outcome {
            packet,
            size,
            arrived: at,
            released: at,
            departed: at,
            fate,
            marked,
            corrupt_bit,
        })
    }

    fn pass(&mut self, segment: Segment, packet: Vec<u8>, left: &mut Vec<Vec<u8>>) {
        let segment = self.apply(segment, Fate::Delivered, false, None);
        self.push(segment, packet, left);
    }

    fn push(&mut self, segment: Option<Segment>, packet: Vec<u8>, left: &mut Vec<Vec<u8>>) {
        self.outbox
            .push(segment.expect("it was delivered"), &self.pool);
        left.push(packet);
    }
}

/// Packets of one or two flows that go on from each other, mostly.
fn packets(choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
    let mut flow = || {
        let kind = choices.next();
        let flow = Flow {
            v6: kind & 1 != 0,
            tcp: kind & 2 == 0,
            network_options: if kind & 0b1_1100 == 0b100 { 8 } else { 0 },
            tcp_options: if kind & 32 != 0 { 12 } else { 0 },
            ecn: kind >> 6,
        };
        (
            flow,
            choices.wide() as u32 ^ 0xffff_0000,
            choices.wide() as u16,
        )
    };
    let mut flows = [flow(), flow()];
    let segment = choices.of(&[1448, 1448, 1000, 536, 100, 100, 24, 8]);
    let mut packets = Vec::new();
    for _ in 0..1 + choices.next() % 5 {
        let kind = choices.next();
        let (flow, sequence, identification) = &mut flows[usize::from(kind & 0b1110 == 0)];
        let payload = match kind >> 4 {
            15 => match choices.next() {
                0..16 => 64_000,
                _ => choices.wide() % 20_000,
            },
            12..15 => choices.wide() % 3000,
            8..12 => segment * usize::from(1 + choices.next() % 8),
            4..8 => segment * usize::from(1 + choices.next() % 3) + choices.wide() % segment,
            _ => choices.wide() % 400,
        };
        // Enough to exceed every bound on the number of segments.
        let payload = payload.min(segment * 130);
        let draft = Draft {
            payload,
            segment: if kind & 0b11_0000 == 0b11_0000 {
                segment / 2
            } else {
                segment
            },
            flags: choices.of(&[
                0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x18, 0x18, 0x11, 0x90, 0x98, 0x50, 0x02, 0x14,
                0x30,
            ]),
            gap: choices.of(&[0, 0, 0, 0, 0, 0, 0, 1, segment as u16]),
            window: choices.of(&[500, 500, 500, 500, 501]),
        };
        *sequence = sequence.wrapping_add(u32::from(draft.gap));
        *identification = identification.wrapping_add(draft.gap);
        let bytes = build(*flow, &draft, *sequence, *identification);
        *sequence = sequence.wrapping_add(payload as u32);
        *identification =
            identification.wrapping_add(payload.div_ceil(draft.segment).max(1) as u16);
        packets.push(match choices.next() {
            0..16 => whole(&bytes),
            _ => bytes,
        });
    }
    packets
}

/// The first of the packets that a super-packet stands for, with nothing left open.
fn whole(bytes: &[u8]) -> Vec<u8> {
    let first = wire(bytes).swap_remove(0);
    [Vnet::default().to_bytes().as_slice(), &first].concat()
}

/// Offset of the transport checksum in a packet.
#[derive(Clone, Copy)]
struct Checksum(Option<usize>);

impl Checksum {
    fn of(bytes: &[u8]) -> Self {
        let vnet = head(bytes);
        let at = usize::from(vnet.checksum_start) + usize::from(vnet.checksum_offset);
        Self(vnet.partial_checksum.then_some(at))
    }

    /// A checksum of zero is written as all ones, which UDP needs and all others take (RFC 768).
    fn finish(self, packet: &mut [u8]) {
        if let Some(at) = self.0
            && packet[at..at + 2] == [0, 0]
        {
            packet[at..at + 2].fill(0xff);
        }
    }
}

fn head(bytes: &[u8]) -> Vnet {
    Vnet::parse(
        bytes[..VNET_BYTES]
            .try_into()
            .expect("it begins with the device's header"),
    )
}

/// Panics unless lengths, checksums and the device's header agree; whether it is a super-packet.
fn check(bytes: &[u8]) -> bool {
    let (vnet, packet) = (head(bytes), &bytes[VNET_BYTES..]);
    if !vnet.partial_checksum {
        assert_eq!(vnet.cut, None);
        return false;
    }
    let (transport, offset) = (
        usize::from(vnet.checksum_start),
        usize::from(vnet.checksum_offset),
    );
    let field = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let v4 = packet[0] >> 4 == 4;
    assert!(packet.len() <= 65_535);
    if v4 {
        assert_eq!(field(2), packet.len(), "total length");
        assert_eq!(
            ones_complement(&packet[..transport], 0),
            0xffff,
            "header checksum"
        );
    } else {
        assert_eq!(field(4), packet.len() - 40, "payload length");
    }
    let tcp = offset == 16;
    let headers = transport
        + if tcp {
            usize::from(packet[transport + 12] >> 4) * 4
        } else {
            8
        };
    if !tcp {
        assert_eq!(
            field(transport + 4),
            packet.len() - transport,
            "length of UDP"
        );
    }
    // What the kernel starts from when it finishes the checksum: 0 and 0xffff are the same number.
    let open = field(transport + offset) % 0xffff;
    let pseudo = ones_complement(&[], pseudo_header(packet, transport, offset, v4));
    assert_eq!(
        open,
        usize::from(pseudo) % 0xffff,
        "sum over the pseudo header"
    );
    if vnet.cut.is_some() {
        assert_eq!(usize::from(vnet.header), headers, "length of the headers");
        assert!(vnet.segment > 0 && packet.len() - headers > usize::from(vnet.segment));
    }
    vnet.cut.is_some()
}
