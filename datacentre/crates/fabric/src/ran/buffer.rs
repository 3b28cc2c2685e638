//! The buffer of the central unit (CU): one queue per user, in memory that all users share.

use std::collections::{BTreeMap, VecDeque};

use cellbed_foreign as foreign;
use serde::Deserialize;

use crate::units::FlowId;

/// A packet in the radio access network: a service data unit (SDU) of its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdu {
    /// The packet's flow.
    pub flow: FlowId,
    /// Number in the flow.
    pub sequence: u32,
    /// Length, bytes.
    pub bytes: u16,
}

/// Treatment of packets that arrive at the central unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// Highest threshold decrease (pDCell, §3.3): a packet whose user's queue has reached its threshold is refused. If
    /// the buffer is full, the threshold of the longest queue decreases by one, and the packet is refused.
    /// Admitted packets are never dropped.
    Htd,
    /// Longest queue drop (Aiello, Kesselman & Mansour, ACM Trans. Algorithms 5(1), 2008): if the buffer is full, the
    /// last packet of the longest queue is dropped.
    Lqd,
    /// Packets are refused while the buffer or the user's part of it is full.
    Tail,
    /// All packets are admitted: queues without limits.
    Infinite,
}

/// The rank of the shortest flow in a user's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rank {
    /// The rank of the user's shortest open flow, with or without packets in the queue.
    #[default]
    Shortest,
    /// The flow's own rank.
    Head,
}

/// Treatment of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is in its user's queue.
    Admitted,
    /// The packet is refused.
    Refused,
    /// The packet is in its user's queue; this earlier packet of this user is dropped.
    InPlaceOf(u32, Sdu),
}

/// The buffer. Lengths, thresholds and its capacity are numbers of packets.
#[derive(Debug)]
pub struct Buffer {
    admission: Admission,
    /// Instead of `admission`.
    pub(super) policy: Option<foreign::Admission>,
    capacity: u32,
    /// Maximum packets of a user.
    user_limit: u32,
    length: u32,
    bytes: u64,
    queues: foreign::Queues,
    orders: Vec<Order>,
}

/// Order of the packets of a user.
#[derive(Clone, Debug)]
enum Order {
    Arrival(VecDeque<Sdu>),
    /// Bytes of each flow that have not been forwarded, arrived or not, and the arrived packets.
    Flows(BTreeMap<FlowId, (u64, VecDeque<Sdu>)>),
}

impl Buffer {
    /// Return an empty buffer. The threshold of each user is an equal part, at most the user's limit. by_flow: whether
    /// the scheduler orders the flows of a user; else packets are served in order of arrival.
    pub fn new(
        admission: Admission,
        capacity: u32,
        user_limit: u32,
        users: u32,
        by_flow: bool,
    ) -> Self {
        let order = if by_flow {
            Order::Flows(BTreeMap::new())
        } else {
            Order::Arrival(VecDeque::new())
        };
        Self {
            admission,
            policy: None,
            capacity,
            user_limit,
            length: 0,
            bytes: 0,
            queues: foreign::Queues::new(users, (capacity / users).clamp(1, user_limit)),
            orders: vec![order; users as usize],
        }
    }

    /// Return the policy of a C header, if any, with the buffer as it sees it.
    fn policy(&mut self) -> Option<(&mut foreign::Admission, foreign::Buffer<'_>)> {
        let policy = self.policy.as_mut()?;
        let packets = [self.length, self.capacity, self.user_limit];
        let buffer = foreign::Buffer::new(&mut self.queues, self.bytes, packets);
        Some((policy, buffer))
    }

    /// Return the number of packets of all users.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Return the bytes of all users.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Return the number of packets of a user.
    pub fn queue(&self, user: u32) -> u32 {
        self.queues[user as usize].length
    }

    /// Return the threshold of a user.
    pub fn threshold(&self, user: u32) -> u32 {
        self.queues[user as usize].threshold
    }

    /// Return how many more packets a user's queue can take up to its threshold.
    pub fn room(&self, user: u32) -> u32 {
        let queue = &self.queues[user as usize];
        queue.threshold.saturating_sub(queue.length)
    }

