//! The accounting of Mahimahi, compared with the algorithm in its source.

use std::collections::VecDeque;
use std::sync::Arc;

use cellbed_link::*;
use proptest::prelude::*;

use crate::arrivals::{MS, in_order};

fn direction(millis: &[u64], queue: Discipline) -> Direction<usize> {
    let trace = Arc::new(Trace::from_millis(millis.iter().copied()).unwrap());
    let config = BottleneckConfig::mahimahi(Schedule::looped(trace)).with_queue(queue);
    Direction::new(vec![config.into()], Time::ZERO)
}

/// Return the end of each packet (arrival in ns, IP length): departure in ms, or `None` if it was dropped.
fn ends(mut direction: Direction<usize>, packets: &[(u64, u64)]) -> Vec<Option<u64>> {
    let mut ends = vec![None; packets.len()];
    for (index, &(arrival, size)) in packets.iter().enumerate() {
        direction.accept(Time::from_nanos(arrival), index, Bytes(size));
    }
    let horizon = packets.last().map_or(0, |packet| packet.0) + 100_000 * MS;
    while let Some(outcome) = direction.poll(Time::from_nanos(horizon)) {
        if outcome.fate == Fate::Delivered {
            assert_eq!(outcome.departed.as_nanos() % MS, 0);
            ends[outcome.packet] = Some(outcome.departed.as_nanos() / MS);
        }
    }
    ends
}

/// `LinkQueue` of Mahimahi's source: all opportunities up to the millisecond of an arrival, then the arrival.
struct LinkQueue<'a> {
    schedule: &'a [u64],
    next: usize,
    base: u64,
    queue: VecDeque<(usize, u64)>,
    in_transit: Option<(usize, u64)>,
    departures: Vec<Option<u64>>,
}

impl LinkQueue<'_> {
    fn rationalize(&mut self, now: u64) {
        while self.base + self.schedule[self.next] <= now {
            let time = self.base + self.schedule[self.next];
            self.next += 1;
            if self.next == self.schedule.len() {
                self.next = 0;
                self.base += self.schedule[self.schedule.len() - 1];
            }
            let mut left = 1504;
            while left > 0 {
                let Some((index, owed)) = self.in_transit.take().or_else(|| self.queue.pop_front())
                else {
                    break;
                };
                if owed > left {
                    self.in_transit = Some((index, owed - left));
                    break;
                }
                left -= owed;
                self.departures[index] = Some(time);
            }
        }
    }
}

fn reference(
    schedule: &[u64],
    limit: (Option<u64>, Option<u64>),
    drop_head: bool,
    packets: &[(u64, u64)],
) -> Vec<Option<u64>> {
    let mut link = LinkQueue {
        schedule,
        next: 0,
        base: 0,
        queue: VecDeque::new(),
        in_transit: None,
        departures: vec![None; packets.len()],
    };
    for (index, &(arrival, size)) in packets.iter().enumerate() {
        link.rationalize(arrival / MS);
        link.queue.push_back((index, size + 4));
        let good = |queue: &VecDeque<(usize, u64)>| {
            limit.0.is_none_or(|limit| queue.len() as u64 <= limit)
                && limit
                    .1
                    .is_none_or(|limit| queue.iter().map(|packet| packet.1).sum::<u64>() <= limit)
        };
        while !good(&link.queue) {
            if drop_head {
                link.queue.pop_front();
            } else {
                link.queue.pop_back();
            }
        }
    }
    link.rationalize(packets.last().map_or(0, |packet| packet.0) / MS + 100_000);
    link.departures
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn departures_are_the_original_s(
        steps in prop::collection::vec((prop_oneof![3 => Just(0), 6 => 1..4u64, 1 => 1..60u64], Just(())), 1..30),
        packets in prop::collection::vec((prop_oneof![3 => Just(0), 3 => 0..MS, 3 => 0..6 * MS, 1 => 0..90 * MS], prop_oneof![Just(1500), 20..200u64, 20..=1500u64]), 1..80),
        limit in (prop::option::of(1..6u64), prop::option::of(1504..9000u64)),
        drop_head: bool,
    ) {
        let schedule: Vec<u64> = in_order(steps).into_iter().map(|(stamp, ())| 1 + stamp).collect();
        let packets = in_order(packets);
        let most = Limit { packets: limit.0.map(Packets), bytes: limit.1.map(Bytes) };
        let queue = if drop_head { Discipline::DropHead(most) } else { Discipline::DropTail(most) };
        let expected = reference(&schedule, limit, drop_head, &packets);
        prop_assert_eq!(ends(direction(&schedule, queue), &packets), expected);
    }
}
