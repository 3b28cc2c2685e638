//! Mahimahi's CoDel, which sends the packet that it has decided to drop and drops those behind.

use crate::schema::JsonSchema;

use super::super::fifo::Line;
use super::super::{Dropped, Limit, QueueDiscipline, QueueLevel, Refused, Surcharge};
use super::at_least_a_millisecond;
use super::{LARGEST, level, millis, push_within, whole_millis};
use crate::outcome::DropReason;
use crate::packet::Item;
use crate::time::{Duration, Time};

/// CoDel of `mm-link`. It differs from RFC 8289: the packet whose sojourn time calls for a drop is sent and the one
/// behind it is dropped in its place (an inner variable hides the outer one), all times are whole milliseconds, and the
/// spacing of drops is rounded down to them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MahimahiCoDelConfig {
    /// The least sojourn time that is acceptable as a standing queue; whole milliseconds of it count.
    #[serde(rename = "target_ns")]
    pub target: Duration,
    /// Time that the sojourn time must have stayed above the target, in whole milliseconds.
    #[serde(rename = "interval_ns")]
    pub interval: Duration,
    /// Maximum length of the queue, with 4 bytes more for each packet; the excess is dropped on arrival.
    #[serde(flatten)]
    pub limit: Limit,
}

impl Default for MahimahiCoDelConfig {
    /// The times of RFC 8289 and no limit; `mm-link` itself has no defaults.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit: Limit::default(),
        }
    }
}

/// The queue; times in ms since the start of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct CoDel<P> {
    config: MahimahiCoDelConfig,
    line: Line<P>,
    zero: Time,
    control: Control,
}

#[derive(Clone, Copy, Debug, Default)]
struct Control {
    first_above: Option<u64>,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl<P> QueueDiscipline<P> for CoDel<P> {
    type Config = MahimahiCoDelConfig;

    fn check(config: &MahimahiCoDelConfig) -> Result<(), String> {
        at_least_a_millisecond("target_ns", config.target)?;
        at_least_a_millisecond("interval_ns", config.interval)
    }

    fn new(config: MahimahiCoDelConfig, _packet: Option<Duration>, zero: Time) -> Self {
        Self {
            config,
            line: Line::new(),
            zero,
            control: Control::default(),
        }
    }

    fn restart(&mut self, zero: Time) {
        self.zero = zero;
        self.control = Control::default();
    }

    fn adopt(
        &mut self,
        item: Item<P>,
        _surcharge: Surcharge,
        _dropped: &mut Dropped<P>,
    ) -> Result<(), Refused<P>> {
        push_within(&self.config.limit, &mut self.line, item)
    }

    fn remove(&mut self) -> Option<Item<P>> {
        self.line.pop()
    }

    fn level(&self) -> QueueLevel {
        self.line.level()
    }

    fn pop(&mut self, at: Time, dropped: &mut Dropped<P>) -> Option<Item<P>> {
        let now = millis(at, self.zero);
        let (sent, may_drop) = self.take(now)?;
        if self.control.dropping {
            self.control.dropping = may_drop;
            while self.control.dropping && now >= self.control.drop_next {
                let still_above = self.drop_next_behind(now, dropped);
                self.control.count = self.control.count.saturating_add(1);
                self.control.dropping = still_above;
                if still_above {
                    self.control.drop_next = self.spaced(self.control.drop_next);
                }
            }
        } else if may_drop {
            self.drop_next_behind(now, dropped);
            let control = &mut self.control;
            control.dropping = true;
            let recently = now
                .checked_sub(control.drop_next)
                .is_some_and(|since| since < whole_millis(self.config.interval).saturating_mul(16));
            let delta = control.count.wrapping_sub(control.last_count);
            control.count = if delta > 1 && recently { delta } else { 1 };
            self.control.drop_next = self.spaced(now);
            self.control.last_count = self.control.count;
        }
        Some(sent)
    }
}

impl<P> CoDel<P> {
    /// The head, and whether the queue has been too long for an interval.
    fn take(&mut self, now: u64) -> Option<(Item<P>, bool)> {
        let item = self.line.pop()?;
        let sojourn = now.saturating_sub(millis(item.entered, self.zero));
        let above = !self.line.is_empty()
            && sojourn >= whole_millis(self.config.target)
            && level(&self.line).bytes.0 > LARGEST;
        let control = &mut self.control;
        let mut may_drop = false;
        match (above, control.first_above) {
            (false, _) => control.first_above = None,
            (true, None) => {
                control.first_above = Some(now.saturating_add(whole_millis(self.config.interval)));
            }
            (true, Some(first_above)) => may_drop = now >= first_above,
        }
        Some((item, may_drop))
    }

