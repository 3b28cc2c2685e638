//! The proxies at towers.

use std::collections::{HashMap, VecDeque};

use cellbed_link::{Bytes, Time};
use cellbed_tcp::proxy::{Place, Proxy, ProxyTable, Side, What};
use cellbed_tcp::{SegmentKind, Tcp};

use super::sockets::{RESET, Sockets};
use super::wire::{Content, Wire};
use crate::event::{ConnectionId, End};

#[derive(Clone, Debug, Default)]
pub(super) struct Proxies {
    placed: Vec<(Place, Proxy<u64>)>,
    /// Times at which SYNs of new connections passed each proxy.
    asked_at: HashMap<(usize, u64), Time>,
    /// Packets from proxies: tower, side, slot and size.
    made: VecDeque<(u16, Side, u32, Bytes)>,
}

impl Proxies {
    pub fn new(tables: Vec<(Place, ProxyTable)>) -> Self {
        let placed = tables.into_iter();
        Self {
            placed: placed
                .map(|(place, table)| (place, Proxy::new(&table)))
                .collect(),
            ..Self::default()
        }
    }

    /// Remove all connections.
    pub fn clear(&mut self) {
        self.placed.iter_mut().for_each(|(_, proxy)| proxy.clear());
        self.asked_at.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Return the time of the next timer.
    pub fn timer(&self) -> Option<Time> {
        self.placed
            .iter()
            .filter_map(|(_, proxy)| proxy.timer())
            .min()
    }

    /// Pass a packet that reaches a vertex to the proxies there. Return whether one keeps it, because the packet
    /// belongs to its connections. direction: the packet's last one; none from a proxy.
    pub fn divide(
        &mut self,
        direction: Option<usize>,
        vertex: u16,
        slot: u32,
        wire: &mut Wire,
        sockets: &Sockets,
    ) -> bool {
        let destination = wire.pool.get(slot).to;
        let places = self.placed.iter().map(|(place, _)| place);
        let paths = wire.graph.paths(wire.now);
        let passed = Place::passed(places, paths, direction, vertex, destination);
        for (number, from) in passed.into_iter().flatten() {
            if self.take_in(number, from, slot, wire) {
                wire.pool.release(slot);
                self.collect_made(number, wire, sockets);
                return true;
            }
        }
        false
    }

    /// Pass a packet to a proxy; return whether the proxy keeps it.
    fn take_in(&mut self, number: usize, from: Side, slot: u32, wire: &Wire) -> bool {
        let (now, packet) = (wire.now, *wire.pool.get(slot));
        let proxy = &mut self.placed[number].1;
        match packet.content {
            Content::Segment {
                connection,
                segment,
                ..
            } => match segment.kind {
                SegmentKind::Syn => {
                    self.asked_at.insert((number, connection), now);
                    return false;
                }
                SegmentKind::SynAck if !proxy.is_open(connection) => {
                    if let Some(&asked) = self.asked_at.get(&(number, connection)) {
                        let tcp = Tcp::default();
                        proxy.open(now, connection, from.other(), asked, tcp, &segment);
                    }
                    return false;
                }
                _ if !proxy.knows(connection) || packet.corrupt => return false,
                _ => {
                    self.asked_at.remove(&(number, connection));
                    proxy.receive(now, connection, from, &segment, Some(packet.number), false);
                }
            },
            Content::Reset { connection, .. } if proxy.is_open(connection) => {
                proxy.reset(now, connection, from);
            }
            _ => return false,
        }
        true
    }

    /// Process the timers that are due.
    pub fn tick(&mut self, wire: &mut Wire, sockets: &Sockets) {
        for number in 0..self.placed.len() {
            let (place, proxy) = &mut self.placed[number];
            if proxy.timer().is_some_and(|due| due <= wire.now) {
                let radio = proxy.look(&mut wire.graph, place.downlink, wire.now);
                proxy.tick(wire.now, radio);
                self.collect_made(number, wire, sockets);
            }
        }
        self.send_made(wire, sockets);
    }

    /// Take the packets that a proxy sends in place of the other end.
    fn collect_made(&mut self, number: usize, wire: &mut Wire, sockets: &Sockets) {
        let (place, proxy) = &mut self.placed[number];
        while let Some(output) = proxy.poll() {
            let connection = output.key;
            let Some(open) = sockets.get(ConnectionId(connection)) else {
                continue;
            };
            let is_radio = open.ends.client.0 == place.endpoint;
            let at = if is_radio == (output.to == Side::Radio) {
                End::Client
            } else {
                End::Server
            };
            let (content, size, packet) = match output.what {
                What::Segment(segment, packet) => {
                    let content = Content::Segment {
                        connection,
                        segment,
                        at,
                    };
                    (content, segment.size(), packet)
                }
                What::Reset(sequence, _) => {
                    let content = Content::Reset {
                        connection,
                        sequence: sequence as u32 + 1,
                        at,
                    };
                    (content, RESET, None)
                }
                What::Closed => continue,
            };
            let slot = wire.insert_made(packet, open.ends, at.peer(), content);
            let tower = place.tower(wire.graph.paths(wire.now));
            self.made.push_back((tower, output.to, slot, size));
        }
    }

    /// Send the packets from proxies, through the proxies of other endpoints.
    pub fn send_made(&mut self, wire: &mut Wire, sockets: &Sockets) {
        while let Some((tower, to, slot, size)) = self.made.pop_front() {
            if to == Side::Radio || !self.divide(None, tower, slot, wire, sockets) {
                wire.enter(tower, slot, wire.now, size);
            }
        }
    }
}
