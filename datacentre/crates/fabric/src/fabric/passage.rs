//! Hosts of the mobile core (§3.4 of the paper on pDCell) that all packets between a source and a user pass in order,
//! to the user and back. Each host delays a packet and sends it again.

use std::collections::VecDeque;

use super::{Event, Fabric, Flow, Packet};
use crate::FULL_PACKET;
use crate::units::{FlowId, HostId, Picos};

/// Stops on the way to the users of a host.
#[derive(Debug)]
pub(super) struct Passage {
    /// The central unit.
    unit: HostId,
    stops: Vec<HostId>,
    /// Delay at each stop.
    delay: Picos,
    /// Packets at the stops, in order of their departures.
    waiting: VecDeque<(HostId, Packet)>,
}

impl Passage {
    /// Address a packet to its next stop, or to its end. A source among the stops is left out.
    ///
    /// [`Packet::via`] counts the stops from 1 on the way to the user, and then on in reverse order on the way back.
    fn advance(&self, flow: &Flow, packet: &mut Packet, back: bool) {
        let (done, count) = (usize::from(packet.via), self.stops.len());
        let stop = |number: &usize| self.stops[(*number).min(2 * count - 1 - number)];
        let (mut left, end) = match back {
            true => (done.max(count)..2 * count, flow.source),
            false => (done..count, flow.destination),
        };
        let next = left.find(|number| stop(number) != flow.source);
        (packet.to, packet.via) = next.map_or((end, 0), |it| (stop(&it), it as u8 + 1));
    }
}

impl Fabric {
    /// Let packets of flows to users of `unit`, and back, pass other hosts, at most 127.
    pub fn add_passage(&mut self, unit: HostId, stops: Vec<HostId>, delay: Picos) {
        self.passages.push(Passage {
            unit,
            stops,
            delay,
            waiting: VecDeque::new(),
        });
    }

    /// Return the number of the passage of an open flow, with the flow.
    fn passage(&self, id: FlowId) -> Option<(usize, Flow)> {
        let flow = self.flows.get(&id)?.flow;
        flow.user?;
        let number = self
            .passages
            .iter()
            .position(|it| it.unit == flow.destination);
        Some((number?, flow))
    }

    /// Return how much longer a packet to a user and the answer take because of the stops on their way.
    pub fn detour(&self, id: FlowId) -> Picos {
        if self.passages.is_empty() {
            return Picos::ZERO;
        }
        let Some((number, flow)) = self.passage(id) else {
            return Picos::ZERO;
        };
        let passage = &self.passages[number];
        let latency = |from, to| {
            let latency = self.topology.latency(from, to, FULL_PACKET, self.switching);
            latency.0
        };
        let ends = [flow.source, flow.destination];
        let stops = passage.stops.iter().filter(|it| **it != flow.source);
        let (mut at, mut time) = (flow.source, 0);
        for &stop in stops.chain(&ends[1..]) {
            time += latency(at, stop) + passage.delay.0;
            at = stop;
        }
        Picos(2 * (time - passage.delay.0)).since(Picos(2 * latency(ends[0], ends[1])))
    }

    /// Send a packet; of a flow to a user to the first stop on its way.
    #[cold]
    #[inline(never)]
    pub(super) fn send_by_stops(&mut self, from: HostId, mut packet: Packet) {
        if let Some((number, flow)) = self.passage(packet.flow) {
            let back = packet.to == flow.source;
            self.passages[number].advance(&flow, &mut packet, back);
        }
        self.transmit(from, packet);
    }

    /// Hold a packet at a stop.
    #[cold]
    #[inline(never)]
    pub(super) fn hold_at_stop(&mut self, at: HostId, packet: Packet) {
        // Else the flow is over.
        if let Some((number, _)) = self.passage(packet.flow) {
            let passage = &mut self.passages[number];
            passage.waiting.push_back((at, packet));
            let due = self.now + passage.delay;
            let number = number as u32;
            self.wheel.push(due.0, Event::Pass { number });
        }
    }

    /// Send the next packet from a stop.
    #[cold]
    #[inline(never)]
    pub(super) fn pass(&mut self, number: u32) {
        let passage = &mut self.passages[number as usize];
        if let Some((at, mut packet)) = passage.waiting.pop_front()
            && let Some(live) = self.flows.get(&packet.flow)
        {
            let back = usize::from(packet.via) > passage.stops.len();
            passage.advance(&live.flow, &mut packet, back);
            self.transmit(at, packet);
        }
    }
}
