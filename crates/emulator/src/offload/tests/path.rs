//! Packets through the path model as super-packets and one by one: equal departures, drops and bytes.

use std::sync::Arc;

use cellbed_link::{
    BitRate, BottleneckConfig, Bytes, CoDelConfig, CorruptionConfig, DelayConfig, Direction,
    Discipline, Distribution, DuplicationConfig, Duration, Ecn, Fate, FqCoDelConfig, Limit,
    LossConfig, Outcome, Packets, Probability, RandomDelay, Schedule, Seed, StageConfig, Tag, Time,
    Trace,
};
use proptest::prelude::*;

use super::drafts::{build_all, mark, read_all, written};
use super::reference::{check, wire};
use super::{drafts, flows};
use crate::offload::Vnet;
use crate::outbox::Outbox;
use crate::packet::Header;
use crate::pool::{Pool, Segment};

/// A delay with overtaking packets.
fn overtaking(seed: u64) -> DelayConfig {
    DelayConfig::Random(RandomDelay {
        distribution: Distribution::Uniform {
            mean: Duration::from_micros(700),
            spread: Duration::from_micros(700),
        },
        reorder: true,
        correlation: Probability::default(),
        seed: Seed(seed),
    })
}

const TARGET: Duration = Duration::from_micros(100);
const INTERVAL: Duration = Duration::from_millis(1);

/// CoDel that marks early.
fn marking() -> Discipline {
    Discipline::CoDel(CoDelConfig {
        target: TARGET,
        interval: INTERVAL,
        ecn: true,
        ..CoDelConfig::default()
    })
}

/// All disciplines, with parameters that act within a test. Disciplines not named here have default parameters.
fn disciplines() -> Vec<Discipline> {
    let quick = |discipline| match discipline {
        Discipline::DropTail(_) => Discipline::DropTail(Limit {
            packets: Some(Packets(20)),
            bytes: Some(Bytes(60_000)),
        }),
        Discipline::CoDel(_) => marking(),
        Discipline::FqCoDel(default) => Discipline::FqCoDel(FqCoDelConfig {
            target: TARGET,
            interval: INTERVAL,
            ..default
        }),
        other => other,
    };
    Discipline::all().into_iter().map(quick).collect()
}

/// The stages of two successive directions.
fn stages(seed: u64, choice: u8, queue: &Discipline) -> [Vec<StageConfig>; 2] {
    let schedule = match choice % 4 {
        0 => Schedule::Constant(BitRate(40_000_000)),
        1 => Schedule::Unlimited,
        _ => Schedule::looped(Arc::new(Trace::from_millis([1, 1, 2, 4, 4, 4, 9]).unwrap())),
    };
    let share = |value| Probability::new(value).unwrap();
    let bottleneck = |schedule| BottleneckConfig::new(schedule).with_queue(queue.clone());
    let loss = LossConfig::Independent {
        probability: share(0.1),
        seed: Seed(seed),
    };
    let duplication = DuplicationConfig {
        probability: share(0.1),
        seed: Seed(seed),
    };
    let corruption = |seed| CorruptionConfig {
        probability: share(0.1),
        seed: Seed(seed),
    };
    let mut first = vec![loss.into(), bottleneck(schedule).into()];
    let mut second = vec![bottleneck(Schedule::Constant(BitRate(30_000_000))).into()];
    if choice & 16 != 0 {
        first.push(duplication.into());
    }
    if choice & 32 != 0 {
        first.insert(0, corruption(seed).into());
        second.push(corruption(seed ^ 1).into());
    }
    first.push(match choice & 64 {
        0 => DelayConfig::Fixed(Duration::from_micros(700)).into(),
        _ => overtaking(seed).into(),
    });
    [first, second]
}

/// A packet that arrives at a direction.
type Arrival<P> = (Time, P, Bytes, Tag);

/// Times, fate and size of an outcome.
type Event = (Time, Time, Fate, Bytes);

/// Sends packets through a direction, polled at every event or at arrivals only. `apply` returns the packet after a
/// departure, if any.
fn travel<P: Clone>(
    stages: Vec<StageConfig>,
    arrivals: Vec<Arrival<P>>,
    events: &mut Vec<Event>,
    at_every_event: bool,
    mut apply: impl FnMut(&Outcome<P>) -> Option<(P, Tag)>,
) -> Vec<Arrival<P>> {
    let mut direction = Direction::new(stages, Time::ZERO);
    let mut left = Vec::new();
    let mut take = |direction: &mut Direction<P>, now: Time| {
        while let Some(outcome) = direction.poll(now) {
            events.push((
                outcome.departed,
                outcome.released,
                outcome.fate,
                outcome.size,
            ));
            if let Some((packet, tag)) = apply(&outcome) {
                left.push((outcome.departed, packet, outcome.size, tag));
            }
        }
    };
    for (at, packet, size, tag) in arrivals {
        while let Some(event) = direction
            .next_event()
            .filter(|&it| at_every_event && it <= at)
        {
            take(&mut direction, event);
        }
        take(&mut direction, at);
        direction.accept_tagged(at, packet, size, tag);
    }
    take(&mut direction, Time::from_millis(1_000_000));
    left
}

