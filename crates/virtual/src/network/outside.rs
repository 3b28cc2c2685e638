//! A network of another program, e.g. of another simulator, in step with the time of this one.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use cellbed_link::{Bytes, Duration, Time};

/// A network that carries the packets of all directions before the stages of the directions.
///
/// Both networks advance in turns: the other one never passes the next event here, and stops at its first departure,
/// because this departure may cause a packet at once. The result is as exact as in one simulator.
pub trait Outside: Debug + Send {
    /// Accept a packet of a direction at `at`, not before the latest time of [`advance`](Self::advance).
    fn send(&mut self, direction: usize, at: Time, number: u64, size: Bytes);

    /// Advance to the first departures, at the latest to `until`. Return the reached time and the numbers of the
    /// packets that depart then.
    fn advance(&mut self, until: Time) -> (Time, Vec<u64>);
}

/// Maximum time until a packet departs; later it counts as lost.
const LOST: Duration = Duration::from_secs(10);

/// The packets in an outside network. A clone uses the same network.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    outside: Arc<Mutex<dyn Outside>>,
    sent: u64,
    inside: BTreeMap<u64, Held>,
}

/// A packet in the outside network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub direction: usize,
    pub slot: u32,
    pub size: Bytes,
    at: Time,
}

impl Edge {
    pub fn new(outside: Arc<Mutex<dyn Outside>>) -> Self {
        Self {
            outside,
            sent: 0,
            inside: BTreeMap::new(),
        }
    }

    pub fn send(&mut self, direction: usize, at: Time, slot: u32, size: Bytes) {
        let held = Held {
            direction,
            slot,
            size,
            at,
        };
        self.inside.insert(self.sent, held);
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        outside.send(direction, at, self.sent, size);
        self.sent += 1;
    }

    /// Advance to the first departures, at the latest to `until`, and without packets not at all. Return the reached
    /// time, the packets that depart then, and the lost ones.
    pub fn advance(&mut self, until: Time) -> Option<(Time, Vec<Held>, Vec<Held>)> {
        let (_, oldest) = self.inside.first_key_value()?;
        let limit = oldest.at + LOST;
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, numbers) = outside.advance(until.min(limit));
        let departed = numbers.iter().filter_map(|it| self.inside.remove(it));
        let departed = departed.collect();
        let mut lost = Vec::new();
        while let Some(oldest) = self.inside.first_entry()
            && oldest.get().at + LOST <= now
        {
            lost.push(oldest.remove());
        }
        Some((now, departed, lost))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use cellbed_link::DelayConfig;
    use cellbed_tcp::Tcp;

    use super::*;
    use crate::{Downloads, Network};

    const DELAY: Duration = Duration::from_millis(20);

    /// A network that delays all packets, and loses some.
    #[derive(Debug, Default)]
    struct Delaying {
        now: Time,
        inside: VecDeque<(Time, u64)>,
        lost: Vec<u64>,
    }

    impl Outside for Delaying {
        fn send(&mut self, _: usize, at: Time, number: u64, _: Bytes) {
            assert!(at >= self.now, "a packet from the past");
            if !self.lost.contains(&number) {
                self.inside.push_back((at + DELAY, number));
            }
        }

        fn advance(&mut self, until: Time) -> (Time, Vec<u64>) {
            let first = self.inside.front().map_or(until, |packet| packet.0);
            self.now = self.now.max(first.min(until));
            let mut numbers = Vec::new();
            while let Some((_, number)) = self.inside.pop_front_if(|it| it.0 <= self.now) {
                numbers.push(number);
            }
            (self.now, numbers)
        }
    }

    fn download(network: Network, sizes: &[u64]) -> Vec<Option<Duration>> {
        let mut downloads = Downloads::new(sizes, Tcp::default());
        let mut network = network;
        network.run(&mut downloads, Time::ZERO, Time::from_millis(60_000));
        downloads.results().iter().map(|it| it.taken()).collect()
    }

    fn outside(lost: &[u64]) -> Network {
        let lost = lost.to_vec();
        let delaying = Delaying {
            lost,
            ..Delaying::default()
        };
        Network::new(Vec::new(), Vec::new()).with_outside(Arc::new(Mutex::new(delaying)))
    }

    #[test]
    fn an_outside_delay_equals_a_stage_of_the_same_delay() {
        let stages = || vec![DelayConfig::Fixed(DELAY).into()];
        let sizes = [1_000, 100_000, 3_000_000];
        let inside = download(Network::new(stages(), stages()), &sizes);
        assert!(inside.iter().all(Option::is_some));
        assert_eq!(download(outside(&[]), &sizes), inside);
    }

    #[test]
    fn a_packet_that_never_departs_is_retransmitted_and_then_forgotten() {
        // The request of the first download: SYN, SYN-ACK, ACK, request.
        let taken = download(outside(&[3]), &[1_000, 100_000]);
        assert!(taken[0] > Some(Duration::from_millis(200)), "{taken:?}");
        assert_eq!(taken[1], download(outside(&[]), &[1_000, 100_000])[1]);
        let mut edge = Edge::new(Arc::new(Mutex::new(Delaying {
            lost: vec![0],
            ..Delaying::default()
        })));
        edge.send(0, Time::ZERO, 7, Bytes(100));
        let (now, departed, lost) = edge.advance(Time::from_millis(60_000)).unwrap();
        assert_eq!(
            (now, departed.len(), lost[0].slot),
            (Time::ZERO + LOST, 0, 7)
        );
        assert!(edge.advance(Time::from_millis(60_000)).is_none());
    }
}
