//! Senders with congestion control in a closed loop around one bottleneck, in virtual time: enough of TCP to show the
//! effect of a queue discipline, without randomness.
//!
//! A sender keeps a window of packets in flight. Delivered packets are acknowledged at once; the whole base round-trip
//! time lies behind the bottleneck. A packet counts as lost when a later one of its flow arrives, as with selective
//! acknowledgements, or after a timeout when no packet is in flight. Losses and marks of one round trip are one
//! congestion event.

#![allow(dead_code)] // each user needs a part of it

mod sender;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cellbed_link::*;
pub use sender::Control;
use sender::Sender;

/// A flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub control: Control,
    /// Base round-trip time, without any queue.
    pub round_trip: Duration,
    pub size: Bytes,
    pub starts: Time,
    pub stops: Time,
    pub ecn: Ecn,
}

impl Flow {
    /// A flow without ECN, from the beginning to the end.
    pub fn new(control: Control, round_trip_ms: u64) -> Self {
        Self {
            control,
            round_trip: Duration::from_millis(round_trip_ms),
            size: MTU,
            starts: Time::ZERO,
            stops: Time::MAX,
            ecn: Ecn::NotEct,
        }
    }

    /// As many Reno as Prague flows.
    pub fn coupled(count: usize, round_trip_ms: u64) -> Vec<Self> {
        let mut flows = vec![Self::new(Control::Reno, round_trip_ms); 2 * count];
        for flow in &mut flows[count..] {
            (flow.control, flow.ecn) = (Control::PRAGUE, Ecn::Ect1);
        }
        flows
    }

    /// Reno flows that come and go as in Pan et al. (HPSR 2013), "varying traffic intensity": 10, 30, 50, 30 and 10
    /// flows for 30 s each, with a round-trip time of 100 ms.
    pub fn varying() -> Vec<Self> {
        let reno = Self::new(Control::Reno, 100);
        let times = [(10, 0, 150), (20, 30, 120), (20, 60, 90)].into_iter();
        let flows = times.map(|(count, from, to)| vec![reno.during(from, to); count]);
        flows.flatten().collect()
    }

    /// Reno flows with different round-trip times and packet sizes, and last a flow of 100 bytes every 20 ms.
    pub fn unequal() -> Vec<Self> {
        let bulk = |(round_trip, size)| Self {
            size: Bytes(size),
            ..Self::new(Control::Reno, round_trip)
        };
        let sparse = Self {
            size: Bytes(100),
            ..Self::new(Control::Constant(BitRate(40_000)), 10)
        };
        let bulks = [(10, 1500), (50, 1500), (20, 500), (10, 1500)].map(bulk);
        bulks.into_iter().chain([sparse]).collect()
    }

    /// Limits the flow to a time, in seconds.
    pub fn during(self, from: u64, to: u64) -> Self {
        Self {
            starts: seconds_in(from),
            stops: seconds_in(to),
            ..self
        }
    }
}

/// End of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub flow: usize,
    /// Departure from the bottleneck, or drop.
    pub at: Time,
    /// Time from its arrival until its first byte leaves, ms.
    pub delay: f64,
    pub size: Bytes,
    pub dropped: bool,
    pub marked: bool,
}

/// Events of a run.
pub struct Run {
    pub rate: BitRate,
    pub samples: Vec<Sample>,
}

/// An acknowledgement in flight; ordered by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Acknowledgement {
    at: Time,
    order: u64,
    flow: usize,
    number: u64,
    marked: bool,
}

#[derive(Clone, Copy)]
struct Packet {
    flow: usize,
    number: u64,
}

