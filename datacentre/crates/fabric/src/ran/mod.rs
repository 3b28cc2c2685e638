//! A radio access network with functions split between a central unit (CU), which is a host of the data centre, and
//! distributed units (DU) at the antennas, as in Fiandrino et al., "pDCell: an End-to-End Transport Protocol for Mobile
//! Edge Computing Architectures", ICDCN 2019.
//!
//! [`Ran`] is a state machine without a clock: [`next_event`](Ran::next_event) and [`step`](Ran::step) are the
//! contract. Time is divided into transmission time intervals (TTI). Each TTI of a DU has three events:
//!
//! 1. At its beginning the devices decode the blocks of the previous TTI, and the DU sends new ones.
//! 2. A fronthaul delay later the DU's report arrives at the CU: queues, thresholds, CQIs and retransmissions.
//! 3. Just in time for the next TTI the CU fills a virtual subframe from its queues, in the order of the
//!    [scheduler](cellbed_link::Scheduler), and sends the subframe through the DU's shaped port.
//!
//! A user has a queue in the CU for its DU, or with dual connectivity (§5) one for each of two DUs.
//!
//! `buffer.rs` has the CU's memory and admission, `distributed_unit.rs` the DU and the devices, `carrier.rs` the bits
//! of a TTI, `channel.rs` the users' CQIs.

mod buffer;
mod carrier;
mod cell;
mod channel;
mod config;
mod cqi;
mod distributed_unit;
mod placement;

use std::collections::VecDeque;

use cellbed_foreign as foreign;
use cellbed_link::cell::Scheduler;

use buffer::Buffer;
pub use buffer::{Admission, Rank, Sdu, Verdict};
pub use carrier::Carrier;
use cell::{Cell, Phase};
pub use channel::{CqiSource, REPORT_INTERVAL};
pub use config::{BackoffFrom, Cut, FirstThreshold, LoadOf, RanConfig, Readings, UnitConfig};
pub use cqi::Cqi;
use distributed_unit::BlockCounts;
pub use placement::Placement;

use crate::FlowMap;
use crate::units::{FlowId, Picos};

/// A transmission time interval (TTI) of LTE.
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

/// A radio access network and its users.
#[derive(Debug)]
pub struct Ran {
    config: RanConfig,
    buffer: Buffer,
    cells: Vec<Cell>,
    /// Cell of each queue in the buffer, and its leg there. With dual connectivity a second queue of each user follows
    /// the first ones.
    places: Vec<(usize, usize)>,
    /// Number of open flows of each user.
    flows: Vec<u32>,
    /// Number of users with open flows.
    active: u32,
    /// With dual connectivity: the packets of each flow in order of admission, and whether the device has them.
    order: FlowMap<VecDeque<(Sdu, bool)>>,
    counts: PacketCounts,
    series: Vec<Sample>,
    sampled: Option<Picos>,
}

