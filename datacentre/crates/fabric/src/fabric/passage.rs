//! Hosts of the mobile core (§3.4 of the paper on pDCell) that all packets between a source and a user pass in order,
//! to the user and back. Each host delays a packet and sends it again.

use std::collections::VecDeque;

use super::{Event, Fabric, Flow, Packet};
use crate::FULL_PACKET;
use crate::units::{FlowId, HostId, Picos};

/// Bit of [`Packet::via`] for packets from users; the others count the next stop from 1.
const BACK: u8 = 1 << 7;

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
    fn advance(&self, flow: &Flow, packet: &mut Packet, back: bool) {
        let done = usize::from(packet.via & !BACK);
        let stops = 1..=self.stops.len();
        let open = |number: &usize| self.stops[number - 1] != flow.source;
        let next = if back {
            let left = stops.rev().filter(|it| done == 0 || *it < done);
            { left }.find(open)
        } else {
            stops.skip(done).find(open)
        };
        (packet.to, packet.via) = match next {
            Some(number) => {
                let bit = if back { BACK } else { 0 };
                (self.stops[number - 1], bit | number as u8)
            }
            None if back => (flow.source, 0),
            None => (flow.destination, 0),
        };
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

    /// Return the number of the passage of a flow.
    fn passage(&self, flow: &Flow) -> Option<usize> {
        flow.user?;
        self.passages
            .iter()
            .position(|it| it.unit == flow.destination)
    }

    /// Return how much longer a packet to a user and the answer take because of the stops on their way.
    pub fn detour(&self, id: FlowId) -> Picos {
        if self.passages.is_empty() {
            return Picos::ZERO;
        }
        let flow = self.flow(id);
        let Some(number) = self.passage(flow) else {
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
        if let Some(live) = self.flows.get(&packet.flow)
            && let Some(number) = self.passage(&live.flow)
        {
            let back = packet.to == live.flow.source;
            self.passages[number].advance(&live.flow, &mut packet, back);
        }
        self.transmit(from, packet);
    }

    /// Hold a packet at a stop.
    #[cold]
    #[inline(never)]
    pub(super) fn hold_at_stop(&mut self, at: HostId, packet: Packet) {
        // Else the flow is over.
        if let Some(live) = self.flows.get(&packet.flow)
            && let Some(number) = self.passage(&live.flow)
        {
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
            let back = packet.via & BACK != 0;
            passage.advance(&live.flow, &mut packet, back);
            self.transmit(at, packet);
        }
    }
}
