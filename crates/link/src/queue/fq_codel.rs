//! Flow queueing with controlled delay (RFC 8290): a CoDel queue per flow, served by deficit round robin.

use std::collections::VecDeque;

use crate::schema::JsonSchema;

use super::codel::{CoDelConfig, Control};
use super::fifo::Line;
use super::{Dropped, Limit, QueueDiscipline, QueueLevel, Refused, Surcharge};
use crate::packet::{DropReason, Item};
use crate::random::Seed;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Packets};

/// Maximum number of packets dropped at once from the longest flow (RFC 8290 §4.1).
const DROP_BATCH: u32 = 64;

/// FQ-CoDel's parameters. The default follows RFC 8290 §5.2, ECN switched on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FqCoDelConfig {
    /// Number of queues; flows are spread by a hash.
    #[schemars(range(min = 1))]
    pub flows: u16,
    /// Bytes that a queue may send in its turn.
    #[schemars(extend("least" = "64 B", "most" = "1 MB"))]
    #[serde(rename = "quantum_bytes", alias = "quantum")]
    pub quantum: Bytes,
    /// The queueing delay that is acceptable.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "target_ns")]
    pub target: Duration,
    /// Time for which the delay must exceed the target before packets are dropped.
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    #[serde(rename = "interval_ns")]
    pub interval: Duration,
    /// Mark packets that allow it (ECN) instead of dropping them.
    pub ecn: bool,
    /// Limit of all queues together: 10240 packets (§5.2.3) and, as in Linux, 32 MiB. Beyond it, the longest queue
    /// drops packets from its head.
    #[serde(flatten, deserialize_with = "limit")]
    pub limit: Limit,
    /// Seed of the hash.
    pub seed: Seed,
}

impl Default for FqCoDelConfig {
    fn default() -> Self {
        let codel = CoDelConfig::default();
        Self {
            flows: 1024,
            quantum: Bytes(1514),
            target: codel.target,
            interval: codel.interval,
            ecn: true,
            limit: Limit {
                packets: Some(Packets(10_240)),
                bytes: Some(Bytes(32 << 20)),
            },
            seed: Seed::default(),
        }
    }
}

/// Read the limit of a table, or return the default if the table has none.
fn limit<'de, D: serde::Deserializer<'de>>(table: D) -> Result<Limit, D::Error> {
    let limit: Limit = serde::Deserialize::deserialize(table)?;
    if limit == Limit::default() {
        return Ok(FqCoDelConfig::default().limit);
    }
    Ok(limit)
}

/// The list that a flow is in (RFC 8290 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    None,
    New,
    Old,
}

#[derive(Clone, Debug)]
struct Flow<P> {
    line: Line<P>,
    control: Control,
    /// Bytes that the flow may still send in this round.
    deficit: i64,
    list: List,
}

/// The queues of all flows, and the lists of new and old flows by number.
#[derive(Clone, Debug)]
pub(crate) struct FqCoDel<P> {
    config: FqCoDelConfig,
    codel: CoDelConfig,
    flows: Vec<Flow<P>>,
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    level: QueueLevel,
}

impl<P> QueueDiscipline<P> for FqCoDel<P> {
    type Config = FqCoDelConfig;

