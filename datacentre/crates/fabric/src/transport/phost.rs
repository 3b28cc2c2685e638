//! pHost: destinations grant tokens, one per packet time of their link (Gao et al., "pHost: Distributed near-optimal
//! datacenter transport over commodity network fabric", CoNEXT 2015, §3).
//! A source announces a flow by a request. A token of the destination permits one packet, and expires soon if unused,
//! so that neither end waits for the other: a destination loses one packet time by an unused token, and a source with
//! tokens of several destinations serves its shortest flow. Short flows begin with free tokens. Where the paper is
//! open, the code follows the authors' public simulator. Ports rank control packets before data of short flows before
//! other data, and send the oldest packet of the best packet's flow ([`Discipline::Smallest`](crate::Discipline)).

use super::arrivals::Arrivals;
use super::receiver_driven::{DATA, GRANT, REPEAT, REQUEST, Request, acknowledge, rank};
use super::{Constants, Keys, MobileUsers, Transport, packets, wire_size};
use crate::units::{FlowId, HostId, Picos};
use crate::{Discipline, FULL_PACKET, Fabric, Flow, FlowMap, HEADER, Packet};

constants! {
    /// Constants. A packet time is the time of 1500 bytes at the rate of the host's link.
    PhostConfig {
        /// Flows of at most so many packets begin with a token for each.
        free_tokens: u32 = 8,
        /// Packet times for which a token is valid.
        token_life: f64 = 1.5,
        /// Unanswered tokens until a flow gets no tokens for a while.
        unanswered: u32 = 8; 1,
        /// Packet times of that while, after the last token.
        downgrade: f64 = 25.0,
        /// Packet times after the last token of a flow, at which missing packets get new ones; after the request of a
        /// flow with free tokens, twice the time of its packets.
        reissue: f64 = 9.0,
        /// Data of flows of at most so many packets has priority; 0 for one priority.
        short_flow: u32 = 8,
        /// Packet times until an unanswered request is repeated. Without repeats, a flow whose request is dropped
        /// never ends.
        repeat_request: f64 = 1000.0,
        /// Repeated packets carry data; in the public simulator they have headers alone, which is faster than any
        /// network.
        repeats_carry_data: bool = true,
    }
}

impl PhostConfig {
    /// Return the free tokens of a flow of `packets` packets.
    fn free(&self, packets: u32) -> u32 {
        if packets <= self.free_tokens {
            packets
        } else {
            0
        }
    }
}

impl Constants for PhostConfig {
    type Hosts = PhostHosts;
    const KEYS: Keys = Self::KEYS;
    const MOBILE: MobileUsers = MobileUsers::CentralUnit;
    const PORTS: Discipline = Discipline::Smallest;

    fn hosts(self, net: &Fabric) -> PhostHosts {
        PhostHosts::new(self, net)
    }
}

/// All hosts.
#[derive(Debug)]
pub struct PhostHosts {
    constants: PhostConfig,
    hosts: Vec<Host>,
    flows: FlowMap<State>,
}

#[derive(Debug)]
struct Host {
    packet_time: Picos,
    /// The constants as times.
    token_life: Picos,
    downgrade: Picos,
    reissue: Picos,
    /// Unused tokens of the host's flows.
    tokens: Vec<Token>,
    /// Incomplete flows to the host, the most urgent first: even among many flows, as at a central unit, one of the
    /// first can get a token.
    incoming: Vec<Incoming>,
    /// Number of packet times reserved for flows with free tokens.
    reserved: u32,
    /// When the host may grant the next token, and whether it only waits for a flow that gets none before.
    turn: Option<Turn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    at: Picos,
    idle: bool,
}

/// The order of service: fewest missing packets, then earliest start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Urgency {
    missing: u32,
    start: Picos,
    flow: FlowId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Token {
    urgency: Urgency,
    expires: Picos,
    /// Number of the token among the flow's tokens, and the packet to send.
    number: u32,
    packet: u32,
}

