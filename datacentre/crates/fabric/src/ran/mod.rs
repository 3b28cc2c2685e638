//! A radio access network with functions split between a central unit (CU), which is a host of the data centre, and a
//! distributed unit (DU) at the antenna, as in Fiandrino et al., "pDCell: an End-to-End Transport Protocol for Mobile
//! Edge Computing Architectures", ICDCN 2019.
//!
//! [`Ran`] is a state machine without a clock: [`next_event`](Ran::next_event) and [`step`](Ran::step) are the
//! contract. Time is divided into transmission time intervals (TTI). Each TTI has three events:
//!
//! 1. At its beginning the devices decode the blocks of the previous TTI, and the DU sends new ones.
//! 2. A fronthaul delay later the DU's report arrives at the CU: queues, thresholds, CQIs and retransmissions.
//! 3. Just in time for the next TTI the CU fills a virtual subframe from its queues, in the order of the
//!    [scheduler](cellbed_link::Scheduler), and sends the subframe to the DU.
//!
//! `buffer.rs` has the CU's memory and admission, `distributed_unit.rs` the DU and the devices, `channel.rs` the users'
//! CQIs.

mod buffer;
mod channel;
mod config;
mod cqi;
mod distributed_unit;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cellbed_foreign as foreign;
use cellbed_link::cell::{Average, Candidate, Scheduler};
use cellbed_link::{Duration, Time};

use buffer::Buffer;
pub use buffer::{Admission, Rank, Sdu, Verdict};
use channel::Channels;
pub use channel::{CqiSource, REPORT_INTERVAL};
pub use config::{BackoffFrom, Cut, FirstThreshold, LoadOf, RanConfig, Readings};
pub use cqi::Cqi;
use cqi::RESOURCE_BLOCKS;
use distributed_unit::{DistributedUnit, Harq, Report};

use crate::random::{Purpose, stream};
use crate::units::{FlowId, Picos};

/// A transmission time interval of LTE.
pub const TTI: Picos = Picos::from_millis(1);

/// Packet length that converts buffer sizes from bytes to packets.
const PACKET: u64 = 1500;

/// A table of measurements, e.g. of radio cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name of the table.
    pub name: &'static str,
    /// Columns of equal length; names end in the unit.
    pub columns: Vec<(&'static str, Vec<f64>)>,
}

/// Number of packets at the central unit since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Arrived packets.
    pub offered: u64,
    /// Packets not admitted.
    pub refused: u64,
    /// Packets admitted, and dropped later (LQD).
    pub dropped: u64,
    /// Packets delivered by the devices to the layer above.
    pub delivered: u64,
    /// Bytes of admitted packets.
    pub admitted_bytes: u64,
    /// Bytes of dropped packets.
    pub dropped_bytes: u64,
    /// Bytes of delivered packets.
    pub delivered_bytes: u64,
}

/// Queue lengths at an instant. There are no samples while all queues are empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Picos,
    /// Packets in the central unit.
    pub packets: u32,
    /// Bytes in the central unit.
    pub bytes: u64,
    /// Packets in the distributed unit and the devices.
    pub forwarded: u32,
    /// Sum of the users' thresholds.
    pub thresholds: u64,
}

/// A packet that a device delivers to the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The packet's user.
    pub user: u32,
    /// The packet.
    pub sdu: Sdu,
}

/// Next phase of a TTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The TTI of this number begins.
    Start(u64),
    /// The report from the beginning of this TTI arrives.
    Feedback(u64),
    /// The subframe of this TTI is filled.
    Fill(u64),
}

/// A radio access network and its users.
#[derive(Debug)]
pub struct Ran {
    config: RanConfig,
    seed: u64,
    channels: Channels,
    buffer: Buffer,
    unit: DistributedUnit,
    users: Vec<User>,
    /// Instead of the configuration's.
    scheduler: Option<foreign::Scheduler>,
    /// Number of users with open flows.
    active: u32,
    /// Resource blocks for retransmissions in the next TTI, as reported by the distributed unit.
    due: u32,
    /// The last user that received resource blocks.
    turn: u32,
    next: Option<Phase>,
    /// Candidates for the virtual subframe, kept to reuse the memory.
    heap: BinaryHeap<Contender>,
    /// Users in the order of the virtual subframe, kept to reuse the memory.
    schedule: Vec<u32>,
    counts: PacketCounts,
    series: Vec<Sample>,
    sampled: Option<Picos>,
}

