//! The distributed unit (DU) and the users' devices: segmentation (RLC), transport blocks, and their retransmission
//! (HARQ).
//!
//! The packets for a user form a byte stream, which transport blocks cut anywhere. A block takes one TTI and is decoded
//! at its end. A failed block is sent again [`Harq::round_trip`] TTIs later, with as many resource blocks and before
//! new data. The central unit sets the order of the users. After the last failed attempt the link layer (RLC in
//! acknowledged mode) sends the bytes in a new block, so no byte is lost. A device delivers packets in order.

use std::collections::VecDeque;
use std::ops::Range;

use super::buffer::Sdu;
use super::carrier::Carrier;
use super::cqi::Cqi;

/// Errors of transport blocks, and their repair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harq {
    /// Probability that an attempt fails.
    pub error: f64,
    /// TTIs from an attempt to the next one.
    pub round_trip: u64,
    /// Maximum attempts for a block.
    pub tries: u32,
}

/// Number of blocks since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Attempts, including retransmissions.
    pub sent: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Blocks that failed in all attempts.
    pub lost: u64,
    /// Resource blocks of all attempts.
    pub resource_blocks: u64,
}

/// Report of the distributed unit for a user at the end of a TTI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Q: packets that the device has not completely received.
    pub queue: u32,
    /// D: packets that the device has completely received in the TTI.
    pub departed: u32,
    /// R: bytes that must be sent again, in packets.
    pub again: u32,
}

/// A distributed unit with its users.
#[derive(Clone, Debug)]
pub struct DistributedUnit {
    carrier: Carrier,
    harq: Harq,
    users: Vec<Stream>,
    /// Users with bytes to send, in order of service.
    order: VecDeque<u32>,
    /// Blocks sent in the current TTI.
    in_air: Vec<Block>,
    /// Failed blocks in order of their due TTIs.
    due: VecDeque<(u64, Block)>,
    counts: BlockCounts,
    held: usize,
}

/// The packets for a user, as a stream of bytes.
#[derive(Clone, Debug, Default)]
struct Stream {
    sdus: VecDeque<Held>,
    /// First byte that has not been in any block.
    next: u64,
    end: u64,
    /// Bytes of blocks that failed in all attempts.
    again: VecDeque<Range<u64>>,
    departed: u32,
    /// Number of completely received packets that wait for earlier ones.
    early: u32,
    /// Number of bytes of failed blocks that will be sent again.
    failed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    sdu: Sdu,
    start: u64,
    /// Bytes that the device has not received.
    missing: u16,
}

#[derive(Clone, Debug)]
struct Block {
    user: u32,
    bytes: Range<u64>,
    resource_blocks: u32,
    /// Attempts so far.
    tries: u32,
}

impl DistributedUnit {
    /// Return a unit without packets.
    pub fn new(users: u32, carrier: Carrier, harq: Harq) -> Self {
        Self {
            carrier,
            harq,
            users: vec![Stream::default(); users as usize],
            order: VecDeque::new(),
            in_air: Vec::new(),
            due: VecDeque::new(),
            counts: BlockCounts::default(),
            held: 0,
        }
    }

    /// Return whether the unit has no packets.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Return the number of packets that the devices have not delivered.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Return a user's packets between the unit's queue and the layer above in the device: the link layer's window.
    pub fn window(&self, user: u32) -> u32 {
        self.users[user as usize].sdus.len() as u32
    }

    /// Return the block counts.
    pub fn counts(&self) -> BlockCounts {
        self.counts
    }

    /// Accept a packet of a user from the central unit.
    pub fn accept(&mut self, user: u32, sdu: Sdu) {
        let stream = &mut self.users[user as usize];
        if stream.unsent() == 0 {
            self.order.push_back(user);
        }
        stream.sdus.push_back(Held {
            sdu,
            start: stream.end,
            missing: sdu.bytes,
        });
        stream.end += u64::from(sdu.bytes);
        self.held += 1;
    }

