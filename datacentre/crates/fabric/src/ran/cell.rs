//! A cell: a distributed unit (DU), its shaped port at the central unit (CU), and the virtual subframes for it.
//!
//! The port sends at the rate of the fronthaul. Each TTI its queue gets packets for at most one TTI; all others stay in
//! the users' queues, the shared memory of the CU (§3.3, figure 4).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cellbed_foreign as foreign;
use cellbed_link::cell::{Average, Candidate, Scheduler};
use cellbed_link::{Duration, Time};

use super::buffer::{Buffer, Sdu};
use super::carrier::Carrier;
use super::channel::Channels;
use super::config::{Cut, RanConfig, Readings, Unit};
use super::cqi::Cqi;
use super::distributed_unit::{DistributedUnit, Harq, Report};
use super::{Delivery, PACKET};
use crate::random::{Purpose, stream};
use crate::units::{FlowId, Picos};

/// Next phase of a TTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The TTI of this number begins.
    Start(u64),
    /// The report from the beginning of this TTI arrives.
    Feedback(u64),
    /// The subframe of this TTI is filled.
    Fill(u64),
}

/// A distributed unit, its port at the central unit, and the users' queues for it.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) settings: Unit,
    seed: u64,
    pub(super) channels: Channels,
    pub(super) unit: DistributedUnit,
    pub(super) legs: Vec<Leg>,
    /// Instead of the configuration's.
    pub(super) scheduler: Option<foreign::Scheduler>,
    /// Time at which the port has sent all forwarded packets.
    busy_until: Picos,
    /// Packets on the fronthaul that arrive after the beginning of their TTI, with leg and time.
    pub(super) late: VecDeque<(Picos, u32, Sdu)>,
    /// Resource blocks for retransmissions in the next TTI, as reported by the distributed unit.
    due: u32,
    /// The last leg that received resource blocks.
    turn: u32,
    pub(super) next: Option<Phase>,
    /// Candidates for the virtual subframe, kept to reuse the memory.
    heap: BinaryHeap<Contender>,
    /// Legs in the order of the virtual subframe, kept to reuse the memory.
    schedule: Vec<u32>,
    /// Number of delivered bytes, in packets that may wait for others.
    pub(super) received_bytes: u64,
}

/// The connection of a user to a distributed unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Leg {
    pub(super) user: u32,
    /// Queue in the buffer, and the user's other queue, if any.
    pub(super) queue: u32,
    other: Option<u32>,
    /// Last threshold reported by the distributed unit, since a flow to the user opened.
    pub(super) reported: Option<u32>,
    throughput: Average,
    /// Number of packets in the last subframe.
    pub(super) accepted: u32,
    /// Flow of the last packet, if flows are served in the scheduler's order.
    last: Option<FlowId>,
    /// The user's bytes in the virtual subframe.
    filled: u64,
    /// Packets and bytes in [`Cell::late`].
    late: (u32, u64),
}

/// The port of a cell for a subframe.
#[derive(Clone, Copy, Debug)]
struct Port {
    bps: f64,
    /// Beginning of the subframe.
    begin: Picos,
    /// Time until which the port takes packets.
    full: Picos,
}

impl Leg {
    pub(super) fn new(user: u32, queue: u32, other: Option<u32>) -> Self {
        Self {
            user,
            queue,
            other,
            ..Self::default()
        }
    }
}

/// Candidate for resource blocks; the best is first in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Contender {
    /// The scheduler's rank, as [`order_key`].
    rank: i64,
    /// Bits per TTI of a user that has never been served, for which r / mean r is infinite: the best channel is first.
    unserved: Option<u32>,
    /// Distance from the last served user; then the lower flow number.
    turn: Reverse<(u32, Option<FlowId>)>,
    leg: u32,
    cqi: Cqi,
}