#[derive(Clone, Debug)]
struct User {
    /// Number of open flows.
    flows: u32,
    /// Last threshold reported by the distributed unit, since a flow to the user opened.
    reported: Option<u32>,
    throughput: Average,
    /// Number of packets in the last subframe.
    accepted: u32,
    /// Flow of the last packet, if flows are served in the scheduler's order.
    last: Option<FlowId>,
    /// The user's bytes in the virtual subframe.
    filled: u64,
}

impl User {
    /// Count bytes of the user in the subframe that begins at `now`.
    fn count_bytes(&mut self, bytes: u64, now: Time, scheduler: Scheduler) {
        if let Some(window) = scheduler.window() {
            let end = now + Duration::from_nanos(TTI.0 / 1000);
            self.throughput.add(bytes as f64, now, end, window);
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
    user: u32,
    cqi: Cqi,
}

/// Return a number with the order of [`f64::total_cmp`].
fn order_key(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

impl Ran {
    /// Return an idle network with a [checked](RanConfig::check) configuration. otherwise: admission if the
    /// configuration names none.
    pub fn new(config: RanConfig, otherwise: Admission, seed: u64) -> Self {
        let admission = config.admission.unwrap_or(otherwise);
        let (scheduler, policy) = (&config.scheduler_header, &config.admission_header);
        let by_flow = match scheduler {
            Some(header) => header.option(),
            None => matches!(config.scheduler, Scheduler::ShortestRemaining {}),
        };
        let user = User {
            flows: 0,
            reported: None,
            throughput: Average::default(),
            accepted: 0,
            last: None,
            filled: 0,
        };
        let harq = Harq {
            error: config.block_errors.get(),
            round_trip: u64::from(config.harq_ttis),
            tries: config.harq_tries,
        };
        Self {
            buffer: Buffer::new(
                admission,
                config.capacity(admission),
                config.user_packets,
                config.users,
                by_flow,
            )
            .with_policy(
                policy
                    .as_ref()
                    .map(|it| foreign::Admission::new(it, config.users, seed)),
            ),
            scheduler: scheduler
                .as_ref()
                .map(|it| foreign::Scheduler::new(it, config.users, seed)),
            unit: DistributedUnit::new(config.users, harq),
            channels: Channels::new(&config.cqi, config.users, seed),
            users: vec![user; config.users as usize],
            seed,
            active: 0,
            due: 0,
            turn: config.users - 1,
            next: None,
            heap: BinaryHeap::new(),
            schedule: Vec::new(),
            counts: PacketCounts::default(),
            series: Vec::new(),
            sampled: None,
            config,
        }
    }

    /// Return the configuration.
    pub fn config(&self) -> &RanConfig {
        &self.config
    }

    /// Set the time of calls without one.
    pub fn set_time(&mut self, now: Picos) {
        self.buffer.set_time(now);
    }

    /// Return the error of a C header that ended its use.
    pub fn failure(&self) -> Option<&str> {
        let scheduler = self.scheduler.as_ref();
        let failure = scheduler.and_then(foreign::Scheduler::failure);
        failure.or_else(|| self.buffer.failure())
    }

    /// Return when [`step`](Self::step) must be called next; `None` while the network has no packets.
    pub fn next_event(&self) -> Option<Picos> {
        self.next.map(|phase| self.time_of(phase))
    }

    fn time_of(&self, phase: Phase) -> Picos {
        Picos(match phase {
            Phase::Start(tti) => tti * TTI.0,
            Phase::Feedback(tti) => tti * TTI.0 + self.config.fronthaul_ps.0,
            Phase::Fill(tti) => tti * TTI.0 - self.config.lead(),
        })
    }

    /// Open a flow of `bytes` to a user.
    pub fn open(&mut self, user: u32, flow: FlowId, bytes: u64) {
        self.buffer.open(user, flow, bytes);
        let state = &mut self.users[user as usize];
        state.flows += 1;
        if state.flows == 1 {
            state.reported = None;
            self.active += 1;
            if self.config.readings.first_threshold == FirstThreshold::Active {
                self.buffer.activate(user, self.active);
            }
        }
    }

    /// Close an open flow after the delivery of all its packets.
    pub fn close(&mut self, user: u32, flow: FlowId) {
        self.buffer.close(user, flow);
        let state = &mut self.users[user as usize];
        state.flows -= 1;
        if state.flows == 0 {
            self.active -= 1;
        }
    }

    /// Offer a packet of an open flow to the central unit.
    pub fn offer(&mut self, now: Picos, user: u32, sdu: Sdu) -> Verdict {
        self.set_time(now);
        let verdict = self.buffer.offer(user, sdu);
        self.counts.offered += 1;
        match verdict {
            Verdict::Refused => self.counts.refused += 1,
            Verdict::Admitted => {}
            Verdict::InPlaceOf(_, dropped) => {
                self.counts.dropped += 1;
                self.counts.dropped_bytes += u64::from(dropped.bytes);
            }
        }
        if verdict != Verdict::Refused {
            self.counts.admitted_bytes += u64::from(sdu.bytes);
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.arrived(now.0, user, sdu.flow.0, sdu.bytes);
            }
            if self.next.is_none() {
                // The next subframe that can still be filled in time.
                let tti = (now.0 + self.config.lead()) / TTI.0 + 1;
                self.next = Some(Phase::Fill(tti));
            }
        }
        verdict
    }

    /// Return how many more packets a user's queue can receive up to its threshold.
    pub fn room(&self, user: u32) -> u32 {
        self.buffer.room(user)
    }

    /// Return the wait of a source before the next credit after a credit without an admitted packet: a TTI, and the
    /// duration of the last subframe's packets at the lowest quality; at most 100 ms.
    pub fn backoff(&self, user: u32) -> Picos {
        let bits = u64::from(self.users[user as usize].accepted) * PACKET * 8;
        let alpha = bits * TTI.0 / u64::from(Cqi::LOWEST.bits_per_tti());
        Picos((TTI.0 + alpha).min(Picos::from_millis(100).0))
    }

    /// Return the packet counts.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Return the samples of queue lengths.
    pub fn series(&self) -> &[Sample] {
        &self.series
    }

    /// Process the event due at `now`. Appends the packets that devices deliver.
    pub fn step(&mut self, now: Picos, delivered: &mut Vec<Delivery>) {
        let Some(phase) = self.next.filter(|&it| self.time_of(it) <= now) else {
            return;
        };
        self.set_time(now);
        self.next = match phase {
            Phase::Fill(tti) => {
                self.sample(now);
                self.fill(tti);
                Some(Phase::Start(tti))
            }
            Phase::Start(tti) => {
                self.start(tti, delivered);
                Some(Phase::Feedback(tti))
            }
            Phase::Feedback(tti) => {
                self.feedback();
                let idle = self.buffer.length() == 0 && self.unit.is_empty();
                (!idle).then_some(Phase::Fill(tti + 1))
            }
        };
    }

    /// Fill the virtual subframe of a TTI in the order of the scheduler, and send its packets to the distributed
    /// unit, which follows this order. The last packet may be cut (RLC segmentation). Its rest competes in the next
    /// subframe with its flow, or is first in that subframe.
    fn fill(&mut self, tti: u64) {
        let now = to_time(Picos(tti * TTI.0));
        let Readings { rank, cut, .. } = self.config.readings;
        self.heap.clear();
        self.schedule.clear();
        for (number, user) in (0..).zip(&mut self.users) {
            (user.accepted, user.filled) = (0, 0);
            let unsent = self.unit.unsent(number);
            if self.buffer.queue(number) == 0 && unsent == 0 {
                continue;
            }
            // As in the latest report of the distributed unit.
            let cqi = self.channels.cqi(number, Picos((tti - 1) * TTI.0));
            if cqi < Cqi::LOWEST {
                continue;
            }
            let count = self.config.users;
            let steps = (number + count - self.turn - 1) % count;
            let mut push = |flow: Option<FlowId>, remaining| {
                let potential = f64::from(cqi.bits_per_tti()) / 8.0;
                let rank = match &mut self.scheduler {
                    Some(scheduler) => {
                        let candidate = foreign::Candidate {
                            bytes: remaining,
                            bytes_per_tti: potential,
                            user: number,
                            flow: flow.map_or(foreign::NONE, |it| it.0),
                            cqi: cqi.get().into(),
                        };
                        scheduler.rank(tti * TTI.0, &candidate)
                    }
                    None => self.config.scheduler.rank(
                        Candidate {
                            priority: 0,
                            potential,
                            remaining: remaining as f64,
                            throughput: user.throughput,
                        },
                        now,
                    ),
                };
                self.heap.push(Contender {
                    rank: order_key(rank),
                    unserved: rank.is_infinite().then(|| cqi.bits_per_tti()),
                    turn: Reverse((steps, flow)),
                    user: number,
                    cqi,
                });
            };
            let mut rest = if cut == Cut::First { 0 } else { unsent };
            for (flow, remaining) in self.buffer.waiting_flows(number, rank) {
                let own = if flow == user.last {
                    std::mem::take(&mut rest)
                } else {
                    0
                };
                push(flow, remaining + own);
            }
            if rest > 0 {
                push(
                    user.last,
                    rest + self.buffer.remaining_bytes(number, user.last),
                );
            }
        }
        let mut left = RESOURCE_BLOCKS - self.due;
        if cut == Cut::First {
            left = self.finish_cut(left, tti, now);
        }
        while let Some(best) = self.heap.pop().filter(|_| left > 0) {
            left -= self.forward(best, left, tti, now);
            self.turn = best.user;
        }
        self.unit.prefer(&self.schedule);
    }

    /// Give resource blocks to unsent bytes of the distributed unit, in its order. Return the number of remaining
    /// blocks.
    fn finish_cut(&mut self, mut left: u32, tti: u64, now: Time) -> u32 {
        for number in self.unit.order() {
            let cqi = self.channels.cqi(number, Picos((tti - 1) * TTI.0));
            if left == 0 || cqi < Cqi::LOWEST {
                continue;
            }
            let user = &mut self.users[number as usize];
            let most = u64::from(cqi.bytes(left));
            user.filled = self.unit.unsent(number).min(most);
            left -= cqi.blocks(user.filled).unwrap_or(0) as u32;
            user.count_bytes(user.filled, now, self.config.scheduler);
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.sent(tti * TTI.0, number, user.filled);
            }
            self.schedule.push(number);
        }
        left
    }

    /// Send packets of a user to the distributed unit in at most `left` more resource blocks. Return the blocks used.
    fn forward(&mut self, best: Contender, left: u32, tti: u64, now: Time) -> u32 {
        let Contender {
            turn: Reverse((_, flow)),
            user: number,
            cqi,
            ..
        } = best;
        let user = &mut self.users[number as usize];
        let before = user.filled;
        let blocks = |bytes| cqi.blocks(bytes).unwrap_or(0);
        let most = blocks(before) + u64::from(left);
        if before == 0 {
            user.filled = self.unit.unsent(number);
            self.schedule.push(number);
        }
        while cqi.whole_blocks(user.filled).is_some_and(|it| it < most)
            && self.unit.window(number) < self.config.user_packets
        {
            let Some(sdu) = self.buffer.pop(number, flow) else {
                break;
            };
            self.unit.accept(number, sdu);
            user.accepted += 1;
            user.last = flow;
            user.filled += u64::from(sdu.bytes);
        }
        user.filled = user.filled.min(u64::from(cqi.bytes(most as u32)));
        user.count_bytes(user.filled - before, now, self.config.scheduler);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.sent(tti * TTI.0, number, user.filled - before);
        }
        (blocks(user.filled) - blocks(before)) as u32
    }

