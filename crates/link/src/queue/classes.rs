//! Classes of packets by their DSCP: strict priority, then shares by weight.

use std::num::NonZero;

use crate::schema::JsonSchema;

use super::fifo::Line;
use super::{Dropped, Limit, QueueDiscipline, QueueLevel, Refused, Surcharge};
use crate::packet::Item;
use crate::time::{Duration, Time};

/// Number of DSCPs (RFC 2474 §3), and the most classes.
const DSCPS: usize = 64;

/// The classes of a queue.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassesConfig {
    /// 1 to 64. Those without `weight` go first, in order; the last also has unlisted DSCPs.
    #[schemars(example = serde_json::json!([{"dscp": [46]}, {"dscp": [10], "weight": 3}, {"weight": 1}]))]
    pub classes: Vec<ClassConfig>,
}

/// A class: packets with some DSCPs, which wait in a drop-tail queue.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema,
)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ClassConfig {
    /// DSCPs; only the last class may have none.
    #[schemars(inner(range(max = 63)), example = serde_json::json!([46]))]
    pub dscp: Vec<u8>,
    /// Share of the rate left by strict classes, relative to the other weights.
    #[schemars(example = 3)]
    pub weight: Option<NonZero<u16>>,
    /// Limit of the waiting packets, without the one in service.
    #[serde(flatten)]
    pub limit: Limit,
}

impl Default for ClassesConfig {
    /// Expedited forwarding (RFC 3246) before all other packets.
    fn default() -> Self {
        let urgent = ClassConfig {
            dscp: vec![46],
            ..ClassConfig::default()
        };
        Self {
            classes: vec![urgent, ClassConfig::default()],
        }
    }
}

/// A queue per class. Weighted classes share by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996).
#[derive(Clone, Debug)]
pub(crate) struct Classes<P> {
    config: ClassesConfig,
    lines: Vec<Line<P>>,
    /// Start tag of the head of each class: bytes per weight, 1/65536.
    starts: Vec<u64>,
    /// The virtual time: start tag of the packet served last.
    virtual_time: u64,
}

impl<P> QueueDiscipline<P> for Classes<P> {
    type Config = ClassesConfig;

    fn check(config: &ClassesConfig) -> Result<(), String> {
        let mut seen = [false; DSCPS];
        let number = config.classes.len();
        if !(1..=DSCPS).contains(&number) {
            return Err(format!("{number} classes: write 1 to {DSCPS}"));
        }
        for (index, class) in config.classes.iter().enumerate() {
            if class.dscp.is_empty() && index + 1 < number {
                return Err(format!(
                    "classes[{index}] gets no packets: write its dscp, or put it last, where unlisted DSCPs go"
                ));
            }
            for &dscp in &class.dscp {
                let Some(seen) = seen.get_mut(usize::from(dscp)) else {
                    return Err(format!("DSCP {dscp}: write at most 63"));
                };
                if std::mem::replace(seen, true) {
                    return Err(format!("DSCP {dscp} belongs to two classes: write it once"));
                }
            }
        }
        Ok(())
    }

    fn new(config: ClassesConfig, _packet: Option<Duration>, _zero: Time) -> Self {
        Self {
            lines: config.classes.iter().map(|_| Line::new()).collect(),
            starts: vec![0; config.classes.len()],
            virtual_time: 0,
            config,
        }
    }

    fn adopt(
        &mut self,
        item: Item<P>,
        surcharge: Surcharge,
        _dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        let index = self.class(&item);
        let waiting = Surcharge {
            serving: QueueLevel::default(),
            ..surcharge
        };
        if self.lines[index].is_empty() {
            self.starts[index] = self.starts[index].max(self.virtual_time);
        }
        self.lines[index].admit(&self.config.classes[index].limit, item, waiting)
    }

    fn pop(&mut self, _now: Time, _dropped: &mut Dropped<P>) -> Option<Item<P>> {
        self.remove()
    }

    fn remove(&mut self) -> Option<Item<P>> {
        let index = self.next()?;
        let item = self.lines[index].pop()?;
        if let Some(weight) = self.config.classes[index].weight {
            self.virtual_time = self.starts[index];
            let cost = (item.size.0 << 16) / u64::from(weight.get());
            self.starts[index] = self.starts[index].saturating_add(cost);
        }
        Some(item)
    }

    fn level(&self) -> QueueLevel {
        let levels = self.lines.iter().map(Line::level);
        levels.fold(QueueLevel::default(), QueueLevel::and)
    }

    fn restart(&mut self, _zero: Time) {
        self.starts.fill(0);
        self.virtual_time = 0;
    }

    fn rank(&self, serving: Option<&Item<P>>) -> u32 {
        let next = self.next().into_iter();
        let classes = next.chain(serving.map(|item| self.class(item)));
        let ranks = classes.map(|index| self.class_rank(index));
        ranks.min().unwrap_or_default()
    }
}

impl<P> Classes<P> {
    fn class_rank(&self, index: usize) -> u32 {
        let strict = self.config.classes[index].weight.is_none();
        if strict { index as u32 } else { DSCPS as u32 }
    }

    fn class(&self, item: &Item<P>) -> usize {
        let classes = &self.config.classes;
        let listed = classes
            .iter()
            .position(|class| class.dscp.contains(&item.dscp));
        listed.unwrap_or(classes.len() - 1)
    }