    fn new(config: FqCoDelConfig, _packet: Option<Duration>, _zero: Time) -> Self {
        let flow = || Flow {
            line: Line::new(),
            control: Control::default(),
            deficit: 0,
            list: List::None,
        };
        Self {
            flows: std::iter::repeat_with(flow)
                .take(usize::from(config.flows.max(1)))
                .collect(),
            codel: CoDelConfig {
                target: config.target,
                interval: config.interval,
                ecn: config.ecn,
                ..CoDelConfig::default()
            },
            config,
            new: VecDeque::new(),
            old: VecDeque::new(),
            level: QueueLevel::default(),
        }
    }

    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        let index = self.hash(item.flow);
        let flow = &mut self.flows[usize::from(index)];
        self.level = self.level.plus(item.size);
        flow.line.push(item);
        if flow.list == List::None {
            flow.list = List::New;
            flow.deficit = quantum(&self.config);
            self.new.push_back(index);
        }
        while !self.config.limit.holds(surcharge.on(self.level)) && self.level.packets.0 > 0 {
            self.drop_from_longest(dropped);
        }
        Ok(())
    }

    /// Run the scheduler of RFC 8290 §4.2.
    fn pop(&mut self, now: Time, dropped: &mut Dropped<P>) -> Option<Item<P>> {
        let quantum = quantum(&self.config);
        loop {
            let from_new = !self.new.is_empty();
            let index = *self.new.front().or(self.old.front())?;
            let flow = &mut self.flows[usize::from(index)];
            if flow.deficit <= 0 {
                flow.deficit += quantum;
                self.make_old(index, from_new);
                continue;
            }
            let before = flow.line.level();
            let others = Bytes(self.level.bytes.0.saturating_sub(before.bytes.0));
            let item = flow
                .control
                .dequeue(now, &self.codel, &mut flow.line, others, dropped);
            let after = flow.line.level();
            self.level.packets.0 -= before.packets.0 - after.packets.0;
            self.level.bytes = others + after.bytes;
            let Some(item) = item else {
                // An empty new flow becomes an old one for a round, so that new flows cannot starve old ones (§4.2).
                if from_new && !self.old.is_empty() {
                    self.make_old(index, true);
                } else {
                    self.list(from_new).pop_front();
                    self.flows[usize::from(index)].list = List::None;
                }
                continue;
            };
            flow.deficit -= item.size.0.min(u64::from(u16::MAX)) as i64; // the longest IP packet
            return Some(item);
        }
    }

    fn remove(&mut self) -> Option<Item<P>> {
        let index = *self.new.front().or(self.old.front())?;
        match self.flows[usize::from(index)].line.pop() {
            Some(item) => {
                self.level = self.level.less(item.size);
                Some(item)
            }
            None => {
                let from_new = !self.new.is_empty();
                self.list(from_new).pop_front();
                self.flows[usize::from(index)].list = List::None;
                self.remove()
            }
        }
    }

    fn level(&self) -> QueueLevel {
        self.level
    }

    fn restart(&mut self, _zero: Time) {
        for flow in &mut self.flows {
            flow.control = Control::default();
            flow.deficit = quantum(&self.config);
        }
        // Empty flows leave the lists; the others keep their order.
        let flows = &mut self.flows;
        for list in [&mut self.new, &mut self.old] {
            list.retain(|&index| {
                let flow = &mut flows[usize::from(index)];
                if flow.line.is_empty() {
                    flow.list = List::None;
                }
                flow.list != List::None
            });
        }
    }
}

impl<P> FqCoDel<P> {
    /// Return the number of the queue of a flow.
    fn hash(&self, flow: u64) -> u16 {
        let mixed = mix(flow ^ mix(self.config.seed.0));
        ((u128::from(mixed) * self.flows.len() as u128) >> 64) as u16
    }

    fn list(&mut self, new: bool) -> &mut VecDeque<u16> {
        if new { &mut self.new } else { &mut self.old }
    }

    /// Move a flow from the head of its list to the end of the old flows.
    fn make_old(&mut self, index: u16, from_new: bool) {
        self.list(from_new).pop_front();
        self.flows[usize::from(index)].list = List::Old;
        self.old.push_back(index);
    }

