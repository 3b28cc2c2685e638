//! The loop of a run, and the contract between a network and its transport.

use super::sampling::Sampler;
use super::{Event, Fabric, Flow, Live, Node, Packet, Record, SLOT, Sample, Sampling, Traffic};
use crate::units::{FlowId, HostId, Picos};
use crate::wheel::Wheel;

/// The actions of all hosts. A transport keeps states of flows in a [`FlowMap`](super::FlowMap) or by host, and frees
/// the state of a flow when calling [`Fabric::close`].
pub trait Transport {
    /// Start a flow: its source has the bytes, its destination knows nothing.
    fn start(&mut self, net: &mut Fabric, flow: FlowId);

    /// Process a complete packet that has arrived at a host.
    fn receive(&mut self, net: &mut Fabric, at: HostId, packet: Packet);

    /// Process a wake-up of [`Fabric::wake`]. Wake-ups cannot be cancelled: a transport ignores tokens that it no
    /// longer needs.
    fn wake(&mut self, net: &mut Fabric, token: u64);

    /// Return the next packet for an idle card after [`Fabric::kick`], or `None` until the next kick. Packets passed
    /// to [`Fabric::send`] meanwhile precede it.
    fn pull(&mut self, net: &mut Fabric, host: HostId) -> Option<Packet> {
        let _ = (net, host);
        None
    }

    /// Count a packet that a port has dropped. A transport must not react, as no host knows of the drop.
    fn on_drop(&mut self, net: &mut Fabric, packet: Packet) {
        let _ = (net, packet);
    }
}

/// A run: a network, a transport and its flows.
#[derive(Debug)]
pub struct Simulation<T> {
    net: Fabric,
    transport: T,
    traffic: Traffic,
    /// The next flow.
    next: Option<Flow>,
    sampler: Option<Box<Sampler>>,
}

impl<T: Transport> Simulation<T> {
    /// Return a simulation at time 0.
    pub fn new(mut net: Fabric, transport: T, mut traffic: Traffic) -> Self {
        let next = traffic.next();
        if let Some(flow) = &next {
            net.wheel.push(flow.start.0, Event::Start);
        }
        Self {
            net,
            transport,
            traffic,
            next,
            sampler: None,
        }
    }

    /// End the run at `end` at the latest, before the other events of that instant.
    pub fn with_end(mut self, end: Picos) -> Self {
        self.net.wheel.push(end.0, Event::End);
        self
    }

    /// Enable samples of the queues.
    pub fn with_sampling(mut self, sampling: &Sampling) -> Self {
        self.sampler = Some(Box::new(Sampler::new(sampling, &self.net.topology)));
        self.net.wheel.push(0, Event::Sample);
        self
    }

    /// Return the samples of the queues, in order of time.
    pub fn samples(&self) -> &[Sample] {
        self.sampler.as_ref().map_or(&[], |it| &it.samples)
    }

    /// Return the network.
    pub fn fabric(&self) -> &Fabric {
        &self.net
    }

    /// Return the transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Runs to the end; see [`advance`](Self::advance).
    pub fn run(&mut self, mut sink: impl FnMut(Record)) {
        while self.advance(u64::MAX, &mut sink) {}
    }

    /// Process at most `events` events; records of finished flows go to `sink` in order. Return whether events
    /// remain: the run ends when all flows are over or no event is left.
    pub fn advance(&mut self, events: u64, sink: &mut impl FnMut(Record)) -> bool {
        let until = self.net.counters.events.saturating_add(events);
        while self.net.counters.events < until {
            if self.next.is_none() && self.net.flows.is_empty() {
                return false;
            }
            let Some((at, event)) = self.net.wheel.pop() else {
                return false;
            };
            debug_assert!(at >= self.net.now.0);
            self.net.now = Picos(at);
            self.net.counters.events += 1;
            self.process(event);
            self.settle(sink);
            self.net.audit();
        }
        true
    }

    #[inline]
    fn process(&mut self, event: Event) {
        let Self { net, transport, .. } = self;
        match event {
            Event::Reach { port } => match net.reach(port) {
                Some((Node::Switch(switch), place)) => {
                    let next = net.next_port(port, switch, place);
                    net.offer(next, place);
                }
                Some((Node::Host(host), place)) => {
                    let packet = net.arena.remove(place);
                    net.counters.delivered += u64::from(packet.size);
                    if packet.via == 0 {
                        transport.receive(net, host, packet);
                    } else {
                        net.hold_at_stop(host, packet);
                    }
                }
                None => {}
            },
            Event::Card { host } => self.pull(host),
            Event::Wake { token } => transport.wake(net, token),
            Event::Pass { number } => net.pass(number),
            Event::Sample => self.sample(),
            Event::End => net.wheel = Wheel::new(SLOT),
            Event::Start => {
                if let Some(flow) = std::mem::replace(&mut self.next, self.traffic.next()) {
                    let id = FlowId(net.counters.started as u32);
                    net.counters.started += 1;
                    let live = Live {
                        flow,
                        end: None,
                        held: false,
                        acknowledged: false,
                    };
                    net.flows.insert(id, live);
                    transport.start(net, id);
                }
                if let Some(next) = &self.next {
                    net.wheel.push(next.start.0, Event::Start);
                }
            }
        }
    }

    fn sample(&mut self) {
        let Self { net, sampler, .. } = self;
        if let Some(sampler) = sampler {
            let (now, arena) = (net.now, &mut net.arena);
            let ports = net.ports.iter_mut();
            sampler.take(now, ports.map(|port| port.waiting(now.0, arena)));
            if !net.wheel.is_empty() {
                let next = now + sampler.interval;
                net.wheel.push(next.0, Event::Sample);
            } // else the run ends
        }
    }

    /// Ask the transport for the next packet of a host, if its card is idle.
    #[inline]
    fn pull(&mut self, host: HostId) {
        let Self { net, transport, .. } = self;
        if net.card_is_idle(host) {
            match transport.pull(net, host) {
                Some(packet) => net.send(host, packet),
                None => return net.ports[host.index()].pulls = false,
            }
        }
        net.pull_later(host);
    }

    /// Do the work that callbacks left to the loop.
    #[inline]
    fn settle(&mut self, sink: &mut impl FnMut(Record)) {
        while let Some(host) = self.net.kicked.pop() {
            self.pull(host);
        }
        while let Some(place) = self.net.dropped.pop() {
            let packet = self.net.arena.remove(place);
            self.net.counters.dropped += u64::from(packet.size);
            self.transport.on_drop(&mut self.net, packet);
        }
        if !self.net.records.is_empty() {
            self.net.records.drain(..).for_each(sink);
        }
    }
}
