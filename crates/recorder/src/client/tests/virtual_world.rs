//! Devices and a server in virtual time, connected by the emulator's stages: no socket, no clock.
//!
//! The control connection has a fixed delay and loses nothing. Its packets and acknowledgements also pass the link,
//! where they disturb others.

use std::collections::VecDeque;
use std::net::SocketAddr;

use cellbed_link::{Bytes, Direction, Duration, Fate, StageConfig, Time};

use crate::client::{Event, Path};
use crate::secure::Secret;
use crate::server::{Limits, Server};
use crate::socket::Outbox;
use crate::wire::SessionId;

const SERVER: &str = "192.0.2.1:7700";

/// Offset of the server's clock, and its drift.
const AHEAD: Duration = Duration::from_secs(1_000);
const DRIFT: f64 = 40e-6;

/// One-way delay of the control connection.
const CONTROL: Duration = Duration::from_millis(20);

/// Bytes of an acknowledgement of TCP, and of the headers of a segment.
const HEADERS: u64 = 52;

pub(super) type Stages = Vec<StageConfig>;

/// A client behind a link.
pub(super) struct Device {
    pub(super) path: Path,
    pub(super) address: SocketAddr,
    /// True if the control connection goes over another link.
    pub(super) control_apart: bool,
    uplink: Direction<Vec<u8>>,
    downlink: Direction<Vec<u8>>,
    connection: Option<Connection>,
}

/// The control connection, bound to an address. Bytes to the server and to the device arrive at their times.
struct Connection {
    address: SocketAddr,
    id: SessionId,
    pieces: [VecDeque<(Time, Vec<u8>)>; 2],
}

impl Device {
    fn new(number: u8, secret: &Secret, uplink: Stages, downlink: Stages) -> Self {
        let server = SERVER.parse().unwrap();
        Self {
            path: Path::new(server, secret, &[number; 32], Time::ZERO),
            address: SocketAddr::from(([198, 51, 100, number], 40_000)),
            control_apart: false,
            uplink: Direction::new(uplink, Time::ZERO),
            downlink: Direction::new(downlink, Time::ZERO),
            connection: None,
        }
    }

    fn next_event(&mut self) -> Time {
        if !self.path.session.output().is_empty() {
            return Time::ZERO;
        }
        let links = [self.uplink.next_event(), self.downlink.next_event()];
        let pieces = self.connection.iter().flat_map(|it| &it.pieces);
        let pieces = pieces.filter_map(|pieces| Some(pieces.front()?.0));
        let links = links.into_iter().flatten().chain(pieces);
        links.fold(self.path.next_event(), Time::min)
    }

    /// Exchanges bytes of the control connection with the server.
    fn control(&mut self, server: &mut Server, now: Time) {
        if self.path.session.wants_connection(now) {
            self.connection = Some(Connection {
                address: self.address,
                id: server.connect(on_server(now), self.address),
                pieces: Default::default(),
            });
            self.path.session.on_connected();
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        let [up, down] = &mut connection.pieces;
        while let Some((_, bytes)) = due(up, now) {
            server.read(on_server(now), connection.id, &bytes);
        }
        while let Some((_, bytes)) = due(down, now) {
            self.path.read(now, &bytes);
            if !self.control_apart {
                self.uplink.accept(now, Vec::new(), Bytes(HEADERS));
            }
        }
        let output = server.output(on_server(now), connection.id);
        if output.is_none() {
            self.connection = None;
            return self.path.on_closed(now);
        }
        if connection.address != self.address {
            return; // goes nowhere
        }
        let outputs = [
            std::mem::take(self.path.session.output()),
            output.map(std::mem::take).unwrap_or_default(),
        ];
        for ((way, output), pieces) in (0..).zip(outputs).zip(&mut connection.pieces) {
            if output.is_empty() {
                continue;
            }
            if !self.control_apart {
                let bytes = Bytes(output.len() as u64 + HEADERS);
                let link = [&mut self.uplink, &mut self.downlink].into_iter().nth(way);
                link.unwrap().accept(now, Vec::new(), bytes);
            }
            pieces.push_back((now + CONTROL, output));
        }
    }
}

pub(super) struct VirtualWorld {
    pub(super) devices: Vec<Device>,
    pub(super) server: Server,
    pub(super) now: Time,
    /// Minimum time between two looks at events.
    grain: Duration,
    outbox: Outbox,
}

impl VirtualWorld {
    /// Creates devices with these uplinks and downlinks.
    pub(super) fn new(links: Vec<(Stages, Stages)>, limits: Limits, grain: Duration) -> Self {
        let secret = Secret::new([7; 32]);
        let devices = (1..).zip(links);
        Self {
            devices: devices
                .map(|(number, (uplink, downlink))| Device::new(number, &secret, uplink, downlink))
                .collect(),
            server: Server::new(&secret, limits, &[9; 32]),
            now: Time::ZERO,
            grain,
            outbox: Outbox::default(),
        }
    }