/// Return a number with the order of [`f64::total_cmp`].
fn order_key(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

impl Cell {
    /// Return a cell without packets.
    pub(super) fn new(settings: Unit, legs: Vec<Leg>, config: &RanConfig, seed: u64) -> Self {
        let count = legs.len() as u32;
        let harq = Harq {
            error: config.block_errors.get(),
            round_trip: u64::from(config.harq_ttis),
            tries: config.harq_tries,
        };
        Self {
            settings,
            seed,
            channels: Channels::new(&config.cqi, &settings.carrier, count, seed),
            unit: DistributedUnit::new(count, settings.carrier, harq),
            turn: count.saturating_sub(1),
            legs,
            scheduler: config
                .scheduler_header
                .as_ref()
                .map(|it| foreign::Scheduler::new(it, config.users, seed)),
            busy_until: Picos::ZERO,
            late: VecDeque::new(),
            due: 0,
            next: None,
            heap: BinaryHeap::new(),
            schedule: Vec::new(),
            received_bytes: 0,
        }
    }

    pub(super) fn next_event(&self) -> Option<Picos> {
        let tti = self.settings.carrier.tti.0;
        self.next.map(|phase| {
            Picos(match phase {
                Phase::Start(number) => number * tti,
                Phase::Feedback(number) => number * tti + self.settings.delay.0,
                Phase::Fill(number) => number * tti - self.settings.lead(),
            })
        })
    }

    /// Begin to fill subframes after a packet's admission.
    pub(super) fn activate(&mut self, now: Picos) {
        if self.next.is_none() {
            // The next subframe that can still be filled in time.
            let tti = (now.0 + self.settings.lead()) / self.settings.carrier.tti.0 + 1;
            self.next = Some(Phase::Fill(tti));
        }
    }

    /// Return whether packets for the cell wait in the buffer.
    pub(super) fn waits(&self, buffer: &Buffer) -> bool {
        self.legs.iter().any(|leg| buffer.queue(leg.queue) > 0)
    }

    pub(super) fn is_idle(&self, buffer: &Buffer) -> bool {
        self.unit.is_empty() && self.late.is_empty() && !self.waits(buffer)
    }

    /// Return the beginning and the end of a TTI.
    fn span(&self, tti: u64) -> [Time; 2] {
        let length = self.settings.carrier.tti.0;
        let begin = to_time(Picos(tti * length));
        [begin, begin + Duration::from_nanos(length / 1000)]
    }

    /// Count bytes of a leg in the subframe of a TTI for the scheduler.
    fn count_bytes(&mut self, leg: u32, bytes: u64, tti: u64, scheduler: Scheduler) {
        let [now, end] = self.span(tti);
        let leg = &mut self.legs[leg as usize];
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.sent(tti * self.settings.carrier.tti.0, leg.user, bytes);
        } else if let Some(window) = scheduler.window() {
            leg.throughput.add(bytes as f64, now, end, window);
        }
    }

    /// Fill the virtual subframe of a TTI in the order of the scheduler, and send its packets to the distributed
    /// unit, which follows this order. The last packet may be cut (RLC segmentation). Its rest competes in the next
    /// subframe with its flow, or is first in that subframe.
    ///
    /// bps: rate of the port.
    pub(super) fn fill(
        &mut self,
        tti: u64,
        now: Picos,
        bps: f64,
        buffer: &mut Buffer,
        config: &RanConfig,
    ) {
        let carrier = self.settings.carrier;
        let [begin, _] = self.span(tti);
        // As in the latest report of the distributed unit.
        let reported = Picos((tti - 1) * carrier.tti.0);
        let Readings { rank, cut, .. } = config.readings;
        self.heap.clear();
        self.schedule.clear();
        let count = self.legs.len() as u32;
        for (number, leg) in (0..).zip(&mut self.legs) {
            (leg.accepted, leg.filled) = (0, 0);
            let unsent = self.unit.unsent(number) + leg.late.1;
            if buffer.queue(leg.queue) == 0 && unsent == 0 {
                continue;
            }
            let cqi = self.channels.cqi(number, reported);
            if cqi < Cqi::LOWEST {
                continue;
            }
            let steps = (number + count - self.turn - 1) % count;
            let mut push = |flow: Option<FlowId>, remaining| {
                let potential = f64::from(carrier.bits(cqi)) / 8.0;
                let rank = match &mut self.scheduler {
                    Some(scheduler) => {
                        let candidate = foreign::Candidate {
                            bytes: remaining,
                            bytes_per_tti: potential,
                            user: leg.user,
                            flow: flow.map_or(foreign::NONE, |it| it.0),
                            cqi: cqi.get().into(),
                        };
                        scheduler.rank(tti * carrier.tti.0, &candidate)
                    }
                    None => config.scheduler.rank(
                        Candidate {
                            priority: 0,
                            class: 0,
                            potential,
                            remaining: remaining as f64,
                            throughput: leg.throughput,
                        },
                        begin,
                    ),
                };
                self.heap.push(Contender {
                    rank: order_key(rank),
                    unserved: rank.is_infinite().then(|| carrier.bits(cqi)),
                    turn: Reverse((steps, flow)),
                    leg: number,
                    cqi,
                });
            };
            let mut rest = if cut == Cut::First { 0 } else { unsent };
            for (flow, remaining) in buffer.waiting_flows(leg.queue, rank) {
                let own = if flow == leg.last {
                    std::mem::take(&mut rest)
                } else {
                    0
                };
                push(flow, remaining + own);
            }
            if rest > 0 {
                push(leg.last, rest + buffer.remaining_bytes(leg.queue, leg.last));
            }
        }
        let mut left = carrier.blocks - self.due;
        if cut == Cut::First {
            left = self.finish_cut(left, tti, config.scheduler);
        }
        self.busy_until = Picos(self.busy_until.0.max(now.0));
        let port = Port {
            bps,
            begin: Picos(tti * carrier.tti.0),
            full: now + carrier.tti,
        };
        while let Some(best) = self.heap.pop().filter(|_| left > 0) {
            left -= self.forward(best, left, port, buffer, config);
            self.turn = best.leg;
        }
        self.unit.prefer(&self.schedule);
    }

    /// Give resource blocks to unsent bytes of the distributed unit, in its order. Return the number of remaining
    /// blocks.
    fn finish_cut(&mut self, mut left: u32, tti: u64, scheduler: Scheduler) -> u32 {
        let carrier = self.settings.carrier;
        for number in self.unit.order().collect::<Vec<u32>>() {
            let cqi = self.channels.cqi(number, Picos((tti - 1) * carrier.tti.0));
            if left == 0 || cqi < Cqi::LOWEST {
                continue;
            }
            let leg = &mut self.legs[number as usize];
            let most = u64::from(carrier.bytes(cqi, left));
            leg.filled = self.unit.unsent(number).min(most);
            let filled = leg.filled;
            left -= carrier.blocks_for(cqi, filled).unwrap_or(0) as u32;
            self.count_bytes(number, filled, tti, scheduler);
            self.schedule.push(number);
        }
        left
    }

    /// Send packets of a user to the distributed unit in at most `left` more resource blocks. Return the blocks used.
    fn forward(
        &mut self,
        best: Contender,
        left: u32,
        port: Port,
        buffer: &mut Buffer,
        config: &RanConfig,
    ) -> u32 {
        let Contender {
            turn: Reverse((_, flow)),
            leg: number,
            cqi,
            ..
        } = best;
        let Unit { carrier, delay, .. } = self.settings;
        let leg = &mut self.legs[number as usize];
        let before = leg.filled;
        let blocks = |bytes| carrier.blocks_for(cqi, bytes).unwrap_or(0);
        let most = blocks(before) + u64::from(left);
        if before == 0 {
            leg.filled = self.unit.unsent(number) + leg.late.1;
            self.schedule.push(number);
        }
        while carrier
            .whole_blocks(cqi, leg.filled)
            .is_some_and(|it| it < most)
            && self.unit.window(number) + leg.late.0 < config.user_packets
            && self.busy_until < port.full
        {
            let Some(sdu) = buffer.pop(leg.queue, flow) else {
                break;
            };
            if let Some(other) = leg.other {
                buffer.count_sent(other, sdu.flow, u64::from(sdu.bytes));
            }
            self.busy_until += Picos((f64::from(sdu.bytes) * 8e12 / port.bps) as u64);
            let arrival = self.busy_until + delay;
            leg.accepted += 1;
            leg.last = flow;
            if arrival <= port.begin && self.late.is_empty() {
                self.unit.accept(number, sdu);
                leg.filled += u64::from(sdu.bytes);
            } else {
                // For the next subframe.
                self.late.push_back((arrival, number, sdu));
                leg.late = (leg.late.0 + 1, leg.late.1 + u64::from(sdu.bytes));
            }
        }
        let most = u64::from(carrier.bytes(cqi, most as u32));
        leg.filled = leg.filled.min(most);
        let filled = leg.filled;
        let tti = port.begin.0 / carrier.tti.0;
        self.count_bytes(number, filled - before, tti, config.scheduler);
        (blocks(filled) - blocks(before)) as u32
    }

    /// Begin a TTI: the devices decode the blocks of the last TTI, and the distributed unit sends new ones. flows:
    /// number of open flows of each user.
    pub(super) fn start(
        &mut self,
        tti: u64,
        flows: &[u32],
        user_packets: u32,
        received: &mut Vec<Delivery>,
    ) {
        let Carrier { tti: length, .. } = self.settings.carrier;
        let now = Picos(tti * length.0);
        while let Some(&(arrival, number, sdu)) = self.late.front()
            && arrival <= now
        {
            self.late.pop_front();
            let leg = &mut self.legs[number as usize];
            leg.late = (leg.late.0 - 1, leg.late.1 - u64::from(sdu.bytes));
            self.unit.accept(number, sdu);
        }
        let seed = self.seed;
        let chance = |leg: u32, number: u64| {
            let index = (u64::from(leg) << 44) ^ number;
            stream(seed, Purpose::BlockErrors, index).unit()
        };
        let (legs, received_bytes) = (&self.legs, &mut self.received_bytes);
        self.unit.decode(tti, chance, |number, sdu| {
            *received_bytes += u64::from(sdu.bytes);
            let user = legs[number as usize].user;
            received.push(Delivery { user, sdu });
        });
        let channels = &mut self.channels;
        self.unit.send(tti, |leg| channels.cqi(leg, now));
        self.due = self.unit.due(tti + 1);
        for (number, leg) in (0..).zip(&mut self.legs) {
            if flows[leg.user as usize] == 0 {
                continue;
            }
            let bits = self.settings.carrier.bits(channels.cqi(number, now));
            let report = self.unit.report(number);
            leg.reported = Some(threshold(report, bits, user_packets));
        }
    }

    /// Apply the report of a TTI at the central unit.
    pub(super) fn feedback(&self, flows: &[u32], buffer: &mut Buffer) {
        for leg in &self.legs {
            if let Some(reported) = leg.reported.filter(|_| flows[leg.user as usize] > 0) {
                buffer.feedback(leg.queue, reported);
            }
        }
    }
}

