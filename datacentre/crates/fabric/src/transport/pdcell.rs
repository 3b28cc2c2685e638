//! pDCell: a transport of the data centre that follows the radio channels of mobile users (Fiandrino et al., "pDCell:
//! an End-to-End Transport Protocol for Mobile Edge Computing Architectures", ICDCN 2019).
//!
//! As in pHost, a source announces a flow, short flows begin at once, and the destination grants a credit for each
//! other packet, one per packet time of its link, to the flow with the fewest missing packets. For a mobile user the
//! destination is the central unit (CU) of the radio access network, with the adaptation layer (§3.5):
//!
//! * A user gets credits only for the room in its queue up to the threshold, less the outstanding credits.
//! * A credit is valid from t_s after its arrival until t_e = t_s + 1.5 packet times. A credit without an admitted
//!   packet within 9 more packet times, and the time of hosts of the core on the way, is granted again.
//! * After such a credit, or a refused packet, the source must wait for TTI + α, or until a packet of the flow is
//!   admitted. The t_s of a credit granted meanwhile is the rest of this wait ([`BackoffFrom`]); other credits have
//!   t_s = 0.
//!
//! The flow ends when the device has all of its data. Where the paper is silent or contradicts itself,
//! `datacentre/docs/pdcell.md` explains the choice.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::arrivals::Arrivals;
use super::mobile::Access;
use super::receiver_driven::{DATA, GRANT, REPEAT, REQUEST, Request, acknowledge, rank};
use super::{Constants, Keys, MobileUsers, Transport, packets, wire_size};
use crate::ran::{Admission, BackoffFrom, Delivery, Ran, RanConfig, Verdict};
use crate::units::{FlowId, HostId, Picos};
use crate::{Discipline, FULL_PACKET, Fabric, FlowMap, HEADER, Packet};

constants! {
    /// Constants. A packet time is the time of 1500 bytes at the rate of the host's link.
    PdcellConfig {
        /// Flows of at most so many packets are sent with their request.
        free_packets: u32 = 8,
        /// Packet times for which a credit is valid.
        credit_life: f64 = 1.5,
        /// Packet times after its end, at which a credit counts as unanswered.
        detection: f64 = 9.0,
        /// Outstanding credits of a flow at most.
        outstanding: u32 = 8; 1,
        /// Data of flows of at most so many packets has priority; 0 for one priority.
        short_flow: u32 = 8,
        /// Packet times until an unanswered request is repeated; doubled each time.
        repeat_request: f64 = 10_000.0,
    }
}

impl Constants for PdcellConfig {
    type Hosts = PdcellHosts;
    const KEYS: Keys = Self::KEYS;
    const MOBILE: MobileUsers = MobileUsers::EndToEnd;
    const PORTS: Discipline = Discipline::Priority;

    fn hosts(self, net: &Fabric) -> PdcellHosts {
        PdcellHosts::new(self, net)
    }
}

/// All hosts.
#[derive(Debug)]
pub struct PdcellHosts {
    constants: PdcellConfig,
    hosts: Vec<Host>,
    flows: FlowMap<State>,
    access: Option<Access>,
    delivered: Vec<Delivery>,
}

#[derive(Debug)]
struct Host {
    packet_time: Picos,
    /// Source: unused credits of its flows.
    credits: Vec<Credit>,
    /// Destination: flows to the host, one group without users and one per user.
    groups: Vec<Group>,
    /// Time from which the host may grant the next credit.
    next_turn: Picos,
    turn_armed: bool,
    /// When credits count as unanswered, with flow and packet. Answered credits stay until then.
    deadlines: BinaryHeap<Reverse<(Picos, FlowId, u32)>>,
    deadline_armed: Option<Picos>,
}

/// Flows that share a user's queue, or flows without a user.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Flows with packets to grant, by number of missing packets.
    wanting: BTreeSet<(u32, FlowId)>,
    /// Number of unanswered credits and packets of requests.
    outstanding: u32,
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    missing: u32,
    flow: FlowId,
    packet: u32,
    from: Picos,
    until: Picos,
}

impl Credit {
    /// Orders by the shortest flow, then by the credit that ends first.
    fn order(&self) -> (u32, FlowId, Picos, u32) {
        (self.missing, self.flow, self.until, self.packet)
    }
}