    fn start(&mut self, tti: u64, delivered: &mut Vec<Delivery>) {
        let seed = self.seed;
        let chance = |user: u32, number: u64| {
            let index = (u64::from(user) << 44) ^ number;
            stream(seed, Purpose::BlockErrors, index).unit()
        };
        let counts = &mut self.counts;
        self.unit.decode(tti, chance, |user, sdu| {
            counts.delivered += 1;
            counts.delivered_bytes += u64::from(sdu.bytes);
            delivered.push(Delivery { user, sdu });
        });
        let now = Picos(tti * TTI.0);
        let channels = &mut self.channels;
        self.unit.send(tti, |user| channels.cqi(user, now));
        self.due = self.unit.due(tti + 1);
        for (number, user) in (0..).zip(&mut self.users) {
            if user.flows == 0 {
                continue;
            }
            let cqi = channels.cqi(number, now);
            let report = self.unit.report(number);
            user.reported = Some(threshold(report, cqi, self.config.user_packets));
        }
    }

    fn feedback(&mut self) {
        for (number, user) in (0..).zip(&self.users) {
            if let Some(reported) = user.reported.filter(|_| user.flows > 0) {
                self.buffer.feedback(number, reported);
            }
        }
    }

    fn sample(&mut self, now: Picos) {
        let interval = self.config.series_ps;
        if interval.0 == 0 || self.sampled.is_some_and(|at| now < at + interval) {
            return;
        }
        self.sampled = Some(now);
        let active = (0..).zip(&self.users).filter(|(_, user)| user.flows > 0);
        let thresholds = active.map(|(number, _)| u64::from(self.buffer.threshold(number)));
        self.series.push(Sample {
            at: now,
            packets: self.buffer.length(),
            bytes: self.buffer.bytes(),
            forwarded: self.unit.held() as u32,
            thresholds: thresholds.sum(),
        });
    }