    /// Activates a user: its threshold is an equal part of the buffer among the active users.
    pub fn activate(&mut self, user: u32, active_users: u32) {
        if let Some((policy, buffer)) = self.policy() {
            return policy.open(buffer, user, active_users);
        }
        let part = self.capacity / active_users.max(1);
        self.queues[user as usize].threshold = part.clamp(1, self.user_limit);
    }

    /// Apply a virtual threshold reported by the distributed unit: a lower one at once, a higher one as far as the
    /// buffer has space.
    pub fn feedback(&mut self, user: u32, reported: u32) {
        if let Some((policy, buffer)) = self.policy() {
            return policy.report(buffer, user, reported);
        }
        let space = self.capacity.saturating_sub(self.length);
        let queue = &mut self.queues[user as usize];
        let rise = reported.saturating_sub(queue.threshold).min(space);
        queue.threshold = reported.min(queue.threshold + rise);
    }

    /// Open a flow of `bytes` to a user.
    pub fn open(&mut self, user: u32, flow: FlowId, bytes: u64) {
        if let Order::Flows(flows) = &mut self.orders[user as usize] {
            flows.insert(flow, (bytes, VecDeque::new()));
        }
    }

    /// Count bytes of a flow as sent elsewhere. Packets of the flow stay.
    pub fn count_sent(&mut self, user: u32, flow: FlowId, bytes: u64) {
        if let Order::Flows(flows) = &mut self.orders[user as usize]
            && let Some((left, sdus)) = flows.get_mut(&flow)
        {
            *left = left.saturating_sub(bytes);
            if *left == 0 && sdus.is_empty() {
                flows.remove(&flow);
            }
        }
    }

    /// Offer a packet of a user.
    pub fn offer(&mut self, user: u32, sdu: Sdu) -> Verdict {
        if let Some((policy, buffer)) = self.policy() {
            let Some(other) = policy.offer(buffer, user, sdu.bytes) else {
                return Verdict::Refused;
            };
            let dropped = other.and_then(|it| Some((it, self.pop_last(it as usize)?)));
            self.push(user, sdu);
            return dropped.map_or(Verdict::Admitted, |(it, sdu)| Verdict::InPlaceOf(it, sdu));
        }
        let own = &self.queues[user as usize];
        let limit = match self.admission {
            Admission::Htd => own.threshold,
            Admission::Lqd | Admission::Tail => self.user_limit,
            Admission::Infinite => u32::MAX,
        };
        if own.length >= limit {
            return Verdict::Refused;
        }
        if self.length < self.capacity || self.admission == Admission::Infinite {
            self.push(user, sdu);
            return Verdict::Admitted;
        }
        match self.admission {
            Admission::Htd => {
                let longest = self.longest();
                let threshold = &mut self.queues[longest].threshold;
                *threshold = threshold.saturating_sub(1).max(1);
                Verdict::Refused
            }
            Admission::Lqd => {
                let longest = self.longest();
                if own.length + 1 >= self.queues[longest].length {
                    return Verdict::Refused; // the user's queue would be the longest
                }
                let Some(dropped) = self.pop_last(longest) else {
                    return Verdict::Refused;
                };
                self.push(user, sdu);
                Verdict::InPlaceOf(longest as u32, dropped)
            }
            Admission::Tail | Admission::Infinite => Verdict::Refused,
        }
    }

    /// Return the longest queue; among equals, the one with the highest threshold, then the first.
    fn longest(&self) -> usize {
        let key = |&user: &usize| {
            let queue = &self.queues[user];
            (queue.length, queue.threshold, std::cmp::Reverse(user))
        };
        (0..self.queues.len()).max_by_key(key).unwrap_or(0)
    }

