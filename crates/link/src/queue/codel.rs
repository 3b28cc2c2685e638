//! Controlled delay (RFC 8289): packets are dropped or marked on departure, by their waiting time.

use crate::schema::JsonSchema;

use super::fifo::Line;
use super::{Dropped, Limit};
use crate::packet::{DropReason, Item};
use crate::time::{Duration, Time};
use crate::units::{Bytes, MTU};

/// CoDel's parameters. The default follows RFC 8289 §4.2 to §4.5: 5 ms, 100 ms, no limit, no marks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CoDelConfig {
    /// The queueing delay that is acceptable.
    ///
    /// `TARGET` (§4.3): the acceptable delay of a standing queue.
    #[serde(rename = "target_ns")]
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    pub target: Duration,
    /// Time for which the delay must exceed the target before packets are dropped.
    ///
    /// `INTERVAL` (§4.2): about the longest usual round-trip time.
    #[serde(rename = "interval_ns")]
    #[schemars(extend("least" = "1 us", "most" = "10 s"))]
    pub interval: Duration,
    /// Mark packets that allow it (ECN) instead of dropping them.
    ///
    /// The packet that is sent next is marked, as in Linux (`codel_impl.h`); the pseudocode of the RFC has drops only.
    pub ecn: bool,
    /// Maximum length of the queue; the excess is dropped on arrival.
    #[serde(flatten)]
    pub limit: Limit,
}

impl Default for CoDelConfig {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: false,
            limit: Limit::default(),
        }
    }
}

/// The state of the control loop, named as in RFC 8289 §5.2.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

/// Source of packets at one instant.
struct Source<'a, P> {
    now: Time,
    config: &'a CoDelConfig,
    line: &'a mut Line<P>,
    /// Bytes that wait for the same link in other lines.
    elsewhere: Bytes,
    dropped: &'a mut Dropped<P>,
}

/// Result of the RFC's `dodequeue`: the packet, and the permission to drop it.
struct Candidate<P> {
    item: Option<Item<P>>,
    ok_to_drop: bool,
}

impl Control {
    /// Return the packet to send at `now` (RFC 8289 §5.5). elsewhere: bytes in other lines for the link (§4.4).
    pub(crate) fn dequeue<P>(
        &mut self,
        now: Time,
        config: &CoDelConfig,
        line: &mut Line<P>,
        elsewhere: Bytes,
        dropped: &mut Dropped<P>,
    ) -> Option<Item<P>> {
        let mut source = Source {
            now,
            config,
            line,
            elsewhere,
            dropped,
        };
        let mut candidate = self.candidate(&mut source);
        if self.dropping {
            self.dropping = candidate.ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                let marked = source.signal(&mut candidate);
                if !marked {
                    candidate = self.candidate(&mut source);
                    self.dropping = candidate.ok_to_drop;
                }
                if self.dropping {
                    self.drop_next = self.control_law(self.drop_next, config);
                }
                if marked {
                    break;
                }
            }
        } else if candidate.ok_to_drop {
            if !source.signal(&mut candidate) {
                candidate = self.candidate(&mut source);
            }
            self.dropping = true;
            // If dropping ended recently, it resumes with the rate that controlled the queue then.
            let delta = self.count.saturating_sub(self.last_count);
            let recently = self.last_count > 0
                && now.since(self.drop_next)
                    < Duration::from_nanos(config.interval.as_nanos().saturating_mul(16));
            self.count = if delta > 1 && recently { delta } else { 1 };
            self.drop_next = self.control_law(now, config);
            self.last_count = self.count;
        }
        candidate.item
    }

    /// Raise the rate of signals after `drops` elsewhere (`fq_codel_drop` of Linux).
    pub(crate) fn strengthen(&mut self, drops: u32) {
        self.count = self.count.saturating_add(drops);
    }

    /// Return the next packet of the queue, and whether it may be dropped: `dodequeue` (§5.6).
    fn candidate<P>(&mut self, source: &mut Source<'_, P>) -> Candidate<P> {
        let (now, config) = (source.now, source.config);
        let item = source.line.pop();
        // The packet is kept while at most one packet waits behind it (`maxpacket`, §4.1 and §5.3).
        let above = item
            .as_ref()
            .is_some_and(|item| now.since(item.entered) >= config.target && source.backlog() > MTU);
        let mut ok_to_drop = false;
        match (above, self.first_above) {
            (false, _) => self.first_above = None,
            (true, None) => self.first_above = Some(now + config.interval),
            (true, Some(first_above)) => ok_to_drop = now >= first_above,
        }
        Candidate { item, ok_to_drop }
    }

    /// Return the time of the next drop: t + interval / √count (§5.6).
    fn control_law(&self, t: Time, config: &CoDelConfig) -> Time {
        let step = config.interval.as_nanos() as f64 / f64::from(self.count).sqrt();
        t + Duration::from_nanos(step as u64)
    }
}