    /// Return the measurements: `users` with a row each, `queues` over time, and `counts`, a single row.
    pub fn tables(&self) -> Vec<Table> {
        let users = 0..self.config.users;
        let series = |value: fn(&Sample) -> f64| self.series.iter().map(value).collect();
        let (packets, blocks) = (self.counts, self.unit.counts());
        let counts = [
            ("offered_packets", packets.offered),
            ("refused_packets", packets.refused),
            ("dropped_packets", packets.dropped),
            ("delivered_packets", packets.delivered),
            ("admitted_bytes", packets.admitted_bytes),
            ("dropped_bytes", packets.dropped_bytes),
            ("delivered_bytes", packets.delivered_bytes),
            ("block_tries", blocks.sent),
            ("failed_block_tries", blocks.failed),
            ("lost_blocks", blocks.lost),
            ("resource_blocks", blocks.resource_blocks),
        ];
        vec![
            Table {
                name: "users",
                columns: vec![
                    ("user", users.clone().map(f64::from).collect()),
                    ("mean_cqi", users.map(|it| self.channels.mean(it)).collect()),
                ],
            },
            Table {
                name: "queues",
                columns: vec![
                    ("time_s", series(|it| it.at.as_secs_f64())),
                    ("unit_packets", series(|it| f64::from(it.packets))),
                    ("unit_bytes", series(|it| it.bytes as f64)),
                    ("forwarded_packets", series(|it| f64::from(it.forwarded))),
                    ("threshold_packets", series(|it| it.thresholds as f64)),
                ],
            },
            Table {
                name: "counts",
                columns: counts.map(|(name, it)| (name, vec![it as f64])).into(),
            },
        ]
    }

