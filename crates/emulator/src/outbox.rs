//! Pending writes to a device: segments in order, grouped by super-packet.

use std::io::IoSlice;

use crate::offload::{MOST_HEADER, Run, Transport, VNET_BYTES, mark, write_header};
use crate::pool::{Pool, Segment};

/// Maximum pieces of packets in a super-packet: the kernel takes 1024 slices in a write, and copies each.
const MOST_PIECES: usize = 64;

/// Maximum bytes that a mark may change, device header included: up to the IPv4 checksum.
const MARKED: usize = VNET_BYTES + 12;

/// Neighbouring segments of a packet.
#[derive(Clone, Copy)]
struct Piece {
    first: Segment,
    last: Segment,
    /// True if the piece begins a new super-packet.
    begins: bool,
}

/// Segments that wait to be written to one device.
#[derive(Default)]
pub struct Outbox {
    pieces: Vec<Piece>,
    /// Runs of segments, one for each piece with `begins`.
    runs: Vec<Run>,
    pieces_of_last: usize,
}

impl Outbox {
    /// Append a segment, as part of the last super-packet if it continues that.
    pub fn push(&mut self, segment: Segment, pool: &Pool) {
        let view = pool.view(segment);
        if let (Some(run), Some(piece)) = (self.runs.last_mut(), self.pieces.last_mut()) {
            let neighbours = piece.last.precedes(&segment);
            if (neighbours || self.pieces_of_last < MOST_PIECES)
                && run.join(pool.view(piece.last), view, neighbours)
            {
                if neighbours {
                    piece.last = segment;
                } else {
                    self.pieces_of_last += 1;
                    self.pieces.push(Piece {
                        first: segment,
                        last: segment,
                        begins: false,
                    });
                }
                return;
            }
        }
        self.pieces_of_last = 1;
        self.runs.push(Run::new(view));
        self.pieces.push(Piece {
            first: segment,
            last: segment,
            begins: true,
        });
    }

    /// Return whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Pass all super-packets to `send`, each with the device's header first. Return the segments that `send`
    /// refused.
    ///
    /// Before each super-packet, `about_to` is called with the super-packet's number of segments.
    pub fn write(
        &mut self,
        pool: &mut Pool,
        mut about_to: impl FnMut(&Pool, u16),
        mut send: impl FnMut(&[IoSlice<'_>]) -> bool,
    ) -> u64 {
        let mut refused = 0;
        let mut rest = self.pieces.as_slice();
        for run in &self.runs {
            let count = 1 + rest[1..].iter().take_while(|piece| !piece.begins).count();
            let (pieces, behind) = rest.split_at(count);
            rest = behind;
            about_to(pool, run.segments());
            if !write_run(run, pieces, pool, &mut send) {
                refused += u64::from(run.segments());
            }
            for piece in pieces {
                let segments = piece.last.index - piece.first.index + 1;
                pool.release(piece.first.slot, u32::from(segments));
            }
        }
        self.pieces.clear();
        self.runs.clear();
        refused
    }
}

/// Pass one super-packet to `send`, and return the result of `send`.
fn write_run(
    run: &Run,
    pieces: &[Piece],
    pool: &Pool,
    mut send: impl FnMut(&[IoSlice<'_>]) -> bool,
) -> bool {
    let (first, last) = (pieces[0].first, pieces[pieces.len() - 1].last);
    let packet = pool.packet(first.slot);
    if run.segments() == packet.layout.segments() && pieces.len() == 1 && !first.marked {
        let length = VNET_BYTES + packet.layout.length as usize;
        return send(&[IoSlice::new(&pool.space(first.slot)[..length])]);
    }
    if packet.layout.transport == Transport::Opaque {
        return send_marked(pool.space(first.slot), pool.bytes(first.slot).len(), send);
    }
    let mut header = [0; MOST_HEADER];
    let (length, vnet) = write_header(&mut header, run, pool.view(first), pool.view(last));
    let vnet = vnet.to_bytes();
    let mut slices = [IoSlice::new(&[]); MOST_PIECES + 2];
    slices[0] = IoSlice::new(&vnet);
    slices[1] = IoSlice::new(&header[..length]);
    for (slice, piece) in slices[2..].iter_mut().zip(pieces) {
        let layout = &pool.packet(piece.first.slot).layout;
        let end = layout.start(piece.last.index) + layout.payload(piece.last.index);
        *slice = IoSlice::new(&pool.bytes(piece.first.slot)[layout.start(piece.first.index)..end]);
    }
    send(&slices[..pieces.len() + 2])
}

/// Pass a packet of `length` bytes that cannot be segmented to `send`, marked "congestion experienced".
fn send_marked(space: &[u8], length: usize, mut send: impl FnMut(&[IoSlice<'_>]) -> bool) -> bool {
    let mut head = [0; MARKED];
    let (before, rest) = space[..VNET_BYTES + length].split_at(MARKED);
    head.copy_from_slice(before);
    mark(&mut head[VNET_BYTES..]);
    send(&[IoSlice::new(&head), IoSlice::new(rest)])
}
