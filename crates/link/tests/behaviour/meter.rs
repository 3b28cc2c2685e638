//! The meter, compared with the packets themselves.

use std::sync::Arc;

use cellbed_link::*;
use proptest::prelude::*;

use crate::arrivals::{MS, in_order, timestamps};

const WIDTH: u64 = 10 * MS;

#[derive(Clone, Debug)]
struct Run {
    millis: Vec<u64>,
    zero: u64,
    /// (arrival, size), and whether the bins are taken after it.
    packets: Vec<(u64, u64, bool)>,
}

fn run() -> impl Strategy<Value = Run> {
    let wait = prop_oneof![4 => Just(0), 4 => 0..3 * MS, 1 => 0..400 * MS];
    let packet = (wait, (1..3000u64, any::<bool>()));
    let packets = prop::collection::vec(packet, 1..60).prop_map(in_order);
    (timestamps(), 0..20 * MS, packets).prop_map(|(millis, zero, packets)| Run {
        millis,
        zero,
        packets: packets
            .into_iter()
            .map(|(at, (size, take))| (zero + at, size, take))
            .collect(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bins_equal_what_the_packets_say(run in run()) {
        let trace = Arc::new(Trace::from_millis(run.millis.iter().copied()).unwrap());
        let queue = Discipline::DropTail(Limit::bytes(6000));
        let loss = LossConfig::Independent { probability: Probability::new(0.1).unwrap(), seed: Seed(1) };
        let stages = vec![
            loss.into(),
            BottleneckConfig::new(Schedule::looped(trace.clone())).with_queue(queue).into(),
            DelayConfig::Fixed(Duration::from_millis(7)).into(),
        ];
        let mut direction = Direction::new(stages, Time::from_nanos(run.zero)).with_meter();
        let mut bins = Vec::new();
        for (index, &(now, size, take)) in run.packets.iter().enumerate() {
            direction.accept(Time::from_nanos(now), index, Bytes(size));
            if take {
                bins.extend(direction.finished_bins(Time::from_nanos(now)));
            }
        }
        let end = run.packets.last().map_or(0, |packet| packet.0) + 3_000 * MS;
        bins.extend(direction.finished_bins(Time::from_nanos(end)));
        let outcomes: Vec<_> = std::iter::from_fn(|| direction.poll(Time::from_nanos(end))).collect();
        prop_assert_eq!(outcomes.len(), run.packets.len());

        prop_assert_eq!(bins.len() as u64, (end - run.zero) / WIDTH);
        for (number, bin) in bins.iter().enumerate() {
            let start = run.zero + number as u64 * WIDTH;
            prop_assert_eq!((bin.start.as_nanos(), bin.end.as_nanos()), (start, start + WIDTH));
            let within = |at: Time| (bin.start..bin.end).contains(&at);
            let sum = |keep: &dyn Fn(&&Outcome<usize>) -> bool| outcomes.iter().filter(keep).map(|outcome| outcome.size).sum::<Bytes>();
            let count = |keep: &dyn Fn(&&Outcome<usize>) -> bool| Packets(outcomes.iter().filter(keep).count() as u64);
            let delivered = |outcome: &&Outcome<usize>| outcome.fate == Fate::Delivered;
            let waits_at = |at: Time| move |outcome: &&Outcome<usize>| delivered(outcome) && outcome.arrived <= at && at < outcome.released;
            let dropped = |reason| move |outcome: &&Outcome<usize>| outcome.fate == Fate::Dropped(reason) && within(outcome.departed);

            prop_assert_eq!(bin.arrived, sum(&|outcome| within(outcome.arrived)));
            prop_assert_eq!(bin.used, sum(&|outcome| delivered(outcome) && within(outcome.released)));
            prop_assert_eq!(bin.queue_full, count(&dropped(DropReason::QueueFull)));
            prop_assert_eq!(bin.lost, count(&dropped(DropReason::Loss)));
            let last = Time::from_nanos(bin.end.as_nanos() - 1);
            prop_assert_eq!(bin.queue.bytes, sum(&waits_at(last)));
            prop_assert_eq!(bin.queue.packets, count(&waits_at(last)));
            prop_assert!(bin.peak >= bin.queue.bytes && bin.peak <= Bytes(6000));
            let position = |at: Time| Duration::from_nanos(at.as_nanos() - run.zero);
            prop_assert_eq!(bin.capacity, Some(trace.capacity(position(bin.start), position(bin.end))));
        }
        let capacity: Bytes = bins.iter().filter_map(|bin| bin.capacity).sum();
        let used: Bytes = bins.iter().map(|bin| bin.used).sum();
        prop_assert!(used <= capacity);
    }
}