    /// Return the class that is served next: the first strict one with packets, else the one with the lowest start tag.
    fn next(&self) -> Option<usize> {
        let waiting = (0..self.lines.len()).filter(|&index| !self.lines[index].is_empty());
        waiting.min_by_key(|&index| (self.class_rank(index), self.starts[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Tag;
    use crate::units::Bytes;
    use proptest::prelude::*;

    fn queue(table: serde_json::Value) -> Classes<(u8, u32)> {
        let config: ClassesConfig = serde_json::from_value(table).unwrap();
        <Classes<()> as QueueDiscipline<()>>::check(&config).unwrap();
        Classes::new(config, None, Time::ZERO)
    }

    fn push(queue: &mut Classes<(u8, u32)>, dscp: u8, number: u32, size: u64) -> bool {
        let item = Item::new((dscp, number), Bytes(size), Time::ZERO).tagged(Tag {
            dscp,
            ..Tag::default()
        });
        queue
            .adopt(item, Surcharge::default(), &mut Dropped::new())
            .is_ok()
    }

    fn pop(queue: &mut Classes<(u8, u32)>) -> Option<u8> {
        queue.remove().map(|item| item.packet.0)
    }

    #[test]
    fn strict_classes_are_served_in_their_order_and_others_share_the_rest() {
        let mut queue = queue(serde_json::json!({"classes": [
            {"dscp": [10], "weight": 3}, {"dscp": [46]}, {"dscp": [34, 36]}, {"dscp": [8], "weight": 1},
        ]}));
        // DSCP 0 belongs to the last class.
        for (dscp, packets) in [(0, 4), (34, 2), (46, 1), (36, 1)] {
            for number in 0..packets {
                push(&mut queue, dscp, number, 1000);
            }
        }
        assert_eq!(queue.rank(None), 1);
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(order, [46, 34, 34, 36, 0, 0, 0, 0]);
        assert_eq!(queue.rank(None), 0, "an empty queue has no class");
    }

    #[test]
    fn class_that_was_idle_gets_no_arrears() {
        let mut queue =
            queue(serde_json::json!({"classes": [{"dscp": [8], "weight": 1}, {"weight": 1}]}));
        for number in 0..100 {
            push(&mut queue, 8, number, 1000);
        }
        for _ in 0..50 {
            pop(&mut queue);
        }
        for number in 0..10 {
            push(&mut queue, 0, number, 1000);
        }
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).take(20).collect();
        assert_eq!(order.iter().filter(|&&dscp| dscp == 0).count(), 10);
        assert_eq!(order[..10].iter().filter(|&&dscp| dscp == 0).count(), 5);
    }

    #[test]
    fn limit_of_a_class_counts_its_own_packets() {
        let mut queue =
            queue(serde_json::json!({"classes": [{"dscp": [46], "packets": 2}, {"bytes": 3000}]}));
        let admitted =
            |queue: &mut _, dscp| (0..5).filter(|&it| push(queue, dscp, it, 1000)).count();
        assert_eq!((admitted(&mut queue, 46), admitted(&mut queue, 0)), (2, 3));
    }

    #[test]
    fn sizes_beyond_all_packets_do_not_overflow() {
        let mut queue = queue(serde_json::json!({"classes": [{"weight": 1}]}));
        for number in 0..3 {
            push(&mut queue, 0, number, u64::MAX >> 16);
        }
        assert_eq!(std::iter::from_fn(|| pop(&mut queue)).count(), 3);
    }

    #[test]
    fn packet_in_service_gives_its_rank_to_the_queue() {
        let mut queue = queue(serde_json::json!({"classes": [{"dscp": [46]}, {"weight": 1}]}));
        push(&mut queue, 46, 0, 1000);
        push(&mut queue, 0, 0, 1000);
        let serving = queue.remove();
        assert_eq!((queue.rank(serving.as_ref()), queue.rank(None)), (0, 64));
    }

    #[test]
    fn unfit_classes_are_refused() {
        for (table, problem) in [
            (
                serde_json::json!({"classes": []}),
                "0 classes: write 1 to 64",
            ),
            (
                serde_json::json!({"classes": [{"dscp": [64]}]}),
                "DSCP 64: write at most 63",
            ),
            (
                serde_json::json!({"classes": [{"dscp": [1]}, {"dscp": [1]}]}),
                "DSCP 1 belongs to two classes: write it once",
            ),
            (
                serde_json::json!({"classes": [{"dscp": [1]}, {"weight": 2}, {}]}),
                "classes[1] gets no packets: write its dscp, or put it last, where unlisted DSCPs go",
            ),
        ] {
            let config = serde_json::from_value(table).unwrap();
            assert_eq!(
                <Classes<()> as QueueDiscipline<()>>::check(&config),
                Err(problem.into())
            );
        }
    }

    proptest! {
        /// While all classes have packets, the bytes of two classes per weight differ by at most a packet of each
        /// (Goyal et al., theorem 1).
        #[test]
        fn backlogged_classes_share_by_their_weights(
            weights in prop::collection::vec(1..100u16, 2..5),
            sizes in prop::collection::vec(40..1500u64, 400..401),
        ) {
            let classes: Vec<_> = weights.iter().zip(1..).map(|(weight, dscp)| serde_json::json!({"dscp": [dscp], "weight": weight})).collect();
            let mut queue = queue(serde_json::json!({"classes": classes}));
            let number = weights.len();
            for (index, &size) in sizes.iter().enumerate() {
                push(&mut queue, (index % number) as u8 + 1, index as u32, size);
            }
            let mut sent = vec![0.0; number];
            while queue.lines.iter().all(|line| !line.is_empty()) {
                let item = queue.remove().unwrap();
                let class = usize::from(item.packet.0) - 1;
                sent[class] += item.size.0 as f64 / f64::from(weights[class]);
                for (one, a) in sent.iter().zip(&weights) {
                    for (other, b) in sent.iter().zip(&weights) {
                        let bound = 1500.0 / f64::from(*a) + 1500.0 / f64::from(*b);
                        prop_assert!((one - other).abs() <= bound, "{sent:?}");
                    }
                }
            }
        }
    }
}