    fn push(&mut self, user: u32, sdu: Sdu) {
        let queue = &mut self.queues[user as usize];
        match &mut self.orders[user as usize] {
            Order::Arrival(sdus) => sdus.push_back(sdu),
            Order::Flows(flows) => flows.entry(sdu.flow).or_default().1.push_back(sdu),
        }
        queue.length += 1;
        queue.bytes += u64::from(sdu.bytes);
        self.length += 1;
        self.bytes += u64::from(sdu.bytes);
    }

    /// Remove the last packet; if the scheduler orders flows, of the flow with most bytes left.
    fn pop_last(&mut self, user: usize) -> Option<Sdu> {
        let sdu = match &mut self.orders[user] {
            Order::Arrival(sdus) => sdus.pop_back(),
            Order::Flows(flows) => {
                let waiting = flows.values_mut().filter(|(_, sdus)| !sdus.is_empty());
                let (_, sdus) = waiting.max_by_key(|(left, _)| *left)?;
                sdus.pop_back()
            }
        }?;
        self.count_removed(user, sdu);
        Some(sdu)
    }

    /// Remove the first packet of a user, or of the given flow.
    pub fn pop(&mut self, user: u32, flow: Option<FlowId>) -> Option<Sdu> {
        let sdu = match (&mut self.orders[user as usize], flow) {
            (Order::Arrival(sdus), _) => sdus.pop_front(),
            (Order::Flows(flows), Some(flow)) => {
                let (left, sdus) = flows.get_mut(&flow)?;
                let sdu = sdus.pop_front()?;
                *left = left.saturating_sub(u64::from(sdu.bytes));
                if *left == 0 && sdus.is_empty() {
                    flows.remove(&flow);
                }
                Some(sdu)
            }
            (Order::Flows(_), None) => None,
        }?;
        self.count_removed(user as usize, sdu);
        Some(sdu)
    }

    fn count_removed(&mut self, user: usize, sdu: Sdu) {
        let queue = &mut self.queues[user];
        queue.length -= 1;
        queue.bytes -= u64::from(sdu.bytes);
        self.length -= 1;
        self.bytes -= u64::from(sdu.bytes);
    }

    /// Return the bytes that an open flow has left to send.
    pub fn remaining_bytes(&self, user: u32, flow: Option<FlowId>) -> u64 {
        match (&self.orders[user as usize], flow) {
            (Order::Flows(flows), Some(flow)) => flows.get(&flow).map_or(0, |(left, _)| *left),
            _ => 0,
        }
    }