/// Runs the flows through a bottleneck of constant `rate` for `seconds`.
pub fn run(queue: &Discipline, rate: BitRate, flows: &[Flow], seconds: u64) -> Run {
    let bottleneck = BottleneckConfig::new(Schedule::Constant(rate)).with_queue(queue.clone());
    let mut direction = Direction::new(vec![bottleneck.into()], Time::ZERO);
    let mut senders: Vec<Sender> = flows.iter().map(|flow| Sender::new(*flow)).collect();
    let mut acknowledgements = BinaryHeap::<Reverse<Acknowledgement>>::new();
    let (mut samples, mut order) = (Vec::new(), 0u64);
    let end = seconds_in(seconds);
    loop {
        let timers = senders.iter().filter_map(Sender::timer).min();
        let acknowledged = acknowledgements.peek().map(|next| next.0.at);
        let Some(now) = [direction.next_event(), timers, acknowledged]
            .into_iter()
            .flatten()
            .min()
        else {
            break;
        };
        if now >= end {
            break;
        }
        while let Some(outcome) = direction.poll(now) {
            let Packet { flow, number } = outcome.packet;
            let dropped = outcome.fate != Fate::Delivered;
            let service = rate.time_for(outcome.size).expect("the rate is above zero");
            let service = if dropped { Duration::ZERO } else { service };
            let delay = (outcome.departed - outcome.arrived).saturating_sub(service);
            samples.push(Sample {
                flow,
                at: outcome.departed,
                delay: delay.as_secs_f64() * 1e3,
                size: outcome.size,
                dropped,
                marked: outcome.marked,
            });
            if dropped {
                senders[flow].dropped(now);
            } else {
                order += 1;
                acknowledgements.push(Reverse(Acknowledgement {
                    at: outcome.departed + flows[flow].round_trip,
                    order,
                    flow,
                    number,
                    marked: outcome.marked,
                }));
            }
        }
        while acknowledgements.peek().is_some_and(|next| next.0.at <= now)
            && let Some(Reverse(next)) = acknowledgements.pop()
        {
            senders[next.flow].acknowledged(now, next.number, next.marked);
        }
        for (flow, sender) in senders.iter_mut().enumerate() {
            sender.tick(now);
            while let Some(number) = sender.send(now) {
                let tag = Tag {
                    flow: flow as u64,
                    ecn: flows[flow].ecn,
                    ..Tag::default()
                };
                direction.accept_tagged(now, Packet { flow, number }, flows[flow].size, tag);
            }
        }
    }
    Run { rate, samples }
}

fn seconds_in(seconds: u64) -> Time {
    Time::from_millis(1000 * seconds)
}

impl Run {
    /// Return the events from one second to another.
    pub fn between(&self, from: u64, to: u64) -> Span<'_> {
        let within = |sample: &&Sample| sample.at >= seconds_in(from) && sample.at < seconds_in(to);
        Span {
            rate: self.rate,
            seconds: (to - from) as f64,
            samples: self.samples.iter().filter(within).collect(),
        }
    }
}

/// A part of a run.
pub struct Span<'a> {
    rate: BitRate,
    seconds: f64,
    pub samples: Vec<&'a Sample>,
}

impl Span<'_> {
    /// Returns the part of some flows.
    pub fn of(&self, flows: impl Fn(usize) -> bool) -> Self {
        let samples = self
            .samples
            .iter()
            .copied()
            .filter(|sample| flows(sample.flow))
            .collect();
        Span { samples, ..*self }
    }

    fn delivered(&self) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .copied()
            .filter(|sample| !sample.dropped)
    }

    /// Delays of the delivered packets in order of size, ms.
    pub fn delays(&self) -> Vec<f64> {
        let mut delays: Vec<f64> = self.delivered().map(|sample| sample.delay).collect();
        delays.sort_by(f64::total_cmp);
        delays
    }

    pub fn mean_delay(&self) -> f64 {
        let delays = self.delays();
        delays.iter().sum::<f64>() / delays.len() as f64
    }

    pub fn delay_quantile(&self, share: f64) -> f64 {
        let delays = self.delays();
        delays[((delays.len() as f64 * share) as usize).min(delays.len() - 1)]
    }

    /// Returns the standing queue: the median over the minimum delays of all stretches of time, ms.
    pub fn standing(&self, stretch: Duration) -> f64 {
        let mut least = std::collections::BTreeMap::new();
        for sample in self.delivered() {
            let least = least
                .entry(sample.at.as_nanos() / stretch.as_nanos())
                .or_insert(f64::INFINITY);
            *least = least.min(sample.delay);
        }
        let mut least: Vec<f64> = least.into_values().collect();
        least.sort_by(f64::total_cmp);
        least[least.len() / 2]
    }

    /// Mbit/s.
    pub fn throughput(&self) -> f64 {
        self.delivered()
            .map(|sample| sample.size.0 * 8)
            .sum::<u64>() as f64
            / self.seconds
            / 1e6
    }

    /// Share of the link at its first rate.
    pub fn utilisation(&self) -> f64 {
        self.throughput() * 1e6 / self.rate.0 as f64
    }

    /// Share of the packets that were dropped.
    pub fn dropped(&self) -> f64 {
        self.samples.iter().filter(|sample| sample.dropped).count() as f64
            / self.samples.len() as f64
    }

    /// Share of the delivered packets that were marked.
    pub fn marked(&self) -> f64 {
        self.delivered().filter(|sample| sample.marked).count() as f64
            / self.delivered().count() as f64
    }
}