/// Sends all packets through both directions like the emulator. Returns the bytes that leave, cut like in the kernel.
fn emulate(
    packets: &[(Time, Vec<u8>)],
    stages: [Vec<StageConfig>; 2],
    writings: &[u8],
) -> (Vec<Event>, Vec<Vec<u8>>) {
    let (mut pool, mut outbox) = (Pool::new(1 << 26), Outbox::default());
    let mut arrivals = Vec::new();
    for (at, bytes) in packets {
        for segment in read_all(&mut pool, std::slice::from_ref(bytes)) {
            let tag = pool.tag(segment);
            let size = pool.packet(segment.slot).layout.size(segment.index);
            arrivals.push((*at, segment, Bytes(size as u64), tag));
        }
    }
    let (mut events, mut out) = (Vec::new(), Vec::new());
    for stages in stages {
        arrivals = travel(stages, arrivals, &mut events, false, |outcome| {
            let segment: Segment = pool.apply(outcome)?;
            Some((segment, pool.tag(segment)))
        });
    }
    for ((_, segment, ..), writing) in arrivals.into_iter().zip(writings.iter().cycle()) {
        outbox.push(segment, &pool);
        if *writing == 0 {
            out.extend(written(&mut outbox, &mut pool));
        }
    }
    out.extend(written(&mut outbox, &mut pool));
    out.iter().for_each(|bytes| check(bytes));
    (events, out.iter().flat_map(|bytes| wire(bytes)).collect())
}

/// Like `emulate`, but with plain bytes.
fn reference(
    packets: &[(Time, Vec<u8>)],
    stages: [Vec<StageConfig>; 2],
) -> (Vec<Event>, Vec<Vec<u8>>) {
    let mut arrivals = Vec::new();
    for (at, bytes) in packets {
        for packet in wire(bytes) {
            let tag = Header::parse(&packet).unwrap().tag(&packet);
            let size = Bytes(packet.len() as u64);
            arrivals.push((*at, (packet, tag), size, tag));
        }
    }
    let mut events = Vec::new();
    for stages in stages {
        arrivals = travel(stages, arrivals, &mut events, true, |outcome| {
            let (mut packet, mut tag) = outcome.packet.clone();
            if outcome.fate != Fate::Delivered {
                return None;
            }
            if outcome.marked {
                mark(&mut packet);
                tag.ecn = Ecn::Ce;
            }
            if let Some(bit) = outcome.corrupt_bit {
                packet[bit as usize / 8] ^= 0x80 >> (bit % 8);
            }
            Some(((packet, tag), tag))
        });
    }
    let left = arrivals.into_iter().map(|(_, (packet, _), ..)| packet);
    (events, left.collect())
}

proptest! {
    #[test]
    fn both_modes_give_the_same_departures_drops_and_bytes(
        flow in flows(),
        drafts in proptest::collection::vec((drafts(), 0u64..3_000), 1..12),
        seed in any::<u64>(),
        choice in any::<u8>(),
        writings in proptest::collection::vec(0u8..8, 1..50),
        queue in prop::sample::select(disciplines()),
    ) {
        let (drafts, gaps): (Vec<_>, Vec<_>) = drafts.into_iter().unzip();
        let mut now = Time::ZERO;
        let mut packets = Vec::new();
        for (bytes, gap) in build_all(flow, &drafts).into_iter().zip(gaps) {
            now += Duration::from_micros(gap);
            packets.push((now, bytes));
        }
        let expected = reference(&packets, stages(seed, choice, &queue));
        prop_assert_eq!(emulate(&packets, stages(seed, choice, &queue), &writings), expected.clone());
        // Packets cut and completed by the kernel, as without offload.
        let cut: Vec<(Time, Vec<u8>)> = packets
            .iter()
            .flat_map(|(at, bytes)| wire(bytes).into_iter().map(|packet| (*at, packet)))
            .map(|(at, packet)| (at, [&Vnet::default().to_bytes(), packet.as_slice()].concat()))
            .collect();
        prop_assert_eq!(emulate(&cut, stages(seed, choice, &queue), &writings), expected);
    }
}