    /// Drops what is at the head now and returns whether the queue was still too long with that packet.
    fn drop_next_behind(&mut self, now: u64, dropped: &mut Dropped<P>) -> bool {
        let Some((item, may_drop)) = self.take(now) else {
            return false;
        };
        dropped.push_back((item, DropReason::Congestion));
        may_drop
    }

    /// `from` + interval / √count, rounded down.
    fn spaced(&self, from: u64) -> u64 {
        let interval = whole_millis(self.config.interval) as f64;
        from.saturating_add((interval / f64::from(self.control.count).sqrt()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn queue() -> CoDel<u64> {
        CoDel::new(
            MahimahiCoDelConfig {
                target: Duration::from_millis(5),
                interval: Duration::from_millis(100),
                limit: Limit::default(),
            },
            None,
            Time::ZERO,
        )
    }

    fn item(number: u64, entered: u64) -> Item<u64> {
        Item::new(number, Bytes(1500), ms(entered))
    }

    fn push(queue: &mut CoDel<u64>, item: Item<u64>) -> Result<(), Refused<u64>> {
        queue.adopt(item, Surcharge::default(), &mut Dropped::new())
    }

    #[test]
    fn the_late_packet_is_sent_and_those_behind_it_are_dropped() {
        let mut queue = queue();
        (0..500).for_each(|number| push(&mut queue, item(number, 0)).unwrap());
        let (mut sent, mut lost) = (Vec::new(), Vec::new());
        for now in 10..400 {
            let mut dropped = Dropped::new();
            sent.push(queue.pop(ms(now), &mut dropped).unwrap().packet);
            lost.extend(dropped.into_iter().map(|(item, _)| (now, item.packet)));
        }
        // Above target from 10 ms on. At 110 ms packet 100 is late: it is sent and 101 is dropped. The next drops are
        // due 100 / √1, 100 / √2 … ms on, rounded down: 210, 280, 337, 387. What is dropped is behind the one sent
        // then.
        assert_eq!(
            lost,
            [(110, 101), (210, 202), (280, 273), (337, 331), (387, 382)]
        );
        assert_eq!(sent[100..102], [100, 102]);
    }

    #[test]
    fn a_packet_alone_or_with_one_behind_is_never_dropped() {
        let mut queue = queue();
        let mut dropped = Dropped::new();
        for now in (1000..5000).step_by(50) {
            push(&mut queue, item(now, now - 500)).unwrap();
            push(&mut queue, item(now + 1, now - 500)).unwrap(); // 1504 bytes behind the first
            while queue.pop(ms(now), &mut dropped).is_some() {}
        }
        assert!(dropped.is_empty());
    }

    #[test]
    fn limits_count_the_header() {
        let config = MahimahiCoDelConfig {
            limit: Limit {
                packets: None,
                bytes: Some(Bytes(3007)),
            },
            ..queue().config
        };
        let mut queue = CoDel::new(config, None, Time::ZERO);
        assert!(push(&mut queue, item(0, 0)).is_ok());
        assert!(push(&mut queue, item(1, 0)).is_err(), "3008 bytes");
    }
}