    /// Return a user's traffic that can be served: each flow with packets and its unsent bytes, if the scheduler orders
    /// flows; else the whole queue.
    ///
    /// With [`Rank::Shortest`] the shortest flow with packets has the rank of the user's shortest open flow. Otherwise
    /// a shorter flow that the threshold excludes would wait until the queue is served.
    pub fn waiting_flows(
        &self,
        user: u32,
        rank: Rank,
    ) -> impl Iterator<Item = (Option<FlowId>, u64)> + '_ {
        let queue = &self.queues[user as usize];
        let (whole, flows) = match &self.orders[user as usize] {
            Order::Arrival(_) => ((queue.length > 0).then_some((None, queue.bytes)), None),
            Order::Flows(flows) => (None, (queue.length > 0).then_some(flows)),
        };
        let all = flows.into_iter().flatten();
        let waiting = all.clone().filter(|(_, (_, sdus))| !sdus.is_empty());
        let shortest = all.map(|(_, &(left, _))| left).min().unwrap_or(0);
        let first = waiting.clone().min_by_key(|(_, (left, _))| *left);
        let first = first.map(|(&flow, _)| flow);
        let flows = waiting.map(move |(&flow, &(left, _))| {
            let lent = rank == Rank::Shortest && first == Some(flow);
            let counted = if lent { shortest } else { left };
            (Some(flow), counted)
        });
        whole.into_iter().chain(flows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sdu(sequence: u32) -> Sdu {
        Sdu {
            flow: FlowId(0),
            sequence,
            bytes: 1500,
        }
    }

    /// Return the example of figure 5 of the paper: B = 4, thresholds (4, 2), queues (3, 1).
    fn figure_5(admission: Admission) -> Buffer {
        let mut buffer = Buffer::new(admission, 4, 4, 2, false);
        (buffer.queues[0].threshold, buffer.queues[1].threshold) = (4, 2);
        for (user, sequence) in [(0, 0), (0, 1), (0, 2), (1, 3)] {
            assert_eq!(buffer.offer(user, sdu(sequence)), Verdict::Admitted);
        }
        buffer
    }

    fn state(buffer: &Buffer) -> [(u32, u32); 2] {
        [0, 1].map(|user| (buffer.threshold(user), buffer.queue(user)))
    }

    #[test]
    fn figure_5_longest_queue_drop_drops_an_admitted_packet() {
        let mut buffer = figure_5(Admission::Lqd);
        assert_eq!(buffer.offer(1, sdu(4)), Verdict::InPlaceOf(0, sdu(2)));
        assert_eq!(state(&buffer), [(4, 2), (2, 2)]);
    }

    #[test]
    fn figure_5_highest_threshold_decrease_refuses() {
        let mut buffer = figure_5(Admission::Htd);
        assert_eq!(buffer.offer(1, sdu(4)), Verdict::Refused);
        assert_eq!(state(&buffer), [(3, 3), (2, 1)]);
        // A queue at its threshold gets no packet, despite free space.
        buffer.pop(0, None);
        assert_eq!(buffer.offer(1, sdu(5)), Verdict::Admitted);
        assert_eq!(buffer.offer(1, sdu(6)), Verdict::Refused);
        assert_eq!(state(&buffer), [(3, 2), (2, 2)]);
    }

    #[test]
    fn of_equal_queues_the_one_with_the_highest_threshold_yields_down_to_1() {
        let mut buffer = Buffer::new(Admission::Htd, 2, 3, 3, false);
        buffer.queues[1].threshold = 2;
        buffer.queues[0].threshold = 1;
        assert_eq!(buffer.offer(0, sdu(0)), Verdict::Admitted);
        assert_eq!(buffer.offer(1, sdu(1)), Verdict::Admitted);
        let mut thresholds = |refused: u32| {
            for _ in 0..refused {
                assert_eq!(buffer.offer(2, sdu(2)), Verdict::Refused);
            }
            [0, 1, 2].map(|user| buffer.threshold(user))
        };
        assert_eq!(thresholds(1), [1, 1, 1]);
        assert_eq!(thresholds(3), [1, 1, 1]);
    }

    #[test]
    fn thresholds_fall_at_once_and_rise_by_the_space_there_is() {
        let mut buffer = Buffer::new(Admission::Htd, 10, 1024, 2, false);
        assert_eq!(buffer.threshold(0), 5);
        buffer.feedback(0, 3);
        assert_eq!(buffer.threshold(0), 3);
        for it in 0..3 {
            buffer.offer(0, sdu(it));
        }
        buffer.feedback(0, 20); // min(20 − 3, 10 − 3)
        assert_eq!(buffer.threshold(0), 10);
        assert_eq!((buffer.room(0), buffer.room(1)), (7, 5));
        // Initially at least one packet, and at most the user limit.
        let first = |capacity, users| {
            Buffer::new(Admission::Htd, capacity, 1024, users, false).threshold(0)
        };
        assert_eq!(
            [first(50, 100), first(5000, 100), first(5000, 2)],
            [1, 50, 1024]
        );
    }

    #[test]
    fn finite_queues_refuse_and_infinite_ones_do_not() {
        let mut tail = Buffer::new(Admission::Tail, 3, 2, 2, false);
        let verdicts = [0, 0, 0, 1, 1].map(|user| tail.offer(user, sdu(0)));
        use Verdict::{Admitted, Refused};
        assert_eq!(verdicts, [Admitted, Admitted, Refused, Admitted, Refused]);
        let mut infinite = Buffer::new(Admission::Infinite, 1, 1, 1, false);
        assert!((0..5000).all(|it| infinite.offer(0, sdu(it)) == Admitted));
        assert_eq!((infinite.length(), infinite.bytes()), (5000, 7_500_000));
    }

    #[test]
    fn flows_are_served_in_any_order_and_their_remainder_counts_future_bytes() {
        let mut buffer = Buffer::new(Admission::Htd, 10, 10, 1, true);
        let packet = |flow, sequence| Sdu {
            flow: FlowId(flow),
            ..sdu(sequence)
        };
        buffer.open(0, FlowId(1), 6_000);
        buffer.open(0, FlowId(2), 1_500);
        for it in [packet(1, 0), packet(2, 0), packet(1, 1)] {
            buffer.offer(0, it);
        }
        assert_eq!(buffer.pop(0, Some(FlowId(1))), Some(packet(1, 0)));
        let waiting: Vec<_> = buffer.waiting_flows(0, Rank::Shortest).collect();
        assert_eq!(
            waiting,
            [(Some(FlowId(1)), 4_500), (Some(FlowId(2)), 1_500)]
        );
        assert_eq!(buffer.pop(0, Some(FlowId(2))), Some(packet(2, 0)));
        assert_eq!(buffer.waiting_flows(0, Rank::Shortest).count(), 1);
    }

    #[test]
    fn a_short_flow_that_is_kept_out_lends_its_rank_to_the_queue() {
        let mut buffer = Buffer::new(Admission::Htd, 2, 2, 1, true);
        buffer.open(0, FlowId(0), 150_000);
        buffer.offer(0, sdu(0));
        buffer.offer(0, sdu(1));
        buffer.open(0, FlowId(1), 1_500);
        let short = Sdu {
            flow: FlowId(1),
            ..sdu(0)
        };
        assert_eq!(buffer.offer(0, short), Verdict::Refused);
        for (rank, left) in [(Rank::Shortest, 1_500), (Rank::Head, 150_000)] {
            let waiting: Vec<_> = buffer.waiting_flows(0, rank).collect();
            assert_eq!(waiting, [(Some(FlowId(0)), left)]);
        }
        buffer.pop(0, Some(FlowId(0)));
        assert_eq!(buffer.offer(0, short), Verdict::Admitted);
        let waiting: Vec<_> = buffer.waiting_flows(0, Rank::Shortest).collect();
        assert_eq!(
            waiting,
            [(Some(FlowId(0)), 148_500), (Some(FlowId(1)), 1_500)]
        );
    }

    proptest! {
        /// Under HTD no admitted packet is dropped, the buffer never exceeds its capacity, and thresholds stay at 1 or
        /// more if all reported ones are.
        #[test]
        fn htd_never_drops_what_it_has_admitted(
            capacity in 1..40u32,
            steps in prop::collection::vec((0..4u8, 0..6u32, 1..30u32), 1..400),
            by_flow: bool,
        ) {
            let mut buffer = Buffer::new(Admission::Htd, capacity, 1024, 6, by_flow);
            let mut held: Vec<Vec<Sdu>> = vec![Vec::new(); 6];
            for (number, (action, user, value)) in steps.into_iter().enumerate() {
                match action {
                    0 => buffer.feedback(user, value),
                    1 => {
                        let flow = held[user as usize].first().map(|it| it.flow);
                        let taken = buffer.pop(user, flow.filter(|_| by_flow));
                        let expected = (!held[user as usize].is_empty()).then(|| held[user as usize].remove(0));
                        prop_assert_eq!(taken, expected);
                    }
                    _ => {
                        let full = buffer.length() == capacity;
                        let packet = sdu(number as u32);
                        let at_threshold = buffer.room(user) == 0;
                        match buffer.offer(user, packet) {
                            Verdict::Admitted => held[user as usize].push(packet),
                            Verdict::Refused => prop_assert!(full || at_threshold),
                            Verdict::InPlaceOf(..) => prop_assert!(false, "dropped"),
                        }
                    }
                }
                prop_assert!(buffer.length() <= capacity);
                prop_assert_eq!(buffer.length() as usize, held.iter().map(Vec::len).sum::<usize>());
                prop_assert!((0..6).all(|user| buffer.threshold(user) >= 1));
            }
        }
    }
}
