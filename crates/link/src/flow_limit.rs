//! A rate limit of each flow, as operators have at the gateway of their core network.

use std::collections::HashMap;

use crate::schema::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::bottleneck::Admission;
use crate::delay::DelayLine;
use crate::packet::{DropReason, Item, Step};
use crate::stage::{Behaviour, Configured};
use crate::time::{Duration, NANOS_PER_SEC, Time};
use crate::units::{BitRate, Bytes, saturate};

/// A token bucket for each flow. Packets whose flow has no tokens wait; packets of other flows pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("text" = "at most {bit_rate} of each flow"))]
pub struct FlowLimitConfig {
    /// Maximum rate of a flow.
    #[serde(rename = "bit_rate", deserialize_with = "positive")]
    #[schemars(example = "1 Gbit/s", extend("least" = "1 kbit/s", "most" = "1000 Gbit/s"))]
    pub rate: BitRate,
    /// Size of a flow's bucket, full at first: it passes at once after a pause.
    #[serde(rename = "burst_bytes")]
    #[schemars(extend("default" = 65_536, "least" = "1500 B", "most" = "1 GB"))]
    pub burst: Bytes,
    /// Maximum length of each flow's queue; '0 B' drops all that is beyond the rate.
    #[serde(rename = "queue_bytes")]
    #[schemars(extend("default" = 1_000_000, "least" = "0 B", "most" = "1 GB"))]
    pub queue: Bytes,
}

fn positive<'de, D: Deserializer<'de>>(rate: D) -> Result<BitRate, D::Error> {
    match BitRate::deserialize(rate)? {
        BitRate(0) => Err(D::Error::custom(
            "a limit of 0 bit/s lets nothing pass; use a rate above 0",
        )),
        rate => Ok(rate),
    }
}

/// The stage. Departures are computed on arrival.
#[derive(Clone, Debug)]
pub(crate) struct FlowLimit<P> {
    config: FlowLimitConfig,
    buckets: HashMap<u64, Bucket>,
    /// Number of buckets above which full buckets are removed.
    most: usize,
    line: DelayLine<Item<P>>,
}

/// The bucket of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Time at which all arrivals would be sent at the limit, in parts of a nanosecond: time × rate, unrounded.
    sent: u128,
    /// The latest departure.
    last: Time,
}

const FEW: usize = 64;

/// Return a size in parts, the unit of [`Bucket::sent`].
fn parts(size: Bytes) -> u128 {
    u128::from(size.0) * 8 * u128::from(NANOS_PER_SEC)
}

impl<P> Configured<FlowLimitConfig> for FlowLimit<P> {
    fn new(config: &FlowLimitConfig, _: Time) -> Self {
        Self {
            config: *config,
            buckets: HashMap::new(),
            most: FEW,
            line: DelayLine::new(true),
        }
    }

    /// Change the limit from `now` on. Waiting packets keep their departure, and buckets their tokens.
    fn change(&mut self, config: &FlowLimitConfig, _: Time, now: Time, _: Duration) {
        let now = u128::from(now.as_nanos());
        let before = now * self.rate();
        self.config = *config;
        let after = now * self.rate();
        for bucket in self.buckets.values_mut() {
            bucket.sent = after.saturating_add(bucket.sent.saturating_sub(before));
        }
    }
}

impl<P> FlowLimit<P> {
    fn rate(&self) -> u128 {
        self.config.rate.0.max(1).into()
    }

    /// Accept a packet; events up to `now` must have been taken.
    pub(crate) fn accept(&mut self, now: Time, item: Item<P>) -> Admission<P> {
        let rate = self.rate();
        let present = u128::from(now.as_nanos()) * rate;
        if self.buckets.len() >= self.most {
            let in_use = |bucket: &Bucket| bucket.sent > present || bucket.last > now;
            self.buckets.retain(|_, bucket| in_use(bucket));
            self.most = FEW.max(2 * self.buckets.len());
        }
        let bucket = self.buckets.entry(item.flow).or_default();
        let sent = bucket.sent.max(present).saturating_add(parts(item.size));
        let waiting = (sent - present).saturating_sub(parts(self.config.burst));
        if waiting > parts(self.config.queue) {
            return Admission::Refused(item, DropReason::QueueFull);
        }
        bucket.sent = sent;
        let wait = Duration::from_nanos(saturate(waiting.div_ceil(rate)));
        bucket.last = bucket.last.max(now + wait);
        if bucket.last == now {
            return Admission::Passed(item);
        }
        self.line.push(bucket.last, item);
        Admission::Queued
    }
}

