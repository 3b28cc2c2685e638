//! The flows of a capture, and the choice of one.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::Request;
use super::link_layer::Header;
use crate::error::{Result, format_count, quote, refuse};

/// Maximum number of flows that an error names.
const NAMED: usize = 3;

/// One direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of IP.
    pub bytes: u64,
    /// Maximum hop limit seen.
    pub hop_limit: u8,
}

impl Way {
    /// Return whether its packets have a system's initial hop limit: they have passed no router.
    pub fn fresh(&self) -> bool {
        matches!(self.hop_limit, 64 | 128 | 255)
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.hop_limit = self.hop_limit.max(other.hop_limit);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    protocol: u8,
    low: (IpAddr, u16),
    high: (IpAddr, u16),
}

impl Key {
    /// Return the flow of a packet, and whether the packet is from the flow's lower end.
    fn of(packet: &Header) -> (Self, bool) {
        let from = (packet.from, packet.from_port);
        let to = (packet.to, packet.to_port);
        let key = Self {
            protocol: packet.protocol,
            low: from.min(to),
            high: from.max(to),
        };
        (key, from <= to)
    }
}

/// Properties of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    key: Key,
    /// Traffic from the lower end, and from the higher end.
    ways: [Way; 2],
    /// True if the lower end opened the flow.
    low_began: bool,
    /// True if the initiator is known from the opening of a connection.
    opened: bool,
    /// Number in order of appearance.
    number: u64,
}

impl Flow {
    /// Return the two addresses.
    pub fn ends(&self) -> [IpAddr; 2] {
        [self.key.low.0, self.key.high.0]
    }

    /// Return the bytes of IP in both directions.
    pub fn bytes(&self) -> u64 {
        self.ways[0].bytes + self.ways[1].bytes
    }

    fn fits(&self, word: &str) -> bool {
        let ends = [self.key.low, self.key.high];
        if let Some(port) = word.strip_prefix(':') {
            return port
                .parse()
                .is_ok_and(|port: u16| ends.iter().any(|end| end.1 == port));
        }
        if let Ok(address) = word.parse::<IpAddr>() {
            return ends.iter().any(|end| end.0 == address);
        }
        if let Ok(socket) = word.parse::<SocketAddr>() {
            return ends.contains(&(socket.ip(), socket.port()));
        }
        protocol(self.key.protocol).eq_ignore_ascii_case(word)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |(address, port): (IpAddr, u16)| match port {
            0 => address.to_string(),
            port => SocketAddr::new(address, port).to_string(),
        };
        let mut ends = [self.key.low, self.key.high].map(end);
        if !self.low_began {
            ends.reverse();
        }
        write!(f, "{} {}", protocol(self.key.protocol), ends.join(" "))
    }
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        33 => "dccp".into(),
        47 => "gre".into(),
        50 => "esp".into(),
        58 => "icmpv6".into(),
        132 => "sctp".into(),
        other => format!("protocol-{other}"),
    }
}

/// Flows of a capture.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    flows: HashMap<Key, Flow>,
    seen: u64,
    bytes: u64,
}

impl Flows {
    pub(super) fn add(&mut self, packet: &Header) {
        let (key, up) = Key::of(packet);
        self.bytes += u64::from(packet.bytes);
        let number = self.seen;
        let flow = self.flows.entry(key).or_insert_with(|| {
            self.seen += 1;
            Flow {
                key,
                ways: [Way::default(); 2],
                low_began: up,
                opened: false,
                number,
            }
        });
        if packet.opens && !flow.opened {
            (flow.low_began, flow.opened) = (up, true);
        }
        flow.ways[usize::from(!up)].add(&Way {
            packets: 1,
            bytes: packet.bytes.into(),
            hop_limit: packet.hop_limit,
        });
    }

    /// Return all flows.
    pub fn each(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values()
    }

    /// Return the flow with the most bytes.
    pub fn largest(&self) -> Option<&Flow> {
        self.each()
            .max_by_key(|flow| (flow.bytes(), std::cmp::Reverse(flow.number)))
    }

    pub(super) fn has(&self, packet: &Header) -> bool {
        self.flows.contains_key(&Key::of(packet).0)
    }

    /// Return the end that began the largest flow.
    pub(super) fn beginner(&self) -> IpAddr {
        match self.largest() {
            Some(flow) => flow.ends()[usize::from(!flow.low_began)],
            None => IpAddr::from([0; 4]),
        }
    }

    /// Return the traffic from the device, or to it.
    pub(super) fn way(&self, device: IpAddr, from_device: bool) -> Way {
        let mut sum = Way::default();
        for flow in self.each() {
            let low_is_device = flow.key.low.0 == device;
            sum.add(&flow.ways[usize::from(low_is_device != from_device)]);
        }
        sum
    }

    /// Return the matching flows; at least one.
    pub(super) fn choose(&self, request: &Request) -> Result<Self> {
        let fits = |flow: &&Flow| request.flow.iter().all(|word| flow.fits(word));
        let mut all: Vec<Flow> = self.each().copied().collect();
        all.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes()), flow.number));
        let mut found: Vec<Flow> = all.iter().filter(fits).copied().collect();
        if found.is_empty() {
            let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
            return refuse(format!(
                "no flow matches {}: the largest are {}",
                quote(request.flow.join(" ")),
                named.join("; ")
            ));
        }
        if !request.all_flows {
            found.truncate(1);
        }
        Ok(Self {
            seen: found.len() as u64,
            bytes: found.iter().map(Flow::bytes).sum(),
            flows: found.into_iter().map(|flow| (flow.key, flow)).collect(),
        })
    }

    /// Return a description of the choice.
    pub(super) fn describe(&self, all: &Self) -> String {
        let others = all.seen - self.seen;
        let share = 100.0 * self.bytes as f64 / all.bytes.max(1) as f64;
        let what = match self.largest() {
            Some(flow) if self.seen == 1 => format!("the flow {flow}"),
            _ => format_count(self.seen, "flow", "flows"),
        };
        let rest = match others {
            0 => "the only one".into(),
            others => format!(
                "{share:.1} % of the bytes; choose another with --flow ({} in total)",
                format_count(others, "other flow", "other flows")
            ),
        };
        format!("taken: {what}, {rest}")
    }
}