/// State of a flow at both ends.
#[derive(Debug)]
struct State {
    packets: u32,
    /// Source.
    request: Request,
    /// Destination: true after a request.
    requested: bool,
    arrived: Arrivals,
    /// The first packet never granted, and packets to grant again.
    next: u32,
    again: BTreeSet<u32>,
    /// Granted packets and their deadlines.
    outstanding: Vec<(u32, Picos)>,
    /// Number of missing packets under which the flow is in [`Group::wanting`].
    listed: Option<u32>,
    /// End of the source's wait after a missed packet.
    not_before: Picos,
    /// Number of packets missing at the user's device.
    undelivered: u32,
}

/// Wake-ups besides those of requests: a host's turn to grant (0), its deadlines, the validity of a source's credit.
const DEADLINE: u64 = 1 << 32;
const CREDITED: u64 = 2 << 32;

impl PdcellHosts {
    /// Return hosts without flows.
    pub fn new(constants: PdcellConfig, net: &Fabric) -> Self {
        let host = |number| Host {
            packet_time: net.card_rate(HostId(number)).time(FULL_PACKET),
            credits: Vec::new(),
            groups: vec![Group::default()],
            next_turn: Picos::ZERO,
            turn_armed: false,
            deadlines: BinaryHeap::new(),
            deadline_armed: None,
        };
        Self {
            constants,
            hosts: (0..net.topology().hosts()).map(host).collect(),
            flows: FlowMap::default(),
            access: None,
            delivered: Vec::new(),
        }
    }

    /// Add radio access networks behind some of the hosts.
    pub(super) fn with_rans(mut self, configs: Vec<RanConfig>, seed: u64) -> Self {
        for config in &configs {
            let groups = vec![Group::default(); config.users as usize + 1];
            self.hosts[config.host as usize].groups = groups;
        }
        self.access = Some(Access::new(configs, Admission::Htd, seed));
        self
    }

    /// Return the radio access networks.
    pub fn rans(&self) -> &[Ran] {
        self.access.as_ref().map_or(&[], Access::rans)
    }

    /// Add a flow at its destination.
    fn on_request(&mut self, net: &mut Fabric, id: FlowId, repeated: bool) {
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        let flow = *net.flow(id);
        if state.requested {
            if repeated && state.undelivered == 0 {
                acknowledge(net, id);
            }
            return;
        }
        state.requested = true;
        if let (Some(user), Some(access)) = (flow.user, &mut self.access) {
            access.open(net, id, user);
        }
        if state.packets <= self.constants.free_packets {
            // The packets of the request are in transit.
            let host = &self.hosts[flow.destination.index()];
            let spans = f64::from(2 * state.packets).max(self.constants.detection);
            let deadline = net.now() + host.packet_time * spans;
            for packet in 0..state.packets {
                self.await_packet(net, id, packet, deadline);
            }
        }
        self.list(net, id);
        self.pace(net, flow.destination);
    }

    fn group(&mut self, net: &Fabric, id: FlowId) -> &mut Group {
        let flow = net.flow(id);
        let index = flow.user.map_or(0, |user| user as usize + 1);
        &mut self.hosts[flow.destination.index()].groups[index]
    }

    /// Expect a packet until a deadline.
    fn await_packet(&mut self, net: &mut Fabric, id: FlowId, packet: u32, deadline: Picos) {
        if let Some(state) = self.flows.get_mut(&id) {
            state.next = state.next.max(packet + 1);
            state.outstanding.push((packet, deadline));
        }
        self.group(net, id).outstanding += 1;
        let at = net.flow(id).destination;
        self.hosts[at.index()]
            .deadlines
            .push(Reverse((deadline, id, packet)));
        self.arm_deadline(net, at);
    }

    fn arm_deadline(&mut self, net: &mut Fabric, at: HostId) {
        let host = &mut self.hosts[at.index()];
        if let Some(&Reverse((next, ..))) = host.deadlines.peek()
            && host.deadline_armed.is_none_or(|armed| next < armed)
        {
            host.deadline_armed = Some(next);
            net.wake(next, DEADLINE | u64::from(at.0));
        }
    }