    /// Return the admitted bytes that have been neither dropped nor delivered.
    pub fn held_bytes(&self) -> u64 {
        let counts = &self.counts;
        counts.admitted_bytes - counts.dropped_bytes - counts.delivered_bytes
    }
}

/// Return the virtual threshold that the distributed unit reports: V = Q + max(0, D − R + slack). The slack is a whole
/// subframe of the user, which gives a lone user its whole channel, and a packet cut at the subframe's end.
fn threshold(report: Report, cqi: Cqi, most: u32) -> u32 {
    let slack = cqi.bits_per_tti().div_ceil(8 * PACKET as u32) + 1;
    let accepts = (report.departed + slack).saturating_sub(report.again);
    most.min(report.queue + accepts)
}

fn to_time(at: Picos) -> Time {
    Time::from_nanos(at.0 / 1000)
}

#[cfg(test)]
mod tests {
    use cellbed_link::Probability;
    use proptest::prelude::*;

    use super::config::PFS;
    use super::*;

    /// Return a configuration with constant channels and no block errors.
    fn config(cqi: &[u8], scheduler: Scheduler) -> RanConfig {
        let traces = cqi.iter().map(|&it| vec![Cqi::new(it).unwrap()]);
        RanConfig {
            users: cqi.len() as u32,
            cqi: CqiSource::Trace {
                traces: traces.collect(),
            },
            scheduler,
            block_errors: Probability::NEVER,
            ..RanConfig::default()
        }
    }

    const MRFS: Scheduler = Scheduler::ShortestRemaining {};

    fn sdu(flow: u32, sequence: u32) -> Sdu {
        Sdu {
            flow: FlowId(flow),
            sequence,
            bytes: 1500,
        }
    }

    /// Steps for a number of milliseconds, with a call before each event.
    fn run(
        ran: &mut Ran,
        millis: u64,
        mut each: impl FnMut(&mut Ran, Picos),
    ) -> Vec<(Picos, Delivery)> {
        let (mut all, mut delivered) = (Vec::new(), Vec::new());
        while let Some(at) = ran.next_event().filter(|it| it.0 <= millis * TTI.0) {
            each(ran, at);
            ran.step(at, &mut delivered);
            all.extend(delivered.drain(..).map(|it| (at, it)));
        }
        all
    }

