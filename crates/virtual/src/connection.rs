//! A connection: its two ends, and the ends of messages in its streams.

use std::collections::VecDeque;

use cellbed_link::{Duration, Time};
use cellbed_tcp::{Segment, Sending, Socket, Tcp};

use crate::event::{End, Ends, Room};

/// Approximate size of a send buffer in congestion windows: twice the window with the overhead of packets
/// (`tcp_sndbuf_expand`).
const BUFFERED_WINDOWS: u64 = 3;

/// Both ends of a connection. The streams carry no data, only the offsets at which messages end; an offset is used only
/// when the bytes before it have arrived.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub ends: Ends,
    /// Client and server.
    halves: [Half; 2],
}

#[derive(Clone, Debug)]
struct Half {
    socket: Socket,
    /// End and label of messages from the other end that have not arrived.
    expected: VecDeque<(u64, u64)>,
    room: Option<Room>,
    closed: bool,
    /// Time of the sender's next sample.
    next_sample: Time,
}

impl Half {
    fn new(socket: Socket) -> Self {
        Self {
            socket,
            expected: VecDeque::new(),
            room: None,
            closed: false,
            next_sample: Time::ZERO,
        }
    }
}

impl Connection {
    pub fn open(ends: Ends, client: Tcp, server: Tcp, now: Time) -> Self {
        let sockets = [Socket::connecting(client, now), Socket::listening(server)];
        Self {
            ends,
            halves: sockets.map(Half::new),
        }
    }

    /// Continue a connection whose client has sent `up` bytes and received `down`, without a handshake.
    pub fn resume(ends: Ends, tcp: [Tcp; 2], now: Time, (up, down): (u64, u64)) -> Self {
        let sockets = [(tcp[0], up, down), (tcp[1], down, up)];
        let halves = sockets
            .map(|(tcp, sent, received)| Half::new(Socket::resuming(tcp, now, sent, received)));
        Self { ends, halves }
    }

    fn half(&self, end: End) -> &Half {
        &self.halves[end as usize]
    }

    fn half_mut(&mut self, end: End) -> &mut Half {
        &mut self.halves[end as usize]
    }

    pub fn socket(&self, end: End) -> &Socket {
        &self.half(end).socket
    }

    pub fn use_nagle(&mut self, at: End) {
        self.half_mut(at).socket.sender.use_nagle();
    }

    pub fn write(&mut self, from: End, now: Time, bytes: u64, label: u64) {
        let half = self.half_mut(from);
        half.socket.sender.write(now, bytes);
        let end = half.socket.sender.written();
        self.half_mut(from.peer()).expected.push_back((end, label));
    }

    pub fn want_room(&mut self, from: End, room: Room) {
        self.half_mut(from).room = Some(room);
    }

    /// Return the size of a send buffer, bytes, from `least` to `most`: it grows with the window.
    pub fn send_buffer(&self, from: End, least: u64, most: u64) -> u64 {
        let sending = self.half(from).socket.sender.state();
        least.max(most.min(BUFFERED_WINDOWS * sending.window * sending.segment))
    }

    /// Return whether the requested room is available.
    pub fn has_room(&self, from: End) -> bool {
        let half = self.half(from);
        let has_room = |Room { least, most }| {
            half.socket.sender.buffered() < self.send_buffer(from, least, most) * 2 / 3
        };
        !half.closed && half.room.is_some_and(has_room)
    }

    /// Discard this end's unsent data and its later actions.
    pub fn close(&mut self, at: End) {
        self.half_mut(at).closed = true;
    }

    pub fn is_closed(&self, at: End) -> bool {
        self.half(at).closed
    }

    /// Take in a segment. Return whether it opens the connection for this end.
    pub fn receive(&mut self, at: End, now: Time, segment: &Segment) -> bool {
        let socket = &mut self.half_mut(at).socket;
        let before = socket.is_established();
        socket.receive(now, segment, false);
        !before && socket.is_established()
    }

    /// Append a sample of the sender at this end, if one is due and data are in flight.
    pub fn sample(&mut self, at: End, now: Time, number: u64, samples: &mut Vec<u8>) {
        let ends = self.ends;
        let half = self.half_mut(at);
        if half.closed || now < half.next_sample || !half.socket.is_established() {
            return;
        }
        let state = half.socket.sender.state();
        if state.outstanding > 0 {
            half.next_sample = begin_of_next_bin(now);
            append_sample(samples, now, number, (ends, at), &state);
        }
    }

    /// Return the next complete message.
    pub fn next_message(&mut self, at: End) -> Option<u64> {
        let half = self.half_mut(at);
        let (end, label) = *half.expected.front()?;
        if end > half.socket.receiver.received() {
            return None;
        }
        half.expected.pop_front();
        Some(label)
    }

    pub fn timer(&self) -> Option<Time> {
        let open = self.halves.iter().filter(|half| !half.closed);
        open.filter_map(|half| half.socket.timer()).min()
    }

    pub fn tick(&mut self, now: Time) {
        for half in &mut self.halves {
            if !half.closed {
                half.socket.tick(now);
            }
        }
    }

    pub fn transmit(&mut self, from: End, now: Time) -> Option<Segment> {
        let half = self.half_mut(from);
        if half.closed {
            return None;
        }
        half.socket.transmit(now)
    }

    pub fn senders(&self) -> impl Iterator<Item = Sending> {
        self.halves.iter().map(|half| half.socket.sender.state())
    }
}

/// Beginning of a file of samples.
pub const FLOWS_MAGIC: &[u8; 16] = b"cellbed flows  1";
/// Size of a sample, bytes.
const FLOW_BYTES: usize = 128;
/// Width of a bin, ns; a sender is sampled at most once per bin.
const BIN_NS: u64 = 10_000_000;
/// Size of a name without its final zero, bytes.
const NAME: usize = 15;

/// Return the begin of the next bin.
fn begin_of_next_bin(now: Time) -> Time {
    Time::from_nanos((now.as_nanos() / BIN_NS + 1) * BIN_NS)
}

/// Append a sample. number: of the connection; at: its sending end.
fn append_sample(
    samples: &mut Vec<u8>,
    now: Time,
    number: u64,
    (ends, at): (Ends, End),
    state: &Sending,
) {
    let begin = samples.len();
    let (near, far) = (ends.of(at), ends.of(at.peer()));
    let micros = |span: Option<Duration>| span.map_or(0, |span| span.as_nanos() / 1000);
    let flow = 2 * number + u64::from(at == End::Server);
    let longs = [
        now.as_nanos(),
        flow,
        state.acknowledged,
        state.pacing.map_or(0, |rate| rate as u64),
    ];
    let words = [
        micros(state.latest),
        micros(state.round_trip),
        state.window,
        (state.threshold as u64).min(cellbed_tcp::UNLIMITED.into()),
        state.in_flight,
        state.segment,
        state.room,
        state.lost,
        state.repairs,
    ];
    let name = state.control.name();
    let name = &name.as_bytes()[name.len().saturating_sub(NAME)..];
    samples.extend(
        longs
            .iter()
            .chain(&state.shown)
            .flat_map(|it| it.to_le_bytes()),
    );
    samples.extend(
        words
            .iter()
            .flat_map(|&it| u32::try_from(it).unwrap_or(u32::MAX).to_le_bytes()),
    );
    samples.extend(
        [near.0, far.0, near.1, far.1]
            .iter()
            .flat_map(|it| it.to_le_bytes()),
    );
    samples.extend(name);
    samples.resize(begin + FLOW_BYTES, 0);
}