    /// Stop expecting a packet. deadline: only if it is the packet's. Return whether the packet was expected.
    fn forget(&mut self, net: &Fabric, id: FlowId, packet: u32, deadline: Option<Picos>) -> bool {
        let Some(state) = self.flows.get_mut(&id) else {
            return false;
        };
        let place = state.outstanding.iter().position(|&(number, until)| {
            number == packet && deadline.is_none_or(|deadline| deadline == until)
        });
        let Some(place) = place else {
            return false;
        };
        state.outstanding.swap_remove(place);
        self.group(net, id).outstanding -= 1;
        true
    }

    /// List a missing or refused packet for another grant.
    fn list_missing(&mut self, net: &Fabric, id: FlowId, packet: u32) {
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        state.again.insert(packet);
        let flow = net.flow(id);
        if let (Some(user), Some(access)) = (flow.user, &self.access) {
            state.not_before = net.now() + access.at(flow.destination).backoff(user);
        }
        self.list(net, id);
    }

    /// Update the position of a flow among the flows that need credits.
    fn list(&mut self, net: &Fabric, id: FlowId) {
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        state.next = state.arrived.next_missing(state.next).min(state.packets);
        let wants = state.requested && (!state.again.is_empty() || state.next < state.packets);
        let missing = wants.then(|| state.packets - state.arrived.count());
        let before = std::mem::replace(&mut state.listed, missing);
        if before == missing {
            return;
        }
        let group = self.group(net, id);
        if let Some(missing) = before {
            group.wanting.remove(&(missing, id));
        }
        if let Some(missing) = missing {
            group.wanting.insert((missing, id));
        }
    }

    /// Arm the next turn of a destination that may have a credit to grant.
    fn pace(&mut self, net: &mut Fabric, at: HostId) {
        let host = &mut self.hosts[at.index()];
        if !host.turn_armed && host.groups.iter().any(|it| !it.wanting.is_empty()) {
            host.turn_armed = true;
            net.wake(host.next_turn.max(net.now()), u64::from(at.0));
        }
    }

    /// Return the flow that gets the next credit.
    fn choose(&self, at: HostId) -> Option<FlowId> {
        let ran = self.access.as_ref().map(|access| access.at(at));
        let groups = self.hosts[at.index()].groups.iter().enumerate();
        let able = groups.filter_map(|(index, group)| {
            if group.wanting.is_empty() {
                return None;
            }
            if let (Some(user), Some(ran)) = (index.checked_sub(1), ran)
                && ran.room(user as u32) <= group.outstanding
            {
                return None;
            }
            group.wanting.iter().find(|(_, id)| {
                let outstanding = self.flows[id].outstanding.len();
                outstanding < self.constants.outstanding as usize
            })
        });
        able.min().map(|&(_, id)| id)
    }

    /// Grants at most one credit, at the beginning of a destination's packet time.
    fn grant(&mut self, net: &mut Fabric, at: HostId) {
        let now = net.now();
        self.hosts[at.index()].turn_armed = false;
        let Some(id) = self.choose(at) else {
            return;
        };
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        let packet = state.again.pop_first().unwrap_or(state.next);
        let delay = match (net.flow(id).user, &self.access) {
            (Some(user), Some(access))
                if state.not_before > Picos::ZERO
                    && access.at(at).config().readings.backoff_from == BackoffFrom::Credit =>
            {
                access.at(at).backoff(user)
            }
            _ => state.not_before.since(now),
        };
        let missing = state.packets - state.arrived.count();
        let host = &mut self.hosts[at.index()];
        host.next_turn = now + host.packet_time;
        let spans = self.constants.credit_life + self.constants.detection;
        let deadline = now + delay + host.packet_time * spans + net.detour(id);
        self.await_packet(net, id, packet, deadline);
        self.list(net, id);
        net.send(
            at,
            Packet {
                sequence: packet,
                value: delay.0,
                rank: u64::from(missing),
                ..Packet::new(id, net.flow(id).source, GRANT, HEADER)
            },
        );
        self.pace(net, at);
    }

    /// Process the due deadlines of a destination.
    fn expire(&mut self, net: &mut Fabric, at: HostId) {
        let now = net.now();
        let host = &mut self.hosts[at.index()];
        if host.deadline_armed == Some(now) {
            host.deadline_armed = None;
        }
        while let Some(&Reverse((deadline, id, packet))) = self.hosts[at.index()].deadlines.peek()
            && deadline <= now
        {
            self.hosts[at.index()].deadlines.pop();
            if self.forget(net, id, packet, Some(deadline)) {
                self.list_missing(net, id, packet);
            }
        }
        self.arm_deadline(net, at);
        self.pace(net, at);
    }