    /// Return the bytes delivered to each user while all queues have packets.
    fn shares(cqi: &[u8], scheduler: Scheduler, millis: u64) -> Vec<u64> {
        let mut ran = Ran::new(config(cqi, scheduler), Admission::Infinite, 1);
        for user in 0..cqi.len() as u32 {
            ran.open(user, FlowId(user), 1 << 40);
            (0..9 * millis as u32).for_each(|it| {
                ran.offer(Picos::ZERO, user, sdu(user, it));
            });
        }
        let mut bytes = vec![0; cqi.len()];
        for (_, delivery) in run(&mut ran, millis, |_, _| {}) {
            bytes[delivery.user as usize] += 1500;
        }
        bytes
    }

    #[test]
    fn a_packet_takes_the_next_subframe_a_tti_and_nothing_else() {
        let mut ran = Ran::new(config(&[15], PFS), Admission::Htd, 1);
        ran.open(0, FlowId(0), 1500);
        ran.offer(Picos::from_micros(500), 0, sdu(0, 0));
        // Filled shortly before 1 ms, sent from 1 to 2 ms, reported; then the network is idle.
        let delivered = run(&mut ran, 100, |_, _| {});
        assert_eq!(delivered.len(), 1);
        assert_eq!(delivered[0].0, Picos::from_millis(2));
        assert_eq!((ran.next_event(), ran.held_bytes()), (None, 0));
        // Too late for the subframe of the next TTI, which begins 100 µs of fronthaul later.
        ran.offer(Picos::from_micros(9_900), 0, sdu(0, 1));
        assert_eq!(run(&mut ran, 100, |_, _| {})[0].0, Picos::from_millis(12));
    }

    #[test]
    fn a_user_alone_gets_the_rate_of_its_channel_under_all_schedulers() {
        for scheduler in [PFS, MRFS, Scheduler::RoundRobin {}, Scheduler::MaxRate {}] {
            for cqi in [1, 7, 15] {
                let bytes = u64::from(Cqi::new(cqi).unwrap().bytes(100));
                let [share] = shares(&[cqi], scheduler, 1000)[..] else {
                    panic!("one user");
                };
                // 999 TTIs are over, and the last packet may be in transit.
                let expected = 999 * bytes;
                assert!(
                    (expected - 1500..=expected).contains(&share),
                    "{cqi}: {share} {expected}"
                );
            }
        }
    }

    #[test]
    fn proportional_fairness_gives_equal_users_equal_rates_and_others_equal_times() {
        let equal = shares(&[9, 9, 9, 9], PFS, 2000);
        let mean = equal.iter().sum::<u64>() as f64 / 4.0;
        assert!(
            equal
                .iter()
                .all(|&it| (it as f64 / mean - 1.0).abs() < 0.02),
            "{equal:?}"
        );
        let others = shares(&[3, 15], PFS, 2000);
        let rates = [3, 15].map(|it| f64::from(Cqi::new(it).unwrap().bits_per_tti()));
        let times: Vec<f64> = (0..2).map(|it| others[it] as f64 / rates[it]).collect();
        assert!((times[0] / times[1] - 1.0).abs() < 0.05, "{times:?}");
    }

    #[test]
    fn proportional_fairness_serves_the_best_channel_first_among_users_without_history() {
        let mut ran = Ran::new(config(&[1, 15, 7], PFS), Admission::Htd, 1);
        for user in 0..3 {
            ran.open(user, FlowId(user), 1500);
            ran.offer(Picos::ZERO, user, sdu(user, 0));
        }
        let all = run(&mut ran, 100, |_, _| {}).into_iter();
        // Users 1 and 2 in the first TTI, with 12 and 59 resource blocks; user 0 needs 215.
        let ends: Vec<_> = all.map(|(at, it)| (at.0 / TTI.0, it.user)).collect();
        assert_eq!(ends, [(2, 1), (2, 2), (4, 0)]);
    }