    /// End the TTI before number `tti`: the devices decode its blocks, and pass the delivered packets to `deliver`.
    ///
    /// chance: a uniform number from 0 to 1 per user and TTI; an attempt fails below the error probability.
    pub fn decode(
        &mut self,
        tti: u64,
        mut chance: impl FnMut(u32, u64) -> f64,
        mut deliver: impl FnMut(u32, Sdu),
    ) {
        for stream in &mut self.users {
            stream.departed = 0;
        }
        let mut in_air = std::mem::take(&mut self.in_air);
        for mut block in in_air.drain(..) {
            let user = block.user;
            let stream = &mut self.users[user as usize];
            // Retransmissions and first attempts of a user in one TTI have different numbers.
            let draw = chance(user, 4 * (tti - 1) + u64::from(block.tries.min(3)));
            block.tries += 1;
            let bytes = block.bytes.end - block.bytes.start;
            if draw >= self.harq.error {
                if block.tries > 1 {
                    stream.failed -= bytes;
                }
                stream.receive(block.bytes);
                while let Some(held) = stream.sdus.front().filter(|it| it.missing == 0) {
                    deliver(user, held.sdu);
                    stream.sdus.pop_front();
                    stream.early -= 1;
                    self.held -= 1;
                }
                continue;
            }
            self.counts.failed += 1;
            if block.tries == 1 {
                stream.failed += bytes;
            }
            if block.tries < self.harq.tries {
                self.due.push_back((tti - 1 + self.harq.round_trip, block));
            } else {
                self.counts.lost += 1;
                stream.failed -= bytes;
                if stream.unsent() == 0 {
                    self.order.push_front(user);
                }
                stream.again.push_back(block.bytes);
            }
        }
        self.in_air = in_air;
    }

    /// Send the blocks of TTI `tti`: due ones again, then new ones for the users in the order of service. Users out of
    /// range wait.
    pub fn send(&mut self, tti: u64, mut cqi: impl FnMut(u32) -> Cqi) {
        let mut left = self.carrier.blocks;
        while let Some((due, block)) = self.due.front()
            && *due <= tti
            && block.resource_blocks <= left
        {
            left -= block.resource_blocks;
            if let Some((_, block)) = self.due.pop_front() {
                self.transmit(block);
            }
        }
        for _ in 0..self.order.len() {
            if left == 0 {
                break;
            }
            let Some(user) = self.order.pop_front() else {
                break;
            };
            let stream = &mut self.users[user as usize];
            let quality = cqi(user);
            let Some(needed) = self.carrier.blocks_for(quality, stream.unsent()) else {
                self.order.push_back(user);
                continue;
            };
            let resource_blocks = needed.min(u64::from(left)) as u32;
            let bytes = stream.cut(u64::from(self.carrier.bytes(quality, resource_blocks)));
            left -= resource_blocks;
            if stream.unsent() > 0 {
                self.order.push_front(user);
            }
            self.transmit(Block {
                user,
                bytes,
                resource_blocks,
                tries: 0,
            });
        }
    }

    fn transmit(&mut self, block: Block) {
        self.counts.sent += 1;
        self.counts.resource_blocks += u64::from(block.resource_blocks);
        self.in_air.push(block);
    }

    /// Return the resource blocks of retransmissions due in TTI `tti`, at most all.
    pub fn due(&self, tti: u64) -> u32 {
        let due = self.due.iter().take_while(|(due, _)| *due <= tti);
        let sum = due.map(|(_, it)| it.resource_blocks).sum::<u32>();
        sum.min(self.carrier.blocks)
    }

    /// Return the users with bytes to send, in order of service.
    pub fn order(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.iter().copied()
    }

    /// Return the bytes of a user that wait for a new block.
    pub fn unsent(&self, user: u32) -> u64 {
        self.users[user as usize].unsent()
    }

    /// Serve these users first, in this order.
    pub fn prefer(&mut self, users: &[u32]) {
        self.order.retain(|user| !users.contains(user));
        for &user in users.iter().rev() {
            if self.users[user as usize].unsent() > 0 {
                self.order.push_front(user);
            }
        }
    }