impl Ran {
    /// Return an idle network with a [checked](RanConfig::check) configuration. otherwise: admission if the
    /// configuration names none.
    pub fn new(config: RanConfig, otherwise: Admission, seed: u64) -> Self {
        let admission = config.admission.unwrap_or(otherwise);
        let policy = config.admission_header.as_ref();
        let by_flow = match &config.scheduler_header {
            Some(header) => header.facts().option != 0,
            None => matches!(config.scheduler, Scheduler::ShortestRemaining {}),
        };
        let cells = config.cells(seed);
        let cells = cells.map(|(settings, legs, seed)| Cell::new(settings, legs, &config, seed));
        let cells: Vec<Cell> = cells.collect();
        let queues = config.queues();
        let mut places = vec![(0, 0); queues as usize];
        for (number, cell) in cells.iter().enumerate() {
            for (place, leg) in cell.legs.iter().enumerate() {
                places[leg.queue as usize] = (number, place);
            }
        }
        let (capacity, limit) = (config.capacity(admission), config.user_packets);
        let mut buffer = Buffer::new(admission, capacity, limit, queues, by_flow);
        buffer.policy = policy.map(|it| foreign::Admission::new(it, queues, seed));
        Self {
            buffer,
            cells,
            places,
            flows: vec![0; config.users as usize],
            active: 0,
            order: FlowMap::default(),
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
        if let Some(policy) = &mut self.buffer.policy {
            policy.now = now.0;
        }
    }

    /// Return when [`step`](Self::step) must be called next; `None` while the network has no packets.
    pub fn next_event(&self) -> Option<Picos> {
        self.cells.iter().filter_map(Cell::next_event).min()
    }

    /// Return the queues of a user.
    fn queues(&self, user: u32) -> impl Iterator<Item = u32> + use<> {
        let queues = self.places.len();
        (user..queues as u32).step_by(self.config.users as usize)
    }

    /// Open a flow of `bytes` to a user.
    pub fn open(&mut self, user: u32, flow: FlowId, bytes: u64) {
        self.flows[user as usize] += 1;
        let first = self.flows[user as usize] == 1;
        self.active += u32::from(first);
        for queue in self.queues(user) {
            self.buffer.open(queue, flow, bytes);
            if first {
                let (cell, leg) = self.places[queue as usize];
                self.cells[cell].legs[leg].reported = None;
                if self.config.readings.first_threshold == FirstThreshold::Active {
                    let parts = self.active * self.config.queues_of_user();
                    self.buffer.activate(queue, parts);
                }
            }
        }
    }

    /// Close an open flow after the delivery of all its packets.
    pub fn close(&mut self, user: u32, flow: FlowId) {
        for queue in self.queues(user) {
            self.buffer.count_sent(queue, flow, u64::MAX);
        }
        let flows = &mut self.flows[user as usize];
        *flows -= 1;
        if *flows == 0 {
            self.active -= 1;
        }
    }

    /// Offer a packet of an open flow to the central unit.
    pub fn offer(&mut self, now: Picos, user: u32, sdu: Sdu) -> Verdict {
        self.set_time(now);
        let queue = self.choose_queue(user);
        let mut verdict = self.buffer.offer(queue, sdu);
        self.counts.offered += 1;
        match &mut verdict {
            Verdict::Refused => self.counts.refused += 1,
            Verdict::Admitted => {}
            Verdict::InPlaceOf(other, dropped) => {
                *other %= self.config.users;
                self.counts.dropped += 1;
                self.counts.dropped_bytes += u64::from(dropped.bytes);
                if let Some(order) = self.order.get_mut(&dropped.flow) {
                    order.retain(|(it, _)| it != dropped);
                }
            }
        }
        if verdict != Verdict::Refused {
            self.counts.admitted_bytes += u64::from(sdu.bytes);
            let cell = &mut self.cells[self.places[queue as usize].0];
            if let Some(scheduler) = &mut cell.scheduler {
                scheduler.arrived(now.0, user, sdu.flow.0, sdu.bytes);
            }
            cell.activate(now);
            if self.config.dual {
                self.order
                    .entry(sdu.flow)
                    .or_default()
                    .push_back((sdu, false));
            }
        }
        verdict
    }

    /// Return the queue for the next packet of a user: the least filled one, in parts of its threshold.
    fn choose_queue(&self, user: u32) -> u32 {
        let filled = |queue: u32| {
            let [length, threshold] = [self.buffer.queue(queue), self.buffer.threshold(queue)];
            (u64::from(length + 1) << 32) / u64::from(threshold.max(1))
        };
        let other = user + self.config.users;
        if self.config.dual && filled(other) < filled(user) {
            return other;
        }
        user
    }

    /// Return how many more packets a user's queues can receive up to their thresholds.
    #[inline]
    pub fn room(&self, user: u32) -> u32 {
        let first = self.buffer.room(user);
        match self.config.dual {
            false => first, // the usual case, asked for each credit
            true => first + self.buffer.room(user + self.config.users),
        }
    }

    /// Return the wait of a source before the next credit after a credit without an admitted packet: a TTI, and the
    /// duration of the last subframe's packets at the lowest quality; at most 100 ms. Of two queues the longer wait
    /// counts.
    pub fn backoff(&self, user: u32) -> Picos {
        let wait = |queue: u32| {
            let (cell, leg) = self.places[queue as usize];
            let cell = &self.cells[cell];
            let bits = u64::from(cell.legs[leg].accepted) * PACKET * 8;
            let carrier = cell.settings.carrier;
            let alpha = bits * carrier.tti.0 / u64::from(carrier.bits(Cqi::LOWEST));
            Picos((carrier.tti.0 + alpha).min(Picos::from_millis(100).0))
        };
        self.queues(user).map(wait).max().unwrap_or(TTI)
    }

    /// Return the packet counts.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Return the samples of queue lengths.
    pub fn series(&self) -> &[Sample] {
        &self.series
    }

    /// Process one event due at `now`. Appends the packets that devices deliver.
    pub fn step(&mut self, now: Picos, delivered: &mut Vec<Delivery>) {
        let times = self.cells.iter().map(Cell::next_event).enumerate();
        let due = times.filter_map(|(number, at)| Some((at.filter(|it| *it <= now)?, number)));
        let Some((_, number)) = due.min() else {
            return;
        };
        self.set_time(now);
        let before = delivered.len();
        let mut bps = 0.0;
        if let Some(Phase::Fill(_)) = self.cells[number].next {
            self.sample(now);
            bps = self.port_bps(number);
        }
        let (cell, buffer) = (&mut self.cells[number], &mut self.buffer);
        cell.next = match cell.next {
            Some(Phase::Fill(tti)) => {
                cell.fill(tti, now, bps, buffer, &self.config);
                Some(Phase::Start(tti))
            }
            Some(Phase::Start(tti)) => {
                cell.start(tti, &self.flows, self.config.user_packets, delivered);
                Some(Phase::Feedback(tti))
            }
            Some(Phase::Feedback(tti)) => {
                cell.feedback(&self.flows, buffer);
                (!cell.is_idle(buffer)).then_some(Phase::Fill(tti + 1))
            }
            None => None,
        };
        if self.config.dual {
            let received: Vec<Delivery> = delivered.drain(before..).collect();
            for it in received {
                self.put_in_order(it, delivered);
            }
        }
        for it in &delivered[before..] {
            self.counts.delivered += 1;
            self.counts.delivered_bytes += u64::from(it.sdu.bytes);
        }
    }

    /// Return the rate of a cell's port: at most an equal part of the central unit's capacity among the cells whose
    /// packets wait.
    fn port_bps(&self, number: usize) -> f64 {
        let bps = self.cells[number].settings.bps;
        self.config.capacity_bps.map_or(bps, |capacity| {
            let waiting = self.cells.iter().filter(|it| it.waits(&self.buffer));
            bps.min(capacity / waiting.count().max(1) as f64)
        })
    }

    /// Deliver a packet that a device has received, and later ones that waited for it, in order of admission within
    /// the flow.
    fn put_in_order(&mut self, received: Delivery, delivered: &mut Vec<Delivery>) {
        let Delivery { user, sdu } = received;
        let Some(order) = self.order.get_mut(&sdu.flow) else {
            return;
        };
        if let Some((_, there)) = order.iter_mut().find(|(it, _)| *it == sdu) {
            *there = true;
        }
        while let Some(&(sdu, true)) = order.front() {
            order.pop_front();
            delivered.push(Delivery { user, sdu });
        }
        if order.is_empty() {
            self.order.remove(&sdu.flow);
        }
    }

    fn sample(&mut self, now: Picos) {
        let interval = self.config.series_ps;
        if interval.0 == 0 || self.sampled.is_some_and(|at| now < at + interval) {
            return;
        }
        self.sampled = Some(now);
        let active = (0..).zip(&self.flows).filter(|(_, flows)| **flows > 0);
        let queues = active.flat_map(|(user, _)| self.queues(user));
        let thresholds = queues.map(|queue| u64::from(self.buffer.threshold(queue)));
        let forwarded = self.cells.iter().map(|it| it.unit.held() + it.late.len());
        self.series.push(Sample {
            at: now,
            packets: self.buffer.length(),
            bytes: self.buffer.bytes(),
            forwarded: forwarded.sum::<usize>() as u32,
            thresholds: thresholds.sum(),
        });
    }

    /// Return the measurements: `users` with a row each, `queues` over time, and `counts`, a single row. by_unit: also
    /// `units` with a row for each distributed unit, and the units of `users`.
    pub fn tables(&self, by_unit: bool) -> Vec<Table> {
        let series = |value: fn(&Sample) -> f64| self.series.iter().map(value).collect();
        let packets = self.counts;
        let units: Vec<BlockCounts> = self.cells.iter().map(|it| it.unit.counts()).collect();
        let blocks = |value: fn(&BlockCounts) -> u64| units.iter().map(value);
        let sum = |value| blocks(value).sum();
        let counts = [
            ("offered_packets", packets.offered),
            ("refused_packets", packets.refused),
            ("dropped_packets", packets.dropped),
            ("delivered_packets", packets.delivered),
            ("admitted_bytes", packets.admitted_bytes),
            ("dropped_bytes", packets.dropped_bytes),
            ("delivered_bytes", packets.delivered_bytes),
            ("block_tries", sum(|it| it.sent)),
            ("failed_block_tries", sum(|it| it.failed)),
            ("lost_blocks", sum(|it| it.lost)),
            ("resource_blocks", sum(|it| it.resource_blocks)),
        ];
        let mut tables = vec![
            self.users_table(by_unit),
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
        ];
        if by_unit {
            let column = |value| blocks(value).map(|it| it as f64).collect();
            let received = self.cells.iter().map(|it| it.received_bytes as f64);
            let numbers = 0..units.len() as u32;
            tables.push(Table {
                name: "units",
                columns: vec![
                    ("distributed_unit", numbers.map(f64::from).collect()),
                    ("received_bytes", received.collect()),
                    ("block_tries", column(|it| it.sent)),
                    ("failed_block_tries", column(|it| it.failed)),
                    ("lost_blocks", column(|it| it.lost)),
                    ("resource_blocks", column(|it| it.resource_blocks)),
                ],
            });
        }
        tables
    }

    /// Return the number of distributed units.
    pub fn unit_count(&self) -> usize {
        self.cells.len()
    }

    fn users_table(&self, by_unit: bool) -> Table {
        let users = 0..self.config.users;
        // First or second leg of each user.
        let column = |second: u32, value: &dyn Fn(u32, &Cell, u32) -> f64| -> Vec<f64> {
            let queues = users.clone().map(|it| it + second * self.config.users);
            let value = |queue: u32| {
                let (number, leg) = self.places[queue as usize];
                value(number as u32, &self.cells[number], leg as u32)
            };
            queues.map(value).collect()
        };
        let unit = |number: u32, _: &Cell, _: u32| f64::from(number);
        let mean = |_: u32, cell: &Cell, leg: u32| cell.channels.mean(leg);
        let mut columns = vec![
            ("user", users.clone().map(f64::from).collect()),
            ("mean_cqi", column(0, &mean)),
        ];
        if matches!(self.config.cqi, CqiSource::Placed(_)) {
            let metres = |_: u32, cell: &Cell, leg: u32| cell.channels.metres(leg).unwrap_or(0.0);
            columns.push(("distance_m", column(0, &metres)));
        }
        if by_unit {
            columns.push(("distributed_unit", column(0, &unit)));
        }
        if self.config.dual {
            columns.push(("second_unit", column(1, &unit)));
            columns.push(("mean_second_cqi", column(1, &mean)));
        }
        Table {
            name: "users",
            columns,
        }
    }

    /// Return the admitted bytes that have been neither dropped nor delivered.
    pub fn held_bytes(&self) -> u64 {
        let counts = &self.counts;
        counts.admitted_bytes - counts.dropped_bytes - counts.delivered_bytes
    }
}

#[cfg(test)]
mod tests {
    use cellbed_link::Probability;
    use proptest::prelude::*;