impl<P> Source<'_, P> {
    /// Return the bytes that wait for the link.
    fn backlog(&self) -> Bytes {
        self.line.level().bytes + self.elsewhere
    }

    /// Mark the packet, or drop it. Return whether it was marked, and so kept.
    fn signal(&mut self, candidate: &mut Candidate<P>) -> bool {
        let marked = self.config.ecn && candidate.item.as_mut().is_some_and(Item::mark);
        if !marked {
            let item = candidate.item.take();
            self.dropped
                .extend(item.map(|item| (item, DropReason::Congestion)));
        }
        marked
    }
}

impl super::fifo::Control for Control {
    type Config = CoDelConfig;

    fn new(_: &CoDelConfig, _: Option<Duration>, _: Time) -> Self {
        Self::default()
    }

    fn limit(config: &CoDelConfig) -> &Limit {
        &config.limit
    }

    fn pop<P>(
        &mut self,
        config: &CoDelConfig,
        line: &mut Line<P>,
        now: Time,
        dropped: &mut Dropped<P>,
    ) -> Option<Item<P>> {
        self.dequeue(now, config, line, Bytes(0), dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, Tag};
    use crate::queue::fifo::Managed;
    use crate::queue::{QueueDiscipline, Surcharge};

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Take every millisecond a packet that has waited 20 ms from a backlog that never shrinks. Return the times of
    /// drops and of marks, in ns.
    fn overload(config: CoDelConfig, ecn: Ecn, millis: u64) -> (Vec<u64>, Vec<u64>) {
        let mut queue = Managed::<_, Control>::new(config, None, Time::ZERO);
        let (mut drops, mut marks, mut dropped) = (Vec::new(), Vec::new(), Dropped::new());
        for now in (20..millis).map(ms) {
            while queue.level().packets.0 < 40 {
                let item =
                    Item::new((), Bytes(1500), now - Duration::from_millis(20)).tagged(Tag {
                        ecn,
                        ..Tag::default()
                    });
                queue
                    .adopt(item, Surcharge::default(), &mut dropped)
                    .unwrap();
            }
            let sent = queue.pop(now, &mut dropped).unwrap();
            drops.extend(dropped.drain(..).map(|_| now.as_nanos() / 1_000_000));
            marks.extend(sent.marked.then(|| now.as_nanos() / 1_000_000));
        }
        (drops, marks)
    }

    /// The times of RFC 8289 §5.3, with drops on the first whole millisecond at or after drop_next.
    fn law(first: u64, until: u64) -> Vec<u64> {
        let (mut next, mut count, mut times) = (first as f64, 1.0f64, vec![first]);
        loop {
            next += 100.0 / count.sqrt();
            if next > until as f64 {
                return times;
            }
            times.push(next.ceil() as u64);
            count += 1.0;
        }
    }

    #[test]
    fn drops_follow_the_control_law_and_marks_of_capable_packets_as_well() {
        let config = CoDelConfig {
            ecn: true,
            ..CoDelConfig::default()
        };
        assert_eq!(
            overload(config.clone(), Ecn::Ect0, 1000),
            (vec![], law(120, 999))
        );
        // First above target at 20 ms, first drop an interval later; then after 100, 70.7, 57.7, 50, 44.7, … ms.
        assert_eq!(law(120, 999)[..6], [120, 220, 291, 349, 399, 444]);
        assert_eq!(overload(config, Ecn::NotEct, 1000), (law(120, 999), vec![]));
    }

    #[test]
    fn a_drop_rate_is_taken_up_again_within_16_intervals() {
        let config = CoDelConfig::default();
        for (pause, spacing) in [(500, 25), (3000, 100)] {
            let mut control = Control {
                // 17 drops, the last of them due at 1000 ms; then the queue emptied
                count: 17,
                last_count: 1,
                drop_next: ms(1000),
                ..Control::default()
            };
            let mut line = Line::new();
            let (start, mut drops) = (1000 + pause, Vec::new());
            for now in start..start + 300 {
                while line.level().packets.0 < 10 {
                    line.push(Item::new((), Bytes(1500), ms(now - 20)));
                }
                let mut dropped = Dropped::new();
                control.dequeue(ms(now), &config, &mut line, Bytes(0), &mut dropped);
                drops.extend(dropped.iter().map(|_| now));
            }
            assert_eq!(drops[0], start + 100);
            assert_eq!(drops[1], start + 100 + spacing, "100 / √16 or 100 ms");
        }
    }

    #[test]
    fn a_burst_shorter_than_an_interval_and_a_last_packet_pass() {
        let mut queue = Managed::<_, Control>::new(CoDelConfig::default(), None, Time::ZERO);
        let mut dropped = Dropped::new();
        for _ in 0..90 {
            queue
                .adopt(
                    Item::new((), Bytes(1500), ms(0)),
                    Surcharge::default(),
                    &mut dropped,
                )
                .unwrap();
        }
        for now in 1..=90 {
            assert!(queue.pop(ms(now), &mut dropped).is_some());
        }
        // never more than an MTU behind the packet, however long it waited
        for now in (1000..5000).step_by(100) {
            for _ in 0..2 {
                queue
                    .adopt(
                        Item::new((), Bytes(1500), ms(now - 500)),
                        Surcharge::default(),
                        &mut dropped,
                    )
                    .unwrap();
            }
            while queue.pop(ms(now), &mut dropped).is_some() {}
        }
        assert!(dropped.is_empty());
    }

    #[test]
    fn a_queue_that_drains_ends_the_dropping() {
        let mut control = Control {
            dropping: true,
            first_above: Some(ms(0)),
            drop_next: ms(10),
            count: 3,
            ..Control::default()
        };
        let mut line: Line<char> = Line::new();
        for packet in ['a', 'b', 'c', 'd'] {
            line.push(Item::new(packet, Bytes(1000), ms(0)));
        }
        let mut dropped = Dropped::new();
        let sent = control.dequeue(
            ms(200),
            &CoDelConfig::default(),
            &mut line,
            Bytes(0),
            &mut dropped,
        );
        // a and b are dropped; c has only 1000 bytes behind it, which ends the dropping
        assert_eq!(sent.map(|item| item.packet), Some('c'));
        assert_eq!(dropped.len(), 2);
        assert!(!control.dropping && control.first_above.is_none());
        assert_eq!(control.count, 5, "remembered for the next time");
    }

    #[test]
    fn what_waits_in_other_lines_counts_as_backlog() {
        let config = CoDelConfig::default();
        let drops = |elsewhere| {
            let (mut control, mut line) = (Control::default(), Line::new());
            let mut dropped = Dropped::new();
            for now in 20..400 {
                line.push(Item::new((), Bytes(1500), ms(now - 20)));
                control.dequeue(ms(now), &config, &mut line, elsewhere, &mut dropped);
                line.push(Item::new((), Bytes(1500), ms(now - 20)));
                line.pop();
            }
            dropped.len()
        };
        assert_eq!(
            drops(Bytes(1500)),
            0,
            "the packet is the last but one of the link"
        );
        assert!(drops(Bytes(1501)) > 0);
    }
}