/// Return the virtual threshold that the distributed unit reports for a user with `bits` per TTI:
/// V = Q + max(0, D − R + slack). The slack is a whole subframe of the user, which gives a lone user its whole channel,
/// and a packet cut at the subframe's end.
fn threshold(report: Report, bits: u32, most: u32) -> u32 {
    let slack = bits.div_ceil(8 * PACKET as u32) + 1;
    let accepts = (report.departed + slack).saturating_sub(report.again);
    most.min(report.queue + accepts)
}

fn to_time(at: Picos) -> Time {
    Time::from_nanos(at.0 / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_the_queue_and_what_a_tti_takes() {
        let report = |queue, departed, again| Report {
            queue,
            departed,
            again,
        };
        let [worst, best] = [Cqi::LOWEST, Cqi::HIGHEST].map(|it| Carrier::default().bits(it));
        assert_eq!(threshold(report(0, 0, 0), best, 1024), 10); // 9 in a subframe, one more
        assert_eq!(threshold(report(0, 0, 0), worst, 1024), 2);
        assert_eq!(threshold(report(5, 3, 1), worst, 1024), 5 + 3 - 1 + 2);
        assert_eq!(threshold(report(5, 0, 4), worst, 1024), 5); // only retransmissions
        assert_eq!(threshold(report(2000, 3, 1), worst, 1024), 1024);
    }
}