    /// Return the state of a user at the end of a TTI, after [`decode`](Self::decode).
    pub fn report(&self, user: u32) -> Report {
        let stream = &self.users[user as usize];
        let again = stream.failed + stream.again.iter().map(|it| it.end - it.start).sum::<u64>();
        Report {
            queue: stream.sdus.len() as u32 - stream.early,
            departed: stream.departed,
            again: again.div_ceil(1500) as u32,
        }
    }
}

impl Stream {
    /// Return the bytes that wait for a new block.
    fn unsent(&self) -> u64 {
        let again: u64 = self.again.iter().map(|it| it.end - it.start).sum();
        again + (self.end - self.next)
    }

    /// Remove at most `most` bytes for a new block: bytes of lost blocks first.
    fn cut(&mut self, most: u64) -> Range<u64> {
        if let Some(range) = self.again.front_mut() {
            let end = range.end.min(range.start + most);
            let cut = range.start..end;
            range.start = end;
            if range.is_empty() {
                self.again.pop_front();
            }
            return cut;
        }
        let cut = self.next..self.end.min(self.next + most);
        self.next = cut.end;
        cut
    }

    /// Mark bytes as received by the device.
    fn receive(&mut self, bytes: Range<u64>) {
        let first = self.sdus.partition_point(|it| it.start <= bytes.start);
        for held in self.sdus.range_mut(first.saturating_sub(1)..) {
            if held.start >= bytes.end {
                break;
            }
            let end = held.start + u64::from(held.sdu.bytes);
            let part = end.min(bytes.end) - held.start.max(bytes.start);
            held.missing -= part as u16;
            if held.missing == 0 {
                self.departed += 1;
                self.early += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::FlowId;

    fn sdu(sequence: u32, bytes: u16) -> Sdu {
        Sdu {
            flow: FlowId(0),
            sequence,
            bytes,
        }
    }

    fn unit(error: f64) -> DistributedUnit {
        DistributedUnit::new(
            3,
            Carrier::default(),
            Harq {
                error,
                round_trip: 8,
                tries: 4,
            },
        )
    }

    /// Run TTIs until the unit is empty. Return TTI, user and number of each delivered packet.
    fn run(
        unit: &mut DistributedUnit,
        cqi: [u8; 3],
        chance: impl Fn(u32, u64) -> f64,
    ) -> Vec<(u64, u32, u32)> {
        let mut delivered = Vec::new();
        for tti in 1..10_000 {
            unit.decode(tti, &chance, |user, sdu| {
                delivered.push((tti, user, sdu.sequence))
            });
            unit.send(tti, |user| Cqi::new(cqi[user as usize]).unwrap());
            assert!(unit.in_air.iter().map(|it| it.resource_blocks).sum::<u32>() <= 100);
            if unit.is_empty() {
                break;
            }
        }
        delivered
    }

    #[test]
    fn a_packet_larger_than_a_block_is_segmented() {
        let mut unit = unit(0.0);
        unit.accept(0, sdu(0, 1500));
        unit.accept(0, sdu(1, 500));
        // 698 bytes per TTI at the lowest quality: the packets of 1500 and of 2000 bytes end in the third TTI.
        assert_eq!(
            run(&mut unit, [1, 1, 1], |_, _| 1.0),
            [(4, 0, 0), (4, 0, 1)]
        );
        assert_eq!(unit.counts().sent, 3);
    }

    #[test]
    fn small_packets_share_a_block_and_users_a_tti() {
        let mut unit = unit(0.0);
        for it in 0..4 {
            unit.accept(0, sdu(it, 100));
        }
        unit.accept(1, sdu(0, 1500));
        let all = run(&mut unit, [15, 15, 15], |_, _| 1.0);
        assert_eq!(all, [(2, 0, 0), (2, 0, 1), (2, 0, 2), (2, 0, 3), (2, 1, 0)]);
        // 400 and 1500 bytes at 127.56 bytes per resource block.
        assert_eq!(
            (unit.counts().sent, unit.counts().resource_blocks),
            (2, 4 + 12)
        );
    }

    #[test]
    fn a_failed_block_comes_8_ttis_later_and_later_packets_wait_for_it() {
        let mut unit = unit(0.5);
        unit.accept(0, sdu(0, 12_000)); // more than 94 resource blocks
        unit.accept(0, sdu(1, 12_000));
        // The block of TTI 1 fails, all others pass.
        let chance = |_, key| if key == 4 { 0.0 } else { 1.0 };
        assert_eq!(run(&mut unit, [15; 3], chance), [(10, 0, 0), (10, 0, 1)]);
        assert_eq!((unit.counts().sent, unit.counts().failed), (3, 1));
    }

    #[test]
    fn after_four_tries_the_link_layer_sends_the_bytes_in_a_new_block() {
        let mut unit = unit(0.5);
        unit.accept(0, sdu(0, 1500));
        // TTIs 1, 9, 17 and 25 fail; the new block follows in TTI 26.
        let chance = |_, key| if key / 4 < 26 { 0.0 } else { 1.0 };
        assert_eq!(run(&mut unit, [15; 3], chance), [(27, 0, 0)]);
        let counts = unit.counts();
        assert_eq!((counts.sent, counts.failed, counts.lost), (5, 4, 1));
        assert_eq!(
            unit.report(0),
            Report {
                queue: 0,
                departed: 1,
                again: 0
            }
        );
    }

    #[test]
    fn reports_count_what_waits_what_went_and_what_comes_again() {
        let mut unit = unit(0.5);
        for it in 0..12 {
            unit.accept(0, sdu(it, 1500));
        }
        unit.send(1, |_| Cqi::HIGHEST); // 8.5 packets
        unit.decode(2, |_, _| 1.0, |_, _| {});
        assert_eq!(
            unit.report(0),
            Report {
                queue: 4,
                departed: 8,
                again: 0
            }
        );
        assert_eq!(unit.unsent(0), 5_244);
        unit.send(2, |_| Cqi::HIGHEST);
        unit.decode(3, |_, _| 0.0, |_, _| {});
        assert_eq!(
            unit.report(0),
            Report {
                queue: 4,
                departed: 0,
                again: 4
            }
        );
        assert_eq!((unit.due(9), unit.due(10)), (0, 42));
    }

    #[test]
    fn users_are_served_in_the_order_asked_for() {
        let mut unit = unit(0.0);
        (0..3).for_each(|user| unit.accept(user, sdu(0, 12_000)));
        unit.prefer(&[2, 1]);
        let all = run(&mut unit, [15; 3], |_, _| 1.0);
        assert_eq!(all.iter().map(|it| it.1).collect::<Vec<u32>>(), [2, 1, 0]);
    }

    #[test]
    fn a_user_out_of_range_does_not_block_others() {
        let mut unit = unit(0.0);
        unit.accept(0, sdu(0, 100));
        unit.accept(1, sdu(0, 100));
        unit.send(1, |user| Cqi::new(user as u8).unwrap());
        unit.decode(2, |_, _| 1.0, |user, _| assert_eq!(user, 1));
        assert_eq!((unit.held(), unit.window(0)), (1, 1));
    }

    proptest! {
        /// Every byte arrives exactly once and in its user's order, also if blocks fail.
        #[test]
        fn all_packets_arrive_once_and_in_order(
            packets in prop::collection::vec((0..3u32, 1..1500u16), 1..60),
            cqi in prop::array::uniform3(1..=15u8),
            seed: u64,
        ) {
            let mut unit = unit(0.6);
            let mut expected = vec![Vec::new(); 3];
            for (number, &(user, bytes)) in packets.iter().enumerate() {
                unit.accept(user, sdu(number as u32, bytes));
                expected[user as usize].push(number as u32);
            }
            let chance = |user: u32, key: u64| {
                crate::random::stream(seed, crate::random::Purpose::BlockErrors, key * 3 + u64::from(user)).unit()
            };
            let mut found = vec![Vec::new(); 3];
            for (_, user, number) in run(&mut unit, cqi, chance) {
                found[user as usize].push(number);
            }
            prop_assert_eq!(found, expected);
            prop_assert!(unit.is_empty() && unit.due.is_empty() && unit.in_air.is_empty());
            prop_assert!(unit.users.iter().all(|it| it.failed == 0 && it.early == 0 && it.sdus.is_empty()));
        }
    }
}