    /// Advances to the next event; returns the events of the devices.
    pub(super) fn step(&mut self) -> Vec<Event> {
        let next = self.next_event();
        self.visit(next.max(self.now + self.grain))
    }

    /// Advances to a time; returns the events of the devices.
    pub(super) fn run_until(&mut self, end: Time) -> Vec<Event> {
        let mut events = Vec::new();
        while self.now < end {
            let next = self.next_event().max(self.now + self.grain);
            events.extend(self.visit(next.min(end)));
        }
        events
    }

    /// Processes the events due at a time.
    fn visit(&mut self, now: Time) -> Vec<Event> {
        self.now = now;
        for number in 0..self.devices.len() {
            let device = &mut self.devices[number];
            device.path.step(now, &mut self.outbox);
            device.control(&mut self.server, now);
            self.post(Some(number));
            self.devices[number].path.on_departure(now);
        }
        self.server.step(on_server(now), &mut self.outbox);
        self.post(None);
        let mut events = Vec::new();
        for device in &mut self.devices {
            while let Some(at) = device.uplink.next_event().filter(|at| *at <= now) {
                while let Some(outcome) = device.uplink.poll(at) {
                    if outcome.fate == Fate::Delivered && !outcome.packet.is_empty() {
                        let (packet, outbox) = (&outcome.packet, &mut self.outbox);
                        let (now, at) = (on_server(now), on_server(at));
                        self.server.receive(now, at, device.address, packet, outbox);
                    }
                }
            }
            while let Some(at) = device.downlink.next_event().filter(|at| *at <= now) {
                while let Some(outcome) = device.downlink.poll(at) {
                    if outcome.fate == Fate::Delivered {
                        device.path.receive(at, now, &outcome.packet);
                    }
                }
            }
            events.extend(device.path.events());
        }
        self.post(None);
        events
    }

    fn next_event(&mut self) -> Time {
        let server = self.server.next_event();
        let server = server.map_or(Time::MAX, |at| {
            let since = at.since(Time::ZERO + AHEAD).as_nanos() as f64;
            Time::from_nanos((since / (1.0 + DRIFT)).ceil() as u64)
        });
        let devices = self.devices.iter_mut().map(Device::next_event);
        devices.fold(server, Time::min)
    }

    /// Sends the packets of the outbox into the directions, by sender and destination.
    fn post(&mut self, from: Option<usize>) {
        for (to, bytes) in self.outbox.packets() {
            let size = Bytes(bytes.len() as u64 + 28);
            let direction = match from {
                Some(device) => Some(&mut self.devices[device].uplink),
                None => {
                    let device = self.devices.iter_mut().find(|it| it.address == to);
                    device.map(|it| &mut it.downlink)
                }
            };
            // No device has this address any more.
            if let Some(direction) = direction {
                direction.accept(self.now, bytes.to_vec(), size);
            }
        }
        self.outbox.clear();
    }
}

fn due(pieces: &mut VecDeque<(Time, Vec<u8>)>, now: Time) -> Option<(Time, Vec<u8>)> {
    let is_due = pieces.front().is_some_and(|(at, _)| *at <= now);
    is_due.then(|| pieces.pop_front()).flatten()
}

/// Convert a time of the devices' clocks to the server's clock.
fn on_server(now: Time) -> Time {
    let drift = (now.as_nanos() as f64 * DRIFT) as u64;
    now + AHEAD + Duration::from_nanos(drift)
}