    /// Drop half of the bytes of the longest queue from its head, but at most [`DROP_BATCH`] packets (RFC 8290 §4.1).
    fn drop_from_longest(&mut self, dropped: &mut Dropped<P>) {
        let length = |flow: &Flow<P>| (flow.line.level().bytes, flow.line.level().packets);
        let longest = self.flows.iter_mut().reduce(|longest, flow| {
            if length(flow) > length(longest) {
                flow
            } else {
                longest
            }
        });
        let Some(longest) = longest else { return };
        let (half, mut bytes, mut drops) = (longest.line.level().bytes.0 / 2, 0, 0);
        while let Some(item) = longest.line.pop() {
            bytes = item.size.0.saturating_add(bytes);
            drops += 1;
            self.level = self.level.less(item.size);
            dropped.push_back((item, DropReason::QueueFull));
            if drops >= DROP_BATCH || bytes >= half {
                break;
            }
        }
        longest.control.strengthen(drops);
    }
}

/// Return the quantum in bytes: at least 256, as in Linux, so that a flow's deficit is filled within few rounds.
fn quantum(config: &FqCoDelConfig) -> i64 {
    config.quantum.0.clamp(256, 1 << 32) as i64
}

/// Hash with the finaliser of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014).
fn mix(key: u64) -> u64 {
    let key = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Tag;

    fn item(flow: u64, packet: u32, size: u64) -> Item<(u64, u32)> {
        Item::new((flow, packet), Bytes(size), Time::ZERO).tagged(Tag {
            flow,
            ..Tag::default()
        })
    }

    fn fill(queue: &mut FqCoDel<(u64, u32)>, flow: u64, packets: u32, size: u64) -> usize {
        let mut dropped = Dropped::new();
        for packet in 0..packets {
            queue
                .adopt(item(flow, packet, size), Surcharge::default(), &mut dropped)
                .unwrap();
        }
        dropped.len()
    }

    fn drain(queue: &mut FqCoDel<(u64, u32)>, packets: usize) -> Vec<u64> {
        let mut dropped = Dropped::new();
        let order = std::iter::from_fn(|| queue.pop(Time::ZERO, &mut dropped));
        order.take(packets).map(|item| item.packet.0).collect()
    }

    #[test]
    fn new_flows_are_served_before_old_flows() {
        let mut queue = FqCoDel::new(FqCoDelConfig::default(), None, Time::ZERO);
        fill(&mut queue, 1, 50, 1500);
        fill(&mut queue, 2, 50, 1500);
        drain(&mut queue, 10); // both are old flows then
        fill(&mut queue, 3, 1, 100);
        assert_eq!(drain(&mut queue, 1), [3]);
        // The new flow sends until its quantum is used; then it is old.
        fill(&mut queue, 3, 40, 100);
        let order = drain(&mut queue, 40);
        let first_other = order.iter().position(|&flow| flow != 3);
        assert_eq!(first_other, Some(15), "16 packets of 100 bytes use up 1514");
        let others = order[15..].iter().filter(|&&flow| flow != 3).count();
        assert!(others >= 2, "{order:?}");
    }

    #[test]
    fn half_of_the_longest_queue_is_dropped_over_the_limit() {
        let mut queue = FqCoDel::new(
            FqCoDelConfig {
                limit: Limit::packets(100),
                ..FqCoDelConfig::default()
            },
            None,
            Time::ZERO,
        );
        assert_eq!(fill(&mut queue, 1, 90, 1000), 0);
        assert_eq!(fill(&mut queue, 2, 10, 1000), 0);
        assert_eq!(
            fill(&mut queue, 2, 1, 1000),
            45,
            "half of the 90 of the other flow"
        );
        assert_eq!(queue.level().packets, Packets(56));
        let order = drain(&mut queue, 200);
        assert_eq!(order.iter().filter(|&&flow| flow == 2).count(), 11);
    }

    #[test]
    fn hashing_spreads_neighbouring_keys() {
        let queue: FqCoDel<()> = FqCoDel::new(FqCoDelConfig::default(), None, Time::ZERO);
        let used: std::collections::HashSet<u16> = (0..1024).map(|key| queue.hash(key)).collect();
        // 1024 random keys use 1 − 1/e of 1024 queues: 647 ± 4 · 9.8.
        assert!((608..=687).contains(&used.len()), "{}", used.len());
    }
}