/// A flow at its destination.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    urgency: Urgency,
    /// Time before which the flow gets no token.
    not_before: Picos,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Granting,
    /// The flow has too many unanswered tokens.
    Downgraded,
    /// The flow has tokens for all packets.
    Granted,
}

/// State of a flow at both ends.
#[derive(Debug)]
struct State {
    flow: Flow,
    packets: u32,
    /// Source: number of packets sent.
    sent: u32,
    request: Request,
    /// Destination: true after a request.
    requested: bool,
    arrived: Arrivals,
    /// Number of granted tokens, including free ones; number of tokens that would suffice; number of tokens known to be
    /// answered.
    granted: u32,
    goal: u32,
    answered: u32,
    last_grant: Picos,
    /// Packet of the last token.
    last_packet: u32,
}

impl PhostHosts {
    /// Return hosts without flows.
    pub fn new(mut constants: PhostConfig, net: &Fabric) -> Self {
        constants.unanswered = constants.unanswered.max(1);
        constants.repeat_request = constants.repeat_request.max(1.0);
        let host = |number| {
            let packet_time = net.card_rate(HostId(number)).time(FULL_PACKET);
            Host {
                packet_time,
                token_life: packet_time * constants.token_life,
                downgrade: packet_time * constants.downgrade,
                reissue: packet_time * constants.reissue,
                tokens: Vec::new(),
                incoming: Vec::new(),
                reserved: 0,
                turn: None,
            }
        };
        Self {
            constants,
            hosts: (0..net.topology().hosts()).map(host).collect(),
            flows: FlowMap::default(),
        }
    }

    fn on_request(&mut self, net: &mut Fabric, at: HostId, request: &Packet) {
        let id = request.flow;
        let complete = |state: &State| state.arrived.count() == state.packets;
        if request.sequence > 0 && self.flows.get(&id).is_some_and(complete) {
            acknowledge(net, id);
        } else {
            self.add_flow(net, at, id);
        }
    }

    /// Add a flow at its destination.
    fn add_flow(&mut self, net: &mut Fabric, at: HostId, id: FlowId) {
        let Some(state) = self.flows.get_mut(&id).filter(|state| !state.requested) else {
            return;
        };
        let free = self.constants.free(state.packets);
        state.requested = true;
        state.granted = free;
        state.last_packet = free.wrapping_sub(1);
        let host = &mut self.hosts[at.index()];
        let all = state.granted == state.goal;
        let urgency = state.urgency(id);
        let place = host.incoming.partition_point(|it| it.urgency < urgency);
        let incoming = Incoming {
            urgency,
            not_before: if all {
                net.now() + Picos(2 * u64::from(free) * host.packet_time.0)
            } else {
                Picos::ZERO
            },
            standing: if all {
                Standing::Granted
            } else {
                Standing::Granting
            },
        };
        host.incoming.insert(place, incoming);
        host.reserved = free;
        if host.turn.is_none_or(|turn| turn.idle) {
            self.grant(net, at);
        }
    }

    /// Grants at most one token, at the beginning of a destination's packet time.
    fn grant(&mut self, net: &mut Fabric, at: HostId) {
        let now = net.now();
        let host = &mut self.hosts[at.index()];
        if host.reserved > 0 {
            host.reserved -= 1;
        } else if !Self::grant_shortest(&self.constants, host, &mut self.flows, net, at) {
            let next = host.incoming.iter().map(|it| it.not_before).min();
            host.turn = next.map(|at| Turn { at, idle: true });
            if let Some(time) = next {
                net.wake(time, u64::from(at.0));
            }
            return;
        }
        let next = now + host.packet_time;
        host.turn = Some(Turn {
            at: next,
            idle: false,
        });
        net.wake(next, u64::from(at.0));
    }

