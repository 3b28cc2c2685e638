//! Blocks that fail and are sent again.

use super::channel::purpose;
use super::config::{Harq, RadioConfig};
use super::noise::Noise;
use crate::time::Duration;

/// Retransmissions to come.
#[derive(Clone, Debug)]
pub(super) struct Retransmissions {
    chance: Noise,
    /// Slot and bytes, in order of slots.
    due: Vec<(u64, u64)>,
}

impl Retransmissions {
    pub(super) fn new(config: &RadioConfig) -> Self {
        let own = purpose::own(config.way) + purpose::of_device(config.device);
        Self {
            chance: Noise::new(config.seed, purpose::HARQ + own),
            due: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
    }

    /// Bytes that blocks sent again take from a slot. What was due in slots before `from` has been sent; in those from
    /// there on a cell has served others.
    pub(super) fn taken(&mut self, from: u64, slot: u64) -> u64 {
        let through = self.due.partition_point(|&(due, _)| due <= slot);
        self.due
            .drain(..through)
            .filter(|&(due, _)| due >= from)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// Sends a block of `bytes` in `slot`. Returns how much later than without failure it is there.
    ///
    /// slot_at: the first slot for this direction at or after a span behind the start of `slot`, and that span rounded
    /// up to its start.
    pub(super) fn send(
        &mut self,
        harq: &Harq,
        slot: u64,
        bytes: u64,
        slot_at: impl Fn(Duration) -> Option<(u64, Duration)>,
    ) -> Duration {
        let mut late = Duration::ZERO;
        for attempt in 0..ATTEMPTS {
            let chance = if attempt == 0 { harq.first } else { harq.again };
            // Attempts of one slot lie far from the attempts of the next ones.
            if self.chance.unit(slot ^ (attempt << 48)) >= chance.get() {
                break;
            }
            let lost = attempt + 1 >= u64::from(harq.attempts.max(1));
            let wait = if lost { harq.recovery } else { harq.round_trip };
            let Some((next, start)) = slot_at(late + wait) else {
                break;
            };
            late = start;
            let place = self.due.partition_point(|&(due, _)| due <= next);
            self.due.insert(place, (next, bytes));
            if lost {
                break; // what the layer above sends again is taken to arrive
            }
        }
        late
    }
}

/// More attempts than anybody configures.
const ATTEMPTS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::{Profile, Way};
    use crate::random::Probability;

    fn config(first: f64, again: f64) -> RadioConfig {
        let mut config = Profile::LOWBAND_GOOD.config(Way::Downlink);
        config.harq = Harq {
            first: Probability::new(first).unwrap(),
            again: Probability::new(again).unwrap(),
            round_trip: Duration::from_millis(8),
            attempts: 3,
            recovery: Duration::from_millis(40),
            decode: Duration::ZERO,
        };
        config
    }

    fn grid(slot: u64) -> impl Fn(Duration) -> Option<(u64, Duration)> {
        move |span| {
            let slots = span.as_nanos().div_ceil(1_000_000);
            Some((slot + slots, Duration::from_millis(slots)))
        }
    }

    #[test]
    fn a_block_that_fails_comes_a_round_trip_later_in_place_of_new_bytes() {
        let config = config(1.0, 0.0);
        let mut retransmissions = Retransmissions::new(&config);
        let late = retransmissions.send(&config.harq, 5, 700, grid(5));
        assert_eq!(late, Duration::from_millis(8));
        assert_eq!(retransmissions.taken(12, 12), 0);
        assert_eq!(retransmissions.taken(13, 13), 700);
        assert_eq!(retransmissions.taken(13, 13), 0);
    }

    #[test]
    fn after_the_last_attempt_the_layer_above_takes_over() {
        let config = config(1.0, 1.0);
        let mut retransmissions = Retransmissions::new(&config);
        let late = retransmissions.send(&config.harq, 0, 1, grid(0));
        assert_eq!(late, Duration::from_millis(8 + 8 + 40));
    }

    #[test]
    fn blocks_of_two_devices_fail_independently() {
        let fails = |device| {
            let config = RadioConfig {
                device,
                ..config(0.5, 0.0)
            };
            let mut retransmissions = Retransmissions::new(&config);
            (0..1000)
                .map(|slot| {
                    !retransmissions
                        .send(&config.harq, slot, 1, grid(slot))
                        .is_zero()
                })
                .collect::<Vec<_>>()
        };
        let alike = fails(1)
            .iter()
            .zip(&fails(2))
            .filter(|(a, b)| a == b)
            .count();
        assert!((400..600).contains(&alike), "{alike}");
    }

    #[test]
    fn blocks_fail_as_often_as_asked() {
        let config = config(0.1, 0.0);
        let mut retransmissions = Retransmissions::new(&config);
        let late = (0..100_000)
            .filter(|&slot| {
                !retransmissions
                    .send(&config.harq, slot, 1, grid(slot))
                    .is_zero()
            })
            .count();
        assert!((9_700..10_300).contains(&late), "{late}");
    }
}