    fn on_credit(&mut self, net: &mut Fabric, at: HostId, credit: &Packet) {
        let now = net.now();
        let Some(state) = self.flows.get_mut(&credit.flow) else {
            return;
        };
        state.request.heard = now;
        let host = &mut self.hosts[at.index()];
        let from = now + Picos(credit.value);
        let missing = credit.rank as u32;
        let own = host.credits.iter_mut().filter(|it| it.flow == credit.flow);
        own.for_each(|it| it.missing = missing);
        host.credits.push(Credit {
            missing,
            flow: credit.flow,
            packet: credit.sequence,
            from,
            until: from + host.packet_time * self.constants.credit_life,
        });
        if credit.value == 0 {
            net.kick(at);
        } else {
            net.wake(from, CREDITED | u64::from(at.0));
        }
    }

    fn on_data(&mut self, net: &mut Fabric, at: HostId, data: &Packet) {
        let (id, packet) = (data.flow, data.sequence);
        self.on_request(net, id, false);
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        if state.arrived.contains(packet) {
            return;
        }
        let user = net.flow(id).user;
        if let (Some(user), Some(access)) = (user, &mut self.access) {
            match access.offer(net, at, user, data, packet) {
                Verdict::Admitted => {}
                Verdict::Refused => {
                    self.forget(net, id, packet, None);
                    self.list_missing(net, id, packet);
                    return self.pace(net, at);
                }
                Verdict::InPlaceOf(_, dropped) => {
                    if let Some(state) = self.flows.get_mut(&dropped.flow) {
                        state.arrived.remove(dropped.sequence);
                    }
                    self.list_missing(net, dropped.flow, dropped.sequence);
                }
            }
        }
        self.forget(net, id, packet, None);
        if let Some(state) = self.flows.get_mut(&id) {
            state.arrived.insert(packet);
            state.again.remove(&packet);
            state.not_before = Picos::ZERO;
        }
        self.list(net, id);
        if user.is_none() {
            self.count_delivery(net, id);
        }
        self.pace(net, at);
    }

    /// Count a packet that has arrived at its end.
    fn count_delivery(&mut self, net: &mut Fabric, id: FlowId) {
        let Some(state) = self.flows.get_mut(&id) else {
            return;
        };
        state.undelivered -= 1;
        if state.undelivered > 0 {
            return;
        }
        let flow = *net.flow(id);
        if let (Some(user), Some(access)) = (flow.user, &mut self.access) {
            access.close(flow.destination, user, id);
        }
        net.finish(id);
        acknowledge(net, id);
    }
}