    fn grant_shortest(
        constants: &PhostConfig,
        host: &mut Host,
        flows: &mut FlowMap<State>,
        net: &mut Fabric,
        at: HostId,
    ) -> bool {
        let now = net.now();
        loop {
            let mut incoming = host.incoming.iter_mut();
            let Some(incoming) = incoming.find(|it| it.not_before <= now) else {
                return false;
            };
            let id = incoming.urgency.flow;
            let Some(state) = flows.get_mut(&id) else {
                debug_assert!(false, "a flow without a state");
                return false;
            };
            match incoming.standing {
                Standing::Granted => state.goal += incoming.urgency.missing,
                Standing::Downgraded => state.answered = state.granted - (constants.unanswered - 1),
                Standing::Granting => {}
            }
            incoming.standing = Standing::Granting;
            if state.granted - state.answered >= constants.unanswered {
                if state.last_grant + host.downgrade > now {
                    incoming.standing = Standing::Downgraded;
                    incoming.not_before = state.last_grant + host.downgrade;
                    continue;
                }
                state.answered = state.granted - (constants.unanswered - 1);
            }
            let packet = state.next_packet();
            let token = Packet {
                sequence: packet,
                value: u64::from(state.granted) << 32 | u64::from(incoming.urgency.missing),
                ..Packet::new(id, state.flow.source, GRANT, HEADER)
            };
            state.last_packet = packet;
            state.last_grant = now;
            state.granted += 1;
            if state.granted == state.goal {
                incoming.standing = Standing::Granted;
                incoming.not_before = now + host.reissue + net.detour(id);
            }
            net.send(at, token);
            return true;
        }
    }

    fn on_token(&mut self, net: &mut Fabric, at: HostId, token: &Packet) {
        let now = net.now();
        let id = token.flow;
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        state.request.heard = now;
        let host = &mut self.hosts[at.index()];
        let urgency = Urgency {
            missing: token.value as u32,
            start: state.flow.start,
            flow: id,
        };
        for other in host.tokens.iter_mut().filter(|it| it.urgency.flow == id) {
            other.urgency = urgency;
        }
        host.tokens.push(Token {
            urgency,
            expires: now + host.token_life,
            number: (token.value >> 32) as u32,
            packet: token.sequence,
        });
        net.kick(at);
    }

    fn on_data(&mut self, net: &mut Fabric, at: HostId, data: &Packet) {
        let id = data.flow;
        self.add_flow(net, at, id);
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        let before = state.urgency(id);
        state.answered = state.answered.max(data.value as u32 + 1);
        state.arrived.insert(data.sequence);
        let urgency = state.urgency(id);
        let incoming = &mut self.hosts[at.index()].incoming;
        let place = incoming.binary_search_by_key(&before, |it| it.urgency);
        if urgency.missing == 0 {
            acknowledge(net, id);
            if let Ok(place) = place {
                incoming.remove(place);
                net.finish(id);
            }
        } else if let Ok(place) = place {
            let answered = &mut incoming[place];
            answered.urgency = urgency;
            if answered.standing == Standing::Downgraded
                && state.granted - state.answered < self.constants.unanswered
            {
                answered.standing = Standing::Granting;
                answered.not_before = Picos::ZERO;
            }
            let ahead = incoming[..place].partition_point(|it| it.urgency < urgency);
            incoming[ahead..=place].rotate_right(1);
        }
    }
}

impl State {
    fn urgency(&self, flow: FlowId) -> Urgency {
        Urgency {
            missing: self.packets - self.arrived.count(),
            start: self.flow.start,
            flow,
        }
    }

    /// Return the next missing packet after the last token's packet, cyclically.
    fn next_packet(&self) -> u32 {
        let next = self.arrived.next_missing(self.last_packet.wrapping_add(1));
        if next < self.packets {
            next
        } else {
            self.arrived.upto()
        }
    }
}

