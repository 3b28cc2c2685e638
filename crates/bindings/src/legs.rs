//! The legs of packets that pass the node of a tower: a program there may send other packets in their place.
//!
//! Datagrams leave the node in the order of their arrival. The bytes of a TCP connection keep their offsets from
//! the SYN, but a proxy has its own sequence numbers and packets: a packet that leaves the node is joined with the
//! packet that brought its last byte. What a proxy repeats is time at the proxy. Both legs get the sequence numbers of
//! the leg that opened first, so that forwarded packets keep theirs: a handover may have led a connection to the tower.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::crossings::{Crossing, Hop};

const TCP: u8 = 6;

/// Minimum distance of the number of a SYN from the bytes of an earlier connection between the same ends.
const AFAR: i64 = 1 << 16;

/// A way of a connection that passes a tower: protocol, ends, ports, and the tower.
type Way = (u8, (u16, u16), (u16, u16), u16);

/// The numbers of one leg: offsets of its packets.
#[derive(Default)]
struct Numbers {
    /// Sequence number of the SYN, or of another packet if the connection opened elsewhere.
    origin: Option<u32>,
    /// Largest offset so far.
    reach: i64,
}

impl Numbers {
    /// Return the offset of a packet, -1 for a SYN, and whether it opens a connection.
    fn offset(&mut self, hop: &Hop) -> (i64, bool) {
        let payload = i64::from(hop.payload);
        if let Some(origin) = self.origin {
            let near = origin.wrapping_add(1).wrapping_add(self.reach as u32);
            let offset = self.reach + i64::from(hop.sequence.wrapping_sub(near) as i32);
            if hop.sequence == origin || payload > 0 || (offset - self.reach).abs() < AFAR {
                self.reach = self.reach.max(offset + payload);
                return (offset, false);
            }
        }
        *self = Self {
            origin: Some(hop.sequence),
            reach: 0,
        };
        (-1, true)
    }
}

/// A way at a tower.
#[derive(Default)]
struct Passage {
    near: Numbers,
    far: Numbers,
    /// Sequence number that stands for both origins.
    base: u32,
    /// 1 if only the near leg has opened, -1 if only the far leg has: the tower has answered for the other end.
    ahead: i32,
    syn: Option<Crossing>,
    /// Packets that reached the tower, by the offset of their end.
    brought: BTreeMap<i64, Crossing>,
    datagrams: VecDeque<Crossing>,
}

impl Passage {
    /// Return the way of a connection that opened elsewhere. origin: a number of a packet, `None` for a new connection.
    fn new(origin: Option<u32>) -> Self {
        let numbers = || Numbers { origin, reach: 0 };
        Self {
            near: numbers(),
            far: numbers(),
            base: origin.unwrap_or(0),
            ..Self::default()
        }
    }

    /// Take in a packet that reaches the tower, or has been dropped before it.
    fn reach(&mut self, mut it: Crossing) -> Option<Crossing> {
        if it.head.protocol != TCP {
            if it.tail.dropped {
                return Some(it);
            }
            self.datagrams.push_back(it);
            return None;
        }
        let (offset, opens) = self.near.offset(&it.head);
        let is_first = opens && self.ahead >= 0;
        if is_first {
            self.base = it.head.sequence;
        }
        self.ahead = (self.ahead + i32::from(opens)).min(1);
        let end = offset + i64::from(it.head.payload);
        it.head.sequence = self.base.wrapping_add((offset + 1) as u32);
        if it.tail.dropped {
            return Some(it);
        }
        if opens {
            self.brought.clear();
            self.syn = is_first.then_some(it);
        } else if it.head.payload > 0 {
            self.brought.entry(end).or_insert(it);
        }
        None
    }

    /// Return the packet that leaves the tower, joined with the packet that brought it.
    fn leave(&mut self, mut it: Crossing) -> Option<Crossing> {
        if it.head.protocol != TCP {
            let size = it.head.size;
            let same = self
                .datagrams
                .iter()
                .position(|first| first.head.size == size);
            let first = same.and_then(|at| self.datagrams.drain(..=at).next_back());
            return Some(first.map_or(it, |first| first.joined(&it)));
        }
        let own = it.head.sequence;
        let (offset, opens) = self.far.offset(&it.head);
        if opens && self.ahead <= 0 {
            self.base = own;
        }
        self.ahead = (self.ahead - i32::from(opens)).max(-1);
        it.head.sequence = self.base.wrapping_add((offset + 1) as u32);
        if opens && let Some(syn) = self.syn.take() {
            // A proxy with its own number has answered the SYN before.
            let is_same = self.near.origin == Some(own);
            return Some(if is_same {
                syn.joined(&it)
            } else {
                syn.ended()
            });
        }
        let end = offset + i64::from(it.head.payload);
        let first = self.brought.range(end..).next();
        match first.filter(|_| it.head.payload > 0) {
            Some((_, first)) => Some(first.joined(&it)),
            None => Some(it),
        }
    }
}

impl Crossing {
    /// Return the packet with its way from the tower on.
    fn joined(&self, next: &Self) -> Self {
        let Hop {
            sequence,
            payload,
            size,
            ..
        } = next.head;
        Self {
            head: Hop {
                sequence,
                payload,
                size,
                ..self.head
            },
            tail: next.tail,
            queued: self.queued.wrapping_add(next.queued),
            delayed: self.delayed.wrapping_add(next.delayed),
            delivered: next.delivered,
            doubled: self.doubled || next.doubled,
            key: self.key,
        }
    }

    /// Return the packet as one whose way ends at the tower.
    fn ended(self) -> Self {
        Self {
            delivered: true,
            ..self
        }
    }
}

/// Join the legs of packets, which are in order of entry. `reaches` and `leaves` return the tower that a packet reaches
/// at its last hop, or at which it entered.
pub fn join_legs(
    found: Vec<Crossing>,
    reaches: impl Fn(&Hop) -> Option<u16>,
    leaves: impl Fn(&Hop) -> Option<u16>,
) -> Vec<Crossing> {
    let mut passages: HashMap<Way, Passage> = HashMap::new();
    let mut latest: HashMap<_, u32> = HashMap::new();
    let mut joined = Vec::with_capacity(found.len());
    for it in found {
        let way = |tower| (it.head.protocol, it.head.vertices, it.head.ports, tower);
        let sequence = it.head.sequence;
        let before = latest.insert((it.head.vertices, it.head.ports), sequence);
        let origin = before.or((it.head.payload > 0).then_some(sequence));
        let passage = || Passage::new(origin);
        let mut now = Some(it);
        if let Some(tower) = leaves(&it.head) {
            now = passages.entry(way(tower)).or_insert_with(passage).leave(it);
        }
        if let Some(each) = now
            && let Some(tower) = reaches(&each.tail)
            && !each.delivered
        {
            let passage = passages.entry(way(tower)).or_insert_with(passage);
            now = passage.reach(each);
        }
        joined.extend(now);
    }
    // The packets of a proxy that has not sent a SYN of its own: the endpoint has reached the proxy.
    joined.extend(
        passages
            .into_values()
            .filter_map(|it| it.syn.map(Crossing::ended)),
    );
    joined.sort_by_key(|it| it.head.arrived);
    joined
}