    #[test]
    fn mrfs_sends_the_flow_that_ends_first_at_the_rate_of_its_user() {
        // 20 packets at CQI 15 take 2.4 ms, 12 at CQI 3 take 15.7 ms, 2 at CQI 3 take 2.6 ms.
        let mut ran = Ran::new(config(&[15, 3], MRFS), Admission::Infinite, 1);
        for (user, flow, packets) in [(1, 0, 12), (0, 1, 20), (1, 2, 2)] {
            ran.open(user, FlowId(flow), 1500 * u64::from(packets));
            (0..packets).for_each(|it| {
                ran.offer(Picos::ZERO, user, sdu(flow, it));
            });
        }
        let mut order: Vec<u32> = Vec::new();
        for (_, it) in run(&mut ran, 100, |_, _| {}) {
            if order.last() != Some(&it.sdu.flow.0) {
                order.push(it.sdu.flow.0);
            }
        }
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn the_rest_of_a_cut_packet_competes_or_comes_first() {
        let first_delivered = |cut| {
            let readings = Readings {
                cut,
                ..Readings::default()
            };
            let config = RanConfig {
                readings,
                ..config(&[1, 15], MRFS)
            };
            let mut ran = Ran::new(config, Admission::Infinite, 1);
            ran.open(0, FlowId(0), 1500);
            ran.offer(Picos::ZERO, 0, sdu(0, 0)); // 3 subframes at 698 bytes
            let mut late = false;
            let delivered = run(&mut ran, 100, |ran, now| {
                if now >= TTI && !std::mem::replace(&mut late, true) {
                    ran.open(1, FlowId(1), 1500);
                    ran.offer(now, 1, sdu(1, 0));
                }
            });
            let (at, delivery) = delivered[0];
            (delivery.user, at.0 / TTI.0, delivered.len())
        };
        assert_eq!(first_delivered(Cut::Compete), (1, 3, 2));
        // The rest takes all of the second subframe; the third has room for both.
        assert_eq!(first_delivered(Cut::First), (0, 4, 2));
    }

    #[test]
    fn first_thresholds_are_parts_of_the_buffer_for_all_users_or_those_active() {
        let rooms = |first_threshold| {
            let config = RanConfig {
                readings: Readings {
                    first_threshold,
                    ..Readings::default()
                },
                buffer_bytes: Some(30_000),
                ..config(&[15; 4], PFS)
            };
            let mut ran = Ran::new(config, Admission::Htd, 1);
            [0, 1].map(|user| {
                ran.open(user, FlowId(user), 15_000);
                ran.room(user)
            })
        };
        assert_eq!(rooms(FirstThreshold::Equal), [5, 5]);
        assert_eq!(rooms(FirstThreshold::Active), [20, 10]);
        assert_eq!(rooms(FirstThreshold::default()), [20, 10]);
    }

    #[test]
    fn mrfs_counts_what_has_not_arrived() {
        let mut ran = Ran::new(config(&[15, 15], MRFS), Admission::Infinite, 1);
        for (user, flow, all) in [(0, 0, 100), (1, 1, 9)] {
            ran.open(user, FlowId(flow), 1500 * all);
        }
        ran.offer(Picos::ZERO, 0, sdu(0, 0)); // 1 of 100
        (0..9).for_each(|it| {
            ran.offer(Picos::ZERO, 1, sdu(1, it));
        });
        let delivered = run(&mut ran, 100, |_, _| {});
        assert_eq!(delivered[0].1.user, 1);
    }

    #[test]
    fn a_threshold_is_the_queue_and_what_a_tti_takes() {
        let report = |queue, departed, again| Report {
            queue,
            departed,
            again,
        };
        let [worst, best] = [Cqi::LOWEST, Cqi::HIGHEST];
        assert_eq!(threshold(report(0, 0, 0), best, 1024), 10); // 9 in a subframe, one more
        assert_eq!(threshold(report(0, 0, 0), worst, 1024), 2);
        assert_eq!(threshold(report(5, 3, 1), worst, 1024), 5 + 3 - 1 + 2);
        assert_eq!(threshold(report(5, 0, 4), worst, 1024), 5); // only retransmissions
        assert_eq!(threshold(report(2000, 3, 1), worst, 1024), 1024);
    }

    #[test]
    fn sources_wait_for_what_the_lowest_quality_takes() {
        let mut ran = Ran::new(config(&[15], PFS), Admission::Htd, 1);
        assert_eq!(ran.backoff(0), TTI);
        ran.users[0].accepted = 2; // 24,000 bits at 5,584 a TTI
        assert_eq!(ran.backoff(0), Picos(TTI.0 + 24_000 * TTI.0 / 5_584));
        ran.users[0].accepted = 1000;
        assert_eq!(ran.backoff(0), Picos::from_millis(100));
    }

    #[test]
    fn the_processor_sharing_queue_has_its_mean_time() {
        // Each flow has its own user and all channels are equal: round robin by TTIs is processor sharing. The mean
        // time depends only on the mean size: E[T] = E[S] / (1 − ρ) (Kleinrock, Queueing Systems 2, §4.4).
        let (flows, users) = (12_000, 30);
        let traces = vec![vec![Cqi::HIGHEST]];
        let config = RanConfig {
            users,
            cqi: CqiSource::Trace { traces },
            series_ps: Picos::ZERO,
            ..config(&[15], Scheduler::RoundRobin {})
        };
        let mut ran = Ran::new(config, Admission::Infinite, 1);
        let mut arrivals = stream(1, Purpose::Arrivals, 0);
        let (service, load) = (20.0, 0.6); // TTIs
        let packets = (service * 12_756.0_f64 / 1500.0) as u32;
        let mut gap = || Picos((service / load * arrivals.exponential() * TTI.0 as f64) as u64);
        let mut next = gap();
        let mut starts = vec![None; users as usize];
        let (mut begun, mut sum, mut delivered) = (0, 0.0, Vec::new());
        while begun < flows || ran.next_event().is_some() {
            if begun < flows && ran.next_event().is_none_or(|it| next <= it) {
                let free = starts.iter().position(Option::is_none).unwrap();
                starts[free] = Some(next);
                ran.open(free as u32, FlowId(begun), 1 << 20);
                (0..packets).for_each(|it| {
                    ran.offer(next, free as u32, sdu(begun, it));
                });
                begun += 1;
                next += gap();
            } else if let Some(now) = ran.next_event() {
                ran.step(now, &mut delivered);
                for it in delivered.drain(..) {
                    if it.sdu.sequence + 1 == packets {
                        let start = starts[it.user as usize].take().unwrap();
                        sum += now.since(start).0 as f64 / TTI.0 as f64;
                        ran.close(it.user, it.sdu.flow);
                    }
                }
            }
        }
        // Before its first TTI a flow waits half a TTI, the subframe's lead, and half a round of ρ / (1 − ρ) other
        // flows.
        let mean = sum / f64::from(flows) - 0.6 - 0.5 * load / (1.0 - load);
        let expected = service / (1.0 - load);
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} {expected}");
    }