impl Transport for PhostHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let packets = packets(flow.bytes);
        let free = self.constants.free(packets);
        let host = &mut self.hosts[flow.source.index()];
        let urgency = Urgency {
            missing: packets,
            start: flow.start,
            flow: id,
        };
        let life = f64::from(free) + self.constants.token_life;
        let expires = net.now() + host.packet_time * life;
        host.tokens.extend((0..free).map(|number| Token {
            urgency,
            expires,
            number,
            packet: number,
        }));
        let patience = host.packet_time * self.constants.repeat_request;
        let request = Request::new(net, id, patience, patience);
        self.flows.insert(
            id,
            State {
                flow,
                packets,
                sent: 0,
                request,
                requested: false,
                arrived: Arrivals::default(),
                granted: 0,
                goal: packets,
                answered: 0,
                last_grant: net.now(),
                last_packet: 0,
            },
        );
        if free > 0 {
            net.kick(flow.source);
        }
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        match packet.kind {
            DATA => self.on_data(net, at, &packet),
            GRANT => self.on_token(net, at, &packet),
            REQUEST => self.on_request(net, at, &packet),
            _ => {
                let id = packet.flow;
                if self.flows.remove(&id).is_some() {
                    let tokens = &mut self.hosts[at.index()].tokens;
                    tokens.retain(|token| token.urgency.flow != id);
                    net.close(id);
                }
            }
        }
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        let number = token as u32;
        if token >= REPEAT {
            if let Some(state) = self.flows.get_mut(&FlowId(number)) {
                state.request.wake(net, FlowId(number));
            }
            return;
        }
        let turn = self.hosts[number as usize].turn;
        if turn.is_some_and(|turn| turn.at == net.now()) {
            self.grant(net, HostId(number));
        }
    }

    fn pull(&mut self, net: &mut Fabric, at: HostId) -> Option<Packet> {
        let now = net.now();
        let tokens = &mut self.hosts[at.index()].tokens;
        tokens.retain(|token| token.expires >= now);
        let (index, _) = tokens.iter().enumerate().min_by_key(|(_, token)| **token)?;
        let token = tokens.swap_remove(index);
        let id = token.urgency.flow;
        let state = self.flows.get_mut(&id)?;
        let repeated = state.sent >= state.packets;
        state.sent += 1;
        let size = if repeated && !self.constants.repeats_carry_data {
            HEADER
        } else {
            wire_size(state.flow.bytes, token.packet)
        };
        Some(Packet {
            rank: rank(state.packets, self.constants.short_flow).into(),
            sequence: token.packet,
            value: u64::from(token.number),
            ..Packet::new(id, state.flow.destination, DATA, size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::description::Description;
    use crate::transport::AnyTransport;

    /// Duration of a packet at 10 Gbit/s.
    const T: u64 = 1_200_000;

    fn hosts(sim: &Simulation<AnyTransport>) -> &PhostHosts {
        let AnyTransport::Phost(hosts) = sim.transport() else {
            unreachable!()
        };
        hosts
    }

    #[test]
    fn a_source_that_does_not_answer_is_downgraded() {
        // The source always has tokens of a shorter flow, so that the longer flow's tokens expire.
        let description = serde_json::json!({
            "seed": 1,
            "topology": {
                "kind": "leaf-spine", "racks": 1, "hosts_per_rack": 4, "spines": 1, "host_bps": 10e9,
                "core_bps": 40e9, "hop_ps": 200_000, "card_buffer_bytes": 1_000_000
            },
            "transport": {"kind": "phost"},
            "traffic": {"trace": [[200 * 1460, 0, 1, 0], [100 * 1460, 0, 2, 0]]},
        });
        let description: Description = serde_json::from_value(description).unwrap();
        let mut sim = description.simulation().unwrap();
        let mut records = Vec::new();
        let downgraded = |sim: &_| {
            let incoming = hosts(sim).hosts[1].incoming.first().copied();
            incoming.filter(|it| it.standing == Standing::Downgraded)
        };
        while downgraded(&sim).is_none() {
            assert!(sim.advance(1, &mut |record| records.push(record)));
        }
        let state = &hosts(&sim).flows[&FlowId(0)];
        assert_eq!(state.granted - state.answered, 8);
        let again = state.last_grant + Picos(25 * T);
        assert_eq!(downgraded(&sim).unwrap().not_before, again);
        sim.run(|record| records.push(record));
        assert_eq!(records.len(), 2);
        // The longer flow delayed the shorter one only by the packet on the card: request, token, 100 packets.
        let alone = 2 * 464_000 + 99 * T + 1_632_000;
        assert!(records[0].end.0 <= alone + 2 * T, "{records:?}");
    }
}