    use super::config::PFS;
    use super::*;
    use crate::random::{Purpose, stream};

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
                let bytes = u64::from(Carrier::default().bytes(Cqi::new(cqi).unwrap(), 100));
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
        let rates = [3, 15].map(|it| f64::from(Carrier::default().bits(Cqi::new(it).unwrap())));
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
    fn sources_wait_for_what_the_lowest_quality_takes() {
        let mut ran = Ran::new(config(&[15], PFS), Admission::Htd, 1);
        assert_eq!(ran.backoff(0), TTI);
        ran.cells[0].legs[0].accepted = 2; // 24,000 bits at 5,584 a TTI
        assert_eq!(ran.backoff(0), Picos(TTI.0 + 24_000 * TTI.0 / 5_584));
        ran.cells[0].legs[0].accepted = 1000;
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

    /// Return the bytes that the devices of each user receive in 999 TTIs of 1 ms, and check their order. The queues of
    /// all users are always full.
    fn received(config: RanConfig) -> Vec<u64> {
        config.check().unwrap();
        let users = config.users;
        let mut ran = Ran::new(config, Admission::Htd, 1);
        let mut sent = vec![0; users as usize];
        let mut fill = |ran: &mut Ran, now| {
            for user in 0..users {
                while ran.room(user) > 0
                    && ran.offer(now, user, sdu(user, sent[user as usize])) != Verdict::Refused
                {
                    sent[user as usize] += 1;
                }
            }
        };
        (0..users).for_each(|it| ran.open(it, FlowId(it), 1 << 40));
        fill(&mut ran, Picos::ZERO);
        let mut next = vec![0; users as usize];
        for (_, Delivery { user, sdu }) in run(&mut ran, 1000, fill) {
            assert_eq!(sdu.sequence, next[user as usize]);
            next[user as usize] += 1;
        }
        next.iter().map(|it| 1500 * u64::from(*it)).collect()
    }

    fn units(table: &str) -> Vec<UnitConfig> {
        serde_json::from_str(table).unwrap()
    }

    /// Check that a number differs from another by less than a share.
    fn assert_near(number: u64, expected: f64, share: f64) {
        let ratio = number as f64 / expected;
        assert!(
            (ratio - 1.0).abs() < share,
            "{number} instead of {expected}"
        );
    }

    const WHOLE: f64 = 999.0 * 12_756.0;

    #[test]
    fn users_of_different_units_have_a_whole_cell_each() {
        for scheduler in [PFS, MRFS, Scheduler::RoundRobin {}] {
            let config = RanConfig {
                units: units("[{}, {}]"),
                ..config(&[15, 15, 15], scheduler)
            };
            let shares = received(config);
            assert_near(shares[1], WHOLE, 0.001);
            assert_near(shares[0] + shares[2], WHOLE, 0.001);
        }
    }

    #[test]
    fn a_port_shapes_the_traffic_of_its_unit() {
        let config = RanConfig {
            units: units(r#"[{"fronthaul_bps": 40e6}, {}]"#),
            ..config(&[15, 15], PFS)
        };
        let shares = received(config);
        assert_near(shares[0], 0.999 * 40e6 / 8.0, 0.005);
        assert_near(shares[1], WHOLE, 0.001);
    }

    #[test]
    fn units_share_the_capacity_of_the_central_unit_and_leave_nothing_unused() {
        let config = |units| RanConfig {
            units,
            capacity_bps: Some(60e6),
            ..config(&[15, 15], PFS)
        };
        let shares = received(config(units("[{}, {}]")));
        assert_near(shares[0], 0.999 * 30e6 / 8.0, 0.01);
        assert_near(shares[1], 0.999 * 30e6 / 8.0, 0.01);
        let one = received(config(units("[{}]")));
        assert_near(one[0] + one[1], 0.999 * 60e6 / 8.0, 0.005);
    }

    #[test]
    fn the_central_unit_is_a_queue_with_constant_service() {
        // M/D/1: the mean time is S + ρ S / (2 (1 − ρ)) (Kleinrock, Queueing Systems 1, §5.6).
        for load in [0.3, 0.6, 0.8] {
            let service = 20.0; // TTIs of 1500 bytes at 0.6 Mbit/s
            let config = RanConfig {
                capacity_bps: Some(0.6e6),
                ..config(&[15], PFS)
            };
            let mut ran = Ran::new(config, Admission::Infinite, 1);
            let mut arrivals = stream(2, Purpose::Arrivals, 0);
            ran.open(0, FlowId(0), 1 << 40);
            let (mut now, mut starts, mut delivered) = (0.0, Vec::new(), Vec::new());
            // The waiting time by Lindley's recursion, for the same arrivals.
            let (mut sum, mut count, mut wait, mut waits) = (0.0, 0, 0.0f64, 0.0);
            let mut take = |ran: &mut Ran, until: Picos, starts: &[f64]| {
                while let Some(at) = ran.next_event().filter(|it| *it <= until) {
                    ran.step(at, &mut delivered);
                    for it in delivered.drain(..) {
                        sum += at.0 as f64 / TTI.0 as f64 - starts[it.sdu.sequence as usize];
                        count += 1;
                    }
                }
            };
            for sequence in 0..20_000 {
                let gap = service / load * arrivals.exponential();
                now += gap;
                if sequence > 0 {
                    wait = (wait + service - gap).max(0.0);
                }
                waits += wait;
                let at = Picos((now * TTI.0 as f64) as u64);
                take(&mut ran, at, &starts);
                starts.push(now);
                ran.offer(at, 0, sdu(0, sequence));
            }
            take(&mut ran, Picos(u64::MAX), &starts);
            assert_eq!(count, 20_000);
            let [mean, waits] = [sum, waits].map(|it| it / f64::from(count));
            let expected = load * service / (2.0 * (1.0 - load));
            assert!(
                (waits / expected - 1.0).abs() < 0.1,
                "{load}: {waits} {expected}"
            );
            // Up to a TTI until a subframe is filled if the queue is empty, the fronthaul, up to a TTI until a subframe
            // begins, and its TTI.
            let radio = mean - waits - service;
            assert!((1.1..3.1).contains(&radio), "{load}: {mean} {waits}");
        }
    }

    #[test]
    fn slots_of_nr_carry_the_rate_of_their_carrier() {
        for spacing in [15, 30, 60, 120] {
            let table = format!(
                r#"[{{"carrier": {{"kind": "nr", "bandwidth_mhz": 50, "spacing_khz": {spacing}}},
                    "fronthaul_ps": 20000000}}]"#
            );
            let config = RanConfig {
                units: units(&table),
                ..config(&[9, 9], PFS)
            };
            let carrier = config.units()[0].carrier;
            let bits = f64::from(carrier.bits(Cqi::new(9).unwrap()));
            let rate = bits / carrier.tti.as_secs_f64();
            let shares = received(config);
            assert_near(shares[0], 0.999 * rate / 16.0, 0.01);
            assert_near(shares[1], 0.999 * rate / 16.0, 0.01);
        }
    }