    proptest! {
        /// Bytes are conserved and no admitted packet is lost, for any offers and block errors.
        #[test]
        fn what_is_admitted_is_delivered(
            offers in prop::collection::vec((0..4u32, 0..3_000_000_000u64, 1..1500u16), 1..200),
            cqi in prop::array::uniform4(1..=15u8),
            admission in prop::sample::select(vec![Admission::Htd, Admission::Lqd, Admission::Tail]),
            mrfs: bool,
            seed: u64,
        ) {
            let config = RanConfig {
                block_errors: Probability::new(0.3).unwrap(),
                buffer_bytes: Some(30_000),
                ..config(&cqi, if mrfs { MRFS } else { PFS })
            };
            let mut ran = Ran::new(config, admission, seed);
            (0..4).for_each(|user| ran.open(user, FlowId(user), 1 << 20));
            let mut waiting: Vec<Vec<u32>> = vec![Vec::new(); 4];
            let (mut now, mut delivered) = (0, Vec::new());
            let take = |delivered: &mut Vec<Delivery>, waiting: &mut Vec<Vec<u32>>| {
                for it in delivered.drain(..) {
                    assert_eq!(waiting[it.user as usize].remove(0), it.sdu.sequence);
                }
            };
            for (sequence, (user, gap, bytes)) in (0..).zip(offers) {
                now += gap;
                while let Some(at) = ran.next_event().filter(|it| it.0 <= now) {
                    ran.step(at, &mut delivered);
                    take(&mut delivered, &mut waiting);
                }
                let sdu = Sdu { flow: FlowId(user), sequence, bytes };
                match ran.offer(Picos(now), user, sdu) {
                    Verdict::Refused => {}
                    verdict => {
                        waiting[user as usize].push(sequence);
                        if let Verdict::InPlaceOf(other, dropped) = verdict {
                            prop_assert!(admission == Admission::Lqd);
                            waiting[other as usize].retain(|&it| it != dropped.sequence);
                        }
                    }
                }
                prop_assert!(ran.buffer.length() <= 20);
            }
            while let Some(at) = ran.next_event() {
                ran.step(at, &mut delivered);
                take(&mut delivered, &mut waiting);
            }
            prop_assert!(waiting.iter().all(Vec::is_empty));
            prop_assert_eq!(ran.held_bytes(), 0);
        }
    }
}