/// Buckets survive a restart, like packets.
impl<P> Behaviour<P> for FlowLimit<P> {
    fn next_event(&self) -> Option<Time> {
        self.line.next()
    }

    fn step(&mut self, now: Time) -> Option<Step<P>> {
        let item = self.line.pop()?;
        Some(Step::Left(Item {
            released: now,
            ..item
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direction::{Change, Direction};
    use crate::packet::{Fate, Tag};

    fn limit(mbit_s: u64, burst: u64, queue: u64) -> FlowLimitConfig {
        FlowLimitConfig {
            rate: BitRate(mbit_s * 1_000_000),
            burst: Bytes(burst),
            queue: Bytes(queue),
        }
    }

    /// Send packets of 1500 bytes, (ms, flow) each. Return flow, departure in µs and whether delivered, by departure.
    fn sent(mut link: Direction<u64>, packets: &[(u64, u64)]) -> Vec<(u64, u64, bool)> {
        for &(at, flow) in packets {
            let tag = Tag {
                flow,
                ..Tag::default()
            };
            link.accept_tagged(Time::from_millis(at), flow, Bytes(1500), tag);
        }
        let mut found = Vec::new();
        while let Some(due) = link.next_event() {
            while let Some(it) = link.poll(due) {
                let through = it.fate == Fate::Delivered;
                found.push((it.packet, it.departed.as_nanos() / 1000, through));
            }
        }
        found
    }

    #[test]
    fn each_flow_has_the_rate_after_its_burst_and_drops_beyond_its_queue() {
        let link = Direction::new(vec![limit(12, 3000, 3000).into()], Time::ZERO);
        let found = sent(link, &[(0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 2)]);
        let expected = [(1, 0, true), (1, 0, true), (1, 0, false), (2, 0, true)];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [(1, 1000, true), (1, 2000, true)]);
    }

    #[test]
    fn a_bucket_fills_while_its_flow_pauses_and_is_then_forgotten() {
        let mut link: FlowLimit<()> = FlowLimit::new(&limit(12, 3000, 0), Time::ZERO);
        let mut accept = |millis, flow| {
            let item = Item::new((), Bytes(1500), Time::from_millis(millis));
            let tag = Tag {
                flow,
                ..Tag::default()
            };
            let admitted = link.accept(Time::from_millis(millis), item.tagged(tag));
            (matches!(admitted, Admission::Passed(_)), link.buckets.len())
        };
        let passed = [0, 0, 0, 1, 1].map(|at| accept(at, 0).0); // policed: nothing waits
        assert_eq!(passed, [true, true, false, true, false]);
        let most = (0..1000).map(|flow| accept(10 * flow, flow).1).max();
        assert!(most <= Some(FEW));
    }

    #[test]
    fn a_change_of_the_limit_reorders_no_flow() {
        let faster = Change {
            at: Duration::from_millis(2),
            stage: 0,
            config: limit(120, 0, 1_000_000).into(),
        };
        let link = Direction::new(vec![limit(12, 0, 1_000_000).into()], Time::ZERO);
        let link = link.with_changes(vec![faster]).unwrap();
        // Packets waiting at the change depart as before, by 5 ms. The last one has 4500 bytes before it: 0.4 ms.
        let mut packets = vec![(0, 1); 5];
        packets.extend([(2, 1), (6, 1)]);
        let times: Vec<u64> = sent(link, &packets).iter().map(|it| it.1).collect();
        assert_eq!(times, [1000, 2000, 3000, 4000, 5000, 5000, 6100]);
    }
}