    #[test]
    fn two_units_add_up_for_a_user_and_keep_the_order_of_each_flow() {
        let dual = |units, cqi: &[u8], scheduler| RanConfig {
            units,
            dual: true,
            ..config(cqi, scheduler)
        };
        for scheduler in [PFS, MRFS] {
            let shares = received(dual(units("[{}, {}]"), &[15], scheduler));
            assert_near(shares[0], 2.0 * WHOLE, 0.002);
        }
        // LTE as the master, and NR of 50 MHz: the split follows the thresholds, hence the rates.
        let nr = units(r#"[{}, {"carrier": {"kind": "nr", "bandwidth_mhz": 50}}]"#);
        let config = dual(nr, &[15, 15], PFS);
        let second = config.units()[1].carrier;
        let rate = f64::from(second.bits(Cqi::HIGHEST)) / second.tti.as_secs_f64();
        let shares = received(config);
        assert_near(shares[0] + shares[1], WHOLE + 0.999 * rate / 8.0, 0.01);
        assert_near(shares[0], shares[1] as f64, 0.05);
    }

    #[test]
    fn a_user_with_two_units_has_room_in_two_queues() {
        let config = RanConfig {
            units: units("[{}, {}]"),
            dual: true,
            buffer_bytes: Some(30_000),
            ..config(&[15; 4], PFS)
        };
        let mut ran = Ran::new(config, Admission::Htd, 1);
        ran.open(0, FlowId(0), 15_000);
        assert_eq!(ran.room(0), 20);
        let verdicts = (0..21).map(|it| ran.offer(Picos::ZERO, 0, sdu(0, it)));
        assert_eq!(verdicts.filter(|it| *it == Verdict::Admitted).count(), 20);
        assert_eq!([0, 4].map(|queue| ran.buffer.queue(queue)), [10, 10]);
    }

    proptest! {
        /// Bytes are conserved and no admitted packet is lost, for any offers and block errors.
        #[test]
        fn what_is_admitted_is_delivered(
            offers in prop::collection::vec((0..4u32, 0..3_000_000_000u64, 1..1500u16), 1..200),
            cqi in prop::array::uniform4(1..=15u8),
            admission in prop::sample::select(vec![Admission::Htd, Admission::Lqd, Admission::Tail]),
            mrfs: bool,
            (count, dual) in (1..=3usize, any::<bool>()),
            port in prop::sample::select(vec![2e6, 10e9]),
            seed: u64,
        ) {
            let config = RanConfig {
                units: vec![UnitConfig::default(); count],
                dual: dual && count > 1,
                fronthaul_bps: port,
                capacity_bps: (seed % 2 == 0).then_some(20e6),
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
