//! The connections of the running application.

use std::collections::{BTreeSet, VecDeque};

use cellbed_link::agenda::Agenda;
use cellbed_link::{Bytes, Time};
use cellbed_tcp::Segment;

use super::wire::{Content, Wire};
use crate::connection::Connection;
use crate::event::{ConnectionId, End, Event, Room};

/// Length of a reset: headers without options.
pub(super) const RESET: Bytes = Bytes(40);

#[derive(Clone, Debug, Default)]
pub(super) struct Sockets {
    /// Connections, the timer of each, and the number of the first one.
    connections: Vec<Connection>,
    timers: Agenda,
    first: u64,
    /// Segments that arrive together, merged into one, and the size of the first.
    arriving: Option<(ConnectionId, End, Segment, u64)>,
    /// Ends that applications have written to since the last event, in order of the writes.
    written: VecDeque<(ConnectionId, End)>,
    /// Ends at which the application waits for room.
    rooms: BTreeSet<(ConnectionId, End)>,
    /// Samples of flows.
    pub samples: Option<Vec<u8>>,
}

impl Sockets {
    /// Remove all connections.
    pub fn clear(&mut self) {
        self.first += self.connections.len() as u64;
        self.connections.clear();
        self.timers.clear();
        self.rooms.clear();
    }

    /// Return the time of the next timer.
    pub fn timer(&self) -> Option<Time> {
        self.timers.first().map(|next| next.0)
    }

    pub fn all(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }

    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(self.place(id)?)
    }

    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let place = self.place(id)?;
        self.connections.get_mut(place)
    }

    fn place(&self, id: ConnectionId) -> Option<usize> {
        Some(id.0.checked_sub(self.first)? as usize)
    }

    pub fn connect(&mut self, connection: Connection, wire: &mut Wire) -> ConnectionId {
        let id = ConnectionId(self.first + self.connections.len() as u64);
        self.connections.push(connection);
        self.timers.push();
        self.transmit(id, End::Client, wire);
        id
    }

    pub fn write(&mut self, id: ConnectionId, from: End, bytes: u64, label: u64, now: Time) {
        if let Some(open) = self.get_mut(id) {
            open.write(from, now, bytes, label);
            self.written.push_back((id, from));
        }
    }

    pub fn close(&mut self, id: ConnectionId, at: End) {
        if let Some(open) = self.get_mut(id) {
            open.close(at);
            self.rooms.remove(&(id, at));
            self.set_timer(id);
        }
    }

    pub fn want_room(&mut self, id: ConnectionId, from: End, room: Room) {
        if let Some(open) = self.get_mut(id) {
            open.want_room(from, room);
            self.rooms.insert((id, from));
        }
    }

    /// Send written data. Data of one instant leaves in full segments, in the order of the writes.
    pub fn send_written(&mut self, wire: &mut Wire, events: &mut VecDeque<Event>) {
        while let Some((id, from)) = self.written.pop_front() {
            self.transmit(id, from, wire);
        }
        let (connections, first) = (&self.connections, self.first);
        self.rooms.retain(|&(connection, at)| {
            let waits = !connections[(connection.0 - first) as usize].has_room(at);
            if !waits {
                events.push_back(Event::Room { connection, at });
            }
            waits
        });
    }

    /// Receive a segment. Like Linux, merges segments that arrive together into one, with one acknowledgement.
    pub fn arrive(
        &mut self,
        (id, at): (ConnectionId, End),
        segment: Segment,
        wire: &mut Wire,
        events: &mut VecDeque<Event>,
    ) {
        if let Some((connection, end, before, size)) = &mut self.arriving
            && (*connection, *end) == (id, at)
            && before.join(&segment, *size)
        {
            return;
        }
        self.receive(wire, events);
        self.arriving = Some((id, at, segment, segment.length));
    }

    /// Pass arriving segments to their connection.
    pub fn receive(&mut self, wire: &mut Wire, events: &mut VecDeque<Event>) {
        let Some((id, at, segment, _)) = self.arriving.take() else {
            return;
        };
        self.sample(id, at, wire.now); // as in the kernel, before the segment is processed
        let Some(open) = self.get_mut(id) else {
            return; // The connection's application has ended.
        };
        if open.is_closed(at) {
            let (ends, sender) = (open.ends, &open.socket(at).sender);
            let content = Content::Reset {
                connection: id.0,
                sequence: (sender.written() - sender.unsent()) as u32 + 1,
                at: at.peer(),
            };
            return wire.dispatch(ends, at, content, RESET);
        }
        let opened = open.receive(at, wire.now, &segment);
        // Sent before the application is informed: its answer does not carry this acknowledgement.
        self.transmit(id, at, wire);
        let connection = id;
        if opened {
            events.push_back(Event::Open { connection, at });
        }
        while let Some(label) = self.get_mut(id).and_then(|open| open.next_message(at)) {
            events.push_back(Event::Message {
                connection,
                at,
                label,
            });
        }
    }

    /// Process the timers of connections that are due.
    pub fn tick(&mut self, wire: &mut Wire) {
        let now = wire.now;
        while let Some((_, place)) = self.timers.first().filter(|&(due, _)| due <= now) {
            self.connections[place].tick(now);
            let id = ConnectionId(self.first + place as u64);
            for end in [End::Client, End::Server] {
                self.sample(id, end, now);
                self.transmit(id, end, wire);
            }
        }
    }

    fn sample(&mut self, id: ConnectionId, at: End, now: Time) {
        let place = self.place(id);
        if let Some(samples) = &mut self.samples
            && let Some(open) = place.and_then(|place| self.connections.get_mut(place))
        {
            open.sample(at, now, id.0, samples);
        }
    }

    /// Send the pending segments of an end of a connection.
    fn transmit(&mut self, id: ConnectionId, from: End, wire: &mut Wire) {
        let Some(open) = self.get_mut(id) else {
            return;
        };
        while let Some(segment) = open.transmit(from, wire.now) {
            let content = Content::Segment {
                connection: id.0,
                segment,
                at: from.peer(),
            };
            wire.dispatch(open.ends, from, content, segment.size());
        }
        self.set_timer(id);
    }

    fn set_timer(&mut self, id: ConnectionId) {
        if let Some(place) = self.place(id) {
            let timer = self.connections.get(place).and_then(Connection::timer);
            self.timers.set(place, timer);
        }
    }
}