impl Transport for PdcellHosts {
    fn start(&mut self, net: &mut Fabric, id: FlowId) {
        let flow = *net.flow(id);
        let packets = packets(flow.bytes);
        let host = &mut self.hosts[flow.source.index()];
        if packets <= self.constants.free_packets {
            let life = f64::from(packets) + self.constants.credit_life;
            let until = net.now() + host.packet_time * life;
            host.credits.extend((0..packets).map(|packet| Credit {
                missing: packets,
                flow: id,
                packet,
                from: net.now(),
                until,
            }));
            net.kick(flow.source);
        }
        let patience = host.packet_time * self.constants.repeat_request;
        let state = State {
            packets,
            request: Request::new(net, id, patience, Picos::from_millis(1000)),
            requested: false,
            arrived: Arrivals::default(),
            next: 0,
            again: BTreeSet::new(),
            outstanding: Vec::new(),
            listed: None,
            not_before: Picos::ZERO,
            undelivered: packets,
        };
        self.flows.insert(id, state);
    }

    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
        let id = packet.flow;
        match packet.kind {
            REQUEST => self.on_request(net, id, packet.sequence > 0),
            GRANT => self.on_credit(net, at, &packet),
            DATA => self.on_data(net, at, &packet),
            _ => {
                if self.flows.remove(&id).is_some() {
                    self.hosts[at.index()].credits.retain(|it| it.flow != id);
                    net.close(id);
                }
            }
        }
    }

    fn wake(&mut self, net: &mut Fabric, token: u64) {
        let mut delivered = std::mem::take(&mut self.delivered);
        if let Some(access) = &mut self.access
            && let Some(at) = access.wake(net, token, &mut delivered)
        {
            for delivery in delivered.drain(..) {
                self.count_delivery(net, delivery.sdu.flow);
            }
            self.delivered = delivered;
            return self.pace(net, at);
        }
        self.delivered = delivered;
        let number = token as u32;
        match token & !u64::from(u32::MAX) {
            DEADLINE => self.expire(net, HostId(number)),
            CREDITED => net.kick(HostId(number)),
            REPEAT => {
                if let Some(state) = self.flows.get_mut(&FlowId(number)) {
                    state.request.wake(net, FlowId(number));
                }
            }
            _ => self.grant(net, HostId(number)),
        }
    }

    fn pull(&mut self, net: &mut Fabric, at: HostId) -> Option<Packet> {
        let now = net.now();
        let credits = &mut self.hosts[at.index()].credits;
        credits.retain(|it| it.until >= now);
        let valid = credits.iter().enumerate().filter(|(_, it)| it.from <= now);
        let (index, _) = valid.min_by_key(|(_, it)| it.order())?;
        let credit = credits.swap_remove(index);
        let flow = net.flow(credit.flow);
        let packets = self.flows[&credit.flow].packets;
        Some(Packet {
            priority: rank(packets, self.constants.short_flow),
            sequence: credit.packet,
            ..Packet::new(
                credit.flow,
                flow.destination,
                DATA,
                wire_size(flow.bytes, credit.packet),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use cellbed_link::Probability;

    use super::*;
    use crate::ran::{Cqi, CqiSource, Readings, TTI};
    use crate::{
        Balancing, FULL_PAYLOAD, Flow, Ports, Record, Simulation, Switching, Topology, Traffic,
    };

    /// Hosts that record each credit (arrival at the source, packet, t_s) and lose the first credits.
    struct Watched {
        inner: PdcellHosts,
        credits: Vec<(Picos, u32, Picos)>,
        lose: u32,
    }

    impl Transport for Watched {
        fn start(&mut self, net: &mut Fabric, flow: FlowId) {
            self.inner.start(net, flow);
        }

        fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet) {
            if packet.kind == GRANT {
                let credit = (net.now(), packet.sequence, Picos(packet.value));
                self.credits.push(credit);
                if self.lose > 0 {
                    self.lose -= 1;
                    return;
                }
            }
            self.inner.receive(net, at, packet);
        }

        fn wake(&mut self, net: &mut Fabric, token: u64) {
            self.inner.wake(net, token);
        }

        fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
            self.inner.pull(net, host)
        }
    }

    const T: u64 = 1_200_000;

    /// Run flows from host 1 to host 0, given as packets and perhaps a user. threshold: the user's first one.
    fn run(
        flows: &[(u32, Option<u32>)],
        threshold: u32,
        lose: u32,
    ) -> (Vec<Record>, Vec<(Picos, u32, Picos)>, u64) {
        run_as(BackoffFrom::Refusal, flows, threshold, lose)
    }

    fn run_as(
        backoff_from: BackoffFrom,
        flows: &[(u32, Option<u32>)],
        threshold: u32,
        lose: u32,
    ) -> (Vec<Record>, Vec<(Picos, u32, Picos)>, u64) {
        let links = [(0, 2, 10e9, Picos::ZERO), (1, 2, 10e9, Picos::ZERO)];
        let topology = Topology::graph(2, 1, &links);
        let flow = |&(packets, user): &(u32, Option<u32>)| Flow {
            source: HostId(1),
            destination: HostId(0),
            user,
            bytes: u64::from(packets) * u64::from(FULL_PAYLOAD),
            start: Picos::ZERO,
        };
        let traffic = Traffic::list(flows.iter().map(flow).collect());
        let ports = Ports {
            discipline: Discipline::DropTail,
            buffer: 36_864,
            card_buffer: u64::MAX,
            mark_above: None,
            switching: Switching::CutThrough,
            balancing: Balancing::Spray,
        };
        let net = Fabric::new(topology, &ports, 1);
        let config = RanConfig {
            users: 2,
            user_packets: threshold,
            readings: Readings {
                backoff_from,
                ..Readings::default()
            },
            block_errors: Probability::NEVER,
            cqi: CqiSource::Trace {
                traces: vec![vec![Cqi::HIGHEST]],
            },
            ..RanConfig::default()
        };
        let inner = PdcellHosts::new(PdcellConfig::default(), &net).with_rans(vec![config], 1);
        let watched = Watched {
            inner,
            credits: Vec::new(),
            lose,
        };
        let mut simulation = Simulation::new(net, watched, traffic);
        let mut records = Vec::new();
        simulation.run(|record| records.push(record));
        records.sort_by_key(|record| record.id);
        let Watched { inner, credits, .. } = simulation.transport();
        let groups = inner.hosts.iter().flat_map(|host| &host.groups);
        assert!(
            groups
                .into_iter()
                .all(|it| it.outstanding == 0 && it.wanting.is_empty())
        );
        assert!(inner.flows.is_empty());
        let refused = inner.rans()[0].counts().refused;
        (records, credits.clone(), refused)
    }

    #[test]
    fn long_flows_wait_for_credits_a_packet_time_apart_and_short_ones_do_not() {
        let (records, credits, _) = run(&[(8, None)], 100, 0);
        assert_eq!((records.len(), credits.len()), (1, 0));
        let (_, credits, _) = run(&[(20, None)], 100, 0);
        let packets: Vec<u32> = credits.iter().map(|it| it.1).collect();
        assert_eq!(packets, (0..20).collect::<Vec<u32>>());
        assert!(
            credits
                .windows(2)
                .all(|it| it[1].0.since(it[0].0) == Picos(T))
        );
        assert!(credits.iter().all(|it| it.2 == Picos::ZERO));
    }

    #[test]
    fn the_flow_with_fewer_missing_packets_gets_the_credits() {
        let (records, ..) = run(&[(200, None), (20, None)], 100, 0);
        assert!(records[1].end < records[0].end);
        assert!(records[1].end.0 < 40 * T);
    }

    #[test]
    fn a_user_gets_credits_for_the_room_of_its_queue() {
        let (_, credits, refused) = run(&[(20, Some(1))], 4, 0);
        let early = credits.iter().filter(|it| it.0.0 < TTI.0 / 2);
        assert_eq!((early.count(), refused), (4, 0));
        // The subframe of the next TTI takes these packets: the same number follows.
        let next = credits.iter().filter(|it| it.0.0 < TTI.0);
        assert_eq!((next.count(), credits.len()), (8, 20));
    }

    #[test]
    fn an_unanswered_credit_is_granted_again_after_its_end_and_nine_packet_times() {
        let (records, credits, _) = run(&[(20, None)], 100, 1);
        assert_eq!((records.len(), credits.len()), (1, 21));
        let lost: Vec<Picos> = credits
            .iter()
            .filter(|it| it.1 == 0)
            .map(|it| it.0)
            .collect();
        // At a turn of the destination, at most a packet time later.
        let after = lost[1].since(lost[0]).0;
        assert!((21 * T / 2..=23 * T / 2).contains(&after), "{after}");
    }

    #[test]
    fn after_a_refusal_the_source_waits_a_tti_and_an_admission_ends_that() {
        // Of 5 packets that come with the request, the threshold admits 4.
        let (records, credits, refused) = run(&[(5, Some(0))], 4, 0);
        assert_eq!((records.len(), refused), (1, 1));
        let &[(at, 4, delay)] = &credits[..] else {
            panic!("{credits:?}");
        };
        // Refused after about 5 packets; nothing had been sent to the distributed unit, hence α = 0.
        let until = (at + delay).0 - TTI.0;
        assert!((5 * T..6 * T).contains(&until), "{until}");
        // From the credit, when the queue has room because a subframe took 4 packets: TTI + α for these packets.
        let (_, credits, _) = run_as(BackoffFrom::Credit, &[(5, Some(0))], 4, 0);
        let wait = Picos(TTI.0 + 4 * 12_000 * TTI.0 / 5_584);
        assert_eq!((credits.len(), credits[0].2), (1, wait));
        // A longer flow, whose first packets are admitted later, continues without delay.
        let (_, credits, _) = run(&[(5, Some(0)), (30, Some(0))], 4, 0);
        assert!(credits.iter().filter(|it| it.2 == Picos::ZERO).count() >= 25);
    }
}
